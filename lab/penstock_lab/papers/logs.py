"""Wait prediction on real logs: every job is predicted at its submission, by what was known then.

A learner per geometry walks the log in order of time and learns a wait when the job starts, not before. Judged are all
jobs that ran: |log10(estimate / wait)| with both at least 60 s, its mean and median, by class of size; and how many
waits lay within the upper bound of 95 %, where a predictor gives one. `plan` is our conservative plan of the queue as
it stands, `queue` the same corrected by a learner, `share-mix` weighs `queue` against what history says. Slurm's own
estimate is not in such logs.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import UserError
from penstock.waits.alternatives import LIVE_ALTERNATIVES, log_error
from penstock.waits.base import Estimate, Learner, Observation
from penstock.waits.geometry import key_of
from penstock.waits.hinted import Hinted
from penstock.waits.history import Last, Median
from penstock.waits.qbets import Qbets
from penstock.waits.queue_learner import QueueLearner
from penstock.waits.report import FLOOR
from penstock.waits.share import ShareLearner
from penstock.waits.share_mix import ShareMix
from penstock_lab.papers.queue_log import Submitted, read, walk

__all__ = ["BASELINES", "Row", "find", "measure", "ratio"]

BASELINES: Final = ("last", "median")

_PREDICTORS: Final[Mapping[str, Callable[[], Learner]]] = {
    "last": Last,
    "median": Median,
    "qbets": lambda: Qbets(),
    "share": lambda: ShareLearner(LIVE_ALTERNATIVES),
    "plan": lambda: Hinted("plan"),
    "queue": lambda: Hinted("queue"),
    "share-mix": lambda: ShareMix(LIVE_ALTERNATIVES),
}


@dataclass(slots=True)
class Row:
    """One predictor on the jobs of one class of size (`all`: every one); `coverage` None without a bound."""

    log: str
    predictor: str
    sizes: str
    jobs: int
    mean: float
    median: float
    coverage: float | None

    def row(self) -> dict[str, float | str | None]:
        """The table's row."""
        return {
            "log": self.log,
            "predictor": self.predictor,
            "size_class": self.sizes,
            "jobs": self.jobs,
            "log10_error_mean": self.mean,
            "log10_error_median": self.median,
            "coverage_95": self.coverage,
        }


@dataclass(slots=True)
class _Score:
    """Errors of one predictor on one class of size; `bounded` counts the waits that had a bound."""

    errors: array[float] = field(default_factory=lambda: array("d"))
    bounded: int = 0
    covered: int = 0


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
    rng = np.random.default_rng(0)
    queue = QueueLearner()
    known: dict[str, dict[str, Learner]] = {}
    said: dict[int, dict[str, Estimate]] = {}
    views = {}
    scores: dict[tuple[str, int], _Score] = {}
    for event in walk(jobs, size):
        job = jobs[event.job]
        learners = known.setdefault(key_of(job.geometry), {})
        if isinstance(event, Submitted):
            if not learners:
                learners.update({name: fresh() for name, fresh in _PREDICTORS.items()})
            if not job.run:
                continue  # it never ran: it stood in the queue, and its wait is nobody's to predict
            views[event.job] = event.view
            expected = queue.expect(event.view)
            hints = {} if expected is None else {"queue": expected}
            if event.view.planned is not None:
                hints["plan"] = event.view.planned
            estimates = said[event.job] = {}
            for name, learner in learners.items():
                estimates[name] = learner.predict(rng, hints)
                bound = learner.bound(hints)
                for sizes in (-1, job.nodes.bit_length()):
                    _judge(scores.setdefault((name, sizes), _Score()), job.wait, estimates[name], bound)
        else:
            queue.add(views.pop(event.job), job.wait)
            if queue.due:
                queue.refit()
            estimates = said.pop(event.job)
            for name, learner in learners.items():
                learner.update(Observation(float(job.wait)), estimates[name], rng)
    return [_row(path.name.split(".")[0], *key, score) for key, score in sorted(scores.items(), key=_order)]


def _judge(score: _Score, wait: float, estimate: Estimate, bound: float | None) -> None:
    score.errors.append(log_error(estimate.seconds, wait, FLOOR))
    if bound is not None:
        score.bounded += 1
        score.covered += wait <= bound


def _order(item: tuple[tuple[str, int], _Score]) -> tuple[int, int]:
    (name, sizes), _ = item
    return sizes, list(_PREDICTORS).index(name)


def _row(log: str, name: str, sizes: int, score: _Score) -> Row:
    low, high = 1 << max(sizes - 1, 0), (1 << max(sizes, 0)) - 1
    words = "all" if sizes < 0 else str(low) if low == high else f"{low}-{high}"
    coverage = score.covered / score.bounded if score.bounded else None
    errors = np.frombuffer(score.errors)
    return Row(log, name, words, len(errors), float(errors.mean()), float(np.median(errors)), coverage)


def ratio(rows: Iterable[Row], row: Row) -> float:
    """The row's mean error over that of the better baseline on the same jobs."""
    means = {r.predictor: r.mean for r in rows if (r.log, r.sizes) == (row.log, row.sizes)}
    best = min(means[name] for name in BASELINES)
    return row.mean / best if best else math.inf
