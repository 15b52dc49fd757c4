"""A log at another load: the same jobs, submitted closer together or further apart."""

from __future__ import annotations

from array import array
from dataclasses import replace

from penstock.errors import UserError
from penstock_lab.sim.trace import MAX_TIME, Trace

__all__ = ["at_load"]


def at_load(trace: Trace, procs: int, load: float) -> Trace:
    """The trace with all times between submissions multiplied by the factor that makes the offered load `load`.

    Offered load: processor seconds of all jobs over those of the machine from the first submission to the last. Hours
    of the day do not survive this. UserError if all jobs are submitted in the same second.
    """
    first, last = trace.submit[0], trace.submit[-1]
    if first == last:
        raise UserError("a load needs jobs that are not all submitted in the same second")
    work = sum(run * width for run, width in zip(trace.run, trace.procs, strict=True))
    factor = work / (procs * load) / (last - first)
    if factor * (last - first) >= MAX_TIME:
        raise UserError(f"a load of {load:g} would take longer than can be simulated")
    return replace(trace, submit=array("q", [first + int((at - first) * factor) for at in trace.submit]))
