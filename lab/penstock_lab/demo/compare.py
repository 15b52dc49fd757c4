"""One workflow, twice: submitted ahead of its queue wait (asa), and stage by stage (perstage), under the same load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.api import Job, JobSpec
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import WorkflowRun
from penstock_lab.demo.arena import Arena
from penstock_lab.demo.timeline import Timeline
from penstock_lab.demo.view import View

__all__ = ["Comparison", "Outcome", "alternatives", "compare", "deviation"]

_LIMIT = 600.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is run. Times in seconds; `backlog` rival jobs of `rival_nodes` nodes are kept pending throughout.

    The stages that are waited for must last longer than the largest alternative, so that every submission falls into
    the run of its parent.
    """

    stages: tuple[float, ...] = (121.0, 121.0, 90.0)
    largest: float = 120.0
    warm_ups: int = 20
    stage_nodes: int = 2
    rival_nodes: int = 2
    rival_seconds: float = 8.0
    backlog: int = 6
    strategies: tuple[str, ...] = ("asa", "perstage")


@dataclass(slots=True)
class Outcome:
    """Finished runs by strategy, the waits observed in the warm-up, and pictures by strategy."""

    runs: dict[str, WorkflowRun] = field(default_factory=dict)
    timelines: dict[str, Timeline] = field(default_factory=dict)


def alternatives(largest: float) -> tuple[float, ...]:
    """53 waits from 1 s to `largest`, evenly spread."""
    return tuple(round(1.0 + i * (largest - 1.0) / 52, 2) for i in range(53))


class _Rivals:
    """Somebody else's short jobs, always some in the queue."""

    def __init__(self, arena: Arena, plan: Comparison) -> None:
        self._arena = arena
        self._plan = plan
        self._mine: set[int] = set()

    async def top_up(self, jobs: Sequence[Job]) -> None:
        alive = {j.id for j in jobs if not j.state.ended}
        known = {j.id for j in jobs}
        # Until the picture shows a job it counts as pending.
        pending = sum(1 for j in jobs if j.id in self._mine and j.pending) + len(self._mine - known)
        self._mine &= alive | (self._mine - known)
        for number in range(min(2, self._plan.backlog - pending)):
            seconds = self._plan.rival_seconds * (0.75 + 0.5 * ((len(known) + number) % 3) / 2)
            script = f"#!/bin/bash\nsleep {seconds:g}\n"
            self._mine.add(
                await self._arena.rival(JobSpec("rival", script, self._plan.rival_nodes, 60.0, output="/dev/null"))
            )

    async def stop(self) -> None:
        for job in self._mine:
            await self._arena.cancel_rival(job)
        self._mine.clear()


async def compare(arena: Arena, plan: Comparison, view: View, workdir: str | None) -> Outcome:
    """Warm the learner up, then run the workflow under each strategy, one after the other."""
    outcome = Outcome()
    rivals = _Rivals(arena, plan)
    labels: dict[int, str] = {}
    if plan.warm_ups:
        await _warm_up(arena, plan, rivals, view, workdir, labels)
    for strategy in plan.strategies:
        timeline = Timeline(lambda job: labels.get(job.id, "rival"))
        number = await arena.submit(_workflow(plan, workdir), strategy)
        view.say(f"workflow {number} submitted under {strategy}")
        run = await _follow(arena, number, rivals, view, labels, timeline)
        view.say(f"workflow {number} ({strategy}) is {run.phase.value}")
        outcome.runs[strategy] = run
        outcome.timelines[strategy] = timeline
    await rivals.stop()
    return outcome


def _workflow(plan: Comparison, workdir: str | None) -> Workflow:
    stages: list[Stage] = []
    for i, seconds in enumerate(plan.stages):
        after = (stages[-1].name,) if stages else ()
        stages.append(Stage(f"stage-{i + 1}", plan.stage_nodes, _LIMIT, seconds, f"sleep {seconds:g}", after))
    return Workflow("demo", tuple(stages), workdir=workdir)


async def _warm_up(
    arena: Arena, plan: Comparison, rivals: _Rivals, view: View, workdir: str | None, labels: dict[int, str]
) -> None:
    """Single jobs of the stages' geometry: each is predicted, waits among the rivals, and is learned from."""
    view.say(f"warm-up: {plan.warm_ups} jobs whose waits are learned")
    numbers: list[int] = []
    while True:
        jobs = await arena.jobs()
        await rivals.top_up(jobs)
        runs = await arena.runs()
        open_runs = [n for n in numbers if not runs[n].phase.final]
        _label(labels, {n: runs[n] for n in numbers}, "warm-up")
        if len(numbers) == plan.warm_ups and not open_runs:
            return
        if len(numbers) < plan.warm_ups and len(open_runs) < 8:
            stage = Stage("warm-up", plan.stage_nodes, _LIMIT, 2.0, "sleep 2")
            numbers.append(await arena.submit(Workflow("warm-up", (stage,), workdir=workdir), "asa"))
        view.show("warm-up", jobs, labels)
        await arena.tick()


async def _follow(
    arena: Arena, number: int, rivals: _Rivals, view: View, labels: dict[int, str], timeline: Timeline
) -> WorkflowRun:
    told: dict[str, str] = {}
    marked: set[str] = set()
    while True:
        runs = await arena.runs()
        run = runs[number]
        _label(labels, {number: run})
        jobs = await arena.jobs()
        timeline.sample(arena.now(), jobs)
        for stage in run.stages:
            if told.get(stage.name) != stage.phase.value:
                told[stage.name] = stage.phase.value
                if stage.phase.value in ("queued", "running", "done", "failed"):
                    view.say(f"{run.strategy}: {stage.name} is {stage.phase.value}")
            if stage.submitted is not None and stage.name not in marked:
                marked.add(stage.name)
                timeline.mark(stage.submitted, f"submit {stage.name}")
        view.show(f"workflow {number} under {run.strategy}", jobs, labels, run)
        if run.phase.final:
            return run
        await rivals.top_up(jobs)
        await arena.tick()


def _label(labels: dict[int, str], runs: Mapping[int, WorkflowRun], name: str | None = None) -> None:
    for run in runs.values():
        labels.update({s.job: name or s.name for s in run.stages if s.job is not None})


def deviation(run: WorkflowRun, i: int) -> float:
    """Seconds between a stage's submission and (its parent's expected end - its estimate), both as known then."""
    stage = run.stages[i]
    if stage.submitted is None or stage.parent_end is None or stage.estimate is None:
        return math.inf
    return stage.submitted - (stage.parent_end - stage.estimate)
