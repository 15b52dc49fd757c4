"""The virtual soak: episodes of storm, each followed by a calm in which everything must come to its end."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import psutil

import penstock.resize.running.part
import penstock.workflow.run.registrations
from penstock.resize.running.part import MalleablePart
from penstock.workflow.documents import run_from_dict
from penstock.workflow.part import WorkflowPart
from penstock.workflow.state import WorkflowRun
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig, PriorityType
from penstock_lab.soak import bounds, invariants
from penstock_lab.soak.chaos import Handed, Storm
from penstock_lab.soak.evidence import events_of, seen_of
from penstock_lab.soak.invariants import Asked, Held, Memory, Seen
from penstock_lab.soak.world import OWNER, START, Violated, World

__all__ = ["Report", "settings", "site_of", "soak"]

HOUR: Final = 3600.0
_CALM: Final = 14 * HOUR  # in which everything must have come to its end
_AFTERWARDS: Final = 900.0
_ORPHAN: Final = 2 * HOUR  # pauses after failures are a quarter of an hour, and there may be several
_EVERY: Final = 600.0
_GROWTH: Final = 3e6  # bytes a day, of the whole process
_LONG: Final = 2 * 86400.0
_KEPT: Final = 2 * 86400.0  # how long the agent remembers what is over
_STEPS: Final = 2 * HOUR  # more than its clock is ever off by
_REMEMBERED: Final = 6 * HOUR


@dataclass
class Report:
    """What a soak saw. `wrong` is empty if all held."""

    seed: int
    part: str
    hours: float = 0.0
    seconds: float = 0.0
    episodes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    door: dict[str, float] = field(default_factory=dict)
    folder: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        shown = {k: v for k, v in vars(self).items() if k not in ("memory", "last")}
        sizes = [m.size / 1e6 for m in self.memory]
        return {**shown, "rss_mb": {"first": sizes[0], "last": sizes[-1], "most": max(sizes)} if sizes else {}}


def site_of(seed: int) -> ClusterConfig:
    """One of the kinds of site that there are: how jobs grow, who goes first, whether dependent jobs age."""
    draw = random.Random(f"site {seed}")
    return ClusterConfig(
        nodes=draw.choice((8, 12)),
        contain=draw.random() < 0.4,
        priority=draw.choice((PriorityType.MULTIFACTOR, PriorityType.MULTIFACTOR, PriorityType.BASIC)),
        accrue_always=draw.random() < 0.5,
        cycle=draw.choice((0.0, 30.0)),
        batch_delay=draw.choice((0.0, 3.0)),
        merge_latency=0.3,
        shrink_latency=0.05,
        query_latency=0.01,
    )


def settings(**agent: object) -> dict[str, Any]:
    """The agent's configuration: as shipped but for how long it remembers, and how soon resizes follow each other."""
    return {
        "agent": {"seed": 7, "keep": _KEPT, **agent},
        "slurm": {"backend": "mock", "submissions_per_hour": 10_000},
        "dmr": {"policy": "wide"},
    }


