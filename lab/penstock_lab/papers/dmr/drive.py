"""A workload of rigid and malleable jobs on the simulated Slurm, the malleable ones under the whole agent.

Loop, observer, resize machines, policy and the protocol's door are the code that runs in production. Simulated are
Slurm and what a program does between two checks (`application`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from dmr import wire
from penstock.api import JobSpec, JobState
from penstock.app import App
from penstock.config import config_of
from penstock.resize.running.part import MalleablePart
from penstock.resize.running.programs import Programs
from penstock.state.store import Store
from penstock_lab.mock.backend import MockBackend
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig, PriorityType, Scheduler
from penstock_lab.mock.speedup import Work
from penstock_lab.papers.dmr.application import COST, Action, Application, Cost
from penstock_lab.papers.dmr.paper import NODES
from penstock_lab.papers.dmr.workload import Entry

__all__ = ["SITE", "Outcome", "Point", "Ran", "Site", "drive"]

_LOOK: Final = 10.0
"""Seconds between two looks of the agent at the queue: `agent.interval` at the default of `slurm.min_interval`."""
_USER: Final = "scientist"
_GATHER: Final = 0.025  # as the loop's own
_CLUSTER: Final = ClusterConfig(
    nodes=NODES,
    cpus=16,
    scheduler=Scheduler.REPLAN,
    priority=PriorityType.BASIC,
    depth=100,  # bf_max_job_test
    batch_delay=3.0,
    merge_latency=0.3,  # as measured on Slurm 22.05 with slurmdbd
    shrink_latency=0.05,
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a workload runs: the cluster, sections of the agent's settings, and what jobs take beside their programs.

    In seconds: `launch` from the job's start to its script's, `boot` from that to a malleable program's own, `leave`
    from the program's end to the script's, `clear` from that until the nodes are free again.
    """

    cluster: ClusterConfig
    settings: Mapping[str, Mapping[str, Any]]
    launch: float = 0.0
    boot: float = 0.0
    leave: float = 0.0
    clear: float = 0.0


SITE: Final = Site(_CLUSTER, {"agent": {"interval": _LOOK, "idle_interval": _LOOK}, "slurm": {"min_interval": _LOOK}})
"""The paper's cluster, and the agent's defaults where something is due."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One job of the workload that has ended; instants in seconds: `start` and `end` are its script's. It held
    `node_seconds`."""

    name: str
    malleable: bool
    submit: float
    start: float
    end: float
    node_seconds: float

    @property
    def waiting(self) -> float:
        """Seconds from its submission to its start."""
        return self.start - self.submit

    @property
    def execution(self) -> float:
        """Seconds from its start to its end."""
        return self.end - self.start

    @property
    def completion(self) -> float:
        """Both."""
        return self.end - self.submit


