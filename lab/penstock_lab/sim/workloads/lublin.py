"""The workload model of Lublin and Feitelson (JPDC 63(11), 2003): rigid jobs, batch and interactive.

Formulas are the paper's; the parameters are those that its authors fitted to four logs and publish with their model
program (Parallel Workloads Archive, m_lublin99).

Size. A job is serial with probability `serial`. Otherwise log2 of its size is drawn from a two-stage uniform
distribution: [low, med] with probability `prob`, [med, high] else; with probability `power` it is rounded to a whole
number, which makes the size a power of two. `high` is log2 of the largest size.

Run time. Its natural logarithm (of seconds) is hyper-gamma distributed: gamma(a1, b1) with probability p, gamma(a2, b2)
else, where p = pa * size + pb, so that larger jobs run longer. Above exp(12) s it is drawn again.

Arrivals. The logarithm of the gap between arrivals is gamma distributed; above exp(13) s it is drawn again. Such gaps
are of even days. What makes the daily cycle is that time passes at different speeds: each half hour of the day takes
up as much of a gap as the share of jobs that arrive in it, which again is a gamma distribution, of half hours from
05:00 to 05:00. The beginning of the workload is midnight.

The machine of the fits has 128 processors. For others, `high` and `med` move with log2 of the size, as the program's
comments advise; p is kept between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock_lab.sim.workloads.base import Floats, Ints, Workload, assemble, resample, stretch_for
from penstock_lab.sim.workloads.gamma import gamma_cdf

__all__ = ["BATCH", "INTERACTIVE", "KINDS", "UNTYPED", "Kind", "daily_cycle", "lublin"]

_FITTED_PROCS: Final = 128
_LONGEST_RUN: Final = 12.0  # natural logarithm of seconds
_LONGEST_GAP: Final = 13.0
_BUCKETS: Final = 48  # half hours of a day
_BUCKET: Final = 1800.0  # seconds
_FIRST_BUCKET: Final = 10  # the cyclic day begins at 05:00


@dataclass(frozen=True, slots=True)
class Kind:
    """The parameters of one class of jobs, for a machine of 128 processors."""

    serial: float
    power: float
    low: float
    med: float
    high: float
    prob: float
    runs: tuple[tuple[float, float], tuple[float, float]]  # (a1, b1), (a2, b2)
    pa: float
    pb: float
    gaps: tuple[float, float]  # shape at rush hours, scale
    rush: float  # by which the shape is multiplied to hold for the whole day
    day: tuple[float, float]  # shape, scale (half hours)

    def bounds(self, procs: int) -> tuple[float, float, float]:
        """low, med and high on a machine of so many processors."""
        shift = np.log2(procs) - np.log2(_FITTED_PROCS)
        high = max(self.high + shift, 1.0)
        low = min(self.low, high)
        return low, min(max(self.med + shift, low), high), high


BATCH: Final = Kind(
    serial=0.2927, power=0.6686, low=1.2, med=5, high=7, prob=0.875,
    runs=((6.57, 0.823), (639.1, 0.0156)), pa=-0.003, pb=0.6986,
    gaps=(6.0415, 0.8531), rush=1.0519, day=(6.1271, 5.2740),
)  # fmt: skip
INTERACTIVE: Final = Kind(
    serial=0.1541, power=0.625, low=1, med=3, high=5.5, prob=0.705,
    runs=((3.8351, 0.6605), (7.073, 0.6856)), pa=-0.0118, pb=0.9156,
    gaps=(6.5510, 0.6621), rush=0.9797, day=(8.9186, 3.6680),
)  # fmt: skip
UNTYPED: Final = Kind(
    serial=0.244, power=0.576, low=0.8, med=4.5, high=7, prob=0.86,
    runs=((4.2, 0.94), (312, 0.03)), pa=-0.0054, pb=0.78,
    gaps=(10.2303, 0.4871), rush=1.0225, day=(8.1737, 3.9631),
)  # fmt: skip

KINDS: Final[dict[str, dict[str, Kind]]] = {
    "both": {"interactive": INTERACTIVE, "batch": BATCH},
    "batch": {"batch": BATCH},
    "interactive": {"interactive": INTERACTIVE},
    "untyped": {"all": UNTYPED},
}
"""Which classes of jobs there are: as queues, or none, with parameters fitted to all jobs together."""


def lublin(jobs: int, procs: int, seed: int, load: float | None = None, kinds: str = "both") -> Workload:
    """So many jobs for a machine of so many processors; None for `load` keeps the model's own arrivals.

    KeyError for unknown `kinds`, UserError for a load that cannot be had.
    """
    classes = KINDS[kinds]
    streams = np.random.default_rng(seed).spawn(len(classes))
    gaps, sizes, runs, queues = [], [], [], []
    for queue, (kind, rng) in enumerate(zip(classes.values(), streams, strict=True)):
        of_gaps, of_sizes, of_runs = rng.spawn(3)
        size = _sizes(kind, jobs, procs, of_sizes)
        gaps.append(np.cumsum(_gaps(kind, jobs, of_gaps)))
        sizes.append(size)
        runs.append(_runs(kind, size, of_runs))
        queues.append(np.full(jobs, queue))
    # The classes arrive on their own; the first `jobs` of all are the workload, and stay it at any load.
    even = np.concatenate(gaps)
    queue_of = np.concatenate(queues)
    cycles = [daily_cycle(kind) for kind in classes.values()]
    taken = np.argsort(_through_the_day(even, queue_of, cycles), kind="stable")[:jobs]
    even, queue_of = even[taken], queue_of[taken]
    size, run = np.concatenate(sizes)[taken], np.concatenate(runs)[taken]

    def submits(stretch: float) -> Floats:
        return _through_the_day(even * stretch, queue_of, cycles)

    work = float(np.dot(np.maximum(run, 1.0).astype(np.int64), size))
    submit = submits(1.0 if load is None else stretch_for(load, submits, work, procs))
    none = np.full(jobs, -1)
    return assemble(submit, run, size, queue_of, tuple(classes), np.zeros(jobs, dtype=np.int64), none)


def daily_cycle(kind: Kind) -> Floats:
    """The share of a day's arrivals in each half hour from midnight, times 48: 1 is the average."""
    shape, scale = kind.day
    weights = np.zeros(_BUCKETS)
    for i in range(_FIRST_BUCKET, _FIRST_BUCKET + _BUCKETS):
        weights[i % _BUCKETS] = gamma_cdf(i + 1.5, shape, scale) - gamma_cdf(i + 0.5, shape, scale)
    return np.asarray(weights / weights.mean())


