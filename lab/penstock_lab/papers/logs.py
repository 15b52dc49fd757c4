"""Wait prediction on real logs: every job is predicted at its submission, by what was known then.

A learner per geometry walks the log in order of time and learns a wait when the job starts, not before. Judged are all
jobs that ran: |log10(estimate / wait)| with both at least 60 s, its mean and median, by class of size; and how many
waits lay within the upper bound of 95 %, overall and by tenths of the predicted wait, and what the bounds cost: their
pinball loss at 0.95 in log10, both again at least 60 s. `qbets` has bounds of its own; those of the others are made of
how far the waits of all classes fell from what was predicted (`waits.common`). `plan` is our conservative plan of the
queue as it stands, `likely` the same by run times that are likely, `queue` both corrected by a learner, `share-mix`
weighs `queue` against what history says. Slurm's own estimate is not in such logs.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import UserError
from penstock.values.waits import Estimate, Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES, log_error
from penstock.waits.learners.base import BOUND, PLANNED, Hints, Learner
from penstock.waits.learners.common import Common
from penstock.waits.learners.geometry import key_of
from penstock.waits.learners.hinted import Hinted
from penstock.waits.learners.history import Last, Median
from penstock.waits.learners.qbets import Qbets
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.report import FLOOR, pinball
from penstock.waits.learners.share import ShareLearner
from penstock.waits.learners.share_mix import ShareMix
from penstock_lab.intervals import Interval, mean_of
from penstock_lab.papers.queue_log import Submission, Submitted, read, walk

__all__ = ["BASELINES", "VIEW", "Row", "beyond", "find", "measure", "predictions", "ratio"]

BASELINES: Final = ("last", "median")

_PREDICTORS: Final[Mapping[str, Callable[[], Learner]]] = {
    "last": Last,
    "median": Median,
    "qbets": lambda: Qbets(),
    "share": lambda: ShareLearner(LIVE_ALTERNATIVES),
    "plan": lambda: Hinted("plan"),
    "likely": lambda: Hinted("likely"),
    "queue": lambda: Hinted("queue"),
    "share-mix": lambda: ShareMix(LIVE_ALTERNATIVES),
}
VIEW: Final = "view"
_STRETCHES: Final = 50
"""Jobs that follow one another meet the same queue: whole stretches of a log are resampled."""
_PLANS: Final = ("queue", "share-mix")
"""Those that count with the learner of the queue, and so with its bounds."""


@dataclass(slots=True)
class Row:
    """One predictor on the jobs of one class of size (`all`: every one), with intervals over stretches of the log;
    shares of estimates that were off by at most one and ten minutes; `coverage` and `pinball` None without a bound,
    `tenths` the coverage by tenths of the predicted wait, shortest first."""

    log: str
    predictor: str
    sizes: str
    jobs: int
    error: Interval
    median: float
    within_1: float
    within_10: float
    coverage: Interval | None
    pinball: Interval | None
    tenths: tuple[float, ...]

    def row(self) -> dict[str, object]:
        """The table's row."""
        return {
            "log": self.log,
            "predictor": self.predictor,
            "size_class": self.sizes,
            "jobs": self.jobs,
            "log10_error_mean": self.error.value,
            **_ends("log10_error", self.error),
            "log10_error_median": self.median,
            "within_1_min": self.within_1,
            "within_10_min": self.within_10,
            "coverage_95": None if self.coverage is None else self.coverage.value,
            **_ends("coverage_95", self.coverage),
            "pinball_95": None if self.pinball is None else self.pinball.value,
            **_ends("pinball_95", self.pinball),
            "coverage_95_by_tenths": list(self.tenths),
        }


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = (None, None) if interval is None else interval[1:]
    return {f"{name}_low": low, f"{name}_high": high}


@dataclass(slots=True)
class _Score:
    """What one predictor said of the jobs of one class of size, and how long they waited (s); -1 for no bound."""

    estimates: array[float] = field(default_factory=lambda: array("d"))
    bounds: array[float] = field(default_factory=lambda: array("d"))
    waits: array[float] = field(default_factory=lambda: array("d"))


def find(folder: Path) -> list[Path]:
    """The logs of a folder. UserError when there are none."""
    try:
        logs = sorted(p for p in folder.iterdir() if p.name.endswith((".swf", ".swf.gz")))
    except OSError as e:
        raise UserError(f"PENSTOCK_TRACES: {folder} cannot be read: {e.strerror}") from None
    if not logs:
        raise UserError(f"PENSTOCK_TRACES: {folder} holds no log (*.swf or *.swf.gz)")
    return logs


def measure(path: Path) -> list[Row]:
    """Walk one log; rows by predictor and class of size, `all` first. UserError for a log that cannot be used."""
    jobs, size = read(path)
    scores: dict[tuple[str, int], _Score] = {}
    for number, estimates in predictions(jobs, size):
        job = jobs[number]
        for name, estimate in estimates.items():
            for sizes in (-1, job.nodes.bit_length()):
                _judge(scores.setdefault((name, sizes), _Score()), job.wait, estimate)
    return [_row(path.name.split(".")[0], *key, score) for key, score in sorted(scores.items(), key=_order)]


