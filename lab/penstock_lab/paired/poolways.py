"""Ways to get a pool its allocations in a simulated queue as it is now, and what each came to.

What people do without Penstock: HyperQueue's automatic allocation (allocations of one fixed time limit, so many queued
at once, while tasks wait that would fill another worker), or one job of the whole size.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from penstock.api import JobSpec, JobState
from penstock.app import App
from penstock.config import config_of
from penstock.state.store import Store
from penstock.waits.part import WaitsPart
from penstock_lab.mock.backend import MockBackend
from penstock_lab.mock.clock import VirtualClock
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.speedup import Work
from penstock_lab.paired.poolsim import PoolWorkload, SimPool
from penstock_pool.auto.acts import AutoActs
from penstock_pool.auto.order import AutoOrder, AutoState
from penstock_pool.auto.passes import AutoPass
from penstock_pool.folder import PoolFolder

__all__ = ["PoolOutcome", "PoolSetting", "automatic", "hyperqueue", "one_job"]

_USER: Final = "scientist"
_HQ_IDLE: Final = 300.0  # hq alloc add --idle-timeout, its default
_HQ_LOOK: Final = 10.0
_LOOK: Final = 120.0
_REACTION: Final = 5.0
_LONGEST: Final = 40 * 86400.0


@dataclass(frozen=True, slots=True)
class PoolSetting:
    """What the user allows in every way: nodes, the longest time limit (s), cores of a node."""

    max_nodes: int
    limit: float
    cores: int


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """What one way came to: seconds until the last task had ended, node-seconds that its jobs held, and of these those
    without a task, node-seconds of whose cores none worked weighed by cores, and jobs that were submitted."""

    completion: float
    held: float
    idle: float
    idle_cores: float
    jobs: int
    cancelled: int = 0
    over: float = 0.0

    def told(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> PoolOutcome:
        """What `told` has written."""
        return cls(**told)


def _finish(pool: SimPool, jobs: int, cancelled: int = 0) -> PoolOutcome:
    assert pool.finished is not None
    return PoolOutcome(
        pool.finished - pool.begin,
        pool.held,
        pool.held - pool.busy,
        pool.held - pool.core_busy / pool.cores,
        jobs,
        cancelled,
        pool.over,
    )


def _run(pool: SimPool, advance: Callable[[float], object], policy: Callable[[], float]) -> None:
    """Until all tasks have ended and every member has left. `policy` acts, and says when it wants to be asked again."""
    engine = pool.engine
    again = engine.now
    while pool.finished is None or pool.members:
        if engine.now - pool.begin > _LONGEST:
            raise RuntimeError(f"{pool.done} tasks had ended after {_LONGEST:g} s")
        due = min(engine.next_event() or math.inf, pool.next_event(), again)
        advance(max(due, engine.now))
        pool.step()
        if engine.now >= again:
            again = policy()
            pool.step()


class _Plain:
    """Jobs submitted and followed without an agent."""

    def __init__(self, engine: Engine, workload: PoolWorkload, setting: PoolSetting, idle: float) -> None:
        self.engine, self.setting = engine, setting
        self.pool = SimPool(engine, workload, setting.cores, idle, gives_back=False, most=setting.max_nodes)
        self.jobs: list[int] = []
        self._controller = Controller(engine)

    def submit(self, nodes: int) -> None:
        spec = JobSpec("worker", "#!/bin/sh\n", nodes, self.setting.limit)
        job = self._controller.submit(_USER, spec, Work(math.inf))
        self.jobs.append(job)
        self.pool.watch(job)

    def alive(self, state: JobState) -> int:
        found = (self.engine.jobs.get(job) for job in self.jobs)
        return sum(1 for job in found if job is not None and job.state is state)

    def advance(self, to: float) -> None:
        self.engine.advance(to)
        self.engine.take_effects()

    def over(self) -> PoolOutcome:
        cancelled = 0
        for job in self.jobs:
            row = self.engine.jobs.get(job)
            if row is not None and row.state is JobState.PENDING:
                cancelled += 1
                self._controller.cancel(_USER, job)
        return _finish(self.pool, len(self.jobs), cancelled)


def hyperqueue(engine: Engine, workload: PoolWorkload, setting: PoolSetting, backlog: int) -> PoolOutcome:
    """`hq alloc add slurm --backlog B --max-worker-count N --time-limit T`: workers of one node; another is queued
    while fewer than the backlog are, fewer than the most are there or queued, and tasks wait that those could not take.
    """
    plain = _Plain(engine, workload, setting, _HQ_IDLE)

    def policy() -> float:
        queued, running = plain.alive(JobState.PENDING), plain.alive(JobState.RUNNING)
        joined = len({m.job for m in plain.pool.members.values()})
        free = sum(m.cores - m.running for m in plain.pool.members.values())
        coming = (queued + max(running - joined, 0)) * setting.cores
        while queued < backlog and queued + running < setting.max_nodes:
            if len(plain.pool.waiting) <= free + coming:
                break
            plain.submit(1)
            queued, coming = queued + 1, coming + setting.cores
        return engine.now + _HQ_LOOK if plain.pool.finished is None else math.inf

    _run(plain.pool, plain.advance, policy)
    return plain.over()


def one_job(engine: Engine, workload: PoolWorkload, setting: PoolSetting) -> PoolOutcome:
    """One job of all nodes, again whenever it has ended and there is more to do."""
    plain = _Plain(engine, workload, setting, _HQ_IDLE)

    def policy() -> float:
        if plain.pool.waiting and not plain.alive(JobState.PENDING) and not plain.alive(JobState.RUNNING):
            plain.submit(setting.max_nodes)
        return engine.now + _HQ_LOOK if plain.pool.finished is None else math.inf

    _run(plain.pool, plain.advance, policy)
    return plain.over()


def automatic(engine: Engine, workload: PoolWorkload, setting: PoolSetting) -> PoolOutcome:
    """`penstock pool auto`: the agent's own passes, executor and predictor, from nothing learned."""
    return asyncio.run(_automatic(engine, workload, setting))


