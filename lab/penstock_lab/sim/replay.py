"""The event loop: replays a trace on a machine of so many processors under a policy.

Two orders of the events that fall into the same second (they matter, by up to 5 % of the mean wait, when estimates
are not exact):

    batch   all ends, then all submissions, then one pass of the policy
    pyss    each submission with a pass of its own, then each end with a pass of its own, ends in the order in which the
            jobs began; what is estimated to be free from this second on counts as free in all of these passes (so
            called after the simulator pyss, which does this)

Conservative and replan are done by the compiled kernel where there is one (`penstock.kernel`): the same starts, by the
same steps, many times sooner.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

from penstock.kernel.library import KERNEL
from penstock.kernel.schedules import starts_of
from penstock_lab.sim.base import NEVER, Policy
from penstock_lab.sim.conservative import Conservative
from penstock_lab.sim.easy import Easy
from penstock_lab.sim.fcfs import Fcfs
from penstock_lab.sim.replan import Replan
from penstock_lab.sim.trace import Trace

__all__ = ["POLICIES", "TIES", "replay"]

POLICIES: Final[dict[str, Callable[[Trace, int], Policy]]] = {
    "fcfs": Fcfs,
    "easy": Easy,
    "conservative": Conservative,
    "replan": Replan,
}
TIES: Final = ("pyss", "batch")


def replay(trace: Trace, procs: int, policy: str, ties: str = "pyss") -> array[int]:
    """When each job of the trace starts (seconds, on the trace's clock).

    KeyError for an unknown policy, UserError for a trace that `Trace.check` refuses.
    """
    trace.check(procs)
    if KERNEL is not None and policy in ("conservative", "replan") and ties in TIES:
        columns = trace.submit, trace.run, trace.procs, trace.estimate
        return starts_of(columns, procs, replan=policy == "replan", batch=ties == "batch")
    loop = {"pyss": _pyss, "batch": _batch}[ties]
    return loop(trace, POLICIES[policy](trace, procs))


def _batch(trace: Trace, policy: Policy) -> array[int]:
    run = trace.run
    submits = trace.submit.tolist()
    submits.append(NEVER)
    starts = array("q", bytes(8 * len(trace)))
    bits = len(trace).bit_length()
    mask = (1 << bits) - 1
    ends = [NEVER << bits]  # heap of end << bits | job; one that is never reached saves asking whether it is empty
    job = 0
    while (now := min(submits[job], ends[0] >> bits, policy.due)) != NEVER:
        limit = now + 1 << bits
        while ends[0] < limit:
            policy.end(now, heappop(ends) & mask)
        while submits[job] == now:
            policy.submit(now, job)
            job += 1
        for started in policy.start(now):
            starts[started] = now
            heappush(ends, now + run[started] << bits | started)
    return starts


def _pyss(trace: Trace, policy: Policy) -> array[int]:
    run, estimate = trace.run, trace.estimate
    submits = trace.submit.tolist()
    submits.append(NEVER)
    starts = array("q", bytes(8 * len(trace)))
    bits = len(trace).bit_length()
    mask = (1 << bits) - 1
    begun = array("q")  # jobs in the order in which they began: that of ends in the same second
    ends = [NEVER << bits]  # heap of end << bits | place in `begun`
    job = 0

    def begin(jobs: Sequence[int]) -> None:
        for started in jobs:
            starts[started] = now
            heappush(ends, now + run[started] << bits | len(begun))
            begun.append(started)

    while (now := min(submits[job], ends[0] >> bits, policy.due)) != NEVER:
        limit = now + 1 << bits
        ended = []
        while ends[0] < limit:
            gone = begun[heappop(ends) & mask]
            ended.append(gone)
            if run[gone] == estimate[gone]:
                policy.end(now, gone)
        while submits[job] == now:
            policy.submit(now, job)
            begin(policy.start(now))
            job += 1
        for gone in ended:
            if run[gone] != estimate[gone]:
                policy.end(now, gone)
            begin(policy.start(now))
        if policy.due <= now:
            begin(policy.start(now))
    return starts
