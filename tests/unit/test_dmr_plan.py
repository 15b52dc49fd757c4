from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import plan

rows = st.integers(0, 200)
sizes = st.integers(1, 40)


@given(rows, sizes)
def test_blocks_are_contiguous_and_even(n: int, p: int) -> None:
    bounds = [plan.block_bounds(n, p, r) for r in range(p)]
    assert bounds[0][0] == 0 and bounds[-1][1] == n
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    lengths = [stop - start for start, stop in bounds]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] - lengths[-1] <= 1


@given(rows, sizes, sizes)
def test_every_row_moves_exactly_once(n: int, p_old: int, p_new: int) -> None:
    moved = []
    for source, target, start, stop in plan.transfers(n, p_old, p_new):
        assert start < stop
        for owner, size in ((source, p_old), (target, p_new)):
            low, high = plan.block_bounds(n, size, owner)
            assert low <= start and stop <= high
        moved += range(start, stop)
    assert moved == list(range(n))


@given(rows, sizes, sizes)
def test_both_sides_agree_with_the_transfers(n: int, p_old: int, p_new: int) -> None:
    """Moves a real list through the counts and displacements of all ranks."""
    wanted = {(s, t): (a, b) for s, t, a, b in plan.transfers(n, p_old, p_new)}
    send = [plan.layout(n, p_old, p_new, r) for r in range(p_old)]
    receive = [plan.layout(n, p_new, p_old, r) for r in range(p_new)]
    arrived: list[int] = []
    for target in range(p_new):
        low, high = plan.block_bounds(n, p_new, target)
        block = [-1] * (high - low)
        for source in range(p_old):
            count = send[source].counts[target]
            assert count == receive[target].counts[source]
            start, stop = wanted.get((source, target), (0, 0))
            assert count == stop - start
            first = plan.block_bounds(n, p_old, source)[0] + send[source].displacements[target]
            at = receive[target].displacements[source]
            block[at : at + count] = range(first, first + count)
        arrived += block
    assert arrived == list(range(n))


@given(sizes, sizes, sizes)
def test_displacements_stay_inside_the_block(n: int, mine: int, theirs: int) -> None:
    for rank in range(mine):
        low, high = plan.block_bounds(n, mine, rank)
        for count, displacement in zip(*plan.layout(n, mine, theirs, rank), strict=True):
            assert 0 <= displacement <= displacement + count <= high - low


@pytest.mark.parametrize(("n", "p", "r"), [(-1, 1, 0), (1, 0, 0), (1, 2, 2), (1, 2, -1)])
def test_nonsense_is_refused(n: int, p: int, r: int) -> None:
    with pytest.raises(ValueError, match="no block"):
        plan.block_bounds(n, p, r)


def test_transfers_refuse_nonsense_even_without_rows() -> None:
    for arguments in [(0, 0, 1), (0, 1, 0), (-1, 1, 1)]:
        with pytest.raises(ValueError, match="no block"):
            plan.transfers(*arguments)


@pytest.mark.parametrize(
    ("size", "new", "factor", "expected"),
    [(2, 8, 2, True), (8, 2, 2, True), (2, 6, 2, False),
     (6, 3, 2, True), (6, 2, 2, False), (3, 5, 1, True), (4, 4, 3, True)],
)  # fmt: skip
def test_reachable(size: int, new: int, factor: int, expected: bool) -> None:
    assert plan.reachable(size, new, factor) is expected
