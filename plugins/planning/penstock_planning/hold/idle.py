"""When the job that idles until a slot begins should be submitted, by the waits of the user's own jobs.

Until the slot begins its nodes do nothing, which costs as much as work, and counts for fair share. So there is a budget
of idling: the job is not submitted before it could idle for longer, however soon it begins.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from penstock.errors import Infeasible
from penstock.slurm.base import Reader
from penstock_planning.plan.var import WaitSample, when_to_submit

__all__ = ["IdleJob", "idle_submission"]

_HISTORY: Final = 30 * 86400.0


class IdleJob(NamedTuple):
    """A job that is submitted at `at`, asks for `run_time` (s), runs by the wanted start with probability `chance`, and
    then idles for so long (s) on average, and at most."""

    at: float
    run_time: float
    chance: float
    idle: float
    idle_most: float


async def idle_submission(
    backend: Reader, nodes: int, start: float, duration: float, longest: float | None, budget: float
) -> IdleJob | None:
    """The best instant, in whole seconds if it is not now, from which on it idles for `budget` seconds at most. None if
    no instant gives the job any chance. It asks for all the time from its submission on, of which it gets `longest` at
    the most (None: any). Raises Infeasible where there is no wait to learn from."""
    now = backend.now()
    # Submitted before that it would ask for more than the partition gives, and never start.
    earliest = start - budget if longest is None else max(start - budget, start + duration - longest)
    soonest = max(now, math.ceil(earliest))
    records = await backend.history(since=now - _HISTORY)
    waits = [
        (r.time_limit or duration, r.num_nodes, r.start - r.eligible)
        for r in records
        if r.start is not None and r.eligible is not None
    ]
    if not waits:
        raise Infeasible(
            f"accounting knows of no wait of yours in {_HISTORY / 86400:g} days, so that nobody can say when a job "
            "that idles until the slot begins had to be submitted"
        )
    sample = WaitSample(waits, nodes, start)
    found = when_to_submit(soonest, start, duration, sample)
    if found is None:
        return None
    return IdleJob(*found, sample.idle(found.at, found.run_time), start - found.at)
