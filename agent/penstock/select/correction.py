"""How far predictions are off on each resource, learned from finished tasks.

Ha et al., section IV-A3: the same simulation executes 22 % more instructions on one resource, and is then predicted
right with 22 % more cycles. A resource's factor is the mean of log(actual / predicted) of its tasks, drawn towards that
of all resources while it knows few of its own. What all predictions have in common (the 157-171 % of the paper) is
thus corrected on resources that no task has run on, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Corrections"]

_VERSION: Final = 1
_DRAWN: Final = 1.0
"""How many observations the mean of all resources counts for, and how many resources count for that there is none."""
_MEMORY: Final = 50.0
"""Observations of a resource that count at most: older ones fade."""


@dataclass(slots=True)
class _Mean:
    logs: float = 0.0
    count: float = 0.0

    def add(self, log: float) -> None:
        if self.count >= _MEMORY:
            self.logs *= (_MEMORY - 1) / self.count
            self.count = _MEMORY - 1
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
        return math.exp((own.logs + _DRAWN * common) / (own.count + _DRAWN))

    def count(self, task: str, resource: str) -> int:
        """How many finished tasks that rests on."""
        return round(self._known.get(task, {}).get(resource, _Mean()).count)

    def to_state(self) -> dict[str, Any]:
        """JSON-able; `version` tells the form."""
        return {
            "version": _VERSION,
            "tasks": {t: {r: [m.logs, m.count] for r, m in means.items()} for t, means in self._known.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Corrections:
        """From what `to_state` gave. ValueError when it is damaged or newer."""
        try:
            if state["version"] != _VERSION:
                raise ValueError(f"corrections of version {state['version']!r}, not {_VERSION}")
            known = {
                str(task): {str(res): _mean(*pair) for res, pair in means.items()}
                for task, means in state["tasks"].items()
            }
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"damaged corrections: {e!r}") from None
        return cls(known)


def _mean(logs: float, count: float) -> _Mean:
    logs, count = float(logs), float(count)
    if not (math.isfinite(logs) and 0 < count < 1e6):
        raise ValueError("damaged corrections: not a mean")
    return _Mean(logs, count)
