"""Reservations without anybody's leave: the virtual reservation VAR, and both kinds at once (Singh 2008, chapter 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock_planning.plan.pricing import cancelling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["STEP", "Combined", "Submission", "WaitSample", "bound", "combine", "idle_cost", "when_to_submit"]

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
    before its loop, which cannot be meant. The earliest of equals; None if no instant has any chance. Of `WaitSample`
    only those steps are looked at that can be better than the one before.
    """
    best: Submission | None = None
    rises = probability.rises(duration) if isinstance(probability, WaitSample) else None
    for steps in count() if rises is None else _steps_at(rises, now, start, step):
        if (at := now + steps * step) >= start:
            break
        run_time = duration + (start - at)
        found = probability(at, run_time)
        if found > (best.probability if best else 0.0):
            best = Submission(at, run_time, found)
    return best


def _steps_at(instants: Iterable[float], now: float, start: float, step: float) -> list[int]:
    """The first step, those right after the instants, and their neighbours: the instants are rounded."""
    after = [math.ceil((at - now) / step) for at in instants if now - step < at < start + step]
    return sorted({0, *(n + d for n in after for d in (-1, 0, 1) if n + d > 0)})


class WaitSample:
    """(21) from waits that were seen, as (time limit, nodes, wait): the share of those like the job that were short
    enough, one of n + 1 held back as never short enough. Like it is within a factor of two; if fewer than ten are, all.
    """

    def __init__(self, seen: Sequence[tuple[float, int, float]], nodes: int, start: float) -> None:
        import numpy as np  # slow to load, and who only looks at slots asks for no probability

        self._start = start
        self._all = np.array([wait for _, _, wait in seen], dtype=float)
        wide = sorted((limit, wait) for limit, width, wait in seen if nodes / 2 <= width <= nodes * 2)
        self._limits = np.array([limit for limit, _ in wide], dtype=float)
        self._waits = np.array([wait for _, wait in wide], dtype=float)

    def __call__(self, at: float, run_time: float) -> float:
        """The probability for a job that is submitted at `at` and asks for `run_time`."""
        like = self._like(run_time)
        return int((like <= self._start - at).sum()) / (len(like) + 1)

    def idle(self, at: float, run_time: float) -> float:
        """For how long it idles on average if it runs by the start."""
        short = self._like(run_time)
        short = short[short <= self._start - at]
        return float((self._start - at - short).mean()) if len(short) else 0.0

    def _like(self, run_time: float) -> NDArray[np.float64]:
        least, most = self._limits.searchsorted(run_time / 2), self._limits.searchsorted(run_time * 2, "right")
        like = self._waits[least:most]
        return like if len(like) >= _FEW else self._all

    def rises(self, duration: float) -> list[float]:
        """The instants between which the probability only falls: with a later submission the time to the start is
        shorter, but it may be like other jobs, by a run time that is shorter, too."""
        end = self._start + duration
        return [end - limit * factor for limit in set(self._limits.tolist()) for factor in (2, 0.5)]


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
