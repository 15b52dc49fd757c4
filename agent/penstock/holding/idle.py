"""When the job that idles until a slot begins should be submitted, by the waits of the user's own jobs."""

from __future__ import annotations

import math
from typing import Final

from penstock.provision.var import Submission, WaitSample, when_to_submit
from penstock.slurm.base import Reader

__all__ = ["idle_submission"]

_HISTORY: Final = 30 * 86400.0


async def idle_submission(
    backend: Reader, nodes: int, start: float, duration: float, longest: float | None
) -> Submission | None:
    """The best instant, in whole seconds if it is not now; as soon as can be where there is no wait to learn from. None
    if no instant gives the job any chance. It asks for all the time from its submission on, of which it gets `longest`
    at the most (None: any)."""
    now = backend.now()
    # Submitted before that it would ask for more than the partition gives, and never start.
    soonest = now if longest is None else max(now, math.ceil(start + duration - longest))
    records = await backend.history(since=now - _HISTORY)
    waits = [
        (r.time_limit or duration, r.num_nodes, r.start - r.eligible)
        for r in records
        if r.start is not None and r.eligible is not None
    ]
    if waits:
        return when_to_submit(soonest, start, duration, WaitSample(waits, nodes, start))
    return None if now < start <= soonest else Submission(soonest, duration + max(0.0, start - soonest), 0.0)
