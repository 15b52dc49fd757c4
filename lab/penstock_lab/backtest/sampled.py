"""The learners that the agent uses, on stretches of a log: they look at the queue of every submission, which takes
milliseconds a job, and so cannot walk millions.

A stretch begins with the jobs that were waiting or running, goes on for a while to learn, and only then is judged. So
learners know less here than after months: what they say is the least that can be said for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.waits.learners.base import BOUND
from penstock_lab.backtest.past import narrow
from penstock_lab.backtest.plain import ran
from penstock_lab.backtest.score import Row, Score, row_of
from penstock_lab.history.history import History
from penstock_lab.history.machine import busiest
from penstock_lab.history.rows import NEVER
from penstock_lab.papers.logs import VIEW, predictions
from penstock_lab.papers.queue_log import Submission

__all__ = ["Sample", "sampled_waits", "stretches_of"]

_PLAIN: Final = "last"
_LOOKS: Final = frozenset({"plan", "likely", "queue", "share-mix"})
"""Those that need a look at the queue."""
_NO_END: Final = 365 * 86400
_LEAST: Final = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """So many stretches, each of so many jobs to learn from and then to judge; no further one is begun after so many
    seconds, but two are walked in any case."""

    stretches: int = 12
    learned: int = 1500
    judged: int = 500
    seconds: float = 180.0


def stretches_of(jobs: int, sample: Sample) -> list[tuple[int, int, int]]:
    """Where each stretch begins, is judged from, and ends (places in the log), spread evenly; fewer where the log is
    short, none where it has not even one."""
    length = sample.learned + sample.judged
    count = min(sample.stretches, jobs // length)
    gap = (jobs - count * length) / count if count else 0.0
    begins = [int(i * (length + gap) + gap / 2) for i in range(count)]
    return [(begin, begin + sample.learned, begin + length) for begin in begins]


@dataclass(frozen=True, slots=True)
class _Columns:
    """What a walk needs of the jobs that are walked, in order of eligibility."""

    at: NDArray[Any]
    wait: NDArray[Any]
    run: NDArray[Any]
    cpus: NDArray[Any]
    limit: NDArray[Any]
    group: NDArray[Any]
    user: NDArray[Any]


def _columns(history: History, partition: int | None, size: int) -> _Columns:
    submit, eligible = history.column("submit"), history.column("eligible")
    start, end = history.column("start"), history.column("end")
    choose = history.column("cpus") <= size
    choose &= (start != NEVER) | (end > eligible)  # what never was in the queue is in nobody's way
    if partition is not None:
        choose &= history.column("partition") == partition
    kind = narrow(int(submit[-1] - submit[0]) + int(end.max()) + 1)
    at = ((submit - submit[0]).astype(kind) + eligible)[choose]
    del submit
    order = np.argsort(at, kind="stable")
    at = at[order]
    start, end, eligible = (column[choose][order] for column in (start, end, eligible))
    started = start != NEVER
    wait = np.where(started, start, end) - eligible
    # A run of 0 s counts as one of a second: 0 stands for one that never ran.
    run = np.where(started, np.maximum(end - start, 1), 0)
    del start, end, eligible, started
    limit = history.column("limit")[choose][order]
    known = limit[limit > 0]
    limit[limit == 0] = int(known.max()) if len(known) else _NO_END
    group = history.column("partition")[choose] * (len(history.names("qos")) + 1)
    group += history.column("qos")[choose]
    cpus, user = (history.column(name)[choose][order] for name in ("cpus", "user"))
    return _Columns(at, wait, run, cpus, limit, group[order], user)


def sampled_waits(
    history: History, sample: Sample, partition: int | None = None, tell: Callable[[int, int], None] | None = None
) -> Iterator[Row]:
    """A row for each learner, the plain one first; none where the log has no whole stretch. `tell` hears how many of
    the stretches are done."""
    size = machine_size(history, partition)
    columns = _columns(history, partition, size)
    stretches = stretches_of(len(columns.at), sample)
    scores: dict[str, Score] = {}
    spent: dict[str, float] = {}
    walked, done = 0, 0
    began = time.monotonic()
    # From one end of the log to the other in turns, so that those that are left out in the end lie in between.
    for begin, judged, end in _scattered(stretches):
        if done >= _LEAST and time.monotonic() - began > sample.seconds:
            break
        first = columns.at[begin]
        there = np.flatnonzero(columns.at[:begin] + columns.wait[:begin] + columns.run[:begin] > first)
        chosen = np.concatenate((there, np.arange(begin, end)))
        jobs = [_submission(columns, place) for place in chosen.tolist()]
        walked += len(jobs)
        found: dict[str, list[tuple[float, float, float]]] = {}
        for place, estimates in predictions(jobs, size, spent):
            if chosen[place] < judged:
                continue
            for name, estimate in estimates.items():
                said = estimate.seconds, float(jobs[place].wait), estimate.said.get(BOUND, np.nan)
                found.setdefault(name, []).append(said)
        for name, rows in found.items():
            predicted, came, bound = np.array(rows).T
            score = scores.setdefault(name, Score(len(stretches)))
            score.add(np.full(len(rows), done), predicted, came, bound)
        done += 1
        if tell is not None:
            tell(done, len(stretches))
    for score in scores.values():
        score.keep(done)
    for name, score in scores.items():
        took = (spent[name] + (spent[VIEW] if name in _LOOKS else 0.0)) * score.jobs.sum() / max(walked, 1)
        yield row_of("wait", name, score, (_PLAIN, scores[_PLAIN]), float(took), sampled=True)


def _scattered(stretches: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Each as far as can be from those before it: by the bits of its number, the last ones first (van der Corput)."""
    bits = len(stretches).bit_length()
    return [stretches[i] for i in sorted(range(len(stretches)), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))]


def machine_size(history: History, partition: int | None) -> int:
    """The processors of the machine, or of what the jobs of one partition had at most."""
    if partition is None:
        return int(history.about["machine"]["cpus"])
    choose = ran(history, partition)
    submit = history.column("submit")[choose]
    begun, ended = (submit + history.column(name)[choose] for name in ("start", "end"))
    return busiest(begun, ended, history.column("cpus")[choose])


def _submission(columns: _Columns, place: int) -> Submission:
    return Submission(
        int(columns.at[place]),
        int(columns.wait[place]),
        int(columns.run[place]),
        int(columns.cpus[place]),
        int(columns.limit[place]),
        str(columns.group[place]),
        str(columns.user[place]),
    )
