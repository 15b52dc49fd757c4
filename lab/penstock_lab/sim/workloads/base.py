"""What a workload model gives, and how its arrivals are moved to a wanted load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UserError
from penstock_lab.sim.trace import MAX_TIME, Trace

__all__ = ["Floats", "Ints", "Submits", "Workload", "assemble", "resample", "stretch_for"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Submits = Callable[[float], Floats]
"""Arrivals (seconds from the beginning, any order) when all gaps between them are so many times as long."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs of a model; the columns beside the trace have one entry a job, in the trace's order.

    `queue` is a position in `queues`. `executable` tells programs that are run again apart, from 1; 0 where nothing is
    known. `preceding` is the id of the job whose end this one was waiting for, 0 for none. `notes` say how it was made,
    for the header of a log.
    """

    trace: Trace
    queue: Ints
    queues: tuple[str, ...]
    executable: Ints
    preceding: Ints
    notes: list[str] = field(default_factory=list)

    def load(self, procs: int) -> float | None:
        """The offered load on so many processors, as `stretch_for` has it; None if all is submitted at once."""
        work = sum(run * width for run, width in zip(self.trace.run, self.trace.procs, strict=True))
        span = self.trace.submit[int(np.flatnonzero(self.preceding == 0)[-1])]
        return work / (procs * span) if span else None


def assemble(
    submit: Floats, run: Floats, size: Ints, queue: Ints, queues: tuple[str, ...], executable: Ints, preceding: Ints
) -> Workload:
    """Put jobs, given in any order, into order of submission, in whole seconds, numbered from 1.

    `preceding` holds positions in the given order, -1 for none. Fractions of submit times are dropped; run times are at
    least 1 s. The estimates are the run times.
    """
    order = np.argsort(submit, kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(1, len(order) + 1)
    before = preceding[order]
    seconds = np.maximum(run[order], 1.0).astype(np.int64)
    trace = Trace()
    for name, column in {
        "ids": number[order],
        "submit": submit[order].astype(np.int64),
        "run": seconds,
        "procs": size[order].astype(np.int64),
        "estimate": seconds,
    }.items():
        getattr(trace, name).frombytes(column.tobytes())
    return Workload(
        trace, queue[order], queues, executable[order], np.where(before >= 0, number[before], 0).astype(np.int64)
    )


def stretch_for(load: float, submits: Submits, work: float, procs: int) -> float:
    """By how much the gaps between arrivals have to be stretched for an offered load of `load`.

    Offered load is Lublin's: the processor seconds of all jobs (`work`), divided by the processors of the machine times
    the time from the beginning to the last submission; one that only follows the end of another job does not count.
    Sizes and run times stay as they are. UserError if that takes longer than can be simulated.
    """
    span = work / (procs * load)  # what the time to the last submission has to be
    if span >= MAX_TIME:
        raise UserError(f"a load of {load:g} would take {span:.3g} s, more than can be simulated")
    low, high = 0.0, 1.0
    while submits(high).max() < span:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if submits(middle).max() < span:
            low = middle
        else:
            high = middle
    return high


def resample(draw: Callable[[int], Floats], count: int, limit: float) -> Floats:
    """So many draws that do not exceed the limit; those that do are drawn again."""
    values = draw(count)
    while len(over := np.flatnonzero(values > limit)):
        values[over] = draw(len(over))
    return values
