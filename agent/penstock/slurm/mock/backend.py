"""The simulated Slurm as a `Backend`, and the virtual clock that drives it.

A driver of an agent alternates: let the agent make a pass, then jump to what happens next.

    backend = virtual_cluster(ClusterConfig(nodes=8), user="alice")
    clock = backend.clock
    while not finished():
        due = await agent.tick()                                # seconds until the agent wants to look again
        clock.advance_to(min(clock.now() + due, clock.next_event() or math.inf))
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from penstock.api import AccountingRecord, Allocation, Job, JobSpec, JobState, Node, Partition, SiteConfig, Step
from penstock.errors import NotNow
from penstock.slurm.mock import views
from penstock.slurm.mock.controller import Controller
from penstock.slurm.mock.engine import Engine
from penstock.slurm.mock.model import ClusterConfig, Effect

__all__ = ["Driver", "MockBackend", "VirtualClock", "virtual_cluster"]


class Driver(Protocol):
    """Who lets the engine's time pass and acts on its effects: the virtual clock, or the driver of real processes."""

    def now(self) -> float:
        """The cluster's time."""
        ...

    def settle(self) -> None:
        """Bring the engine to this instant: what can happen now has happened afterwards."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let time pass, in the clock's own way."""
        ...

    async def granted(self, engine: Engine, job: int, patience: float) -> bool:
        """Whether the pending job has begun, waiting at most `patience` seconds for it."""
        ...

    def steps(self, job: int) -> Iterable[Step]:
        """Running steps besides those of Slurm itself."""
        ...


