"""Reservations without anybody's leave: the virtual reservation VAR, and both kinds at once (paper 001, chapter 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.provision.pricing import cancelling

__all__ = ["STEP", "Combined", "Submission", "bound", "combine", "from_waits", "idle_cost", "when_to_submit"]

STEP: Final = 30.0
"""Seconds between the submission times that are looked at (Figure 33)."""

_FEW: Final = 10

Probability = Callable[[float, float], float]
"""(submission time, requested run time) -> the probability that the job starts before the wanted start."""


class Submission(NamedTuple):
    """Submit a job at `at` that asks for `run_time`, idles until the wanted start, then does the work."""

    at: float
    run_time: float
    probability: float


def when_to_submit(
    now: float, start: float, duration: float, probability: Probability, step: float = STEP
) -> Submission | None:
    """Figure 33: the submission time from `now` on, in steps, at which the job most probably runs by `start`.

    The run time is that of the chosen instant, duration + (start - submission); the printed listing sets it once,
    before its loop, which cannot be meant. The earliest of equals; None if no instant has any chance.
    """
    best: Submission | None = None
    steps = 0
    while (at := now + steps * step) < start:
        run_time = duration + (start - at)
        found = probability(at, run_time)
        if found > (best.probability if best else 0.0):
            best = Submission(at, run_time, found)
        steps += 1
    return best


def from_waits(waits: Sequence[tuple[float, int, float]], nodes: int, start: float) -> Probability:
    """(21) from waits that were seen, as (time limit, nodes, wait): the share of those like the job that were short
    enough, one of n + 1 held back as never short enough. Like it is within a factor of two; if fewer than ten are, all.
    """

    def probability(at: float, run_time: float) -> float:
        like = [
            wait
            for limit, width, wait in waits
            if run_time / 2 <= limit <= run_time * 2 and nodes / 2 <= width <= nodes * 2
        ]
        if len(like) < _FEW:
            like = [wait for _, _, wait in waits]
        return sum(wait <= start - at for wait in like) / (len(like) + 1)

    return probability


def idle_cost(nodes: int, start: float, began: float) -> float:
    """What a job that began at `began` costs until its work starts, in nodes times time."""
    return (start - began) * nodes


def bound(start: float, submitted: float, duration: float) -> float:
    """(22): the most that idling can cost, as a multiple of the plain charge; the number of nodes does not matter."""
    return (start - submitted) / duration


class Combined(NamedTuple):
    """Which of the two is used ("AR" the priced reservation, "VAR" the job, "FAIL" neither) and what it costs beside
    the plain charge."""

    use: str
    cost: float


def combine(nodes: int, start: float, f: float, penalty: float, began: float | None) -> Combined:
    """Figure 45. `f` is the reservation's additive price, infinite if there is none to be had; `began` is when the job
    of the virtual one began, None: not by `start`. Never costs more than `f`, fails only if both do."""
    if f == 0 or (began is None and f < float("inf")):
        return Combined("AR", f)
    if began is None:
        return Combined("FAIL", 0.0)
    idle = idle_cost(nodes, start, began)
    if f == float("inf"):
        return Combined("VAR", idle)
    if idle + cancelling(f, penalty) <= f:
        return Combined("VAR", idle + cancelling(f, penalty))
    return Combined("AR", f)