def _through_the_day(even: Floats, queue_of: Ints, cycles: list[Floats]) -> Floats:
    """Times of arrival (seconds from midnight) from those that even days would have."""
    day = _BUCKETS * _BUCKET
    submit = np.empty_like(even)
    edges = np.arange(_BUCKETS + 1) * _BUCKET
    for queue, cycle in enumerate(cycles):
        mine = queue_of == queue
        passed = np.concatenate(([0.0], np.cumsum(cycle * _BUCKET)))
        days, rest = np.divmod(even[mine], day)
        submit[mine] = days * day + np.interp(rest, passed, edges)
    return submit


def _sizes(kind: Kind, jobs: int, procs: int, rng: np.random.Generator) -> Ints:
    low, med, high = kind.bounds(procs)
    first = rng.random(jobs) < kind.prob
    log2 = rng.uniform(np.where(first, low, med), np.where(first, med, high))
    u = rng.random(jobs)
    whole = np.minimum(np.floor(log2 + 0.5), np.floor(np.log2(procs)))
    size = np.floor(np.exp2(np.where(u < kind.serial + kind.power, whole, log2)) + 0.5)
    size[u < kind.serial] = 1
    return np.clip(size, 1, procs).astype(np.int64)


def _runs(kind: Kind, size: Ints, rng: np.random.Generator) -> Floats:
    p = np.clip(kind.pa * size + kind.pb, 0, 1)
    (a1, b1), (a2, b2) = kind.runs
    logs = np.empty(len(size))
    left = np.arange(len(size))
    while len(left):  # as in the program, a run time that is too long is drawn again with its choice of gamma
        first = rng.random(len(left)) < p[left]
        logs[left] = rng.gamma(np.where(first, a1, a2), np.where(first, b1, b2))
        left = left[logs[left] > _LONGEST_RUN]
    return np.exp(logs)


def _gaps(kind: Kind, jobs: int, rng: np.random.Generator) -> Floats:
    shape, scale = kind.gaps
    return np.exp(resample(lambda count: rng.gamma(shape * kind.rush, scale, count), jobs, _LONGEST_GAP))
