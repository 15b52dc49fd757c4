"""The same stages twice, under the same load: as a plain chain (`sbatch --dependency=afterok`), and under Penstock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.api import Job, JobSpec
from penstock.workflow.metrics import WaitParts, waited
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import WorkflowRun
from penstock_lab.demo.arena import Arena
from penstock_lab.demo.timeline import Timeline
from penstock_lab.demo.view import View

__all__ = ["CHAIN", "Comparison", "Outcome", "StageTimes", "Way", "compare"]

CHAIN = "plain chain"
_LIMIT = 600.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is run. Times in seconds; `backlog` rival jobs of `rival_nodes` nodes are kept pending throughout.

    They wait longer than Slurm takes to work out priorities anew (PriorityCalcPeriod, whole minutes). Below that all
    priorities tie, and the order is that of submission, in which a plain chain keeps its place.
    """

    stages: tuple[float, ...] = (60.0, 60.0, 40.0)
    warm_ups: int = 6
    stage_nodes: int = 2
    rival_nodes: int = 2
    rival_seconds: float = 40.0
    backlog: int = 6
    strategy: str = "auto"


@dataclass(frozen=True, slots=True)
class StageTimes:
    """When a stage was submitted, started and ended (epoch s), which wait had been predicted, and where the time before
    its start went; None: not known."""

    name: str
    submitted: float | None
    start: float | None
    end: float | None
    waited: WaitParts | None


@dataclass(frozen=True, slots=True)
class Way:
    """How the stages fared in one way. `submitted_at` is when the first was asked for (epoch s)."""

    title: str
    submitted_at: float
    completed: bool
    stages: tuple[StageTimes, ...]
    timeline: Timeline

    @property
    def makespan(self) -> float | None:
        """From the submission to the last end (s); None unless all have completed."""
        ends = [stage.end for stage in self.stages if stage.end is not None]
        return max(ends) - self.submitted_at if self.completed and ends else None


@dataclass(slots=True)
class Outcome:
    """The ways, the plain chain first."""

    ways: list[Way] = field(default_factory=list)


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
    """Let some waits be learned, then run the stages in each way, one after the other."""
    rivals = _Rivals(arena, plan)
    labels: dict[int, str] = {}
    if plan.warm_ups:
        await _warm_up(arena, plan, rivals, view, workdir, labels)
    chain = await _chained(arena, plan, rivals, view, labels, workdir)
    number = await arena.submit(_workflow(plan, workdir), plan.strategy)
    view.say(f"workflow {number} submitted under {plan.strategy}")
    guided = await _followed(arena, number, rivals, view, labels)
    await rivals.stop()
    return Outcome([chain, guided])


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
        _at, jobs = await arena.look()
        await rivals.top_up(jobs)
        runs = await arena.runs()
        open_runs = [n for n in numbers if not runs[n].phase.final]
        _label(labels, {n: runs[n] for n in numbers}, "warm-up")
        if len(numbers) == plan.warm_ups and not open_runs:
            return
        if len(numbers) < plan.warm_ups and len(open_runs) < 8:
            stage = Stage("warm-up", plan.stage_nodes, _LIMIT, 2.0, "sleep 2")
            numbers.append(await arena.submit(Workflow("warm-up", (stage,), workdir=workdir), plan.strategy))
        view.show("warm-up", jobs, labels)
        await arena.tick()


async def _chained(
    arena: Arena, plan: Comparison, rivals: _Rivals, view: View, labels: dict[int, str], workdir: str | None
) -> Way:
    """All stages at once, each behind the one before it, past the agent: what everybody can do."""
    timeline = Timeline(lambda job: labels.get(job.id, "rival"))
    submitted_at = arena.now()
    jobs: dict[int, str] = {}
    for i, seconds in enumerate(plan.stages):
        name, script = f"stage-{i + 1}", f"#!/bin/bash\nsleep {seconds:g}\n"
        behind = f"afterok:{max(jobs)}" if jobs else None
        spec = JobSpec(name, script, plan.stage_nodes, _LIMIT, dependency=behind, workdir=workdir, output="/dev/null")
        jobs[await arena.own(spec)] = name
    labels |= jobs
    view.say(f"{CHAIN}: jobs {min(jobs)} to {max(jobs)} submitted, each behind the one before it")
    seen: dict[int, Job] = {}
    while not all(job in seen and seen[job].state.ended for job in jobs):
        at, queue = await arena.look()
        timeline.sample(at, queue)
        for job in queue:
            if job.id in jobs and (job.id not in seen or seen[job.id].state is not job.state):
                if job.running or job.state.ended:
                    view.say(f"{CHAIN}: {jobs[job.id]} is {str(job.state).lower()}")
                seen[job.id] = job
        view.show(CHAIN, queue, labels)
        await rivals.top_up(queue)
        await arena.tick()
    _mark(timeline, {jobs[number]: job.submit for number, job in seen.items()})
    ready, stages = submitted_at, []
    for number, name in jobs.items():
        job = seen[number]
        wait = None if job.start is None else WaitParts(max(job.start - ready, 0.0), 0.0, 0.0)
        stages.append(StageTimes(name, job.submit, job.start, job.end, wait))
        ready = job.end or ready
    done = all(job.state.value == "COMPLETED" for job in seen.values())
    return Way(f"{CHAIN} (sbatch -d afterok)", submitted_at, done, tuple(stages), timeline)


async def _followed(arena: Arena, number: int, rivals: _Rivals, view: View, labels: dict[int, str]) -> Way:
    timeline = Timeline(lambda job: labels.get(job.id, "rival"))
    told: dict[str, str] = {}
    while True:
        runs = await arena.runs()
        run = runs[number]
        _label(labels, {number: run})
        at, jobs = await arena.look()
        timeline.sample(at, jobs)
        for stage in run.stages:
            if told.get(stage.name) != stage.phase.value:
                told[stage.name] = stage.phase.value
                if stage.phase.value in ("queued", "running", "done", "failed"):
                    view.say(f"{run.strategy}: {stage.name} is {stage.phase.value}")
        view.show(f"workflow {number} under {run.strategy}", jobs, labels, run)
        if run.phase.final:
            break
        await rivals.top_up(jobs)
        await arena.tick()
    view.say(f"workflow {number} ({run.strategy}) is {run.phase.value}")
    _mark(timeline, {stage.name: stage.submitted for stage in run.stages})
    stages = tuple(StageTimes(s.name, s.submitted, s.start, s.end, waited(run, i)) for i, s in enumerate(run.stages))
    acting = f" ({run.acting})" if run.acting != run.strategy else ""
    title = f"Penstock, strategy {run.strategy}{acting}"
    return Way(title, run.submitted_at, run.phase.value == "completed", stages, timeline)


def _mark(timeline: Timeline, submitted: Mapping[str, float | None]) -> None:
    for name, at in submitted.items():
        if at is not None:
            timeline.mark(at, f"submit {name}")


def _label(labels: dict[int, str], runs: Mapping[int, WorkflowRun], name: str | None = None) -> None:
    for run in runs.values():
        labels.update({s.job: name or s.name for s in run.stages if s.job is not None})
