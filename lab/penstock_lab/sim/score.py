"""What the jobs of a replay waited, and the digest by which simulators are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from penstock_lab.sim.trace import Trace

__all__ = ["THRESHOLD", "Score", "score"]

THRESHOLD = 10
"""Seconds: shorter jobs count as that long in the bounded slowdown (Feitelson and Rudolph 1998)."""


@dataclass(frozen=True, slots=True)
class Score:
    """A replay in figures.

    `total_wait` and `mean_wait` are seconds; a wait is the time from submission to start. `mean_slowdown` is the mean
    of max(1, (wait + run) / max(run, THRESHOLD)). `makespan` is the time from the first submission to the last end
    (seconds), and `utilisation` the share (0 to 1) of the machine's processor seconds in it that jobs ran on. `sha256`
    is of the lines "id wait\\n", sorted by id as a number.
    """

    jobs: int
    total_wait: int
    mean_wait: float
    mean_slowdown: float
    utilisation: float
    makespan: int
    sha256: str


def score(trace: Trace, starts: Sequence[int], procs: int) -> Score:
    """Score a replay on so many processors of a trace that is not empty."""
    waits = [start - submit for start, submit in zip(starts, trace.submit, strict=True)]
    slowdowns = (max(1.0, (wait + run) / max(run, THRESHOLD)) for wait, run in zip(waits, trace.run, strict=True))
    used = sum(run * width for run, width in zip(trace.run, trace.procs, strict=True))
    last = max(start + run for start, run in zip(starts, trace.run, strict=True))
    digest = hashlib.sha256()
    for number, wait in sorted(zip(trace.ids, waits, strict=True)):
        digest.update(b"%d %d\n" % (number, wait))
    return Score(
        jobs=len(trace),
        total_wait=sum(waits),
        mean_wait=sum(waits) / len(waits),
        mean_slowdown=fsum(slowdowns) / len(waits),
        utilisation=used / (procs * (last - trace.submit[0])),
        makespan=last - trace.submit[0],
        sha256=digest.hexdigest(),
    )