class _Episodes:
    def __init__(self, world: World, storm: Storm, report: Report, tell: Callable[[str], None]) -> None:
        self.world = world
        self.storm = storm
        self.report = report
        self.tell = tell
        self._checked = START
        self._told = 0
        self._process = psutil.Process()

    async def run(self, number: int, hours: float) -> None:
        """A storm of so many hours, then the calm."""
        world, storm = self.world, self.storm
        draw = random.Random(f"episode {self.report.seed} {number}")
        kills = draw.random() < 0.75
        storm.begin(kills=kills, load=draw.choice((0.5, 1.0, 1.5)))
        await self._until(lambda: False, world.now + hours * HOUR)
        storm.end()
        world.tell("the weather is fine again")
        await self._until(self._settled, world.now + _CALM, calm=True)
        # Until Slurm has forgotten them, and whatever comes late has come.
        await self._until(lambda: False, world.now + _AFTERWARDS, calm=True)
        self._memory()
        await self._verify(over=self._settled())
        self._forget()
        self.report.episodes += 1
        self.tell(
            f"episode {number}: {(world.now - START) / HOUR:.1f} h, {world.lives} lives, {world.passes} passes, "
            f"{world.counts['workflows']} workflows, {world.counts['resizes']} resizes, "
            f"{self.report.memory[-1].size / 1e6:.1f} MB, door {1000 * max(world.latencies, default=0):.0f} ms at most"
        )

    async def _until(self, what: Callable[[], bool], end: float, *, calm: bool = False) -> None:
        world, tidy = self.world, self.world.now
        while world.now < end and not what():
            await world.tick(min(end, world.now + _EVERY))
            await self.storm.act()
            if calm and world.now >= tidy:
                tidy = world.now + _EVERY
                await self.storm.settle()
            self._throughout()

    def _throughout(self) -> None:
        """What can be checked at any time."""
        world = self.world
        wrong = list(world.wrong)
        if world.now - self._checked >= _EVERY:
            self._checked = world.now
            wrong += invariants.nothing_orphaned(self._jobs(), world.now, _ORPHAN)
            wrong += invariants.refused(self.storm.forgeries)
            wrong += invariants.authorised(world.acts, self._jobs(), OWNER)
            world.acts.clear()
            world.counts["forged requests refused"] += len(self.storm.forgeries)
            self.storm.forgeries.clear()
        if wrong:
            raise Violated(wrong)

    def _settled(self) -> bool:
        world = self.world
        if world.living() or world.held() or any(h.run is None for h in self.storm.handed):
            return False
        if not world.alive or world.fuse.dead or world.app.part(MalleablePart).controller.jobs:
            return False
        return not world.app.part(WorkflowPart).controller.runs

    def _jobs(self) -> list[Seen]:
        return [seen for _job, seen in self._pairs()]

    def _pairs(self) -> list[tuple[SimJob, Seen]]:
        storm = self.storm
        names = {h.run: h.name for h in storm.handed if h.run is not None}
        records = [j for j in self.world.engine.records.values() if not j.waits_as_array]
        return [(j, seen_of(j, storm.malleable, storm.guided, names, self.world.slots)) for j in records]

    async def _verify(self, *, over: bool) -> None:
        """What must hold when all is over."""
        world = self.world
        wrong: list[str] = []
        if not over:
            wrong.append(f"not all has come to its end within {_CALM / HOUR:g} h of calm")
        pairs, runs, phases = self._pairs(), {}, {}
        jobs = [seen for _job, seen in pairs]
        if not world.alive:
            raise Violated([*wrong, "the agent does not live"])
        store = world.app.store
        for _n, _uid, state in store.runs.latest():
            run = run_from_dict(state)
            phases[run.name] = (run.phase.value, run.why or "")
            if not run.owned:
                runs[run.name] = run
        asked = [self._asked(h, phases) for h in self.storm.handed]
        events = events_of(pairs, runs, world.idle_jobs)
        wrong += invariants.stages_once(asked, events, jobs)
        wrong += invariants.stages_in_order(asked, events)
        wrong += invariants.accounting_agrees(asked, events, jobs)
        held = [Held(n, j) for n, j in world.engine.owner.items()]
        wrong += invariants.nodes_free(held, [s for s in jobs if not s.ended])
        held_slots = {OWNER: [f"{number} ({phase})" for number, phase in world.held().items()]}
        wrong += bounds.nothing_left([r.name for r in await world.backend.reservations()], held_slots, {})
        wrong += invariants.bystanders_untouched(jobs)
        wrong += invariants.journal_closed(
            [(i.verb, i.subject, i.opened) for i in store.intents.unsettled() if i.state == "open"]
        )
        wrong += invariants.explained(await self._explanations(runs))
        wrong += invariants.memory_flat(self.report.memory, _GROWTH, _LONG)
        seen = world.app.observer.last
        if seen is None or not seen.usable or world.now - seen.taken_at > HOUR:
            wrong.append(f"the agent does not look at Slurm: {seen and (seen.taken_at - START, seen.problems)}")
        if wrong:
            raise Violated(wrong)

    @staticmethod
    def _asked(one: Handed, phases: Mapping[str, tuple[str, str]]) -> Asked:
        phase, why = phases.get(one.name, ("", ""))
        # A stage of jobs that their user submitted stays in the queue where one before it fails: its user cancels it.
        after = {s.name: s.after for s in one.plan.workflow.stages}
        return Asked(one.name, OWNER, after, phase, why, one.plan.fails)

    async def _explanations(self, runs: Mapping[str, WorkflowRun]) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        subjects = [f"workflow {h.run}" for h in self.storm.handed]
        known = self.world.now - _KEPT + _STEPS  # a workflow that has ended later is there without its beginning
        recent = [run for run in runs.values() if run.submitted_at > known]
        subjects += [f"workflow {run.id}/{s.name}" for run in recent for s in run.stages if s.job is not None]
        for subject in subjects:
            reply = await self.world.ask("explain", subject=subject)
            found[subject] = len(reply["result"]) if reply is not None and reply["ok"] else None
        return found

    def _memory(self) -> None:
        gc.collect()
        self.report.memory.append(Memory(self.world.now, float(self._process.memory_info().rss)))

    def _forget(self) -> None:
        """What has been checked, so that what grows is the agent."""
        world, storm = self.world, self.storm
        for number, job in list(world.engine.records.items()):
            if number not in world.engine.jobs and job.end is not None:
                del world.engine.records[number]
        storm.handed.clear()
        kept = world.engine.records.keys()
        for known in (storm.malleable, storm.guided):
            for number in [n for n in known if n not in kept]:
                del known[number]
        world.idle_jobs &= kept
        world._of_stage.clear()