def predictions(
    jobs: list[Submission], size: int, spent: dict[str, float] | None = None
) -> Iterator[tuple[int, dict[str, Estimate]]]:
    """Each job that ran, in order of submission, with what every predictor says of it, by what is known then.

    `spent` is added the seconds that each took, to predict and to learn; `VIEW` is what looking at the queue takes,
    which those that plan need.
    """
    taken: dict[str, float] = spent if spent is not None else {}
    rng = np.random.default_rng(0)
    queue = QueueLearner()
    common = {name: Common() for name in _PREDICTORS}
    known: dict[str, dict[str, Learner]] = {}
    expectations: dict[int, tuple[float | None, float | None]] = {}
    said: dict[int, dict[str, Estimate]] = {}
    views = {}
    began = time.perf_counter()
    for event in walk(jobs, size):
        now = time.perf_counter()
        taken[VIEW] = taken.get(VIEW, 0.0) + now - began
        job = jobs[event.job]
        learners = known.setdefault(key_of(job.geometry), {})
        if isinstance(event, Submitted):
            if not learners:
                learners.update({name: _fresh(name, common[name]) for name in _PREDICTORS})
            if not job.run:
                began = time.perf_counter()
                continue  # it never ran: it stood in the queue, and its wait is nobody's to predict
            views[event.job] = event.view
            expected = queue.expect(event.view)
            most = None if expected is None else queue.bound(expected)
            expectations[event.job] = expected, most
            named = {"queue": expected, PLANNED: most, "plan": event.view.planned, "likely": event.view.likely}
            hints = {name: seconds for name, seconds in named.items() if seconds is not None}
            estimates = said[event.job] = {}
            for name, learner in learners.items():
                own = hints if name in _PLANS else {k: v for k, v in hints.items() if k != PLANNED}
                at = time.perf_counter()
                estimates[name] = _bounded(learner, common[name], own, rng)
                taken[name] = taken.get(name, 0.0) + time.perf_counter() - at
            yield event.job, estimates
        else:
            queue.add(views.pop(event.job), job.wait, *expectations.pop(event.job))
            if queue.due:
                queue.refit()
            estimates = said.pop(event.job)
            observation = Observation(float(job.wait))
            for name, learner in learners.items():
                at = time.perf_counter()
                learner.update(observation, estimates[name], rng)
                common[name].learn(observation, estimates[name])
                taken[name] = taken.get(name, 0.0) + time.perf_counter() - at
        began = time.perf_counter()


def _fresh(name: str, common: Common) -> Learner:
    learner = _PREDICTORS[name]()
    if isinstance(learner, ShareMix):
        learner.trust = common.trust
    return learner


def _bounded(learner: Learner, common: Common, hints: Hints, rng: np.random.Generator) -> Estimate:
    """The estimate with its bound, as `ModelStore` has it; QBETS alone has bounds of its own."""
    estimate = learner.predict(rng, hints)
    bound = learner.bound(hints) if isinstance(learner, Qbets) else common.bound(estimate, hints)
    said = dict(estimate.said)
    if PLANNED in hints:
        said[PLANNED] = hints[PLANNED]
    if bound is not None:
        said[BOUND] = bound
    return replace(estimate, said=said)


def _judge(score: _Score, wait: float, estimate: Estimate) -> None:
    score.estimates.append(estimate.seconds)
    score.bounds.append(estimate.said.get(BOUND, -1.0))
    score.waits.append(wait)


def _order(item: tuple[tuple[str, int], _Score]) -> tuple[int, int]:
    (name, sizes), _ = item
    return sizes, list(_PREDICTORS).index(name)


def _row(log: str, name: str, sizes: int, score: _Score) -> Row:
    low, high = 1 << max(sizes - 1, 0), (1 << max(sizes, 0)) - 1
    words = "all" if sizes < 0 else str(low) if low == high else f"{low}-{high}"
    estimates, bounds, waits = (np.frombuffer(each) for each in (score.estimates, score.bounds, score.waits))
    errors = np.array([log_error(*each, FLOOR) for each in zip(estimates, waits, strict=True)])
    off, bounded = np.abs(estimates - waits), bounds >= 0
    within = (waits <= bounds)[bounded]
    by_estimate = within[np.argsort(estimates[bounded], kind="stable")]
    return Row(
        log,
        name,
        words,
        len(errors),
        mean_of(errors, _STRETCHES),
        float(np.median(errors)),
        float((off <= 60).mean()),
        float((off <= 600).mean()),
        mean_of(within.astype(float), _STRETCHES) if len(within) else None,
        mean_of([pinball(*each) for each in zip(bounds[bounded], waits[bounded], strict=True)], _STRETCHES)
        if len(within)
        else None,
        tuple(float(part.mean()) for part in np.array_split(by_estimate, 10)) if len(within) >= 10 else (),
    )


def ratio(rows: Iterable[Row], row: Row) -> float:
    """The row's mean error over that of the better baseline on the same jobs."""
    means = {r.predictor: r.error.value for r in rows if (r.log, r.sizes) == (row.log, row.sizes)}
    best = min(means[name] for name in BASELINES)
    return row.error.value / best if best else math.inf


def beyond(rows: Iterable[Row], row: Row, other: str) -> float:
    """By how much the row's mean error is above that of another predictor on the same jobs."""
    return row.error.value - next(
        r.error.value for r in rows if (r.log, r.sizes, r.predictor) == (row.log, row.sizes, other)
    )
