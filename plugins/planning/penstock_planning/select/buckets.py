"""The paper's own way to predict a wait: the mean of similar jobs of the last seven days, similar by XDMoD's buckets.

Section IV-B1 of Ha et al.: the same queue of the same machine, requested wall time and processors in the same range;
where there are none, the same queue alone. The ranges are those of XDMoD's `job-times` and `processor-buckets`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Final

__all__ = ["Waited", "mean_wait", "processor_bucket", "time_bucket"]

_WEEK: Final = 7 * 86400.0
_TIMES: Final = (
    (0.0, "0-1s"),
    (1.0, "1-30s"),
    (30.0, "30s-30min"),
    (1800.0, "30-60min"),
    (3600.0, "1-5hr"),
    (18000.0, "5-10hr"),
    (36000.0, "10-18hr"),
    (64800.0, "18+hr"),
)
_PROCESSORS: Final = (
    (1, "1"),
    (2, "2"),
    (3, "3-4"),
    (5, "5-8"),
    (9, "9-16"),
    (17, "17-32"),
    (33, "33-64"),
    (65, "65-128"),
    (129, "129-256"),
    (257, "257-512"),
    (513, "513-1024"),
    (1025, "1k-2k"),
    (2049, "2k-4k"),
    (4097, ">4k"),
)


@dataclass(frozen=True, slots=True)
class Waited:
    """A job that waited `wait` seconds and started at `start`; `limit` is its requested wall time (s)."""

    machine: str
    queue: str
    limit: float
    processors: int
    wait: float
    start: float


def time_bucket(seconds: float) -> str:
    """The range of a wall time; a bound belongs to the longer one: 1799 s is "30s-30min", 1800 s "30-60min"."""
    return _TIMES[bisect_right(_TIMES, seconds, key=lambda bucket: bucket[0]) - 1][1]


def processor_bucket(count: int) -> str:
    """The range of a number of processors."""
    return _PROCESSORS[bisect_right(_PROCESSORS, max(count, 1), key=lambda bucket: bucket[0]) - 1][1]


def mean_wait(
    jobs: Iterable[Waited], machine: str, queue: str, limit: float, processors: int, now: float
) -> float | None:
    """The mean wait (s) of similar jobs that started within the seven days before `now`; None where there are none."""
    near = [j for j in jobs if j.machine == machine and j.queue == queue and now - _WEEK <= j.start <= now]
    wanted = time_bucket(limit), processor_bucket(processors)
    like = [j.wait for j in near if (time_bucket(j.limit), processor_bucket(j.processors)) == wanted]
    waits = like or [j.wait for j in near]
    return fmean(waits) if waits else None
