"""What a change did to the jobs of all windows, and how far the simulation is from what was recorded.

Jobs of one window hang together, so whole windows are drawn for the intervals. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock_lab.intervals import Interval, ratio_of_means, resampled
from penstock_lab.sim.score import THRESHOLD
from penstock_lab.whatif.simulate import Judged

__all__ = ["Effect", "ReplayError", "effect_of", "error_of"]

_MOVED: Final = 60.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReplayError:
    """How far the simulated starts of the site as it is are from the recorded ones, over all judged jobs (s): waits
    in the mean, by how much the simulated ones are longer (`bias`), by how much each is off, mean and median."""

    windows: int
    jobs: int
    recorded: Interval
    simulated: Interval
    bias: Interval
    mean: Interval
    median: Interval


@dataclass(frozen=True, slots=True)
class Effect:
    """What the change did (s): mean waits before and after, by how much each wait became longer, in the mean and the
    median; of `wait`, `slowdown`, `response` (wait and run) and `makespan` the new mean over the old one. `later` and
    `earlier` are shares of jobs that start more than a minute later or earlier."""

    now: Interval
    then: Interval
    median_now: Interval
    median_then: Interval
    longer: Interval
    median_longer: Interval
    wait: Interval
    response: Interval
    slowdown: Interval
    makespan: Interval
    later: Interval
    earlier: Interval


def error_of(found: Sequence[Judged]) -> ReplayError:
    """The replay's own error."""
    recorded, now = _arrays(found, "recorded"), _arrays(found, "now")
    off = [b - a for a, b in zip(recorded, now, strict=True)]
    apart = [np.abs(one) for one in off]
    return ReplayError(
        len(found), sum(map(len, recorded)), _mean(recorded), _mean(now), _mean(off), _mean(apart), _median(apart)
    )


def effect_of(found: Sequence[Judged]) -> Effect:
    """The change's effect, job by job the same arrivals and run times."""
    now, then, run = (_arrays(found, name) for name in ("now", "then", "run"))
    after = _arrays(found, "then_run")
    longer = [b - a for a, b in zip(now, then, strict=True)]
    slow = [[_slowdown(w, r) for w, r in zip(waits, run, strict=True)] for waits in (now, then)]
    response = [[w + r for w, r in zip(waits, runs, strict=True)] for waits, runs in ((now, run), (then, after))]
    return Effect(
        _mean(now),
        _mean(then),
        _median(now),
        _median(then),
        _mean(longer),
        _median(longer),
        _ratio(then, now),
        _ratio(response[1], response[0]),
        _ratio(slow[1], slow[0]),
        ratio_of_means([one.span_then for one in found], [one.span_now for one in found]),
        _mean([(one > _MOVED).astype(float) for one in longer]),
        _mean([(one < -_MOVED).astype(float) for one in longer]),
    )


def _slowdown(waits: Floats, run: Floats) -> Floats:
    found: Floats = np.maximum((waits + run) / np.maximum(run, THRESHOLD), 1.0)
    return found


def _arrays(found: Sequence[Judged], name: str) -> list[Floats]:
    return [np.asarray(getattr(one, name), dtype=float) for one in found]


def _of(statistic: Callable[[Floats], Any], values: Sequence[Floats]) -> Interval:
    return resampled(len(values), lambda draw: statistic(np.concatenate([values[at] for at in draw])))


def _mean(values: Sequence[Floats]) -> Interval:
    return _of(np.mean, values)


def _median(values: Sequence[Floats]) -> Interval:
    return _of(np.median, values)


def _ratio(these: Sequence[Floats], those: Sequence[Floats]) -> Interval:
    return ratio_of_means([float(one.sum()) for one in these], [float(one.sum()) for one in those])
