"""The metrics of workflows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.core.families import Family, Labels, MetricSpec, by, copied, family, named, one
from penstock.workflow.phases import RunPhase, StagePhase, Submitter
from penstock.workflow.run.book import Book

__all__ = ["METRICS", "families"]

METRICS: Final[Mapping[str, MetricSpec]] = named(
    (
        MetricSpec(
            "workflows",
            "gauge",
            "Workflows that have not ended, by who submits their jobs: the agent, or their owner.",
            ("submitter", "state"),
        ),
        MetricSpec("stages", "gauge", "Jobs of those workflows.", ("submitter", "state")),
        MetricSpec("workflows_finished_total", "counter", "Workflows that have ended.", ("submitter", "outcome")),
        MetricSpec("jobs_lost_total", "counter", "Jobs of workflows that slurmctld has lost in a crash."),
        MetricSpec(
            "releases_repeated_total",
            "counter",
            "Jobs that were let go again, as slurmctld had lost that in a crash.",
        ),
        MetricSpec(
            "guard_interventions_total",
            "counter",
            "Jobs that started before their parents had ended, and were taken back.",
        ),
    )
)


def families(book: Book | None) -> Iterator[Family]:
    """What is known of workflows; `book` is None until Slurm has answered."""
    phases: Counter[Labels] = Counter()
    stages: Counter[Labels] = Counter()
    for run in list(book.runs.values()) if book else ():
        phases[run.submitter.value, run.phase.value] += 1
        stages.update((run.submitter.value, stage.phase.value) for stage in run.stages)
    ended = copied(book.finished) if book else {}
    yield family(METRICS["workflows"], phases, by(Submitter, (phase.value for phase in RunPhase if not phase.final)))
    yield family(METRICS["stages"], stages, by(Submitter, StagePhase))
    yield family(
        METRICS["workflows_finished_total"], ended, by(Submitter, (phase.value for phase in RunPhase if phase.final))
    )
    yield one(METRICS["jobs_lost_total"], book.lost if book else 0)
    yield one(METRICS["releases_repeated_total"], book.repeated if book else 0)
    yield one(METRICS["guard_interventions_total"], book.misses if book else 0)
