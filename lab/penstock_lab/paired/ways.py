"""Ways to submit a chain of stages into a simulated queue as it is now, and what each came to.

The plain chain is what people do without Penstock: a job a stage, all at once, each with `--dependency=afterok` on the
one before. What a stage's script does is `bench-stage SECONDS`.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from penstock.api import JobSpec, JobState
from penstock.future.past import PastRecorder
from penstock.workflow.metrics import gap_before, run_metrics
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase
from penstock.workflow.strategies.cuts import Cut, place_units, singles
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.speedup import Work
from penstock_lab.papers.drive import Submission, follow

__all__ = ["Outcome", "contiguous_cuts", "plain", "seconds_of", "seeded", "under_agent"]

_USER: Final = "scientist"
_STAGE: Final = re.compile(r"bench-stage ([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way came to: `makespan` from the submission to the last stage's end, `waits` the perceived wait of each
    job in its order (its start minus the end of the one before; seconds), node-seconds used, jobs taken back because
    they had started too early, and which strategy it was in the end."""

    makespan: float
    waits: tuple[float, ...]
    node_seconds: float
    misses: int = 0
    by: str = ""

    @property
    def later(self) -> float:
        """The perceived waits of all jobs but the first, together (s)."""
        return sum(self.waits[1:])

    def told(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Outcome:
        """What `told` has written."""
        return cls(told["makespan"], tuple(told["waits"]), told["node_seconds"], told["misses"], told["by"])


def seconds_of(spec: JobSpec) -> Work:
    """What a job of ours has to do: its stages one after the other."""
    return Work(sum(float(text) for text in _STAGE.findall(spec.script)))


def contiguous_cuts(workflow: Workflow) -> Iterator[Cut]:
    """Every way to run neighbouring stages of a chain as one job: 2 ** (stages - 1), a job a stage the first."""
    names = [stage.name for stage in workflow.order]
    for joints in itertools.product((False, True), repeat=len(names) - 1):
        groups = [[names[0]]]
        for name, joined in zip(names[1:], joints, strict=True):
            if joined:
                groups[-1].append(name)
            else:
                groups.append([name])
        yield tuple(("+".join(group), tuple(group)) for group in groups)


def plain(engine: Engine, workflow: Workflow, cut: Cut | None = None) -> Outcome:
    """All jobs are submitted now, each after the one before. RuntimeError if one of them does not complete."""
    return _chain(engine, place_units(workflow, cut or singles(workflow.order)), aged=False)


def seeded(engine: Engine, workflow: Workflow, cut: Cut | None = None) -> Outcome:
    """The same, but that each job is eligible for an instant before it gets its dependency, so that it ages from now on
    also where a job that depends on another does not."""
    return _chain(engine, place_units(workflow, cut or singles(workflow.order)), aged=True)


def under_agent(
    engine: Engine,
    workflow: Workflow,
    strategy: str,
    settings: Mapping[str, object],
    *,
    shared: bool = False,
    past: PastRecorder | None = None,
) -> Outcome:
    """An agent that begins now runs the workflow; `shared`: it finds a site where jobs share nodes, `past`: what it has
    seen of the queue. RuntimeError if it does not complete."""
    if shared:
        engine.config = replace(engine.config, select_type="select/cons_tres")
    submission = Submission(engine.now, workflow)
    (run,) = asyncio.run(follow(engine, [submission], strategy, settings, seed=1, past=past))
    if run.phase is not RunPhase.COMPLETED:
        raise RuntimeError(f"{workflow.name} under {strategy}: {run.phase.value}")
    metrics = run_metrics(run)
    assert metrics.makespan is not None
    waits = tuple(gap_before(run, i) or 0.0 for i in range(len(run.stages)))
    return Outcome(metrics.makespan, waits, metrics.node_hours * 3600.0, metrics.misses, run.acting)


def _chain(engine: Engine, units: Sequence[Stage], *, aged: bool) -> Outcome:
    controller, begin = Controller(engine), engine.now
    jobs: list[SimJob] = []
    for unit in units:
        after = f"afterok:{jobs[-1].id}" if jobs else None
        spec = JobSpec(
            unit.name, f"#!/bin/sh\n{unit.command}\n", unit.nodes, unit.time_limit, dependency=None if aged else after
        )
        number = controller.submit(_USER, spec, seconds_of(spec))
        jobs.append(engine.job(number))
        if aged and after is not None:
            engine.advance(engine.now)  # it is eligible, and the scheduler leaves a new batch job alone for a while
            controller.update(_USER, number, dependency=after)
    while (due := engine.next_event()) is not None and not jobs[-1].state.ended:
        engine.advance(due)
    waits, ready = [], begin
    for job in jobs:
        if job.state is not JobState.COMPLETED or job.start is None or job.end is None:
            raise RuntimeError(f"{job.name}, job {job.id}: {job.state.value}")
        waits.append(max(job.start - ready, 0.0))
        ready = job.end
    used = sum(unit.nodes * ((job.end or 0.0) - (job.start or 0.0)) for unit, job in zip(units, jobs, strict=True))
    return Outcome(ready - begin, tuple(waits), used, by="plain")