async def _automatic(engine: Engine, workload: PoolWorkload, setting: PoolSetting) -> PoolOutcome:
    config = config_of(
        {"agent": {"interval": 300, "idle_interval": 300, "seed": 1}, "slurm": {"backend": "mock", "min_interval": 1.0}}
    )
    backend = MockBackend(engine, _USER)
    clock = backend.clock
    assert isinstance(clock, VirtualClock)
    app = App(config, backend, clock, Store(":memory:"))
    await app.start()
    assert app.loop is not None
    order = AutoOrder(setting.max_nodes, setting.limit, max_jobs=setting.max_nodes)
    state = AutoState(order)
    pool = SimPool(engine, workload, setting.cores, order.idle, gives_back=True, most=setting.max_nodes)
    folder = PoolFolder("sim", Path("/nonexistent"))
    one = AutoPass(backend, AutoActs(app.executor, folder, order), app.part(WaitsPart).predictions, lambda: None)
    seen: set[str] = set()
    gone: set[str] = set()
    jobs = 0
    again = passed = clock.now()
    known: tuple[int, int, bool] = (0, 0, False)
    try:
        while pool.finished is None or pool.members:
            if engine.now - pool.begin > _LONGEST:
                raise RuntimeError(f"{pool.done} tasks had ended after {_LONGEST:g} s")
            clock.advance_to(max(min(engine.next_event() or math.inf, pool.next_event(), again), clock.now()))
            pool.step()
            # Something of the pool's own has changed: its scheduler says so, and the agent looks soon.
            what = (len(pool.members), pool.phase, bool(pool.waiting))
            if what != known:
                known, again = what, min(again, max(passed + _REACTION, clock.now()))
            if pool.finished is not None:
                again = math.inf
            if clock.now() < again:
                continue
            passed = clock.now()
            await app.loop.one_pass()
            snapshot = app.observer.last
            assert snapshot is not None
            await one.run(state, pool.demand(), snapshot)
            if state.paused:
                raise RuntimeError(state.paused)
            for each in state.allocations:
                if each.name not in seen and each.job is not None:
                    seen.add(each.name)
                    jobs += 1
                    pool.watch(each.job)
                if each.leaving and each.started is not None and each.job is not None:
                    pool.drain(each.job)
                if each.leaving and each.started is None and each.name not in gone:
                    gone.add(each.name)
            pool.step()
            again = clock.now() + _LOOK
        for each in state.allocations:
            row = engine.jobs.get(each.job or 0)
            if row is not None and row.state is JobState.PENDING:
                gone.add(each.name)
                engine.end(row, JobState.CANCELLED)
    finally:
        await app.close()
    return _finish(pool, jobs, len(gone))