class VirtualClock:
    """A clock that moves only when told to. Several engines (clusters) may share it.

    `advance_to` and `advance` return the effects that came of it, for tests and logs; nobody has to act on them.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._engines: list[Engine] = []

    def attach(self, engine: Engine) -> None:
        """Let this clock drive the engine, too."""
        if engine not in self._engines:
            self._engines.append(engine)
            engine.advance(self._now)

    def now(self) -> float:
        """Seconds since the epoch of the simulation."""
        return self._now

    def next_event(self) -> float | None:
        """When something happens next by itself (a job ends, hits its limit, is forgotten…); None when nothing will."""
        return min((t for e in self._engines if (t := e.next_event()) is not None), default=None)

    def advance_to(self, time: float) -> list[Effect]:
        """Process everything up to and including `time`, in order; a time in the past means now."""
        effects: list[Effect] = []
        target = max(time, self._now)
        while (due := self.next_event()) is not None and due <= target:
            self._now = max(self._now, due)
            effects += self._drain(self._now)
        if target < math.inf:
            self._now = target
            effects += self._drain(target)
        return effects

    def advance(self, seconds: float) -> list[Effect]:
        """Let so many seconds pass."""
        return self.advance_to(self._now + seconds)

    def settle(self) -> None:
        """What can happen at this instant has happened afterwards."""
        self._drain(self._now)

    async def pause(self, seconds: float) -> None:
        """A blocking call takes virtual time: the clock moves on."""
        if seconds > 0:
            self.advance(seconds)

    async def granted(self, engine: Engine, job: int, patience: float) -> bool:
        """Only a start at this very instant counts: the caller holds up the one who moves the clock."""
        return engine.job(job).state is JobState.RUNNING

    def steps(self, job: int) -> Iterable[Step]:
        """None: there are no processes."""
        return ()

    def _drain(self, to: float) -> list[Effect]:
        effects: list[Effect] = []
        for engine in self._engines:
            engine.advance(to)
            effects += engine.take_effects()
        return effects


class MockBackend:
    """One user's view of a simulated cluster (`Backend`). `as_user` gives another user's view of the same cluster.

    In virtual time `allocate` grants what can start at this instant; else it withdraws the request and raises NotNow at
    once, whatever the patience, because a coroutine that waits would hold up the driver that moves the clock.
    """

    def __init__(self, engine: Engine, user: str, clock: Driver | None = None, *, name: str | None = None) -> None:
        self.name = name or engine.config.cluster
        self.engine = engine
        self.driver: Driver = clock or VirtualClock(engine.now)
        if isinstance(self.driver, VirtualClock):
            self.driver.attach(engine)
        self._user = user
        self._controller = Controller(engine)

    @property
    def clock(self) -> VirtualClock:
        """The virtual clock; TypeError when this cluster runs in real time."""
        if not isinstance(self.driver, VirtualClock):
            raise TypeError("this cluster runs in real time")
        return self.driver

    def as_user(self, user: str) -> MockBackend:
        """The same cluster as another user sees it."""
        return MockBackend(self.engine, user, self.driver, name=self.name)

    def now(self) -> float:
        """The cluster's clock."""
        return self.driver.now()

    def whoami(self) -> str:
        """Who asks."""
        return self._user

    async def site(self) -> SiteConfig:
        """The cluster's settings."""
        return self.engine.config.site()

    async def jobs(self) -> Sequence[Job]:
        """Every job in the controller's memory."""
        self.driver.settle()
        return views.jobs(self.engine)

    async def nodes(self) -> Sequence[Node]:
        """Every node."""
        self.driver.settle()
        return views.nodes(self.engine)

    async def partitions(self) -> Sequence[Partition]:
        """Every partition."""
        return views.partitions(self.engine)

    async def steps(self, job: int) -> Sequence[Step]:
        """The running steps of a job."""
        self.driver.settle()
        steps = self._controller.steps(job)
        return [*steps, *self.driver.steps(job)] if job in self.engine.jobs else []

    async def find(self, name: str) -> Sequence[int]:
        """The caller's jobs of this name."""
        self.driver.settle()
        return self._controller.find(self._user, name)

    async def history(
        self, *, ids: Collection[int] = (), name: str | None = None, since: float | None = None
    ) -> Sequence[AccountingRecord]:
        """Accounting; it never lags here."""
        self.driver.settle()
        return self._controller.history(self._user, ids, name, since)

    async def submit(self, spec: JobSpec) -> int:
        """Submit a batch job."""
        self.driver.settle()
        number = self._controller.submit(self._user, spec)
        self.driver.settle()
        return number

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """Nodes without a script; see the class for what patience means in virtual time.

        A coroutine that is cancelled withdraws its request, as an interrupted salloc does.
        """
        self.driver.settle()
        number = self._controller.allocate(self._user, spec)
        self.driver.settle()
        granted = False
        try:
            granted = await self.driver.granted(self.engine, number, patience)
        finally:
            if not granted:
                self._controller.cancel(self._user, number)
                self.driver.settle()
        if not granted:
            raise NotNow(f"no {spec.nodes} nodes were granted within {patience:g} s")
        return number

    async def merge(self, resizer: int, into: int) -> None:
        """Move the resizer's nodes."""
        await self.driver.pause(self.engine.config.merge_latency)
        self.driver.settle()
        self._controller.merge(self._user, resizer, into)
        self.driver.settle()

    async def shrink(self, job: int, keep: Collection[str]) -> None:
        """Take nodes from a running job."""
        await self.driver.pause(self.engine.config.shrink_latency)
        self.driver.settle()
        self._controller.shrink(self._user, job, keep)
        self.driver.settle()

    async def cancel(self, job: int) -> None:
        """Cancel a job."""
        self.driver.settle()
        self._controller.cancel(self._user, job)
        self.driver.settle()

    async def release(self, job: int) -> None:
        """Release a held job."""
        self.driver.settle()
        self._controller.release(self._user, job)
        self.driver.settle()

    async def update(
        self,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
    ) -> None:
        """Change a job."""
        self.driver.settle()
        self._controller.update(
            self._user, job, time_limit=time_limit, dependency=dependency, priority=priority, begin=begin
        )
        self.driver.settle()

    async def close(self) -> None:
        """Nothing to release: the cluster may have other users."""


def virtual_cluster(config: ClusterConfig | None = None, user: str = "alice", start: float = 0.0) -> MockBackend:
    """A simulated cluster under a virtual clock of its own, seen as `user`."""
    return MockBackend(Engine(config, start), user, VirtualClock(start))
