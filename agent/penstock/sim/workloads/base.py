"""What a workload model gives, and how its arrivals are moved to a wanted load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UserError
from penstock.sim.trace import MAX_TIME, Trace

__all__ = ["Floats", "Ints", "Submits", "Workload", "assemble", "at_load", "resample"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Submits = Callable[[float], Floats]
"""Submit times (seconds from the beginning, any order) when all gaps between arrivals are so many times as long."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs of a model; the columns beside the trace have one entry a job, in the trace's order.

    `queue` is a position in `queues`. `executable` tells different programs apart, from 1. `preceding` is the id of the
    job whose end this one was waiting for, 0 for none. `notes` say how it was made, for the header of a log.
    """

    trace: Trace
    queue: Ints
    queues: tuple[str, ...]
    executable: Ints
    preceding: Ints
    notes: list[str] = field(default_factory=list)


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


def at_load(submits: Submits, work: float, procs: int, load: float) -> Floats:
    """Submit times at which the offered load is `load`, by stretching the gaps between arrivals.

    Offered load is Lublin's: the processor seconds of all jobs (`work`), divided by the processors of the machine times
    the time from the beginning to the last submission. Sizes and run times stay as they are. UserError if no gaps are
    short enough.
    """
    span = work / (procs * load)  # what the time to the last submission has to be
    if span >= MAX_TIME:
        raise UserError(f"a load of {load:g} would take {span:.3g} s, more than can be simulated")
    low, high = 0.0, 1.0
    if submits(low).max() > span:
        raise UserError(
            f"a load of {load:g} cannot be reached: jobs that follow one another take longer than {span:.0f} s"
        )
    while submits(high).max() < span:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if submits(middle).max() < span:
            low = middle
        else:
            high = middle
    return submits(high)


def resample(draw: Callable[[int], Floats], count: int, limit: float) -> Floats:
    """So many draws that do not exceed the limit; those that do are drawn again."""
    values = draw(count)
    while len(over := np.flatnonzero(values > limit)):
        values[over] = draw(len(over))
    return values
