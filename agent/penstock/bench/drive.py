"""The whole agent over the simulated Slurm, in virtual time, among the jobs of others.

Everything between a workflow file and sbatch is the code that runs in production. Simulated are Slurm, other people's
jobs, and what a stage's script does: where the strategy gives it a guard it first waits for its parents, idle, for at
most the grace time, and else goes back into the queue; then it works for its time (`bench-stage SECONDS`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.api import JobSpec, JobState
from penstock.app import App
from penstock.bench.site import Arrival
from penstock.config import Config
from penstock.slurm.mock.backend import MockBackend
from penstock.slurm.mock.controller import Controller
from penstock.slurm.mock.engine import Engine
from penstock.slurm.mock.model import ClusterConfig, Effect, Ended, Requeued, Started
from penstock.slurm.mock.speedup import Work
from penstock.store import Store
from penstock.workflow.model import Workflow
from penstock.workflow.state import WorkflowRun, run_from_dict

__all__ = ["Submission", "drive"]

_REACTION: Final = 10.0
"""Seconds until the agent sees what became of a job of its own: the default shortest time between two looks."""
_LOOK: Final = 300.0
_TOO_EARLY: Final = 75
_STAGE: Final = re.compile(r"bench-stage ([0-9.]+)")
_GUARD: Final = re.compile(r"^#PENSTOCK-GUARD jobs=([0-9,]+) grace=([0-9.]+)", re.MULTILINE)
_SPREAD: Final = 0.05  # of real run times around the expected ones (log-normal)


@dataclass(frozen=True, slots=True)
class Submission:
    """A workflow that is submitted at a time (s)."""

    at: float
    workflow: Workflow


@dataclass(slots=True)
class _Own:
    """A job of a workflow that has started: how long its work takes, and the guard before it: which jobs it waits for,
    until when."""

    seconds: float
    parents: tuple[int, ...]
    patience: float
    working: bool = False


@dataclass(slots=True)
class _World:
    engine: Engine
    backend: MockBackend
    app: App
    seed: int
    own: dict[int, _Own] = field(default_factory=dict)

    def note(self, effects: Iterable[Effect]) -> bool:
        """Act on what happened; whether it concerns a job of the agent."""
        concerned = False
        for effect in effects:
            job = self.engine.records[effect.job]
            if not job.name.startswith("penstock."):
                continue
            concerned = True
            if isinstance(effect, Started):
                self.own[job.id] = self._begun(job.spec)
            elif isinstance(effect, Ended | Requeued):
                self.own.pop(job.id, None)
        if concerned:
            self._work()
        return concerned

    def expire(self) -> None:
        """Guards that have waited long enough put their jobs back into the queue, or end them where they may not."""
        for number, own in list(self.own.items()):
            if not own.working and self.engine.now >= own.patience:
                job = self.engine.jobs[number]
                if isinstance(job.spec, JobSpec) and job.spec.requeue:
                    self.engine.requeue(job)
                else:
                    self.engine.end(job, JobState.FAILED, _TOO_EARLY)

    def next_expiry(self) -> float:
        """When the next guard gives up."""
        return min((own.patience for own in self.own.values() if not own.working), default=math.inf)

    def _work(self) -> None:
        """Whoever waits for nobody any more begins to work."""
        for number, own in self.own.items():
            if not own.working and all(self.engine.records[p].state is JobState.COMPLETED for p in own.parents):
                own.working = True
                self.engine.retime(self.engine.jobs[number], self.engine.now + own.seconds)

    def _begun(self, spec: object) -> _Own:
        assert isinstance(spec, JobSpec)
        guard = _GUARD.search(spec.script)
        if guard is None:
            return _Own(self._seconds(spec), (), math.inf)
        parents = tuple(int(number) for number in guard[1].split(","))
        return _Own(self._seconds(spec), parents, self.engine.now + float(guard[2]))

    def _seconds(self, spec: JobSpec) -> float:
        """What the job's stages take: the expected times, each missed by a little that depends on its name alone."""
        total = 0.0
        workflow = spec.name.split(".", 4)[3]
        for number, text in enumerate(_STAGE.findall(spec.script)):
            rng = np.random.default_rng([self.seed, *workflow.encode(), number, int(float(text))])
            total += float(text) * math.exp(_SPREAD * float(rng.standard_normal()))
        return total


async def drive(
    cluster: ClusterConfig,
    others: Iterator[Arrival],
    submissions: Sequence[Submission],
    strategy: str,
    settings: Mapping[str, object],
    seed: int,
) -> list[WorkflowRun]:
    """Submit each workflow in its time under a strategy; the finished runs in that order.

    `settings` is the agent's configuration beside what the simulation needs (`Config`).
    """
    config = Config.model_validate(
        {
            **settings,
            "agent": {"interval": _LOOK, "idle_interval": _LOOK, "seed": seed},
            "slurm": {"backend": "mock", "min_interval": 1.0},
        }
    )
    engine = Engine(cluster, 0.0, duration=_until_told)
    backend = MockBackend(engine, "scientist")
    app = App(config, backend, backend.clock, Store(":memory:"))
    await app.start()
    assert app.workflows is not None and app.loop is not None
    world = _World(engine, backend, app, seed)
    _let_arrive(engine, others)
    waiting = sorted(submissions, key=lambda s: s.at)
    numbers: list[int] = []
    try:
        while waiting or app.workflows.runs:
            while waiting and waiting[0].at <= backend.now():
                numbers.append(await app.workflows.submit(0, waiting.pop(0).workflow, strategy))
            await app.loop.one_pass()
            target = app.loop.next_pass() if app.workflows.runs or not waiting else waiting[0].at
            _advance(world, min(target, waiting[0].at if waiting else math.inf))
    finally:
        states = {number: state for number, _uid, state in app.store.runs()}
        await app.close()
    return [run_from_dict(states[number]) for number in numbers]


def _until_told(spec: JobSpec) -> Work:
    """Jobs of workflows end when the driver says so."""
    return Work(math.inf)


def _let_arrive(engine: Engine, others: Iterator[Arrival]) -> None:
    controller = Controller(engine)

    def submit(arrival: Arrival) -> None:
        controller.submit(arrival.user, arrival.spec, Work(arrival.seconds))
        following = next(others, None)
        if following is not None:
            engine.call_at(following.submit, lambda: submit(following))

    first = next(others, None)
    if first is not None:
        engine.call_at(first.submit, lambda: submit(first))


def _advance(world: _World, target: float) -> None:
    """Let time pass to `target`, or shortly after something has happened to a job of the agent."""
    clock = world.backend.clock
    target = max(target, clock.now() + 0.01)
    while True:
        due = min(clock.next_event() or math.inf, world.next_expiry())
        if due > target:
            break
        effects = clock.advance_to(due)
        world.expire()
        if world.note(effects):
            target = min(target, clock.now() + _REACTION)
    world.note(clock.advance_to(target))
