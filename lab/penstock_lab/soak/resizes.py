"""The soak of resizes: ten MPI programs are resized at random, by companions, while everything around them breaks.

A node is killed before a program uses it (it is idle, or its companion is only being started), and then the program has
to go on; or it is one that the program uses, and then the program may end, and must leave nothing behind.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.slurm.parse import expand_hosts
from penstock_lab.cluster import Cluster, ClusterSpec
from penstock_lab.soak import invariants
from penstock_lab.soak.agenda import Agenda
from penstock_lab.soak.evidence import holder_of
from penstock_lab.soak.invariants import Kind, Memory, Seen
from penstock_lab.soak.mishaps import Mishaps
from penstock_lab.soak.random_policy import installed
from penstock_lab.soak.real import Chances
from penstock_lab.soak.site import OWNER, Mood, Site, agents_settings, site_on
from penstock_lab.soak.solver import End, Risk, Solver, ended, lost_by
from penstock_lab.soak.virtual import Report
from penstock_lab.soak.witness import held, tracebacks
from penstock_lab.soak.world import Violated

__all__ = ["soak"]

_JOBS: Final = 10
_MOST: Final = 4  # nodes of each: there is room for all at their largest
# With ten MPI programs on few cores a slurmd that is asked may leave out a batch script of its own, whose job slurmctld
# then ends as if its node had failed. So nodes are asked rarely.
_SPEC: Final = ClusterSpec(nodes=_JOBS * _MOST, slurmd_timeout=1800)
_FIELDS: Final = ((192, 128), (96, 64), (130, 50))
_SWEEPS: Final = (600, 1200, 2400)
_SHORTEST: Final = 120
_PAUSE: Final = 0.5  # s of each sweep: forty ranks of MPI that wait for each other keep two cores busy by themselves
_CALM: Final = 2400.0
_ORPHAN: Final = 300.0
_OFTEN: Final = 10_000  # submissions an hour
_GROWTH, _LONG, _MOST_MEMORY = 10e6, 3600.0, 150e6  # bytes a day; s; bytes
_LOOK: Final = 3.0  # s between two looks at the queue
_ENDED: Final = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
)
_NAMES: Final = re.compile(r"\bn\d+(,n\d+)*\b|\b\d+\b")  # of nodes and jobs, in what is counted
_UNUSED: Final = ("joining", "offered")
_WRITTEN: Final = 2.0  # s between a look at the agent's state and what was done upon it
_DEAD: Final = 2.0  # s within which a program has heard that new processes were killed
_KILLED: Final = 8.0  # the same where Slurm kills them: Slurm's KillWait (5 s), and as much as it takes


def _settings(cluster: Cluster) -> dict[str, dict[str, Any]]:
    mine = agents_settings(cluster)
    mine["agent"] |= {"interval": 0.5, "idle_interval": 0.5}
    mine["slurm"] |= {
        "min_interval": 0.3,
        "timeout": 30,
        "submissions_per_hour": _OFTEN,
        "user_submissions_burst": _OFTEN,
        "user_submissions_per_hour": _OFTEN,
    }
    mine["dmr"] |= {"policy": "random", "cooldown": 0, "accept_timeout": 60}
    mine["malleable"] = {"backend": "companion"}
    return {OWNER: mine}


class _Resizes:
    def __init__(self, place: Site, chances: Chances, seed: int, report: Report, tell: Callable[[str], None]) -> None:
        self.site = place
        self.chances = chances
        self.report = report
        self.tell = tell
        self.draw = random.Random(f"resizes {seed}")
        self.counts: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=600)
        self.solvers: list[Solver] = []
        self._number = count(1)
        self._began = time.time()
        self._until = self._began + 60 * chances.minutes
        self.agenda = Agenda(self.draw, self._until)
        self.mishaps = Mishaps(place, self.draw, self.counts, self.event)
        self._environment: dict[str, str] = {}
        self._gone: dict[str, Callable[[str], None]] = {}  # nodes, and how they come back
        self._ambush: Callable[[dict[str, Any], list[str]], None] | None = None
        self._looked = self._told = 0.0

    def event(self, text: str) -> None:
        self.last.append(f"{time.time() - self._began:8.1f} s  {text}")

    def run(self) -> None:
        """The storm and the calm. Raises `Violated`."""
        self.site.launch()
        self._wait(lambda: self.site.ask("ping") is not None, 120, "the agent does not answer")
        self._environment = self.site.ask("env")
        for mean, what in (
            (40.0, self.mishaps.weather),
            (150.0, self._idle_node_dies),
            (30.0, self._lay_ambush),
            (900.0, self._used_node_dies),
            (1500.0, self._first_node_dies),
            (10.0, self._measure),
        ):
            self.agenda.again(mean, what)
        # The last tenth without, so that the agent lives for a while.
        length, ends = 0.9 * (self._until - time.time()), self.chances.controller_kills
        self.agenda.spread(self.chances.agent_kills, length, self.mishaps.kill_agent)
        self.agenda.spread(ends, length, self.mishaps.kill_controller)
        self.agenda.spread(ends // 2, length, self.mishaps.restart_controller)
        while time.time() < self._until:
            self._step()
        self._calm()

    def _step(self) -> None:
        self.agenda.due()
        self.mishaps.tend()
        self._exits()
        if self._ambush is not None:
            self._strike(self._ambush)
        if time.time() - self._looked > _LOOK:
            self._looked = time.time()
            self._look()
        if time.time() - self._told > 60:
            self._told = time.time()
            self._throughout()
            done = self._outcomes()
            self.tell(
                f"{(time.time() - self._began) / 60:5.1f} min: {done['completed']} resizes, {self.counts[End.EXACT]} "
                f"programs exact, {self.counts[End.LOST]} lost, {self.site.lives} lives, "
                f"{self.counts['controller kills']} controller kills, {self.counts['nodes killed']} nodes killed"
            )
        time.sleep(0.1)

    def _wait(self, what: Callable[[], object], limit: float, why: str) -> None:
        end = time.time() + limit
        while not what():
            self.mishaps.tend()
            if time.time() > end:
                raise Violated([f"{why} within {limit:.0f} s"])
            time.sleep(0.5)

    # -- the programs --------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """One more. They are the shorter the less time is left, so that all end in the calm."""
        left = (self._until - time.time()) / _PAUSE
        sweeps = round(min(self.draw.choice(_SWEEPS), max(left, _SHORTEST)))
        one = Solver(f"solver{next(self._number)}", 0, self.draw.choice(_FIELDS), sweeps, time.time())
        size = self.draw.choice((1, 2))
        limit = f"-t{round(sweeps * _PAUSE / 60 * 6) + 30}"
        words = ["sbatch", "--parsable", "--no-requeue", "-J", one.name, f"-N{size}", limit, "-o", f"{one.name}.out"]
        done = self.site.cluster.run_as(
            OWNER,
            words,
            input=f"#!/bin/bash\n{one.command(size, _MOST, _PAUSE)}\n",
            env=self._environment,
            cwd=self.site.home,
        )
        if done.returncode:  # the controller may be away: then a moment later
            self.event(f"{one.name} was not submitted: {done.stderr.strip()[-200:]}")
            return
        one.job = int(done.stdout)
        self.solvers.append(one)
        self.counts["programs"] += 1
        self.event(f"{one.name} is job {one.job}, {sweeps} sweeps")

    @property
    def _alive(self) -> list[Solver]:
        return [s for s in self.solvers if s.over is None]

    def _look(self) -> None:
        """Who has ended; as many new ones come while the storm lasts."""
        said = self.site.slurm("squeue", "-h", "-t", "all", "-o", "%A|%T")
        states = dict(line.split("|") for line in said.splitlines() if "|" in line)
        for one in self._alive:
            state = states.get(str(one.job), "")
            if not state and states:  # forgotten meanwhile
                said = self.site.slurm("sacct", "-n", "-X", "-D", "-j", str(one.job), "-o", "State")
                state = (said.split() or [""])[-1]
            if state in _ENDED:
                self._over(one, state)
        if time.time() < self._until:
            for _ in range(_JOBS - len(self._alive)):
                self._submit()

    def _over(self, one: Solver, state: str) -> None:
        one.over, one.state = time.time(), state
        file = self.site.home / one.result
        one.lost = one.lost or lost_by(one.risks, self._taken_up(one))
        if state != "COMPLETED" and not one.lost and self._taken_for_missing(one):
            one.lost = "Slurm took it for missing"
            self.counts["programs that Slurm took for missing"] += 1
        end, wrong = ended(one, np.load(file) if file.exists() else None)
        self.counts[end] += 1
        self.event(f"{one.name} (job {one.job}) ended {state}: {end}{f' ({one.lost})' if one.lost else ''}")
        if wrong:
            output = self.site.home / f"{one.name}.out"
            said = output.read_text(errors="replace")[-3000:] if output.exists() else ""
            raise Violated([*wrong, said])
        for left in (file, self.site.home / one.report, self.site.home / f"{one.name}.out"):
            left.unlink(missing_ok=True)

    # -- what the agent and Slurm know ---------------------------------------------------------------------------------

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        """Of the state file; works while the agent is dead."""
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"file:{self.site.state}/penstock.db?mode=ro", uri=True, timeout=10)) as base,
        ):
            return base.execute(sql).fetchall()
        return []

    def _known(self) -> dict[int, dict[str, Any]]:
        """What the agent knows of the resize of each program."""
        rows = self._query("SELECT state FROM malleable WHERE ended IS NULL")
        return {state["job"]: state for (text,) in rows if (state := json.loads(text))}

    def _outcomes(self) -> Counter[str]:
        """How resizes have ended: `failed` had been taken up by the program, `withdrawn` had not."""
        found: Counter[str] = Counter()
        for kind, outcome, marks in self._query("SELECT kind, outcome, marks FROM resizes"):
            if outcome == "completed":
                found["completed"] += 1
                found[f"completed: {kind}"] += 1
            else:
                sort = "failed" if "accepted" in json.loads(marks) else "withdrawn"
                found[sort] += 1
                found[f"{sort}: {kind}, {_NAMES.sub('…', outcome)}"] += 1
        return found

    def _holders(self) -> dict[str, int]:
        """By node: for which job it is held, by that job itself or a companion."""
        found = {}
        for line in self.site.slurm("squeue", "-h", "-t", "R,CG,CF", "-o", "%A|%j|%N").splitlines():
            number, name, nodes = line.split("|")
            job = holder_of(name) or int(number)
            found.update(dict.fromkeys(expand_hosts(nodes) if nodes else [], job))
        return found

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        if (size := self.site.memory()) is not None:
            self.report.memory.append(Memory(time.time(), size, self.site.lives))

    def _kill_node(self, node: str, why: str, job: int | None = None) -> None:
        """And bring it back; who has used it is marked."""
        began = time.time()
        self._users(node, began, began + _DEAD, job)
        self._gone[node] = self._node_back
        self.site.cluster.kill_node(node)
        self.counts["nodes killed"] += 1
        self.counts[f"nodes killed: {why}"] += 1
        self.event(f"{node} dies ({why})")
        self._users(node, began, time.time() + _DEAD, job)
        self.agenda.at(time.time() + self.draw.choice((1.0, 30.0)), lambda: self._node_back(node))

    def _users(self, node: str, since: float, until: float, job: int | None = None) -> None:
        """Mark the programs that use the node, and those that may have taken it into use before it was gone: those for
        which it is held, and that of `job`."""
        known, holder = self._known(), self._holders().get(node)
        for one in self._alive:
            state = known.get(one.job)
            if state is not None and node in state["nodes"]:
                one.lost = f"{node} was taken from it"
                self.event(f"{one.name} (job {one.job}) used {node}")
            elif one.job in (holder, job) or (state is not None and node in state["target_nodes"]):
                one.risks.append(Risk(f"{node} was taken from it", since - _WRITTEN, until))

    def _taken_up(self, one: Solver) -> list[float]:
        """When the program says that it has taken growths up."""
        file = self.site.home / one.report
        lines = file.read_text().splitlines() if file.exists() else []
        said = [json.loads(line) for line in lines if line.endswith("}")]
        return [float(e["time"]) for e in said if e["event"] == "expand"]

    def _taken_for_missing(self, one: Solver) -> bool:
        """Whether Slurm ended the job because a slurmd that had much to do left its batch script out."""
        log = self.site.cluster.folder / "log/slurmctld.log"
        return any(f"JobId={one.job} missing from" in line for line in log.read_text(errors="replace").splitlines())

    def _node_back(self, node: str) -> None:
        self._gone.pop(node, None)
        # As slurmctld would have found out in the end, which asks rarely here: jobs on it have failed.
        self.site.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=soak")
        self.site.start_node(node)
        self._resume([node])
        self.event(f"{node} is back")

    def _node_up(self, node: str) -> None:
        """One that was set down by word alone. Its slurmd lives, so it may be back already, with a job on it."""
        self._gone.pop(node, None)
        self._resume([node])
        self.event(f"{node} is up")

    def _resume(self, nodes: list[str]) -> None:
        self.site.slurm("scontrol", "update", f"nodename={','.join(nodes)}", "state=resume")

    def _idle_node_dies(self) -> None:
        busy = self._holders()
        free = [node for node in self.site.cluster.nodes if node not in busy and node not in self._gone]
        if free and busy:
            self._kill_node(self.draw.choice(free), "idle")

    def _used_node_dies(self) -> None:
        """One of a companion: the program may end by it, and its other companions have to be given back."""
        used = [c["nodes"] for s in self._known().values() for c in s["companions"] if s["phase"] == "idle"]
        nodes = [node for some in used for node in some if node not in self._gone]
        if nodes:
            self._kill_node(self.draw.choice(nodes), "in use")

    def _first_node_dies(self) -> None:
        nodes = [state["nodes"][0] for state in self._known().values() if state["nodes"]]
        if nodes := [node for node in nodes if node not in self._gone]:
            self._kill_node(self.draw.choice(nodes), "the first of a job")

    def _lay_ambush(self) -> None:
        """What is to happen to the next companion that a program does not use yet."""
        self._ambush = self.draw.choice((self._unused_dies, self._unused_down, self._unused_cancelled))

    def _strike(self, what: Callable[[dict[str, Any], list[str]], None]) -> None:
        known = [s for s in self._known().values() if s["phase"] in _UNUSED and s["resizer"] is not None]
        # Soon, before its processes are up: the program would take them into use.
        fresh = [s for s in known if time.time() - s["marks"].get("starting", time.time()) < 1.0]
        if not fresh or not self.site.running:
            return
        state = self.draw.choice(fresh)
        said = self.site.slurm("squeue", "-h", "-t", "R", "-j", str(state["resizer"]), "-o", "%N").strip()
        if nodes := [node for node in (expand_hosts(said) if said else []) if node not in self._gone]:
            self._ambush = None
            what(state, nodes)

    def _unused_dies(self, state: dict[str, Any], nodes: list[str]) -> None:
        self._kill_node(self.draw.choice(nodes), f"of a companion, {state['phase']}", state["job"])

    def _unused_down(self, state: dict[str, Any], nodes: list[str]) -> None:
        """An administrator's word, upon which Slurm ends the companion."""
        node, began = self.draw.choice(nodes), time.time()
        self.site.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=soak")
        self._gone[node] = self._node_up
        self.counts["nodes set down"] += 1
        self.event(f"{node} is set down (of a companion of job {state['job']}, {state['phase']})")
        self._users(node, began, time.time() + _KILLED, state["job"])
        self.agenda.at(time.time() + self.draw.choice((1.0, 30.0)), lambda: self._node_up(node))

    def _unused_cancelled(self, state: dict[str, Any], nodes: list[str]) -> None:
        began = time.time()
        self.site.slurm("scancel", str(state["resizer"]))
        self.counts["companions cancelled"] += 1
        self.event(f"companion {state['resizer']} of job {state['job']} is cancelled ({state['phase']})")
        self._users(nodes[0], began, time.time() + _KILLED, state["job"])

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _exits(self) -> None:
        if self.site.exits:
            said = self.site.log.read_text(errors="replace")[-2000:]
            raise Violated([f"the agent ended by itself with code {code}: {said}" for _, code in self.site.exits])

    def _throughout(self) -> None:
        wrong = invariants.nothing_orphaned(self._seen(), time.time(), _ORPHAN)
        wrong += invariants.memory_flat(self.report.memory, _GROWTH, _LONG, _MOST_MEMORY)
        if wrong:
            raise Violated(wrong)

    def _seen(self) -> list[Seen]:
        """The programs, and the companions that there are."""
        found = [Seen(s.job, OWNER, Kind.MALLEABLE, s.state or "RUNNING", s.begun, s.over) for s in self.solvers]
        for line in self.site.slurm("squeue", "-h", "-o", "%A|%j|%T").splitlines():
            number, name, state = line.split("|")
            if (job := holder_of(name)) is not None:
                found.append(Seen(int(number), OWNER, Kind.HOLDER, state, of=job))
        return found

    def _calm(self) -> None:
        self.tell("the calm")
        self.event("the weather is fine again")
        self.site.mood(Mood())
        self.agenda.clear()
        self._ambush = None
        for node, back in list(self._gone.items()):
            back(node)
        end = time.time() + _CALM
        while time.time() < end and not self._settled():
            self._step()
            self._measure()
            time.sleep(2)
        self._verify(over=self._settled())

    def _settled(self) -> bool:
        status = self.site.ask("status")
        gone = not self._alive and not self.site.slurm("squeue", "-h", "-o", "%i").strip()
        return gone and status is not None and not status["malleable"]

    def _verify(self, *, over: bool) -> None:
        wrong = [] if over else [f"not all has come to its end within {_CALM:.0f} s of calm"]
        wrong += invariants.nodes_free(held(self.site), [])
        wrong += [] if not (left := self.site.slurm("squeue", "-h").strip()) else [f"jobs are left: {left}"]
        # A request of the agent may have come to its end just now.
        open_acts = "SELECT verb, subject, opened FROM intents WHERE state='open'"
        end = time.time() + 30
        while self._query(open_acts) and time.time() < end:
            time.sleep(1)
        wrong += invariants.journal_closed((str(v), str(s), float(at)) for v, s, at in self._query(open_acts))
        audit = self.site.penstock(OWNER, "audit", "--verify")
        if audit.returncode:
            wrong.append(
                f"penstock audit --verify ended with {audit.returncode}: {(audit.stdout + audit.stderr)[-600:]}"
            )
        wrong += invariants.memory_flat(self.report.memory, _GROWTH, _LONG, _MOST_MEMORY)
        wrong += tracebacks(self.site.log)
        if wrong:
            raise Violated(wrong)


def soak(folder: Path, seed: int, chances: Chances, tell: Callable[[str], None] = lambda _text: None) -> Report:
    """UserError or PenstockError where no Slurm can be had."""
    report = Report(seed, "resizes", folder=str(folder))
    began = time.time()
    with site_on(folder, _SPEC, _settings) as place:
        tell(f"Slurm {place.cluster.slurm_version} is up")
        plug_in = folder / "plugin"
        place.environment = installed(plug_in, _OFTEN)
        it = _Resizes(place, chances, seed, report, tell)
        try:
            it.run()
        except Violated as e:
            report.wrong = e.what
            report.last = list(it.last)
            with suppress(OSError, shutil.Error):
                leave = shutil.ignore_patterns("ballast", "*.sock", "*.lock")
                shutil.copytree(place.home, folder / "home", dirs_exist_ok=True, ignore=leave)
        it.counts["lives"] = place.lives
        outcomes = {f"resizes {key}": value for key, value in it._outcomes().items()}
        report.counts = {**dict(sorted(it.counts.items())), **dict(sorted(outcomes.items()))}
    report.seconds = time.time() - began
    report.hours = report.seconds / 3600
    report.episodes = 1
    return report
