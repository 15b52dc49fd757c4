"""What preemption costs a task: the time that is expected until it is done, with all that is done over again.

A job that is preempted is put back in the queue and begins anew, or at its last checkpoint. Interruptions are taken to
come at random at one rate (J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
FGCS 22, 2006, Eqs. 13 to 15, without the time that a dump takes): a piece of work of length T without checkpoint takes
(1 / rate + R) (exp(rate T) - 1) on average, where R passes between an interruption and the next start. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["Preemptions", "expected_rework", "rate_of"]

_SURE: Final = 700.0  # exp of more is no number any more


@dataclass(frozen=True, slots=True)
class Preemptions:
    """How often running jobs are preempted somewhere: `rate` a second of running; `source` says who knows."""

    rate: float
    source: str


def expected_rework(run: float, rate: float, again: float, checkpoint: float | None = None) -> float:
    """Seconds beyond `run` until the work is done, in the mean; infinite where it would hardly ever be.

    Args:
        run: seconds of work without any interruption.
        rate: interruptions a second of running.
        again: seconds from an interruption to the next start.
        checkpoint: seconds of work from one checkpoint to the next; None: all begins anew.
    """
    if rate <= 0 or run <= 0:
        return 0.0
    piece = run if checkpoint is None else min(checkpoint, run)
    if not math.isfinite(piece) or rate * piece > _SURE:
        return math.inf
    return run / piece * (1 / rate + again) * math.expm1(rate * piece) - run


def rate_of(runs: Iterable[tuple[float, bool]]) -> float | None:
    """Preemptions a second of running, from runs as (seconds, whether it was preempted); None where none ever was.

    Half a preemption more than were seen (Jeffreys' prior): one that was seen once may come sooner the next time.
    """
    seconds, count = 0.0, 0
    for lasted, preempted in runs:
        seconds += max(lasted, 0.0)
        count += preempted
    return (count + 0.5) / seconds if count and seconds > 0 else None
