"""The real soak: minutes of random work and mishaps on a real Slurm, then a calm in which all must come to its end."""

from __future__ import annotations

import random
import shlex
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

import yaml

from penstock.workflow.model import Workflow, workflow_to_dict
from penstock_lab.papers.dmr.application import Cost
from penstock_lab.papers.dmr.models import Model
from penstock_lab.papers.dmr.paper import Application
from penstock_lab.papers.dmr.standin import Order
from penstock_lab.soak import bounds, invariants
from penstock_lab.soak.agenda import Agenda
from penstock_lab.soak.commands import USERS, UserCommands
from penstock_lab.soak.invariants import Forgery, Memory
from penstock_lab.soak.load import REAL, random_rigid, random_workflow
from penstock_lab.soak.mishaps import Mishaps
from penstock_lab.soak.pauses import SoakPauses
from penstock_lab.soak.site import ALLOWED, CAPS, OWNER, Mood, Site, site
from penstock_lab.soak.stranger import forge
from penstock_lab.soak.virtual import Report
from penstock_lab.soak.witness import Handed, Known, Witness, held, tracebacks
from penstock_lab.soak.world import Violated
from penstock_planning.select.speedup import Amdahl

__all__ = ["Chances", "soak"]

_CALM: Final = 1200.0
_CROWD: Final = 40
"""Jobs that wait at which nobody brings more work: all of it has to end in the calm."""
_FLOWS: Final = 14
"""Workflows that are under way at which nobody brings more: what the cap leaves has to be enough for them."""
_TIDY: Final = 20.0  # s of calm between two looks at what users still have
_PATIENT: Final = 300.0  # s of calm after which they give it up
_BY_COMMAND: Final = 0.25  # the share of workflows that are submitted by `penstock submit`
_FINAL: Final = ("completed", "failed", "cancelled")
_ORPHAN: Final = 300.0  # a back-off ladder's pauses
_MOST_MEMORY: Final = 150e6
_GROWTH: Final = 10e6  # bytes a day
_LONG: Final = 3600.0
_DISK_OVER: Final = 30.0  # for so long after the disk was full an agent may still end by it


@dataclass(frozen=True, slots=True)
class Chances:
    """How long (minutes), and how often the agent and the controller are killed in that time."""

    minutes: float
    agent_kills: int
    controller_kills: int


