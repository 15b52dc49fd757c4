from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import plan, points
from dmr.plan import IndexSet

rows = st.integers(0, 200)
sizes = st.integers(1, 40)


@st.composite
def index_sets(draw: st.DrawFn, n: int) -> tuple[IndexSet, list[int]]:
    """Any kind of set over an axis of n elements, and its elements as told without the library's help."""
    size = draw(st.integers(1, 9))
    rank = draw(st.integers(0, size - 1))
    kind = draw(st.sampled_from(["block", "dealt", "spaced", "any"]))
    if kind == "block":
        start, stop = plan.block_bounds(n, size, rank)
        return plan.everything(start, stop), list(range(start, stop))
    if kind == "dealt":
        block = draw(st.integers(1, 7))
        return plan.deal(n, block, size, rank), [i for i in range(n) if i // block % size == rank]
    if kind == "spaced":
        numbers = range(draw(st.integers(0, n)), n, draw(st.integers(1, 9)))
        return plan.strips(numbers), list(numbers)
    chosen = draw(st.lists(st.integers(0, n - 1), unique=True)) if n else []
    chosen = draw(st.sampled_from([chosen, sorted(chosen)]))
    if draw(st.booleans()):
        # As an array, by itself or in two parts of which one may be regular.
        at = draw(st.integers(0, len(chosen)))
        parts = [plan.Points(np.array(part, np.int64)) for part in (chosen[:at], chosen[at:]) if part]
        return draw(st.sampled_from([tuple(parts), (*plan.strips(chosen[:at]), *parts[-1:])])) if at < len(
            chosen
        ) else tuple(parts), chosen
    return plan.strips(chosen), chosen


@st.composite
def two_sets(draw: st.DrawFn) -> list[tuple[IndexSet, list[int]]]:
    n = draw(st.integers(0, 90))
    return [draw(index_sets(n)), draw(index_sets(n))]


@given(rows, sizes)
def test_blocks_are_contiguous_and_even(n: int, p: int) -> None:
    bounds = [plan.block_bounds(n, p, r) for r in range(p)]
    assert bounds[0][0] == 0 and bounds[-1][1] == n
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    lengths = [stop - start for start, stop in bounds]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] - lengths[-1] <= 1


@given(two_sets())
def test_a_set_holds_what_it_should(both: list[tuple[IndexSet, list[int]]]) -> None:
    for held, expected in both:
        assert list(plan.indices(held)) == expected
        assert plan.length(held) == len(expected)


@given(two_sets(), st.integers(0, 90), st.integers(0, 90))
def test_cutting_counts_in_the_order_of_the_set(both: list[tuple[IndexSet, list[int]]], a: int, b: int) -> None:
    held, expected = both[0]
    low, high = min(a, b, len(expected)), min(max(a, b), len(expected))
    assert list(plan.indices(plan.cut(held, low, high))) == expected[low:high]


@given(two_sets())
def test_pieces_name_each_common_element_once_and_where_it_is(both: list[tuple[IndexSet, list[int]]]) -> None:
    (ours, mine), (theirs, yours) = both
    found = []
    for source, target in points.common(ours, theirs):
        if isinstance(source, plan.Strip) and isinstance(target, plan.Strip):
            assert (source.length, source.runs) == (target.length, target.runs)
        here = [mine[i] for i in plan.indices((source,))]
        assert here == [yours[i] for i in plan.indices((target,))]
        found += here
    assert sorted(found) == sorted(set(mine) & set(yours))


@given(two_sets(), st.sampled_from([0, 90]))
def test_both_ends_find_the_same_pieces_in_the_same_order(both: list[tuple[IndexSet, list[int]]], n: int) -> None:
    """With a table of the whole axis and without it, for one pair and among others."""
    (ours, _), (theirs, _) = both
    others = [(), plan.everything(0, 90), (plan.Points(np.arange(90)[::-1].copy()),)]
    expected = _listed(points.common(ours, theirs))
    assert _listed(points.shared_with(ours, [*others, theirs], n)[-1]) == expected
    assert _listed(points.shared_by([*others, ours, *others], theirs, n)[3]) == expected


def _listed(pieces: list[plan.Piece]) -> list[tuple[int, int]]:
    sides = [[i for piece in pieces for i in plan.indices((piece[side],))] for side in (0, 1)]
    return list(zip(*sides, strict=True))


@given(st.lists(st.integers(-5, 400), max_size=200), st.integers(1, 9), st.integers(1, 30))
def test_arrays_become_strips_where_they_are_regular_and_hold_the_same(numbers: list[int], block: int, p: int) -> None:
    assert list(plan.indices(points.as_set(np.array(numbers, np.int64)))) == numbers
    dealt = plan.deal(2000, block, p, p - 1)
    found = points.as_set(points.numbers(dealt))
    assert list(plan.indices(found)) == list(plan.indices(dealt)) and len(found) <= 2


def test_regular_sets_meet_in_few_pieces_whatever_the_length() -> None:
    n = 10**12
    cyclic, other = plan.deal(n, 1, 6, 1), plan.deal(n, 1, 4, 3)
    assert len(plan.common(cyclic, other)) == 1
    assert plan.common(plan.deal(n, 1, 6, 1), plan.deal(n, 1, 4, 2)) == []
    block = plan.everything(*plan.block_bounds(n, 7, 3))
    assert len(plan.common(block, cyclic)) == 1
    assert len(plan.common(plan.deal(n, 64, 6, 1), block)) <= 3
    assert len(plan.common(plan.deal(n, 64, 6, 1), plan.deal(n, 96, 4, 0))) <= 8


def test_strips_of_ranges_are_not_walked_through() -> None:
    assert plan.strips(range(5, 10**15)) == (plan.Strip(5, 10**15 - 5, 10**15 - 5, 1),)
    assert plan.strips(range(5, 10**15, 7))[0].runs == len(range(5, 10**15, 7))
    assert plan.strips(range(3, 3)) == plan.strips(range(3, 3, 2)) == plan.strips([]) == ()


@pytest.mark.parametrize(("n", "p", "r"), [(-1, 1, 0), (1, 0, 0), (1, 2, 2), (1, 2, -1)])
def test_nonsense_is_refused(n: int, p: int, r: int) -> None:
    with pytest.raises(ValueError, match="no block"):
        plan.block_bounds(n, p, r)
    with pytest.raises(ValueError, match="no share"):
        plan.deal(n, 1, p, r)


@pytest.mark.parametrize(
    ("size", "new", "factor", "expected"),
    [(2, 8, 2, True), (8, 2, 2, True), (2, 6, 2, False),
     (6, 3, 2, True), (6, 2, 2, False), (3, 5, 1, True), (4, 4, 3, True)],
)  # fmt: skip
def test_reachable(size: int, new: int, factor: int, expected: bool) -> None:
    assert plan.reachable(size, new, factor) is expected