async def _soak(
    folder: Path, seed: int, hours: float, tell: Callable[[str], None], episode: tuple[float, float]
) -> Report:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # tasks of killed agents
    world = World(folder, seed, settings(), site_of(seed))
    report = Report(seed, "virtual", folder=str(folder))
    episodes = _Episodes(world, Storm(world, seed), report, tell)
    began = time.process_time()
    draw = random.Random(f"lengths {seed}")
    number = 0
    try:
        while world.now - START < hours * HOUR:
            number += 1
            await episodes.run(number, draw.uniform(*episode))
    except Violated as e:
        report.wrong = e.what
        report.last = list(world.last)
    report.hours = (world.now - START) / HOUR
    report.seconds = time.process_time() - began
    report.counts = dict(sorted({**world.counts, "lives": world.lives, "passes": world.passes}.items()))
    report.counts["requests to Slurm"] = sum(world.calls.values())
    report.door = {
        "requests": float(len(world.latencies)),
        "median_ms": 1000 * invariants.percentile(world.latencies, 0.5),
        "p99_ms": 1000 * invariants.percentile(world.latencies, 0.99),
        "most_ms": 1000 * max(world.latencies, default=0.0),
    }
    if world.alive:
        world.app.store.connection._db.close()
    return report


def soak(
    folder: Path,
    seed: int,
    hours: float,
    tell: Callable[[str], None] = lambda _text: None,
    episode: tuple[float, float] = (4.0, 16.0),
) -> Report:
    """So many hours of virtual time, in episodes of a random length between these (h)."""
    # Else each of a hundred agents would look through all that is installed.
    policies = mock.patch.object(
        penstock.resize.running.part, "make_policy", functools.cache(penstock.resize.running.part.make_policy)
    )
    # The simulated users have no accounts on this machine.
    logins = mock.patch.object(
        penstock.workflow.run.registrations, "login", lambda uid: OWNER if uid == os.geteuid() else str(uid)
    )
    with policies, logins:
        return asyncio.run(_soak(folder, seed, hours, tell, episode))
