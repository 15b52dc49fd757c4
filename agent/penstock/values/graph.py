"""Things that come after one another, by their numbers: the circle among them, and the order that respects them."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush

__all__ = ["find_cycle", "in_order"]


def find_cycle(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """The nodes 0 to `count` - 1 on a cycle, in the direction of its edges, the first again at the end; empty: there is
    none. Of several it is the first that a search in depth meets, from node 0 on and along the edges as given."""
    try:
        _sorter(count, edges).prepare()
    except CycleError as e:
        cycle: list[int] = e.args[1]
        return cycle
    return []


def in_order(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """The nodes 0 to `count` - 1 so that each comes after its parents; whenever several could be next, the lowest is.

    Raises graphlib.CycleError.
    """
    sorter = _sorter(count, edges)
    sorter.prepare()
    ready = list(sorter.get_ready())
    heapify(ready)
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        sorter.done(order[-1])
        for node in sorter.get_ready():
            heappush(ready, node)
    return order


def _sorter(count: int, edges: Iterable[tuple[int, int]]) -> TopologicalSorter[int]:
    sorter = TopologicalSorter[int](dict.fromkeys(range(count), ()))
    for parent, child in edges:
        sorter.add(child, parent)
    return sorter
