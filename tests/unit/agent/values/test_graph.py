"""The circle among things that come after one another, and the order that respects them."""

from __future__ import annotations

import itertools
from graphlib import CycleError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.values.graph import find_cycle, in_order


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ([], []),
        ([(0, 1), (0, 2), (1, 3), (2, 3)], []),
        ([(2, 2)], [2, 2]),
        ([(0, 3), (3, 1), (1, 3)], [3, 1, 3]),
        # Two of them: the one that is met first from node 0 on, along the edges as given. Messages name it.
        ([(0, 2), (0, 1), (1, 0), (2, 0)], [0, 2, 0]),
        ([(0, 1), (0, 2), (1, 0), (2, 0)], [0, 1, 0]),
    ],
)
def test_the_cycle(edges: list[tuple[int, int]], cycle: list[int]) -> None:
    assert find_cycle(4, edges) == cycle


def test_otherwise_as_they_were_numbered() -> None:
    assert in_order(6, [(4, 0), (5, 1), (0, 2)]) == [3, 4, 0, 2, 5, 1]
    with pytest.raises(CycleError):
        in_order(2, [(0, 1), (1, 0)])


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=16))
def test_there_is_an_order_or_a_cycle(edges: list[tuple[int, int]]) -> None:
    cycle = find_cycle(8, edges)
    if cycle:
        assert cycle[0] == cycle[-1]
        assert set(itertools.pairwise(cycle)) <= set(edges)
    else:
        order = in_order(8, edges)
        assert sorted(order) == list(range(8))
        place = {node: i for i, node in enumerate(order)}
        assert all(place[parent] < place[child] for parent, child in edges)
