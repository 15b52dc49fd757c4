"""Many resources at once: the same answers as `matchmaking` and `cost`, by arrays over all resources.

Every distinct consumable that any resource offers is kept once. Which of them a requirement matches comes from an index
of values, so that a thousand task types among ten thousand resources take less than a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock_planning.select.consumables import Capability, Consumable, Requirement, Resource, Task
from penstock_planning.select.values import Value

__all__ = ["Catalogue"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Index:
    """The capabilities of one type, in order of their resources (`owner`, as numbers, ascending).

    `kinds` says for each which of the distinct consumables it is; `values` which of those have a value of an attribute.
    `first` are where a resource's capabilities begin, and `owners` which resources those are.
    """

    owner: NDArray[np.int64]
    numbers: Floats
    kinds: NDArray[np.int64]
    values: dict[str, dict[Value, Flags]]
    distinct: int
    first: NDArray[np.int64]
    owners: NDArray[np.int64]

    def matches(self, wanted: Consumable) -> Flags | None:
        """Which capabilities match; None for all."""
        found: Flags | None = None
        for attribute, condition in wanted.form:
            here = np.zeros(self.distinct, dtype=bool)
            known = self.values.get(attribute, {})
            for want in condition:
                if not want.comparison:
                    if want in known:
                        here |= known[want]
                else:
                    for have, flags in known.items():
                        if have.meets(want):
                            here |= flags
            found = here if found is None else found & here
        return None if found is None else found[self.kinds]


def _index(offers: Sequence[tuple[int, Capability]]) -> _Index:
    kinds: dict[Consumable, int] = {}
    for _, cap in offers:
        kinds.setdefault(cap.consumable, len(kinds))
    values: dict[str, dict[Value, Flags]] = {}
    for consumable, number in kinds.items():
        for attribute, offered in consumable.form:
            for value in offered:
                flags = values.setdefault(attribute, {}).setdefault(value, np.zeros(len(kinds), dtype=bool))
                flags[number] = True
    owner = np.array([res for res, _ in offers], dtype=np.int64)
    numbers = [cap.capacity if cap.rate is None else cap.rate for _, cap in offers]
    owners, first = np.unique(owner, return_index=True)
    return _Index(
        owner,
        np.array(numbers, dtype=np.float64),
        np.array([kinds[cap.consumable] for _, cap in offers], dtype=np.int64),
        values,
        len(kinds),
        first,
        owners,
    )


class Catalogue:
    """Resources that many tasks choose from."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self.resources = tuple(resources)
        offers: dict[tuple[str, bool], list[tuple[int, Capability]]] = {}
        for number, res in enumerate(self.resources):
            for cap in res.capabilities:
                offers.setdefault((cap.consumable.type, cap.held), []).append((number, cap))
        self._index = {key: _index(found) for key, found in offers.items()}
        self._correction = np.array([res.correction for res in self.resources])
        self._best: dict[tuple[Consumable, bool], Floats] = {}

    def best(self, consumable: Consumable, held: bool = False) -> Floats:
        """Of every resource the best rate (what is held: capacity) that matches, 0 for none. Not to be changed."""
        found = self._best.get((consumable, held))
        if found is None:
            found = self._best[consumable, held] = self._work_out(consumable, held)
        return found

    def _work_out(self, consumable: Consumable, held: bool) -> Floats:
        best = np.zeros(len(self.resources))
        index = self._index.get((consumable.type, held))
        if index is None:
            return best
        matches = index.matches(consumable)
        numbers = index.numbers if matches is None else np.where(matches, index.numbers, 0.0)
        best[index.owners] = numbers if len(index.owners) == len(numbers) else np.maximum.reduceat(numbers, index.first)
        return best

    def run_times(self, task: Task) -> Floats:
        """The predicted run time (s) on every resource, infinite where it is not viable."""
        total, fits = np.zeros(len(self.resources)), np.ones(len(self.resources), dtype=bool)
        with np.errstate(divide="ignore"):
            for req in task.requirements:
                best = self.best(req.consumable, req.held)
                if req.held:
                    fits &= best >= req.amount
                else:
                    total += (req.amount * task.parallel.share(req.consumable.type)) / best
        total *= self._correction
        total[~fits] = np.inf
        return total

    def select(self, tasks: Iterable[Task], waits: Floats | None = None) -> list[Resource | None]:
        """For each task the resource where it is done first (Algorithm 3), the first of equals; None where none is
        viable. `waits` (s) are added to the run times."""
        chosen: list[Resource | None] = []
        for task in tasks:
            done = self.run_times(task)
            if waits is not None:
                done += waits
            at = int(done.argmin()) if len(done) else -1
            chosen.append(self.resources[at] if at >= 0 and np.isfinite(done[at]) else None)
        return chosen

    def nowhere(self, task: Task) -> list[Requirement]:
        """The requirements that no resource satisfies."""
        return [req for req in task.requirements if not self._anywhere(req)]

    def _anywhere(self, req: Requirement) -> bool:
        return bool((self.best(req.consumable, req.held) >= (req.amount if req.held else 1e-300)).any())
