"""Who takes part in a move, and what the distributions say that each gives to and gets from each other.

This module imports numpy and mpi4py; `dmr.redistribute` imports it when data moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dmr import plan, points
from dmr.agreement import Item
from dmr.distributions import Keyed, Shape, block_shape
from dmr.exchange import agree
from dmr.plan import IndexSet, Points, Strip

if TYPE_CHECKING:
    from dmr.patience import Patient

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["Axes", "Route", "Ways", "allocate", "new_shape", "ways"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Route:
    """Who moves: the communicator of all, the ranks in it of the old and new ranks, and which of them this rank is.

    `owners` are the new owners of this old rank's records, by name, for parts that are `Keyed`.
    """

    comm: Patient
    old: Sequence[int]
    new: Sequence[int]
    old_rank: int | None
    new_rank: int | None
    room: int
    owners: Mapping[str, Array] = field(default_factory=dict)


# What this rank gives to each rank of the communicator, and gets from each: positions along each axis of its block.
Axes = list[IndexSet]
Ways = tuple[dict[int, Axes], dict[int, Axes]]


def ways(route: Route, item: Item) -> Ways:
    """By the distributions; collective where records have owners."""
    if isinstance(item.new, Keyed) and item.new.by_owner:
        return _to_owners(route, item)
    shape, olds, news = item.shape, len(route.old), len(route.new)
    gives: dict[int, Axes] = {}
    gets: dict[int, Axes] = {}
    if route.old_rank is not None:
        mine = item.old.sends(shape, olds, route.old_rank)
        theirs = zip(*(item.new.sets(shape, news, rank) for rank in range(news)), strict=True)
        by_axis = [points.shared_with(ours, sets, n) for ours, sets, n in zip(mine, theirs, shape, strict=True)]
        for rank, shared in zip(route.new, zip(*by_axis, strict=True), strict=True):
            if all(shared):
                gives[rank] = [_positions([piece.source for piece in pieces]) for pieces in shared]
    if route.new_rank is not None:
        mine = item.new.sets(shape, news, route.new_rank)
        theirs = zip(*(item.old.sends(shape, olds, rank) for rank in range(olds)), strict=True)
        by_axis = [points.shared_by(sets, ours, n) for sets, ours, n in zip(theirs, mine, shape, strict=True)]
        for rank, shared in zip(route.old, zip(*by_axis, strict=True), strict=True):
            if all(shared):
                gets[rank] = [_positions([piece.target for piece in pieces]) for pieces in shared]
    return gives, gets


def new_shape(route: Route, item: Item, gets: Mapping[int, Axes]) -> Shape:
    """The shape of this rank's new block."""
    if isinstance(item.new, Keyed) and item.new.by_owner:
        return (sum(plan.length(axes[0]) for axes in gets.values()), *item.shape[1:])
    return block_shape(item.new, item.shape, len(route.new), route.new_rank or 0)


def _to_owners(route: Route, item: Item) -> Ways:
    """Each record to its owner: how many come from whom is only known to these."""
    gives: dict[int, Axes] = {}
    gets: dict[int, Axes] = {}
    others = [plan.everything(0, n) for n in item.shape[1:]]
    counts = [0] * route.comm.size
    if route.old_rank is not None and item.old.sends(item.shape, len(route.old), route.old_rank)[0]:
        owners = route.owners[item.name]
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners, minlength=len(route.new)))
        for rank, start, stop in zip(route.new, [0, *ends[:-1]], ends, strict=True):
            if start < stop:
                gives[rank] = [points.as_set(order[start:stop]), *others]
                counts[rank] = int(stop - start)
    arriving = route.comm.alltoall(counts)
    at = 0
    for rank in route.old:
        if arriving[rank]:
            gets[rank] = [plan.everything(at, at + arriving[rank]), *others]
            at += arriving[rank]
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
