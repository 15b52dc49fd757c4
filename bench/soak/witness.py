"""What a real Slurm, its accounting, the agent and the scripts of stages say of a soak, as the invariants take it."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from soak.evidence import holder_of
from soak.invariants import Act, Asked, Event, Held, Kind, Seen
from soak.load import Rigid, WorkflowPlan
from soak.site import OWNER, Site

__all__ = ["Handed", "Known", "Witness"]


@dataclass
class Handed:
    plan: WorkflowPlan
    file: Path
    run: int | None = None


@dataclass
class Known:
    """What was put in, by the names of jobs."""

    handed: list[Handed] = field(default_factory=list)
    rigid: dict[str, Rigid] = field(default_factory=dict)
    malleable: set[str] = field(default_factory=set)


class Witness:
    """Asks them all. `ledger` is what the scripts write."""

    def __init__(self, place: Site, known: Known, ledger: Path, began: float) -> None:
        self._site = place
        self._known = known
        self._ledger = ledger
        self._began = began

    def asked(self) -> list[Asked]:
        # From the state file: `status` shows the latest ones only.
        with self._state() as database:
            states = [json.loads(text) for (text,) in database.execute("SELECT state FROM runs WHERE kind='workflow'")]
        said = {state["workflow"]["name"]: state for state in states}
        found = []
        for one in self._known.handed:
            workflow = one.plan.workflow
            run = said.get(workflow.name, {})
            after = {s.name: s.after for s in workflow.stages}
            phase, why = str(run.get("phase", "")), str(run.get("why") or "")
            found.append(Asked(workflow.name, OWNER, after, phase, why, one.plan.fails))
        return found

    def explanations(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for one in self._known.handed:
            subject = f"workflow {one.run}"
            said = self._site.ask("explain", subject=subject)
            found[subject] = None if said is None else len(said)
        return found

    def held(self) -> list[Held]:
        """Nodes that are not free, once Slurm has had a moment to clear up."""
        for _ in range(30):
            rows = [line.split() for line in self._site.slurm("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
            held = [Held(node, None, state) for node, state in rows if state not in ("idle", "planned")]
            if not held and rows:
                break
            time.sleep(1)
        return held

    def journal(self) -> tuple[list[Act], list[tuple[str, str, float]]]:
        """What the agent asked Slurm for in all its lives, and what of it is open."""
        verbs = {"change": "update", "extend": "update"}
        acts, still_open = [], []
        with self._state() as database:
            for verb, subject, text, state, opened in database.execute(
                "SELECT verb, subject, payload, state, opened FROM intents"
            ):
                payload = json.loads(text)
                job = payload.get("job") or payload.get("resizer")
                if job is None and verb == "shrink":
                    job = subject.removeprefix("job ")
                if job is not None:
                    acts.append(Act(verbs.get(verb, verb), int(job), opened))
                if state == "open":
                    still_open.append((verb, subject, opened))
        return acts, still_open

    def _state(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(f"file:{self._site.state}/penstock.db?mode=ro", uri=True, timeout=10))

    def tracebacks(self) -> list[str]:
        """Exceptions in the log that the agent did not foresee."""
        wrong = []
        for line in self._site.log.read_text(errors="replace").splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                if line.startswith("Traceback"):
                    wrong.append("the agent's log has a traceback")
                continue
            if isinstance(said, dict) and (text := str(said.get("exception", ""))):
                kind = text.strip().splitlines()[-1]
                if not kind.startswith(("penstock.errors.StoreError", "penstock.errors.NotNow")):
                    wrong.append(f"the agent did not foresee: {said.get('event')}: {kind}")
        return wrong[:10]

    def events(self) -> list[Event]:
        if not self._ledger.exists():
            return []
        rows = [line.split() for line in self._ledger.read_text().splitlines()]
        return [Event(run, stage, int(job), what, float(at)) for run, stage, job, what, at in rows]

    def _rows(self) -> list[list[str]]:
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self._began - 60))
        fields = "JobIDRaw,User,State,Start,End,NNodes,JobName"
        text = self._site.slurm("sacct", "-a", "-X", "-D", "-n", "-P", "-S", since, "-o", fields)
        rows = [line.split("|", 6) for line in text.splitlines() if line.count("|") >= 6]
        queued = set(self._site.slurm("squeue", "-h", "-a", "-o", "%A").split())
        for row in rows:
            # Of a resizer that was merged accounting says RESIZING until the controller is restarted. Whether one still
            # holds nodes is what the controller knows.
            if holder_of(row[6]) is not None and row[0] not in queued:
                row[2] = "COMPLETED"
        return rows

    def accounted(self) -> bool:
        rows = {int(r[0]): r[2].split()[0] for r in self._rows()}
        alive = {"RUNNING", "PENDING", "REQUEUED", "SUSPENDED"}
        left = [j for j, state in rows.items() if state in alive]
        return bool(rows) and not left

    def accounting(self) -> list[Seen]:
        roles = {login: role for role, login in self._site.cluster.users.items()}
        names = {str(h.run): h.plan.workflow.name for h in self._known.handed}
        found = []
        for number, user, state, start, end, nodes, name in self._rows():
            kind, run, unit, of = Kind.BYSTANDER, "", "", None
            wanted = int(nodes)
            if (parent := holder_of(name)) is not None:
                kind, of = Kind.HOLDER, parent
            elif name.startswith("penstock."):
                parts = name.split(".", 4)
                kind, run, unit = Kind.STAGE, names.get(parts[1].split("-")[0], f"run {parts[1]}"), parts[4]
            elif name in self._known.malleable:
                kind = Kind.MALLEABLE
            elif name in self._known.rigid:
                wanted = self._known.rigid[name].nodes
            found.append(
                Seen(
                    int(number),
                    roles.get(user, user),
                    kind,
                    state.split()[0],
                    _time(start),
                    _time(end),
                    run,
                    unit,
                    of,
                    wanted,
                    int(nodes),
                )
            )
        return found


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