class _Soak:
    def __init__(self, place: Site, chances: Chances, seed: int, report: Report, tell: Callable[[str], None]) -> None:
        self.site = place
        self.chances = chances
        self.report = report
        self.tell = tell
        self.draw = random.Random(f"real {seed}")
        self.known = Known()
        self.counts: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=400)
        self.forgeries: list[Forgery] = []
        self.latencies: list[float] = []
        self.disk_full: list[tuple[float, float]] = []
        self.ledger = place.cluster.folder / "ledger"
        self._number = count(1)
        self._began = time.time()
        self._storm_until = self._began + 60 * chances.minutes
        self.agenda = Agenda(self.draw, self._storm_until)
        self.mishaps = Mishaps(place, self.draw, self.counts, self.event)
        self.commands = UserCommands(place, random.Random(f"commands {seed}"), self.counts, self.ledger, self.event)
        self.pauses = SoakPauses(place, random.Random(f"pauses {seed}"), self.counts, self.event)
        self.witness = Witness(place, self.known, self.commands, self.ledger, self._began)
        self._environment: Mapping[str, str] = {}
        self._dead_nodes: set[str] = set()
        self._told_at = 0.0

    def event(self, text: str) -> None:
        self.last.append(f"{time.time() - self._began:8.1f} s  {text}")

    # -- the agenda ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The storm and the calm. Raises `Violated`."""
        self.commands.prepare()
        # All users write down there what their scripts do.
        self.ledger.touch()
        self.ledger.chmod(0o666)
        self.site.launch()
        self._wait(lambda: self.site.ask("ping") is not None, 120, "the agent does not answer")
        self._environment = self.site.ask("env")
        self._storm()
        while time.time() < self._storm_until:
            self._step()
        self._calm()

    def _storm(self) -> None:
        length = self._storm_until - time.time()
        for mean, what in (
            (14.0, self._if_room(self._if_few(self._workflow))),
            (40.0, self._if_room(self._malleable)),
            (12.0, self._if_room(self._rigid)),
            (40.0, self.commands.hold),
            (110.0, self.commands.give_up),
            (60.0, self._if_room(self.commands.bag)),
            (70.0, self._if_room(self.commands.guide)),
            (100.0, self.commands.reserve),
            (30.0, self.commands.tick),
            (60.0, self._pause),
            (200.0, self._allow),
            (4.0, self._limits),
            (90.0, self._forge),
            (5.0, self._ping),
            (10.0, self._measure),
            (40.0, self.mishaps.weather),
            (150.0, self._node_dies),
            (120.0, self._disk_fills),
        ):
            self.agenda.again(mean, what)
        # The last tenth without, so that the agent lives for a while.
        ends = self.chances.controller_kills
        for number, what in (
            (self.chances.agent_kills, self.mishaps.kill_agent),
            (ends, self.mishaps.kill_controller),
            (ends // 2, self.mishaps.restart_controller),
        ):
            self.agenda.spread(number, 0.9 * length, what)

    def _step(self) -> None:
        now = time.time()
        self.agenda.due()
        self.mishaps.tend()
        self._exits()
        self.commands.tend()
        if now - self._told_at > 60:
            self._told_at = now
            self._throughout()
            size = self.report.memory[-1].size / 1e6 if self.report.memory else 0.0
            self.tell(
                f"{(now - self._began) / 60:5.1f} min: {self.counts['workflows']} workflows, {self.site.lives} lives, "
                f"{self.counts['controller kills']} controller kills, {self.counts['slurmd kills']} slurmd kills, "
                f"{size:.0f} MB"
            )
        time.sleep(0.1)

    def _wait(self, what: Callable[[], object], limit: float, why: str) -> None:
        end = time.time() + limit
        while not what():
            self.site.tend()
            if time.time() > end:
                raise Violated([f"{why} within {limit:.0f} s"])
            time.sleep(0.5)

    def _if_room(self, what: Callable[[], None]) -> Callable[[], None]:
        def perhaps() -> None:
            if len(self.site.slurm("squeue", "-h", "-r", "-t", "PD", "-o", "%i").split()) < _CROWD:
                what()

        return perhaps

    def _if_few(self, what: Callable[[], None]) -> Callable[[], None]:
        def perhaps() -> None:
            status = self.site.ask("status")
            live = [w for w in (status or {}).get("workflows", []) if w["phase"] not in _FINAL]
            if len(live) < _FLOWS:
                what()

        return perhaps

    # -- work ----------------------------------------------------------------------------------------------------------

    def _workflow(self) -> None:
        command = (
            f"echo {{run}} {{stage}} $SLURM_JOB_ID begin $(date +%s.%N) >>{self.ledger}\n"
            f"sleep {{seconds}}\n"
            f"echo {{run}} {{stage}} $SLURM_JOB_ID end $(date +%s.%N) >>{self.ledger}"
        )
        plan = random_workflow(self.draw, next(self._number), REAL, command=command)
        file = self.site.home / f"{plan.workflow.name}.yaml"
        file.write_text(_yaml(plan.workflow, self.site.home))
        self.known.handed.append(Handed(plan, file))
        self.counts["workflows"] += 1
        self._hand_over(self.known.handed[-1])

    def _hand_over(self, one: Handed) -> None:
        """As a user who tries again where there was no answer, and looks first whether it was taken."""
        status = self.site.ask("status")
        name = one.plan.workflow.name
        taken = [w["id"] for w in (status or {}).get("workflows", []) if w["name"] == name]
        if taken:
            one.run = int(taken[0])
            return
        if self.draw.random() < _BY_COMMAND:
            done = self.site.penstock(OWNER, "submit", str(one.file), "--strategy", one.plan.strategy)
            one.run = int(done.stdout.removeprefix("Submitted workflow ")) if done.returncode == 0 else None
        else:  # what the command does, without a Python of its own
            workflow = workflow_to_dict(replace(one.plan.workflow, workdir=str(self.site.home)))
            said = self.site.ask("submit", workflow=workflow, strategy=one.plan.strategy)
            one.run = None if said is None else int(said["run"])
        if one.run is not None:
            self.event(f"{name} is workflow {one.run} under {one.plan.strategy}")
        else:
            self.event(f"{name} was not taken")
            self.agenda.at(time.time() + 5.0, lambda: self._hand_over(one))

    def _sbatch(self, who: str, name: str, nodes: int, limit: float, script: str, *more: str) -> None:
        minutes = max(round(limit / 60), 2)
        words = [
            "sbatch",
            "--parsable",
            "--no-requeue",
            "-J",
            name,
            f"-N{nodes}",
            f"-t{minutes}",
            "-o",
            "/dev/null",
            *more,
        ]
        done = self.site.cluster.run_as(
            who,
            [*words, *more],
            input=f"#!/bin/bash\n{script}\n",
            env=self._environment,
            cwd=self.site.cluster.home(who),
        )
        if done.returncode:  # the controller may be away: then there is one job less
            self.event(f"{name} was not submitted: {done.stderr.strip()[-200:]}")

    def _rigid(self) -> None:
        rigid = random_rigid(self.draw, next(self._number), REAL)
        self.known.rigid[rigid.name] = rigid
        self.counts["rigid jobs"] += rigid.tasks
        array = [f"--array=1-{rigid.tasks}"] if rigid.tasks > 1 else []
        who = self.draw.choice(("bob", OWNER))
        self._sbatch(who, rigid.name, rigid.nodes, rigid.limit, f"sleep {rigid.seconds:g}", *array)

    def _malleable(self) -> None:
        name, nodes = f"solver{next(self._number)}", self.draw.choice((1, 2))
        row = Application(name, 400, 1, 8, 2, self.draw.choice((1.0, 3.0)))
        model = Model(row, self.draw.uniform(40, 200), Amdahl(0.1))
        order = Order(model, 2, Cost(0.01, 0.3, 1e8, 1e9), f"{name}.json")
        self.known.malleable.add(name)
        self.counts["malleable jobs"] += 1
        command = shlex.join([sys.executable, "-m", "penstock_lab.papers.dmr.standin", order.text()])
        self._sbatch(OWNER, name, nodes, 900, command)

    # -- looking -------------------------------------------------------------------------------------------------------

    def _ping(self) -> None:
        began = time.perf_counter()
        if self.site.ask("status") is not None:
            self.latencies.append(time.perf_counter() - began)

    def _measure(self) -> None:
        if (size := self.site.memory()) is not None:
            self.report.memory.append(Memory(time.time(), size, self.site.lives))

    def _forge(self) -> None:
        runs = [h.run for h in self.known.handed if h.run is not None] or [1]
        said = forge(self.site, self._environment["DMR_AGENT"], self.draw.choice(runs))
        if isinstance(said, str):
            self.event(f"the stranger failed: {said}")
        else:
            self.forgeries += said

    def _limits(self) -> None:
        """Nobody has more than the site leaves, at any look."""
        if wrong := bounds.within_limits(self.witness.look(), ALLOWED):
            raise Violated(wrong)
        self.counts["looks at limits"] += 1

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        """For a while; several may hold at a time. One that the agent has not answered is asked for again."""
        if not self.pauses.pause():
            self.agenda.at(time.time() + 5.0, self._pause)
        self.agenda.at(time.time() + self.draw.uniform(5, 40), self._resume)

    def _resume(self) -> None:
        if not self.pauses.resume():
            self.agenda.at(time.time() + 2.0, self._resume)

    def _allow(self) -> None:
        self.pauses.allow()
        self.agenda.at(time.time() + self.draw.uniform(10, 40), self.pauses.allow_all)

    def _node_dies(self) -> None:
        node = self.draw.choice(self.site.cluster.nodes)
        if self._dead_nodes:
            return
        self._dead_nodes.add(node)
        self.site.cluster.kill_node(node)
        self.counts["slurmd kills"] += 1
        self.event(f"{node} dies")
        self.agenda.at(time.time() + self.draw.choice((1.0, 30.0)), lambda: self._node_back(node))

    def _node_back(self, node: str) -> None:
        self._dead_nodes.discard(node)
        self.site.start_node(node)
        self.event(f"{node} is back")

    def _disk_fills(self) -> None:
        self.site.fill_disk()
        began = time.time()
        self.counts["times the disk was full"] += 1
        self.event("the disk is full")

        def room() -> None:
            self.site.empty_disk()
            self.disk_full.append((began, time.time()))
            self.event("the disk has room again")

        self.agenda.at(began + self.draw.uniform(2, 30), room)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _exits(self) -> None:
        """An agent that ends by itself does so because it cannot write its state, if at all."""
        wrong = []
        for at, code in self.site.exits:
            full = self._filled(at)
            self.event(f"the agent ended with {code}")
            self.counts["ends with a full disk" if full else "ends"] += 1
            if not full:
                said = self.site.log.read_text(errors="replace")[-2000:]
                wrong.append(f"the agent ended by itself with code {code}: {said}")
        self.site.exits.clear()
        if wrong:
            raise Violated(wrong)

    def _filled(self, at: float) -> bool:
        spans = [*self.disk_full, *([(at, at)] if self.site._ballast.exists() else [])]
        return any(begin <= at <= end + _DISK_OVER for begin, end in spans)

    def _throughout(self) -> None:
        seen = self.witness.accounting()
        wrong = invariants.refused(self.forgeries)
        wrong += invariants.nothing_orphaned(seen, time.time(), _ORPHAN)
        wrong += invariants.memory_flat(self.report.memory, _GROWTH, _LONG, _MOST_MEMORY)
        self.counts["forged requests refused"] += len(self.forgeries)
        self.forgeries.clear()
        wrong += self.commands.wrong + self._bounds()
        if wrong:
            raise Violated(wrong)

    def _bounds(self) -> list[str]:
        """No pause and no cap was crossed so far."""
        entries = self.witness.entries()
        wrong = bounds.left_alone(entries, self.pauses.all, self.commands.spans)
        for who in USERS:
            mine = [e for e in entries if e.book == who or (who == OWNER and e.book == "agent")]
            wrong += bounds.within_cap(mine, CAPS[who], who)
        return wrong

    def _calm(self) -> None:
        self.tell("the calm")
        self.event("the weather is fine again")
        self.site.mood(Mood())
        self.agenda.clear()
        self.commands.kills = False
        self.pauses.allow_all()
        if self.site._ballast.exists():
            self.site.empty_disk()
            self.disk_full.append((time.time(), time.time()))
        for node in list(self._dead_nodes):
            self._node_back(node)
        for node in self.site.cluster.nodes:
            self.site.start_node(node)
        self._wait(lambda: self.site.ask("ping") is not None, 120, "the agent does not answer")
        self._wait(self.pauses.resume, 120, "pauses cannot be lifted")
        for one in self.known.handed:
            if one.run is None:
                self._hand_over(one)
        began = tidy = time.time()
        end = began + _CALM
        while time.time() < end and not self._settled():
            if time.time() >= tidy and not self.commands.busy:
                tidy = time.time() + _TIDY
                self.commands.tidy()
                if time.time() > began + _PATIENT:
                    self.commands.cancel_all()
                self.commands.tick()
            self.commands.tend()
            self._limits()
            self.agenda.due()
            self.site.tend()
            self._exits()
            self._ping()
            self._measure()
            time.sleep(2)
        self._verify(over=self._settled())

    def _settled(self) -> bool:
        status = self.site.ask("status")
        if status is None or status["malleable"] or any(h.run is None for h in self.known.handed):
            return False
        live = [w for w in status["workflows"] if w["phase"] not in _FINAL]
        return not live and self.commands.over() and not self.site.slurm("squeue", "-h", "-o", "%i").strip()

    def _verify(self, *, over: bool) -> None:
        self._wait(self.witness.accounted, 120, "accounting does not know the end of all jobs")
        time.sleep(3)
        jobs, events = self.witness.accounting(), self.witness.events()
        wrong = [] if over else [f"not all has come to its end within {_CALM:.0f} s of calm"]
        asked = self.witness.asked()
        wrong += invariants.stages_once(asked, events, jobs)
        wrong += invariants.stages_in_order(asked, events, slack=0.05)
        wrong += invariants.accounting_agrees(asked, events, jobs)
        wrong += invariants.nodes_free(held(self.site), [])
        wrong += [] if not (left := self.site.slurm("squeue", "-h").strip()) else [f"jobs are left: {left}"]
        wrong += invariants.bystanders_untouched(jobs)
        wrong += invariants.refused(self.forgeries)
        for book in ("agent", *USERS):
            acts, still_open = self.witness.journal(book)
            wrong += invariants.authorised(acts, jobs, OWNER if book == "agent" else book)
            if book == "agent":  # of a command that was killed the next one closes what was open
                wrong += invariants.journal_closed(still_open)
        entries = self.witness.entries()
        records, broken = self.witness.records()
        wrong += broken + bounds.audited(entries, records, [(a, b + _DISK_OVER) for a, b in self.disk_full])
        wrong += bounds.nothing_left(self.witness.reservations(), self.commands.holds(), self.commands.bags())
        wrong += self.commands.wrong + self._bounds()
        wrong += invariants.explained(self.witness.explanations())
        wrong += invariants.memory_flat(self.report.memory, _GROWTH, _LONG, _MOST_MEMORY)
        wrong += tracebacks(self.site.log)
        self.counts["stages done"] = sum(e.what == "end" for e in events)
        self.counts["jobs in accounting"] = len(jobs)
        self.counts["acts in the journals"] = len(entries)
        self.counts["acts in the audit trails"] = len(records)
        if wrong:
            raise Violated(wrong)


def _yaml(workflow: Workflow, folder: Path) -> str:
    stages = [
        {
            "name": s.name,
            "nodes": s.nodes,
            "time": f"{max(s.time_limit, 60.0):.0f}s",
            "expect": f"{s.run_time:g}s",
            "run": s.command,
            "after": list(s.after),
            "retries": s.retries,
        }
        for s in workflow.stages
    ]
    return yaml.safe_dump({"name": workflow.name, "workdir": str(folder), "stages": stages})


def soak(folder: Path, seed: int, chances: Chances, tell: Callable[[str], None] = lambda _text: None) -> Report:
    """UserError or PenstockError where no Slurm can be had."""
    report = Report(seed, "real", folder=str(folder))
    began = time.time()
    with site(folder) as place:
        tell(f"Slurm {place.cluster.slurm_version} is up")
        it = _Soak(place, chances, seed, report, tell)
        try:
            it.run()
        except Violated as e:
            report.wrong = e.what
            report.last = list(it.last)
            if it.ledger.exists():
                shutil.copy(it.ledger, folder / "ledger")
            _copy_state(place, folder)
        finally:
            it.commands.end()
        it.counts["lives"] = place.lives
        report.counts = dict(sorted(it.counts.items()))
        report.door = {
            "requests": float(len(it.latencies)),
            "median_ms": 1000 * invariants.percentile(it.latencies, 0.5),
            "p99_ms": 1000 * invariants.percentile(it.latencies, 0.99),
            "most_ms": 1000 * max(it.latencies, default=0.0),
        }
    report.seconds = time.time() - began
    report.hours = report.seconds / 3600
    report.episodes = 1
    return report


def _copy_state(place: Site, folder: Path) -> None:
    """The journals, ledgers, bags and audit trails as they are, for looking at."""
    for who in USERS:
        with suppress(OSError, shutil.Error):
            ignore = shutil.ignore_patterns("ballast", "*.sock", "*.lock")
            shutil.copytree(place.folder(who), folder / f"state-{who}", dirs_exist_ok=True, ignore=ignore)
