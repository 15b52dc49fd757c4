"""How far predictions are off on each resource, learned from finished tasks.

Ha et al., section IV-A3: the same simulation executes 22 % more instructions on one resource, and is then predicted
right with 22 % more cycles. A resource's factor is the mean of log(actual / predicted) of its tasks, drawn towards that
of all resources while it knows few of its own, the less the surer these are (empirical Bayes: Efron and Morris 1973).
What all predictions have in common (the 157-171 % of the paper) is thus corrected on resources that no task has run on,
too. How far the logs fall from their mean says how much later the last of many tasks ends than one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from statistics import variance
from typing import Any, Final

__all__ = ["Corrections"]

_VERSION: Final = 2
_DRAWN: Final = 1.0
"""How many observations the mean of all resources counts for at most, and how many resources count for that there is
none."""
_MEMORY: Final = 50.0
"""Observations of a resource that count at most: older ones fade."""
_ENOUGH: Final = 2
"""Deviations from a mean from which on their size is known."""


@dataclass(slots=True)
class _Mean:
    """The sum of `count` logs, and of the squares by which `deviations` of them fell from the mean."""

    logs: float = 0.0
    count: float = 0.0
    squares: float = 0.0
    deviations: float = 0.0

    def add(self, log: float) -> None:
        if self.count >= _MEMORY:
            left = (_MEMORY - 1) / self.count
            self.logs *= left
            self.squares *= left
            self.deviations *= left
            self.count = _MEMORY - 1
        if self.count:
            self.squares += (log - self.logs / self.count) ** 2 * self.count / (self.count + 1)
            self.deviations += 1
        self.logs += log
        self.count += 1


@dataclass(slots=True)
class Corrections:
    """Factors by task type and resource. A task type begins with nothing: another program is off by something else."""

    _known: dict[str, dict[str, _Mean]] = field(default_factory=dict)

    def observe(self, task: str, resource: str, predicted: float, actual: float) -> None:
        """A task ran `actual` seconds where `predicted` were expected without a correction. Nonsense is left out."""
        if not (0 < predicted < math.inf and 0 < actual < math.inf):
            return
        self._known.setdefault(task, {}).setdefault(resource, _Mean()).add(math.log(actual / predicted))

    def factor(self, task: str, resource: str) -> float:
        """What predictions for the task are to be multiplied with on the resource; 1 while nothing is known."""
        means = self._known.get(task, {})
        known = [m.logs / m.count for m in means.values()]
        if not known:
            return 1.0
        # One machine may be off by what is its own alone: what a few have in common is half believed, many wholly.
        common, own = sum(known) / (len(known) + _DRAWN), means.get(resource, _Mean())
        drawn = _DRAWN
        if own.count and len(known) > 1 and (apart := variance(known)) > 0:
            scatter = self.scatter(task, resource)
            drawn = _DRAWN if scatter is None else min(scatter**2 / apart, _DRAWN)
        return math.exp((own.logs + drawn * common) / (own.count + drawn))

    def scatter(self, task: str, resource: str) -> float | None:
        """The standard deviation of log(actual / predicted) on the resource, or of all where too few have run there;
        None where that is too few, too."""
        means = self._known.get(task, {})
        for some in ([means[resource]] if resource in means else [], means.values()):
            if (count := sum(mean.deviations for mean in some)) >= _ENOUGH:
                return math.sqrt(sum(mean.squares for mean in some) / count)
        return None

    def count(self, task: str, resource: str) -> int:
        """How many finished tasks that rests on."""
        return round(self._known.get(task, {}).get(resource, _Mean()).count)

    def to_state(self) -> dict[str, Any]:
        """JSON-able; `version` tells the form."""
        return {
            "version": _VERSION,
            "tasks": {t: {r: list(astuple(m)) for r, m in means.items()} for t, means in self._known.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Corrections:
        """From what `to_state` gave. ValueError when it is damaged or newer."""
        try:
            if state["version"] not in (1, _VERSION):  # version 1 knew means alone
                raise ValueError(f"corrections of version {state['version']!r}, not {_VERSION}")
            known = {
                str(task): {str(res): _mean(*pair) for res, pair in means.items()}
                for task, means in state["tasks"].items()
            }
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"damaged corrections: {e!r}") from None
        return cls(known)


def _mean(logs: float, count: float, squares: float = 0.0, deviations: float = 0.0) -> _Mean:
    found = _Mean(float(logs), float(count), float(squares), float(deviations))
    if not (math.isfinite(found.logs) and 0 < found.count < 1e6 and 0 <= found.deviations < 1e6):
        raise ValueError("damaged corrections: not a mean")
    if not 0 <= found.squares < math.inf:
        raise ValueError("damaged corrections: not a sum of squares")
    return found
