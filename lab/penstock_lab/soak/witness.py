"""What a real Slurm, its accounting, the agent and the scripts of stages say of a soak, as the invariants take it."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from penstock.workflow.scripts import read_job_name
from penstock_lab.soak.bounds import Entry, Record, Row
from penstock_lab.soak.commands import SLOT_OF_RUN, USERS, UserCommands
from penstock_lab.soak.evidence import holder_of
from penstock_lab.soak.invariants import Act, Asked, Event, Held, Kind, Seen
from penstock_lab.soak.load import Rigid, WorkflowPlan
from penstock_lab.soak.site import OPERATOR, OWNER, Site

__all__ = ["Handed", "Known", "Witness", "held", "length", "tracebacks"]

_NO_FILE = 7
_BOOKS = {"agent": (OWNER, "penstock.db"), **{who: (who, "acts.db") for who in USERS}}
"""Whose file each journal is: the agent's, and those of the commands of each user."""


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

    def __init__(self, place: Site, known: Known, commands: UserCommands, ledger: Path, began: float) -> None:
        self._site = place
        self._commands = commands
        self._known = known
        self._ledger = ledger
        self._began = began

    def asked(self) -> list[Asked]:
        # From the state file: `status` shows the latest ones only.
        with self._state() as database:
            states = [
                json.loads(text) for (text,) in database.execute("SELECT state FROM runs WHERE submitter='agent'")
            ]
        said = {state["name"]: state for state in states}
        found = []
        for one in self._known.handed:
            workflow = one.plan.workflow
            run = said.get(workflow.name, {})
            after = {s.name: s.after for s in workflow.stages}
            phase, why = str(run.get("phase", "")), str(run.get("why") or "")
            found.append(Asked(workflow.name, OWNER, after, phase, why, one.plan.fails))
        return [*found, *self._guided(), *self._reserved()]

    def _guided(self) -> list[Asked]:
        """Those whose submission was never confirmed need not be known to the agent."""
        rows = self._commands.query(OWNER, "penstock.db", "SELECT state FROM runs WHERE submitter='owner'")
        said = {state["name"]: state for (text,) in rows if (state := json.loads(text))}
        found = []
        for one in self._commands.guided:
            state = said.get(one.name)
            phase, why = ("", "") if state is None else (str(state["phase"]), str(state["why"] or ""))
            if one.given_up and state is None:
                phase = "cancelled"
            after = one.after if one.whole else {}
            found.append(Asked(one.name, OWNER, after, phase, why, given_up=one.given_up))
        return found

    def _reserved(self) -> list[Asked]:
        """As the operator's ledger has them: one that is not there had no slots. One may fail by its slots."""
        rows = self._commands.query(OPERATOR, "ledger.db", "SELECT state, final FROM runs")
        said = {state["workflow"]["name"]: (state, final) for text, final in rows if (state := json.loads(text))}
        found = []
        for one in self._commands.reserved:
            phase, why = "cancelled", "it had no slots"
            if one.name in said:
                state, final = said[one.name]
                standings = {stage["phase"] for stage in state["stages"]}
                phase = ("completed" if standings == {"done"} else "failed") if final else "active"
                why = ", ".join(sorted(standings))
            found.append(Asked(one.name, OPERATOR, one.after, phase, why, given_up=True))
        return found

    def look(self) -> list[Row]:
        """All jobs as one look at the queue has them."""
        roles = {login: role for role, login in self._site.cluster.users.items()}
        text = self._site.slurm(
            "squeue", "-h", "-a", "-O", "JobArrayID:|,JobID:|,UserName:|,State:|,NumNodes:|,TimeLimit:"
        )
        found = []
        for line in text.splitlines():
            _, job, user, state, nodes, limit = (word.strip() for word in line.split("|"))
            found.append(Row(int(job), roles.get(user, user), state, int(nodes), length(limit)))
        return found

    def entries(self) -> list[Entry]:
        """All acts of the agent and of the commands, as their journals have them."""
        found = []
        for book, (who, name) in _BOOKS.items():
            sql = "SELECT id, verb, subject, state, opened, closed FROM intents"
            found += [Entry(book, *row) for row in self._commands.query(who, name, sql)]
        return found

    def records(self) -> tuple[list[Record], list[str]]:
        """The acts in the audit trails, as `penstock audit` tells them; and what `--verify` finds wrong."""
        found, wrong = [], []
        for who in USERS:
            done = self._site.penstock(who, "audit", "--last", "0", "--json")
            if done.returncode == _NO_FILE:
                continue  # who has done nothing has none; what is missing else is seen
            if done.returncode:
                wrong.append(f"penstock audit of {who} ended with {done.returncode}: {done.stderr[-300:]}")
                continue
            for record in json.loads(done.stdout)["records"]:
                details = record.get("details") or {}
                if record["kind"] == "act" and "intent" in details:
                    book = who if record["door"] == "command" else "agent"
                    found.append(Record(book, int(details["intent"]), record["verb"], record["outcome"]))
            checked = self._site.penstock(who, "audit", "--verify")
            if checked.returncode:
                said = (checked.stdout + checked.stderr)[-600:]
                wrong.append(f"penstock audit --verify of {who} ended with {checked.returncode}: {said}")
        return found, wrong

    def reservations(self) -> list[str]:
        """Their names."""
        lines = self._site.slurm("scontrol", "-o", "show", "reservations").splitlines()
        return [line.split()[0].partition("=")[2] for line in lines if line.startswith("ReservationName=")]

    def explanations(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for one in self._known.handed:
            subject = f"workflow {one.run}"
            said = self._site.ask("explain", subject=subject)
            found[subject] = None if said is None else len(said)
        return found

    def journal(self, book: str) -> tuple[list[Act], list[tuple[str, str, float]]]:
        """What a book's acts asked Slurm for, and what of it is open."""
        verbs = {"change": "update", "extend": "update", "repoint": "update", "put off": "update"}
        acts, still_open = [], []
        who, name = _BOOKS[book]
        sql = "SELECT verb, subject, payload, state, opened FROM intents"
        for verb, subject, text, state, opened in self._commands.query(who, name, sql):
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
        guided = {one.name for one in self._commands.guided}
        found = []
        for number, user, state, start, end, nodes, name in self._rows():
            kind, run, unit, of = Kind.BYSTANDER, "", "", None
            wanted = int(nodes)
            if (parent := holder_of(name)) is not None:
                kind, of = Kind.HOLDER, parent
            elif name.startswith("penstock.bag."):
                kind, run = Kind.BAG, f"{roles.get(user, user)}.{name.rpartition('.')[0]}"
            elif name in self._commands.slots:
                kind = Kind.SLOT
            elif (slot := SLOT_OF_RUN.match(name)) is not None:
                kind, run, unit = Kind.RESERVED, slot[1], slot[2]
            elif (said := read_job_name(name)) is not None:
                kind, run, unit = Kind.STAGE, names.get(said.run.split("-")[0], f"run {said.run}"), said.stage
            elif name.split(".")[0] in guided:
                kind, run, unit = Kind.GUIDED, *name.split(".", 1)
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


def held(place: Site) -> list[Held]:
    """Nodes that are not free, once Slurm has had a moment to clear up."""
    for _ in range(30):
        rows = [line.split() for line in place.slurm("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
        found = [Held(node, None, state) for node, state in rows if state not in ("idle", "planned")]
        if not found and rows:
            break
        time.sleep(1)
    return found


def tracebacks(log: Path) -> list[str]:
    """Exceptions in the log that the agent did not foresee."""
    wrong = []
    for line in log.read_text(errors="replace").splitlines():
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


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def length(text: str) -> float:
    """A time limit as squeue has it, in seconds."""
    if text == "UNLIMITED":
        return math.inf
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds + 86400 * float(days or 0)
