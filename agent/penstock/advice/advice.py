"""Shorter time limits, where a user's own runs say so: a shorter limit fits into earlier holes of the queue. Pure.

Of n runs of a job and the next one any may be the longest (Singh 2008, section 8.1), so that the next one takes longer
than the longest of n with probability 1 / (n + 1) at the most: for a risk of 1 % there must be 99. A run that its limit
ended counts as longer than anything; one that failed or was cancelled tells nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from penstock.advice.overrun import overrun_probability
from penstock.api import AccountingRecord, JobState

__all__ = ["Advice", "JobKind", "PastRuns", "advise", "by_kind", "kind_name", "latest_of", "past_runs", "runs_needed"]

_LAST: Final = 300
"""Runs that count: programs change."""
_MINUTE: Final = 60.0
_WORTH: Final = 0.9
"""A limit that is longer than so much of the old one is not worth changing."""
_COUNTS: Final = frozenset({JobState.COMPLETED, JobState.TIMEOUT})
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, order=True)
class JobKind:
    """Jobs that are taken for runs of the same work: of one name but for numbers in it (#), one size and partition."""

    name: str
    partition: str
    nodes: int


@dataclass(frozen=True, slots=True)
class PastRuns:
    """How long the latest runs took (s, in any order), infinite where the limit ended one, and the last limit (s)."""

    kind: JobKind
    took: tuple[float, ...]
    limit: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The time limit (s, whole minutes) that a kind of job could ask for, None: the one that it has, and the
    probability that a run takes longer than that, or than its longest run so far where nothing is suggested."""

    runs: PastRuns
    limit: float | None
    risk: float


def kind_name(name: str) -> str:
    """A job's name, with # for each number in it."""
    return _NUMBER.sub("#", name)


def by_kind(
    records: Iterable[AccountingRecord], states: Collection[JobState], named: Callable[[str], str] = str
) -> dict[JobKind, list[AccountingRecord]]:
    """The jobs that ran, ended in one of these states and had a limit, by their kind."""
    found: dict[JobKind, list[AccountingRecord]] = {}
    for record in records:
        if record.state in states and record.start is not None and record.end is not None and record.time_limit:
            kind = JobKind(kind_name(named(record.name)), record.partition, record.num_nodes)
            found.setdefault(kind, []).append(record)
    return found


def latest_of(jobs: Iterable[AccountingRecord]) -> list[AccountingRecord]:
    """The runs that count, in the order in which they ended."""
    return sorted(jobs, key=lambda job: (job.end or 0.0, job.id))[-_LAST:]


def past_runs(records: Iterable[AccountingRecord], named: Callable[[str], str] = str) -> list[PastRuns]:
    """The ended jobs by their kind, those with the most runs first; `named` says what a job's name stands for."""
    out = []
    for kind, jobs in by_kind(records, _COUNTS, named).items():
        latest = latest_of(jobs)
        took = tuple(math.inf if job.state is JobState.TIMEOUT else (job.end or 0) - (job.start or 0) for job in latest)
        out.append(PastRuns(kind, took, latest[-1].time_limit or 0.0))
    return sorted(out, key=lambda runs: (-len(runs.took), runs.kind))


def advise(runs: PastRuns, risk: float) -> Advice:
    """The shortest limit that a run exceeds with at most this probability, if it is worth it."""
    longest = max((time for time in runs.took if time < math.inf), default=0.0)
    for time in sorted(set(runs.took)):
        limit = _MINUTE * max(1, math.ceil(time / _MINUTE)) if time < math.inf else math.inf
        if limit > _WORTH * runs.limit:
            break
        if (over := overrun_probability(runs.took, limit)) <= risk:
            return Advice(runs, limit, over)
    return Advice(runs, None, overrun_probability(runs.took, longest))


def runs_needed(risk: float) -> int:
    """The fewest runs of which the longest is exceeded with at most this probability."""
    return math.ceil(1 / risk - 1 - 1e-9)
