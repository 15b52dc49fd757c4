"""The plain predictors on every job of a log, a chunk at a time, each with only what was known before the submission.

Run times: the user's `limit`; the `mean` of all; the user's `last` run; the mean of the user's last two, up to the
limit, which plans count with (`last-two`, Tsafrir, Etsion and Feitelson 2007); the median of the last 40 runs of the
same user, account and job name (`similar`), whose bound is what 95 of 100 of those did not exceed.

Waits, from eligible to start, by classes of partition, QOS, size and limit: the `last`, the `mean`, the `median` of the
last eleven, and the median of the last 60 (`recent`) with a bound made likewise. What has no history of its own counts
with what comes next: a user's job with its limit, a class with all classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.waits.learners.base import PROMISE
from penstock.waits.learners.history import FIRST
from penstock_lab.backtest.past import Past, dense, median_and_bound, narrow
from penstock_lab.backtest.score import STRETCHES, Row, Score, row_of
from penstock_lab.history.history import History
from penstock_lab.history.rows import NEVER, Flag

__all__ = ["PLAIN_RUN", "PLAIN_WAIT", "Jobs", "runs_of", "waits_of"]

PLAIN_RUN: Final = "limit"
PLAIN_WAIT: Final = "last"
_CHUNK: Final = 40_000
"""Jobs that are looked at together: their windows of sixty waits each are what takes memory."""
_SIMILAR: Final = 40
_RECENT: Final = 60
_MEDIAN: Final = 11

Floats = NDArray[np.float64]
Said = tuple[Floats, Floats | None]
Predict = Callable[[slice], Said]


@dataclass(frozen=True, slots=True)
class Jobs:
    """Columns of the jobs that are predicted, in order of submission: when each is asked for and when it is known (s
    after the first submission), what comes (s), and its limit (s, 0: none)."""

    asked: NDArray[Any]
    known: NDArray[Any]
    came: NDArray[np.int32]
    limit: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.asked)

    def chunks(self) -> Iterator[slice]:
        """All of them, some at a time."""
        for at in range(0, len(self), _CHUNK):
            yield slice(at, min(at + _CHUNK, len(self)))


def judged(jobs: Jobs, predict: Predict) -> Score:
    """The score of a predictor over all jobs."""
    score = Score()
    for part in jobs.chunks():
        stretch = np.arange(part.start, part.stop) * STRETCHES // len(jobs)
        estimate, bound = predict(part)
        score.add(stretch, estimate, jobs.came[part].astype(np.float64), bound)
    return score


def rows_of(what: str, jobs: Jobs, made: Mapping[str, Callable[[], Predict]], plain: str) -> Iterator[Row]:
    """A row for each predictor, the plain one first; time counts from making what it knows."""
    first: Score | None = None
    for name, make in made.items():
        began = time.perf_counter()
        score = judged(jobs, make())
        seconds = time.perf_counter() - began
        first = first or score
        yield row_of(what, name, score, (plain, first), seconds, sampled=False)


def _chosen(history: History, choose: NDArray[np.bool_], name: str) -> NDArray[Any]:
    return history.column(name)[choose]


def ran(history: History, partition: int | None) -> NDArray[np.bool_]:
    """Which jobs ran, of one partition if that is said."""
    found: NDArray[np.bool_] = history.column("start") != NEVER
    if partition is not None:
        found &= history.column("partition") == partition
    return found


def runs_of(history: History, partition: int | None = None) -> Iterator[Row]:
    """The predictors of run times, on jobs that ran to an end of their own."""
    choose = ran(history, partition) & ((history.column("flags") & Flag.CUT) == 0)
    limited = history.column("limit") > 0
    has_limits = bool((limited & choose).any())
    if has_limits:
        choose &= limited
    del limited
    submit = _chosen(history, choose, "submit")
    if not len(submit):
        return
    end = _chosen(history, choose, "end")
    kind = _kind(submit, end)
    asked = (submit - submit[0]).astype(kind)
    del submit
    jobs = Jobs(asked, asked + end, end - _chosen(history, choose, "start"), _chosen(history, choose, "limit"))
    del end
    user = _chosen(history, choose, "user")

    def similar() -> Predict:
        return _similar(jobs, dense(user, _chosen(history, choose, "account"), _chosen(history, choose, "name")), user)

    made: dict[str, Callable[[], Predict]] = {
        "limit": lambda: _limit(jobs),
        "mean": lambda: _mean_run(jobs),
        "last": lambda: _last_runs(jobs, user, 1),
        "last-two": lambda: _last_runs(jobs, user, 2),
        "similar": similar,
    }
    if not has_limits:
        del made["limit"]
    yield from rows_of("run time", jobs, made, next(iter(made)))


def waits_of(history: History, partition: int | None = None) -> Iterator[Row]:
    """The predictors of waits, on jobs that started."""
    choose = ran(history, partition)
    submit = _chosen(history, choose, "submit")
    if not len(submit):
        return
    start = _chosen(history, choose, "start")
    eligible = _chosen(history, choose, "eligible")
    limit = _chosen(history, choose, "limit")
    submit = (submit - submit[0]).astype(_kind(submit, start))
    jobs = Jobs(submit + eligible, submit + start, start - eligible, limit)
    del submit, start, eligible
    sizes = np.frexp(_chosen(history, choose, "cpus"))[1]
    limits = np.frexp(np.ceil(limit / 900.0))[1]
    group = dense(_chosen(history, choose, "partition"), _chosen(history, choose, "qos"), sizes, limits)
    made: dict[str, Callable[[], Predict]] = {
        "last": lambda: _windows(jobs, group, 1),
        "mean": lambda: _mean_wait(jobs, group),
        "median": lambda: _windows(jobs, group, _MEDIAN),
        "recent": lambda: _windows(jobs, group, _RECENT, bounded=True),
    }
    yield from rows_of("wait", jobs, made, PLAIN_WAIT)


def _kind(submit: NDArray[Any], after: NDArray[Any]) -> type[np.int32] | type[np.int64]:
    return narrow(int(submit[-1] - submit[0]) + int(after.max(initial=0)) + 1)


def _limit(jobs: Jobs) -> Predict:
    def predict(part: slice) -> Said:
        limit = jobs.limit[part].astype(np.float64)
        return limit, limit

    return predict


def _so_far(jobs: Jobs, group: NDArray[Any] | None) -> Callable[[slice], Floats]:
    """The mean of what was known, of a group or of all; NaN where nothing was."""
    groups = np.zeros(len(jobs), np.int32) if group is None else group
    past = Past(groups, jobs.known, jobs.came)
    sums = np.concatenate(([0.0], np.cumsum(past.values, dtype=np.float64)))

    def predict(part: slice) -> Floats:
        first, last = past.before(groups[part], jobs.asked[part])
        with np.errstate(invalid="ignore"):
            found: Floats = (sums[last] - sums[first]) / (last - first)
        return found

    return predict


def _mean_run(jobs: Jobs) -> Predict:
    so_far = _so_far(jobs, None)

    def predict(part: slice) -> Said:
        return _or(so_far(part), jobs.limit[part]), None

    return predict


def _last_runs(jobs: Jobs, user: NDArray[Any], count: int) -> Predict:
    past = Past(user, jobs.known, jobs.came)

    def predict(part: slice) -> Said:
        return _capped(_mean_of_newest(past, user[part], jobs.asked[part], count), jobs.limit[part]), None

    return predict


def _mean_of_newest(past: Past, group: NDArray[Any], asked: NDArray[Any], count: int) -> Floats:
    rows = past.newest(*past.before(group, asked), count)
    known = ~np.isnan(rows)
    counts = known.sum(axis=1)
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(known, rows, 0.0).sum(axis=1) / counts
    return found


def _similar(jobs: Jobs, group: NDArray[Any], user: NDArray[Any]) -> Predict:
    past = Past(group, jobs.known, jobs.came)
    of_user = Past(user, jobs.known, jobs.came)

    def predict(part: slice) -> Said:
        asked, limit = jobs.asked[part], jobs.limit[part]
        median, bound = median_and_bound(past.newest(*past.before(group[part], asked), _SIMILAR), PROMISE)
        two = _mean_of_newest(of_user, user[part], asked, 2)
        most = np.where(limit > 0, limit, np.nan)
        return _capped(_or(median, two), limit), np.fmin(bound, most)

    return predict


def _mean_wait(jobs: Jobs, group: NDArray[Any]) -> Predict:
    own, everybody = _so_far(jobs, group), _so_far(jobs, None)

    def predict(part: slice) -> Said:
        return _or(own(part), everybody(part)), None

    return predict


def _windows(jobs: Jobs, group: NDArray[Any], count: int, bounded: bool = False) -> Predict:
    past = Past(group, jobs.known, jobs.came)
    nobody = np.zeros(len(jobs), np.int32)
    everybody = Past(nobody, jobs.known, jobs.came)

    def predict(part: slice) -> Said:
        asked = jobs.asked[part]
        median, bound = median_and_bound(past.newest(*past.before(group[part], asked), count), PROMISE)
        last = everybody.newest(*everybody.before(nobody[part], asked), 1)[:, 0]
        return _or(median, last), bound if bounded else None

    return predict


def _or(values: Floats, others: NDArray[Any]) -> Floats:
    """The values, and others where there is none; a middling wait or run where those have none, either."""
    found = np.where(np.isnan(values), others, values)
    return np.where(np.isnan(found) | (found < 0), FIRST, found)


def _capped(values: Floats, limit: NDArray[Any]) -> Floats:
    """As `RunTimes.expect`: whole seconds, at least one, at most the limit; the limit where nothing is known."""
    most = np.where(limit > 0, limit, np.inf)
    known = np.maximum(np.minimum(np.floor(values), most), 1.0)
    return np.where(np.isnan(values), np.where(limit > 0, limit, FIRST), known)
