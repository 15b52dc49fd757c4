"""Who takes part in a move, and what the distributions say that each gives to and gets from each other.

This module imports numpy and mpi4py; `dmr.redistribute` imports it when data moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dmr import plan, points
from dmr.agreement import Item
from dmr.exchange import agree
from dmr.plan import IndexSet, Points, Strip

if TYPE_CHECKING:
    from dmr.patience import Patient

__all__ = ["Axes", "Route", "Ways", "allocate", "ways"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Route:
    """Who moves: the communicator of all, the ranks in it of the old and new ranks, and which of them this rank is."""

    comm: Patient
    old: Sequence[int]
    new: Sequence[int]
    old_rank: int | None
    new_rank: int | None
    room: int


# What this rank gives to each rank of the communicator, and gets from each: positions along each axis of its block.
Axes = list[IndexSet]
Ways = tuple[dict[int, Axes], dict[int, Axes]]


def ways(route: Route, item: Item) -> Ways:
    """By the distributions."""
    shape, olds, news = item.shape, len(route.old), len(route.new)
    gives: dict[int, Axes] = {}
    gets: dict[int, Axes] = {}
    if route.old_rank is not None:
        mine = item.old.sends(shape, olds, route.old_rank)
        theirs = zip(*(item.new.sets(shape, news, rank) for rank in range(news)), strict=True)
        by_axis = [plan.shared_with(ours, sets, n) for ours, sets, n in zip(mine, theirs, shape, strict=True)]
        for rank, shared in zip(route.new, zip(*by_axis, strict=True), strict=True):
            if all(shared):
                gives[rank] = [_positions([piece.source for piece in pieces]) for pieces in shared]
    if route.new_rank is not None:
        mine = item.new.sets(shape, news, route.new_rank)
        theirs = zip(*(item.old.sends(shape, olds, rank) for rank in range(olds)), strict=True)
        by_axis = [plan.shared_by(sets, ours, n) for sets, ours, n in zip(theirs, mine, shape, strict=True)]
        for rank, shared in zip(route.old, zip(*by_axis, strict=True), strict=True):
            if all(shared):
                gets[rank] = [_positions([piece.target for piece in pieces]) for pieces in shared]
    return gives, gets


def _positions(parts: Sequence[Strip | Points]) -> IndexSet:
    """As strips where they are regular on this side: what lies in one piece needs no buffer."""
    return points.as_set(parts[0].numbers) if len(parts) == 1 and isinstance(parts[0], Points) else tuple(parts)


def allocate(route: Route, name: str, make: Callable[[], _T]) -> _T | None:
    """What `make` makes, on new ranks; collective, so that all ranks hear of it if one fails."""
    made = None
    failed = 0
    if route.new_rank is not None:
        try:
            made = make()
        except MemoryError:
            failed = 1
    if agree(route.comm, [failed])[0]:
        where = "this" if failed else "another"
        raise MemoryError(f"{name}: there is no memory for the new block on {where} rank")
    return made
