"""A mean completion time that no scheduler goes below, whatever it knows, and even if it resizes for nothing.

Jobs j come at r_j, and each does its work at the rate 1 / T_j(n) on n nodes, for the sizes n that it can have; N nodes
there are. What is to be small is the sum of C_j - r_j, with no more than N nodes in use at any time. Every scheduler,
clairvoyant or not, makes such a schedule; so does one that stops jobs and takes them up again, which is allowed here.

**Why it is a bound** (Lagrangian duality). Give each node-second at t any price lambda(t) >= 0, have jobs pay for what
they use, and take off what all N nodes would cost. A schedule that keeps to N nodes does not get dearer by that. So its
sum is at least

    sum over j of min over schedules of j alone (C - r_j + payments of j)  -  N * integral of lambda

because each job alone, free of the others, can only do better. Alone, a job that ends at C pays at least, for any
mu >= 0 (duality once more, for "all its work is done by C"),

    mu + integral from r_j to C of min over n of (lambda(t) * n - mu / T_j(n)),        n = 0 included

and the largest over some mu is taken. In C this falls, so on a grid of ends c_k, the job that ends within
[c_k, c_k+1] costs at least c_k plus the payment for c_k+1. Prices are constant within a step of the grid, and a job
that comes within a step may use all of it. Each of these can only lower the figure: it is a bound for whatever prices,
and good prices only make it a good one.

**Prices** are looked for as a market finds them: dearer where jobs want more than N nodes, cheaper where they want
less; straight lines between some knots. One node-second costs about as much as all jobs that are not done would be late
by, divided by N: there it begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Elastic", "least_mean_completion"]

_Floats = NDArray[np.float64]
_STEPS: Final = 600
"""Steps of the grid on which prices are looked for, up to an instant when all work would long be done."""
_ENDS: Final = 3
"""Steps between two ends that are looked at meanwhile."""
_FINE: Final = 4
"""So many steps for one of these, and an end after each, in the figure itself."""
_WORTHS: Final = 96
"""How many mu are tried."""
_ROUNDS: Final = 48
_KNOTS: Final = 24


@dataclass(frozen=True)
class Elastic:
    """A job: when it comes (s), and what a run takes (s) on each number of nodes that it can have."""

    submit: float
    seconds: Mapping[int, float]


class _Best(NamedTuple):
    """Jobs of one kind under given prices: what they cost at least, and how many nodes they want in each step if those
    who hardly mind when they end do not all want the same."""

    cost: float
    wanted: _Floats


class _Kind:
    """Jobs with the same times."""

    def __init__(self, seconds: Mapping[int, float], submits: Sequence[float], step: float) -> None:
        self.fastest = min(seconds.values())
        self.submits = np.array(submits)
        self.first = (self.submits / step).astype(np.intp)
        self._hull_sizes, self._hull_rates, self._slopes = _hull(seconds)
        work = min(n * s for n, s in seconds.items())
        self._least, self._most = self.fastest / 4, work
        self._step = step

    def sizes(self, prices: _Floats, worth: _Floats | float) -> NDArray[np.intp]:
        """Index of the best size for each price and mu."""
        found = np.searchsorted(-self._slopes, -prices / worth, side="left")
        return np.asarray(found, dtype=np.intp)

    def worths(self, prices: _Floats) -> _Floats:
        """The mu that are tried: from where hardly any node is worth its price to where all are."""
        top = max(float(prices.max()), 1e-9)
        return np.geomspace(self._least * 0.05, max(self._most * top * 40, self._most), _WORTHS)

    def best(self, prices: _Floats, every: int, warmth: float = 0.0) -> _Best:
        """The least that each of these jobs costs alone, if it ends at every so-manieth step. `warmth` (s) is how much
        dearer an end may be and still be chosen by some; 0: what is wanted does not matter."""
        mu = self.worths(prices)
        chosen = self.sizes(prices[None, :], mu[:, None])
        nodes = self._hull_sizes[chosen]
        flow = (prices[None, :] * nodes - mu[:, None] * self._hull_rates[chosen]) * self._step
        paid = np.concatenate([np.zeros((len(mu), 1)), np.cumsum(flow, axis=1)], axis=1)
        ends = np.arange(0, paid.shape[1], every)
        at_end = mu[:, None] + paid[:, ends]
        times = ends * self._step
        before = np.concatenate([[0.0], times[:-1]])  # it ends no earlier than the end before this one
        cost, edges = 0.0, np.zeros_like(paid)
        for first in np.unique(self.first):
            alone = at_end - paid[:, first : first + 1]
            worth = alone.argmax(axis=0)
            least = np.maximum(alone[worth, np.arange(len(ends))], 0.0)
            late = times > first * self._step
            for submit in self.submits[self.first == first]:
                total = np.maximum(before - submit, self.fastest) + least
                total[~late] = np.inf
                lowest = total.min()
                # Who ends after all that is looked at pays nothing at least.
                cost += float(min(lowest, max(times[-1] - submit, self.fastest)))
                if not warmth:
                    continue
                share = np.exp((lowest - total) / warmth)
                share /= share.sum()
                np.add.at(edges, (worth, ends), -share)
                np.add.at(edges, (worth, np.full(len(ends), first)), share)
        return _Best(cost, (np.cumsum(edges, axis=1)[:, :-1] * nodes).sum(axis=0))


def _hull(seconds: Mapping[int, float]) -> tuple[Any, Any, Any]:
    """The sizes, from 0, whose rates lie on the concave hull, those rates, and the slopes between them, falling."""
    points = [(0, 0.0), *((n, 1 / seconds[n]) for n in sorted(seconds))]
    hull: list[tuple[int, float]] = []
    for n, rate in points:
        if hull and rate <= hull[-1][1]:
            continue  # more nodes, and no quicker
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (n, rate)):
            hull.pop()
        hull.append((n, rate))
    slopes = [_slope(a, b) for a, b in itertools.pairwise(hull)]
    return np.array([float(n) for n, _ in hull]), np.array([rate for _, rate in hull]), np.array(slopes)


def _slope(a: tuple[int, float], b: tuple[int, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def least_mean_completion(jobs: Sequence[Elastic], nodes: int, rounds: int = _ROUNDS) -> float:
    """Seconds from submission to end in the mean of these jobs on so many nodes: nobody gets below (module's text).

    More `rounds` find better prices; the figure is a bound after any number of them, 0 included. ValueError without
    jobs, or with one that fits on no node.
    """
    if not jobs or any(not j.seconds or min(j.seconds) < 1 or min(j.seconds) > nodes for j in jobs):
        raise ValueError("each job needs a size from 1 node to as many as there are, and there must be jobs")
    start = min(j.submit for j in jobs)
    groups: dict[tuple[tuple[int, float], ...], list[float]] = {}
    for job in jobs:
        times = tuple(sorted((n, s) for n, s in job.seconds.items() if n <= nodes))
        groups.setdefault(times, []).append(job.submit - start)
    market = _Market(groups, nodes)
    # Prices of 0 bound it, too: every job on its quickest size at once.
    quickest = sum(min(s for _, s in times) * len(submits) for times, submits in groups.items())
    return max(quickest, market.bound(market.prices(rounds))) / len(jobs)


class _Market:
    """All jobs, by what they take on which size, and the search for prices. A price is per node-second, in seconds."""

    def __init__(self, groups: Mapping[tuple[tuple[int, float], ...], Sequence[float]], nodes: int) -> None:
        self._groups, self._nodes = groups, nodes
        busy = sum(min(n * s for n, s in times) * len(submits) for times, submits in groups.items()) / nodes
        last = max(max(submits) for submits in groups.values())
        self._longest = max(min(s for _, s in times) for times in groups)
        self._horizon = 1.5 * busy + last + 3 * self._longest
        self._done = busy + last / 2 + self._longest
        ends = [1.05 * self._done, 1.15 * self._done, self._horizon]
        self._knots = np.concatenate([np.linspace(0, self._done, _KNOTS), ends])

    def prices(self, rounds: int) -> _Floats:
        """Those at the knots with which the bound is high."""
        step = self._horizon / _STEPS
        kinds, hats = self._kinds(step), self._hats(_STEPS)
        came = np.sort(np.concatenate([k.submits for k in kinds]))
        there = np.searchsorted(came, self._knots, side="right")
        first = there / self._nodes * np.maximum(0.0, 1 - self._knots / self._done) * 0.8
        dear, pace, before = np.log(np.maximum(first, 1e-3)), np.full(len(first), 0.15), np.zeros(len(first))
        best, found = first, -np.inf
        for turn in range(rounds):
            curve = np.exp(dear) @ hats
            warmth = max(self._longest * 0.5 ** (turn / 6), step)
            costs = [k.best(curve, _ENDS, warmth) for k in kinds]
            value = sum(c.cost for c in costs) - self._nodes * float(curve.sum()) * step
            if value > found:
                best, found = np.exp(dear), value
            # Each price goes where it is pushed, in growing strides, and in smaller ones from where it came too far.
            sign = np.sign(hats @ (sum(c.wanted for c in costs) - self._nodes))
            turned = sign * before < 0
            pace = np.clip(np.where(turned, pace * 0.5, np.where(before == 0, pace, pace * 1.2)), 1e-4, 0.5)
            before = np.where(turned, 0.0, sign)
            dear = dear + pace * before
        return np.asarray(best)

    def bound(self, prices: _Floats) -> float:
        """What all jobs together need at least, on a fine grid."""
        steps = _FINE * _STEPS
        curve = prices @ self._hats(steps)
        step = self._horizon / steps
        return sum(k.best(curve, 1).cost for k in self._kinds(step)) - self._nodes * float(curve.sum()) * step

    def _kinds(self, step: float) -> list[_Kind]:
        return [_Kind(dict(times), submits, step) for times, submits in self._groups.items()]

    def _hats(self, steps: int) -> _Floats:
        """How much each knot's price counts in each step."""
        middles = (np.arange(steps) + 0.5) * self._horizon / steps
        return np.array([np.interp(middles, self._knots, row) for row in np.eye(len(self._knots))])
