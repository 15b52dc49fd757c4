"""Resources in the order in which they suit a task: viable or why not, cost, run time, wait, time to completion.

TTC = Tq + Tx (Ha et al., section IV-B), expected or as a quantile of the wait. What "suits" means is an affinity
(Algorithm 3), by default minus the TTC. One's own is found by the entry point `penstock.affinity`; docs/extending.md
has a complete one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock_planning.select.consumables import Metric, Resource, Task
from penstock_planning.select.cost import cost, run_time
from penstock_planning.select.matchmaking import unmet

__all__ = ["NO_WAIT", "Affinity", "Cheaper", "Frugal", "RankedRow", "ResourceOption", "Sooner", "Wait", "rank"]


@dataclass(frozen=True, slots=True)
class Wait:
    """A predicted queue wait (Tq): `expected` seconds, and pairs (q, seconds not exceeded with probability q), rising.

    Between the pairs straight lines, beyond them constant; without any the wait is what is expected.
    """

    expected: float
    quantiles: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        seconds = [self.expected, *(s for _, s in self.quantiles)]
        if not all(0 <= s < math.inf for s in seconds) or sorted(seconds[1:]) != seconds[1:]:
            raise ValueError(f"waits are finite seconds >= 0, rising with their quantiles, not {seconds}")
        shares = [q for q, _ in self.quantiles]
        if sorted(set(shares)) != shares or not all(0 < q <= 1 for q in shares):
            raise ValueError(f"quantiles rise from above 0 to 1, not {shares}")

    def at(self, q: float | None) -> float:
        """The wait (s) that is not exceeded with probability `q`; None: the expected one."""
        if q is None or not self.quantiles:
            return self.expected
        right = bisect_left(self.quantiles, q, key=lambda pair: pair[0])
        if right == 0:
            return self.quantiles[0][1]
        if right == len(self.quantiles):
            return self.quantiles[-1][1]
        (q0, s0), (q1, s1) = self.quantiles[right - 1], self.quantiles[right]
        return s0 + (s1 - s0) * (q - q0) / (q1 - q0)

    def later(self, seconds: float) -> Wait:
        """The same, so many seconds longer (negative: shorter, but not below 0)."""
        moved = tuple((q, max(s + seconds, 0.0)) for q, s in self.quantiles)
        return Wait(max(self.expected + seconds, 0.0), moved)


NO_WAIT = Wait(0.0)


@dataclass(frozen=True, slots=True)
class ResourceOption:
    """A viable resource for a task. `cost` is K in the affinity's metric, times in seconds (`ttc` at the quantile)."""

    task: Task
    resource: Resource
    cost: float
    tx: float
    tq: Wait
    ttc: float


class Affinity(Protocol):
    """How well an option suits; the higher the better. Pure and fast: called once per task and resource."""

    name: str
    metric: Metric
    """What the cost is counted in."""

    def value(self, option: ResourceOption) -> float:
        """The affinity; -infinity: never."""
        ...


class Sooner:
    """The option that ends first."""

    name = "ttc"
    metric = Metric.TIME

    def value(self, option: ResourceOption) -> float:
        """See `Affinity`."""
        return -option.ttc


class Cheaper:
    """The option that costs least."""

    name = "cost"
    metric = Metric.MONEY

    def value(self, option: ResourceOption) -> float:
        """See `Affinity`."""
        return -option.cost


class Frugal(Cheaper):
    """The option that takes least energy."""

    name = "energy"
    metric = Metric.ENERGY


_SOONER: Final = Sooner()


@dataclass(frozen=True, slots=True)
class RankedRow:
    """What is said of one resource. Seconds, and `cost` in the affinity's metric; None where it is not known. `why`
    says why a resource is not viable, or what is not known of it."""

    resource: str
    viable: bool
    why: str | None = None
    cost: float | None = None
    tx: float | None = None
    tq: float | None = None
    ttc: float | None = None


_UNKNOWN: Final = {
    Metric.MONEY: "what it charges is not known (no `charge`)",
    Metric.ENERGY: "its power is not known (no `watts`)",
}


def rank(
    task: Task,
    resources: Sequence[Resource],
    waits: Mapping[str, Wait],
    *,
    more: Mapping[str, float] | None = None,
    excluded: Mapping[str, str] | None = None,
    affinity: Affinity = _SOONER,
    quantile: float | None = None,
) -> list[RankedRow]:
    """A row per resource: viable ones best first, the first of equals first, then the others.

    `waits` by resource; none: nobody waits there. `more` (s) is what comes on top of wait and run time there:
    work that preemption has done over again, input that is fetched. `excluded` says of resources why they cannot
    be used.
    """
    viable: list[tuple[float, RankedRow]] = []
    others: list[RankedRow] = []
    for res in resources:
        why = (excluded or {}).get(res.name) or "; ".join(unmet(task, res))
        if why:
            others.append(RankedRow(res.name, False, why))
            continue
        wait = waits.get(res.name, NO_WAIT)
        tx, tq = run_time(task, res), wait.at(quantile)
        ttc = tq + tx + (more or {}).get(res.name, 0.0)
        option = ResourceOption(task, res, cost(task, res, affinity.metric), tx, wait, ttc)
        known = math.isfinite(option.cost)
        row = RankedRow(
            res.name,
            True,
            None if known else _UNKNOWN.get(affinity.metric),
            option.cost if known else None,
            tx,
            tq,
            option.ttc,
        )
        viable.append((affinity.value(option), row))
    viable.sort(key=lambda pair: -pair[0])
    return [*(row for _, row in viable), *others]


# What affinities of others import by its name of 0.1; for one release.
Option, Row = ResourceOption, RankedRow
