"""The whole agent over the simulated Slurm, in virtual time, among the jobs of others.

Everything between a workflow file and sbatch is the code that runs in production. Simulated are Slurm, other people's
jobs, and what a stage's script does: it works for its time (`bench-stage SECONDS`), after the guard that the strategy
may have given it (`slurm.mock.guard`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.api import JobSpec
from penstock.app import App
from penstock.config import config_of
from penstock.future.past import PastRecorder
from penstock.state.store import Store
from penstock.waits.live.recorder import keep_past
from penstock.workflow.documents import run_from_dict
from penstock.workflow.model import Workflow
from penstock.workflow.part import WorkflowPart
from penstock.workflow.scripts import read_job_name
from penstock.workflow.state import WorkflowRun
from penstock_lab.mock.backend import MockBackend
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.speedup import Work
from penstock_lab.papers.site import Arrival

__all__ = ["Submission", "drive", "follow", "let_arrive"]

_REACTION: Final = 10.0
"""Seconds until the agent sees what became of a job of its own: the default shortest time between two looks."""
_LOOK: Final = 300.0
_STAGE: Final = re.compile(r"bench-stage ([0-9.]+)")
_SPREAD: Final = 0.05  # of real run times around the expected ones (log-normal)


@dataclass(frozen=True, slots=True)
class Submission:
    """A workflow that is submitted at a time (s)."""

    at: float
    workflow: Workflow


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
    engine = Engine(cluster, 0.0, duration=lambda spec: Work(_seconds(spec, seed)))
    let_arrive(engine, others)
    return await follow(engine, submissions, strategy, settings, seed)


async def follow(
    engine: Engine,
    submissions: Sequence[Submission],
    strategy: str,
    settings: Mapping[str, object],
    seed: int,
    past: PastRecorder | None = None,
) -> list[WorkflowRun]:
    """The same on a cluster as it is now, with an agent that begins now; `past` is what it has seen of the queue."""
    config = config_of(
        {
            **settings,
            "agent": {"interval": _LOOK, "idle_interval": _LOOK, "seed": seed},
            "slurm": {"backend": "mock", "min_interval": 1.0},
        }
    )
    backend = MockBackend(engine, "scientist")
    store = Store(":memory:")
    if past is not None:
        keep_past(store, engine.config.cluster, past, backend.now())
    app = App(config, backend, backend.clock, store)
    await app.start()
    assert app.loop is not None
    waiting = sorted(submissions, key=lambda s: s.at)
    numbers: list[int] = []
    try:
        while waiting or app.part(WorkflowPart).controller.runs:
            while waiting and waiting[0].at <= backend.now():
                numbers.append(
                    await app.part(WorkflowPart).controller.submissions.submit(0, waiting.pop(0).workflow, strategy)
                )
            await app.loop.one_pass()
            target = app.loop.next_pass() if app.part(WorkflowPart).controller.runs or not waiting else waiting[0].at
            _advance(backend, min(target, waiting[0].at if waiting else math.inf))
    finally:
        states = {number: state for number, _uid, state in app.store.runs.latest()}
        await app.close()
    return [run_from_dict(states[number]) for number in numbers]


def _seconds(spec: JobSpec, seed: int) -> float:
    """What the job's stages take: the expected times, each missed by a little that depends on its name alone."""
    total = 0.0
    said = read_job_name(spec.name)
    assert said is not None
    workflow = said.workflow
    for number, text in enumerate(_STAGE.findall(spec.script)):
        rng = np.random.default_rng([seed, *workflow.encode(), number, int(float(text))])
        total += float(text) * math.exp(_SPREAD * float(rng.standard_normal()))
    return total


def let_arrive(engine: Engine, others: Iterator[Arrival]) -> None:
    """Others' jobs, in order of submission, are submitted in their time."""
    controller = Controller(engine)

    def submit(arrival: Arrival) -> None:
        controller.submit(arrival.user, arrival.spec, Work(arrival.seconds))
        following = next(others, None)
        if following is not None:
            engine.call_at(following.submit, lambda: submit(following))

    first = next(others, None)
    if first is not None:
        engine.call_at(first.submit, lambda: submit(first))


def _advance(backend: MockBackend, target: float) -> None:
    """Let time pass to `target`, or shortly after something has happened to a job of the agent."""
    clock, records = backend.clock, backend.engine.records
    target = max(target, clock.now() + 0.01)
    while (due := clock.next_event()) is not None and due <= target:
        effects = clock.advance_to(due)
        if any(read_job_name(records[effect.job].name) for effect in effects):
            target = min(target, due + _REACTION)
    clock.advance_to(target)
