"""How right predictions were: errors, and how many values lay within their bounds, by stretches of the log.

Jobs that follow one another meet the same queue and the same users, so whole stretches are resampled for intervals.
Medians are read off a histogram of errors with bins 2.3 % apart, so that millions of jobs need no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.waits.learners.report import FLOOR
from penstock_lab.intervals import Interval, drawn, spanned

__all__ = ["STRETCHES", "Row", "Score", "row_of", "verdict"]

STRETCHES: Final = 50
_PER_DECADE: Final = 100
_BINS: Final = 1000  # up to 10^10 s
_LEAST: Final = 1e-9  # of what is divided by: there is no infinity in JSON


class Score:
    """What came of one predictor, over so many stretches."""

    def __init__(self, stretches: int = STRETCHES) -> None:
        self._stretches = stretches
        self.jobs = np.zeros(stretches)
        self.errors = np.zeros(stretches)
        self.logs = np.zeros(stretches)
        self.bounded = np.zeros(stretches)
        self.within = np.zeros(stretches)
        self._bins = np.zeros((stretches, _BINS))

    def add(
        self,
        stretch: NDArray[Any],
        predicted: NDArray[np.float64],
        came: NDArray[np.float64],
        bound: NDArray[np.float64] | None,
    ) -> None:
        """Predictions (s) and what came (s), by the stretch of each; NaN in `bound` where there is none."""
        count = self._stretches
        off = np.abs(predicted - came)
        logs = np.abs(np.log10(np.maximum(predicted, FLOOR) / np.maximum(came, FLOOR)))
        self.jobs += np.bincount(stretch, minlength=count)
        self.errors += np.bincount(stretch, off, count)
        self.logs += np.bincount(stretch, logs, count)
        bins = np.minimum(np.log10(1.0 + off) * _PER_DECADE, _BINS - 1).astype(np.int64)
        self._bins += np.bincount(stretch * _BINS + bins, minlength=count * _BINS).reshape(count, _BINS)
        if bound is not None:
            has = ~np.isnan(bound)
            self.bounded += np.bincount(stretch[has], minlength=count)
            self.within += np.bincount(stretch[has], came[has] <= bound[has], count)

    def keep(self, stretches: int) -> None:
        """Only the first so many stretches count: no others were reached."""
        for name in ("jobs", "errors", "logs", "bounded", "within", "_bins"):
            setattr(self, name, getattr(self, name)[:stretches])
        self._stretches = stretches

    def mean(self) -> Interval:
        """The mean absolute error, s."""
        return _ratio(self.errors, self.jobs)

    def log10(self) -> Interval:
        """The mean of |log10(predicted / came)|, both at least a minute."""
        return _ratio(self.logs, self.jobs)

    def median(self) -> Interval:
        """The median absolute error, s."""

        reached = (np.vstack((np.ones(self._stretches), drawn(self._stretches))) @ self._bins).cumsum(axis=1)
        places = (reached < reached[:, -1:] / 2).sum(axis=1)
        values = np.where(places > 0, 10 ** ((places + 0.5) / _PER_DECADE) - 1.0, 0.0)
        return spanned(float(values[0]), values[1:])

    def coverage(self) -> Interval | None:
        """The share of values within their bounds; None where there is no bound."""
        return _ratio(self.within, self.bounded) if self.bounded.sum() else None

    def over(self, other: Score) -> Interval:
        """The mean absolute error over that of another one on the same jobs."""
        return _ratio(self.errors, other.errors)

    def log10_over(self, other: Score) -> Interval:
        """The same of the mean |log10|."""
        return _ratio(self.logs, other.logs)


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> Interval:
    weights = np.vstack((np.ones(len(above)), drawn(len(above))))
    over, under = weights @ above, weights @ below
    values = np.where((over == 0) & (under == 0), 1.0, over / np.maximum(under, _LEAST))
    return spanned(float(values[0]), values[1:])


@dataclass(frozen=True, slots=True)
class Row:
    """One predictor: errors in seconds with 95 % intervals, `ratio` its mean error over that of `plain` on the
    same jobs, `log_ratio` that of its |log10|.

    `sampled`: judged on stretches of the log, not on all of it. `bounded` is the share of jobs with a bound.
    """

    what: str
    predictor: str
    sampled: bool
    jobs: int
    mean: Interval
    median: Interval
    log10: Interval
    coverage: Interval | None
    bounded: float
    plain: str
    ratio: Interval
    log_ratio: Interval
    jobs_per_second: float

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "what": self.what,
            "predictor": self.predictor,
            "sampled": self.sampled,
            "jobs": self.jobs,
            **_told("mean_error", self.mean),
            **_told("median_error", self.median),
            **_told("log10_error", self.log10),
            **_told("coverage_95", self.coverage),
            "bounded": self.bounded,
            "plain": self.plain,
            **_told("over_plain", self.ratio),
            **_told("log10_over_plain", self.log_ratio),
            "jobs_per_second": self.jobs_per_second,
        }


def _told(name: str, interval: Interval | None) -> dict[str, float | None]:
    value, low, high = (None, None, None) if interval is None else interval
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def verdict(rows: Sequence[Row]) -> str:
    """What to make of the rows of one kind, in a sentence for each measure."""
    what = f"{rows[0].what}s on the sampled stretches" if rows[0].sampled else f"{rows[0].what}s"
    mean = _nearest(rows, "mean error", lambda row: (row.mean, row.ratio))
    return f"{what}: {mean}; {_nearest(rows, '|log10|', lambda row: (row.log10, row.log_ratio))}"


def _nearest(rows: Sequence[Row], measure: str, of: Callable[[Row], tuple[Interval, Interval]]) -> str:
    best = min(rows, key=lambda row: of(row)[0].value)
    ratio = of(best)[1]
    if best.predictor == best.plain:
        return f"by {measure} none was nearer than {best.plain}"
    told = f"{best.predictor} with {ratio.told('.2f')} of what {best.plain} has"
    return f"by {measure} nearest was {told}" + (", which may be chance" if ratio.high >= 1.0 else "")


def row_of(what: str, name: str, score: Score, plain: tuple[str, Score], seconds: float, sampled: bool) -> Row:
    """The row of a predictor that took so long for its jobs."""
    jobs = int(score.jobs.sum())
    return Row(
        what,
        name,
        sampled,
        jobs,
        score.mean(),
        score.median(),
        score.log10(),
        score.coverage(),
        float(score.bounded.sum() / max(jobs, 1)),
        plain[0],
        score.over(plain[1]),
        score.log10_over(plain[1]),
        jobs / max(seconds, 1e-9),
    )
