"""What became of a workload on a real Slurm, from its accounting and from what the jobs wrote themselves. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.api import JobState
from penstock.slurm.parse import parse_count, parse_job_state, parse_time
from penstock_lab.papers.dmr.application import Action
from penstock_lab.papers.dmr.drive import Outcome, Point, Ran

__all__ = ["FIELDS", "Period", "Told", "complete", "outcome", "periods"]

FIELDS: Final = ("JobIDRaw", "State", "NNodes", "Start", "End")
"""The columns of `sacct --duplicates --allocations --parsable2` that `periods` reads."""


@dataclass(frozen=True, slots=True)
class Period:
    """A job held so many nodes from `start` to `end` (whole seconds since the epoch; None: it still does)."""

    job: int
    state: JobState
    nodes: int
    start: float
    end: float | None


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a job without Slurm: when it was submitted, and when its script began and ended (seconds since
    the epoch)."""

    name: str
    malleable: bool
    submit: float
    start: float
    end: float


def periods(text: str) -> list[Period]:
    """The rows of sacct for jobs that have begun. ValueError for what is none."""
    found = []
    for line in text.splitlines():
        job, state, nodes, start, end = line.split("|")
        begun = parse_time(start)
        if begun is not None:
            found.append(Period(int(job), parse_job_state(state), parse_count(nodes), begun, parse_time(end)))
    return found


def complete(rows: Iterable[Period], jobs: Iterable[int]) -> bool:
    """Whether accounting knows the end of all these jobs: it lags behind."""
    rows = list(rows)
    return set(jobs) <= {r.job for r in rows if r.state.ended} and all(r.end is not None for r in rows)


def outcome(
    jobs: Mapping[int, Told],
    rows: Sequence[Period],
    actions: Sequence[Action] = (),
    resizes: Sequence[dict[str, Any]] = (),
) -> Outcome:
    """The workload's outcome; its time begins with the first submission. ValueError when a job did not complete.

    A job's instants are those of its script, exact where Slurm knows whole seconds. What it held is as Slurm has
    it: a resized job has a row for each size.
    """
    zero = min(told.submit for told in jobs.values())
    held: dict[int, float] = defaultdict(float)
    last: dict[int, JobState] = {}
    for row in sorted((r for r in rows if r.job in jobs), key=lambda r: r.start):
        held[row.job] += row.nodes * ((row.end or row.start) - row.start)
        last[row.job] = row.state
    for job, told in jobs.items():
        if last.get(job) is not JobState.COMPLETED:
            raise ValueError(f"{told.name} did not complete: {last.get(job, 'it never began')}")
    ran = [
        Ran(t.name, t.malleable, t.submit - zero, t.start - zero, t.end - zero, held[job]) for job, t in jobs.items()
    ]
    return Outcome(ran, _curve([r for r in rows if r.job in jobs], zero), actions, resizes)


def _curve(rows: Sequence[Period], zero: float) -> list[Point]:
    nodes: Counter[float] = Counter()
    running: Counter[float] = Counter()
    ended: Counter[float] = Counter()
    first: dict[int, float] = {}
    final: dict[int, float] = {}
    for row in rows:
        end = row.end or row.start
        nodes[row.start - zero] += row.nodes
        nodes[end - zero] -= row.nodes
        first[row.job] = min(first.get(row.job, row.start), row.start)
        final[row.job] = max(final.get(row.job, end), end)
    for job in first:
        running[first[job] - zero] += 1
        running[final[job] - zero] -= 1
        ended[final[job] - zero] += 1
    points, have = [], Point(0.0, 0, 0, 0)
    for at in sorted({*nodes, *running, *ended}):
        have = Point(at, have.nodes + nodes[at], have.running + running[at], have.ended + ended[at])
        points.append(have)
    return points
