"""Who is served in a pass, where there is more to do than one pass may take: each user alike, nobody never. Pure.

The agent does one thing at a time, so what one user has it look through keeps all others waiting. A pass therefore
serves each user's workflows up to a budget, those first that have waited longest, and takes up the rest at the next.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Generic, TypeVar

__all__ = ["LookupClaim", "Rounds", "UserShare", "deal", "work_of"]

U = TypeVar("U", bound=Hashable)
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_EDGES = 8  # that cost as much as a stage


@dataclass(frozen=True, slots=True)
class UserShare:
    """What one user may have of an agent; see `LimitsSection`, whose keys these are."""

    stages: int = 10_000
    dependencies: int = 100_000
    unseen: int = 2_000
    work: int = 10_000
    changes: int = 50
    lookups: int = 500


def work_of(stages: int, dependencies: int) -> int:
    """What it costs to look through a workflow, in stages."""
    return stages + dependencies // _EDGES


@dataclass(frozen=True, slots=True)
class LookupClaim(Generic[K, U]):
    """Something of a user's that may be looked through, and what that costs. `needed`: there is news of it."""

    key: K
    user: U
    work: int
    needed: bool = True


class Rounds(Generic[K]):
    """Chooses for pass after pass. Remembers when each claim was served last, of those that are still made."""

    def __init__(self) -> None:
        self._pass = 0
        self._served: dict[K, int] = {}

    def choose(self, claims: Iterable[LookupClaim[K, U]], budget: int) -> tuple[list[K], bool]:
        """The claims that this pass serves, in that order, and whether a needed one is left for the next.

        Of each user the needed ones before the others, and of these those that have waited longest, as long as their
        work is within the budget, but one at least. So who has no more than the budget is served in every pass, and a
        needed claim of somebody who needs W in all at the latest in pass 2 * W / budget + 1, whatever joins meanwhile.
        Users take turns, another one first in each pass.
        """
        self._pass += 1
        made = list(claims)
        # What is new joins at the end: else those that keep coming would be before all others.
        self._served = {claim.key: self._served.get(claim.key, self._pass - 1) for claim in made}
        of_user: dict[U, list[LookupClaim[K, U]]] = {}
        for claim in sorted(made, key=lambda c: (not c.needed, self._served[c.key])):  # stable: as they came
            of_user.setdefault(claim.user, []).append(claim)
        chosen: list[list[K]] = []
        for waiting in of_user.values():
            taken, left = [waiting[0].key], budget - waiting[0].work
            for claim in waiting[1:]:
                left -= claim.work
                if left < 0:  # a smaller one behind it must not overtake it
                    break
                taken.append(claim.key)
            chosen.append(taken)
        first = self._pass % len(chosen) if chosen else 0
        keys = _in_turn([*chosen[first:], *chosen[:first]])
        for key in keys:
            self._served[key] = self._pass
        served = set(keys)
        return keys, any(claim.needed and claim.key not in served for claim in made)


def deal(piles: Mapping[U, Sequence[T]], most: int) -> list[T]:
    """At most so many of these, one of each user's in turn, each user's in their order; the users in theirs."""
    return _in_turn(list(piles.values()))[:most]


def _in_turn(piles: Sequence[Sequence[T]]) -> list[T]:
    """The first of each, then the second of each, and so on."""
    none = object()
    return [item for item in chain.from_iterable(zip_longest(*piles, fillvalue=none)) if item is not none]  # type: ignore[misc]
