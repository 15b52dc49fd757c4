"""How long a slot should be if nobody knows how long its task will take (Singh 2008, section 8.1).

A long slot costs more. In a short one the task may not end; then its work is lost, and it must be done again in a slot
of its whole time limit. The earlier run times are all that is known of the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Length", "overrun_probability", "slot_length"]


@dataclass(frozen=True, slots=True)
class Length:
    """A slot's length, the probability that its task takes longer, and the expected price of having the task done."""

    duration: float
    overrun: float
    expected: float


def overrun_probability(took: Sequence[float], duration: float) -> float:
    """That the next run takes longer than `duration`, if all orders of the run times are equally likely: of n sorted
    times and the next one, it is above the i-th with probability (n + 1 - i) / (n + 1). 1 if nothing is known."""
    return (len(took) + 1 - bisect_right(sorted(took), duration)) / (len(took) + 1)


def slot_length(took: Sequence[float], limit: float, price: float = 1.0, penalty: float = 0.0) -> Length:
    """The length that minimises price + P(overrun) x (price of the slot of length `limit` + penalty).

    `took` are earlier run times in the unit of `limit`, `price` that of a unit of time, `penalty` what an overrun costs
    besides, such as giving up the slots behind this one. Only the times seen and the limit are looked at, since between
    two of them the price rises and the probability stays. Of equals the longest: the fewest overruns.
    """

    def at(duration: float) -> Length:
        # Slurm ends a job at its limit anyhow: what would take longer is lost in no slot.
        risk = 0.0 if duration >= limit else overrun_probability(took, duration)
        return Length(duration, risk, duration * price + risk * (limit * price + penalty))

    return min((at(d) for d in {*(t for t in took if t < limit), limit}), key=lambda x: (x.expected, -x.duration))