class Point(NamedTuple):
    """From the instant `at` (s) on so many nodes are allocated, to so many running jobs, and so many have ended."""

    at: float
    nodes: int
    running: int
    ended: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a workload: its jobs, and what the agent did.

    `curve` ends when the last job has ended.
    `resizes` are the agent's own records of them (`ResizeTable.latest`).
    """

    ran: Sequence[Ran]
    curve: Sequence[Point]
    actions: Sequence[Action] = ()
    resizes: Sequence[dict[str, Any]] = field(default_factory=tuple)

    @property
    def node_seconds(self) -> float:
        """What the jobs have held."""
        return sum((b.at - a.at) * a.nodes for a, b in pairwise(self.curve))


class _World:
    """The simulated cluster, the programs in its jobs, and the agent between them."""

    def __init__(self, entries: Sequence[Entry], policy: str, cost: Cost, synchronous: bool, site: Site) -> None:
        self._site = site
        self._entries = {e.spec.name: e for e in entries}
        self._cost = cost
        self._synchronous = synchronous
        self.engine = Engine(site.cluster, 0.0, duration=self._begin)
        self.backend = MockBackend(self.engine, _USER)
        self.clock = self.backend.clock
        self._controller = Controller(self.engine)
        self._numbers: dict[str, int] = {}
        self._begun: list[str] = []
        self._started: set[int] = set()
        self._running: dict[int, Application] = {}
        self._actions: list[Action] = []
        self._curve: list[Point] = []
        settings = {
            **site.settings,
            "agent": {**site.settings["agent"], "seed": 1},
            "slurm": {**site.settings["slurm"], "backend": "mock"},
            "dmr": {**site.settings.get("dmr", {}), "policy": policy},
            "asa": {"predictor": "last"},
        }
        self.app = App(config_of(settings), self.backend, self.clock, Store(":memory:"))
        for entry in entries:
            self.engine.call_at(entry.submit, partial(self._submit, entry))

    async def start(self) -> None:
        """The agent begins."""
        await self.app.start()
        malleable = self.app.part(MalleablePart).controller
        heard = (malleable, self.app.observer, self.clock, lambda _uid: True, self.app.want_look)
        self._programs = Programs(*heard)

    def _submit(self, entry: Entry) -> None:
        self._numbers[entry.spec.name] = self._controller.submit(_USER, entry.spec)

    def _begin(self, spec: JobSpec) -> Work:
        """A job gets its nodes. Of a malleable one its program will say when it ends."""
        number, entry = self._numbers[spec.name], self._entries[spec.name]
        self._started.add(number)
        if not entry.malleable:
            around = self._site.launch + self._site.clear
            return Work(around + entry.model.seconds(len(self.engine.job(number).nodes)))
        self._begun.append(spec.name)
        return Work(math.inf)

    def ask(self, request: wire.Request) -> wire.Reply:
        """What the agent answers the user."""
        return self._programs.reply(self.engine.uid_of(_USER), request)

    def next_event(self) -> float:
        """When something happens next in the cluster or in a program; infinity when nothing will."""
        due = self.clock.next_event()
        programs = min((p.at for p in self._running.values()), default=math.inf)
        return min(programs, math.inf if due is None else due)

    def advance_to(self, time: float) -> None:
        """Let time pass, and every program do what it does then."""
        self.clock.advance_to(time)
        for name in self._begun:
            number, entry = self._numbers[name], self._entries[name]
            job = self.engine.job(number)
            start = (job.start or 0.0) + self._site.launch + self._site.boot
            program = Application(
                number, entry.model, entry.factor, job.nodes, start, self.ask, self._cost, self._synchronous
            )
            self._running[number] = program
        self._begun.clear()
        for number, program in list(self._running.items()):
            job = self.engine.records[number]
            if job.state is not JobState.RUNNING:
                raise RuntimeError(f"{job.name} is {job.state}")
            if program.at <= self.clock.now() and program.step(self.clock.now()):
                gone = self.clock.now() + self._site.leave + self._site.clear
                self.engine.call_at(gone, partial(self.engine.end, job, JobState.COMPLETED))
                self._actions += self._running.pop(number).actions

    def note(self) -> None:
        """Add a point to the curve where something has changed."""
        owners = self.engine.owner
        running = len(set(owners.values()) & self._started)
        point = Point(self.clock.now(), len(owners), running, len(self._started) - running)
        if not self._curve or self._curve[-1][1:] != point[1:]:
            self._curve.append(point)

    def outcome(self) -> Outcome:
        """Once all is over."""
        ran = []
        for name, number in self._numbers.items():
            job = self.engine.records[number]
            if job.state is not JobState.COMPLETED or job.start is None or job.end is None:
                raise RuntimeError(f"{name} did not complete: {job.state}")
            start, end = job.start + self._site.launch, job.end - self._site.clear
            held = job.node_seconds - self._site.clear * job.num_nodes
            ran.append(Ran(name, self._entries[name].malleable, job.submit, start, end, held))
        return Outcome(ran, self._curve, self._actions, self.app.store.resizes.latest(limit=1_000_000))

    @property
    def over(self) -> bool:
        """Whether all jobs have ended."""
        return not self._running and not self.engine.active and len(self._numbers) == len(self._entries)


async def drive(
    entries: Sequence[Entry],
    policy: str = "wide",
    cost: Cost = COST,
    synchronous: bool = True,
    site: Site = SITE,
) -> Outcome:
    """Run a workload to its end; malleable jobs resize as the policy of that name decides.

    Without malleable jobs there is nothing for an agent to do, and none is asked. RuntimeError when a job does not
    complete.
    """
    world = _World(entries, policy, cost, synchronous, site)
    loop = None
    if any(e.malleable for e in entries):
        await world.start()
        loop = world.app.loop
    due = math.inf
    try:
        while not world.over:
            if loop is not None:
                soon = world.clock.now() + _GATHER
                due = min(due, soon if loop.woken else max(loop.next_pass(), soon))
            world.advance_to(min(world.next_event(), due))
            if loop is not None and world.clock.now() >= due:
                due = math.inf
                await loop.one_pass()
            world.note()
        return world.outcome()
    finally:
        await world.app.close()
