"""Workflows as commands show them: both kinds alike, found by number, by wN or by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.cli.output import ago, clock, table
from penstock.errors import NotFound
from penstock.guided.state import GuidedRun, guided_from_dict
from penstock.workflow.metrics import perceived_wait
from penstock.workflow.state import Phase, WorkflowRun, run_from_dict

__all__ = ["STAGE_COLUMNS", "Shown", "Stage", "find", "shown"]

STAGE_COLUMNS: Final = ("stage", "phase", "job", "submit", "start", "end", "estimate", "perceived wait", "why")


@dataclass(frozen=True, slots=True)
class Stage:
    """One line of a workflow."""

    name: str
    phase: str
    job: int | None
    submitted: float | None
    start: float | None
    end: float | None
    estimate: float | None
    wait: float | None
    why: str | None

    def cells(self) -> tuple[object, ...]:
        """As a table shows it, under `STAGE_COLUMNS`."""
        times = (clock(self.submitted), clock(self.start), clock(self.end))
        return (self.name, self.phase, self.job, *times, ago(self.estimate), ago(self.wait), self.why)


@dataclass(frozen=True, slots=True)
class Shown:
    """A workflow. `guided`: its owner submitted the jobs, so only the owner can cancel them or submit them again."""

    number: int
    name: str
    strategy: str
    phase: str
    final: bool
    why: str | None
    stages: tuple[Stage, ...]
    guided: GuidedRun | None = None

    @property
    def title(self) -> str:
        """The workflow in a line."""
        text = f"workflow {self.number} {self.name} ({self.strategy}): {self.phase}"
        return f"{text} - {self.why}" if self.why else text

    def stage(self, name: str) -> Stage:
        """Raises `NotFound`."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = ", ".join(s.name for s in self.stages)
        raise NotFound(f"workflow {self.number} has no stage {name!r} (stages: {names})")

    def print(self) -> None:
        """Show it with its stages."""
        table(self.title, STAGE_COLUMNS, [stage.cells() for stage in self.stages])


def shown(answer: Mapping[str, Any]) -> list[Shown]:
    """All workflows of an answer to `status`, oldest first."""
    found = [_of_run(run_from_dict(w)) for w in answer["workflows"]]
    found += [_of_guided(guided_from_dict(w)) for w in answer["guided"]]
    return sorted(found, key=lambda run: run.number)


def find(runs: Sequence[Shown], which: str) -> Shown:
    """The workflow of that number (3 or w3), or the latest of that name. Raises `NotFound`."""
    number = which.removeprefix("w")
    for run in reversed(runs):
        if (number.isdecimal() and run.number == int(number)) or run.name == which:
            return run
    raise NotFound(f"there is no workflow {which}")


def _of_run(run: WorkflowRun) -> Shown:
    stages = tuple(
        Stage(s.name, s.phase.value, s.job, s.submitted, s.start, s.end, s.estimate, perceived_wait(run, i), s.failure)
        for i, s in enumerate(run.stages)
    )
    return Shown(run.id, run.workflow.name, run.strategy, run.phase.value, run.phase.final, run.why, stages)


def _of_guided(run: GuidedRun) -> Shown:
    stages = []
    for s in run.stages:
        ready = run.ready_at(s)
        wait = None if s.start is None or ready is None else max(s.start - ready, 0.0)
        phase = "held" if s.phase is Phase.SUBMITTED else s.phase.value
        stages.append(Stage(s.name, phase, s.job, s.submitted, s.start, s.end, s.estimate, wait, s.failure))
    title = (run.id, run.name, run.strategy, run.phase.value, run.phase.final, run.why)
    return Shown(*title, tuple(stages), guided=run)
