from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import limits, plan
from dmr.limits import Limits


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ((1, 4, 1, None), ""),
        ((1, 4, 2, 4), ""),
        ((4, 2, 1, None), "minimum 4 is above maximum 2"),
        ((0, 2, 1, None), "minimum must be an integer from 1 to 2147483647, not 0"),
        ((1, 2**31, 1, None), "maximum must be"),
        ((1, 2, 0, None), "factor must be"),
        ((1, 2, 1, 0), "preferred must be"),
        ((1, 4, 2, 8), "preferred 8 is outside 1..4"),
        ((1.0, 2, 1, None), "minimum must be"),
        ((True, 2, 1, None), "minimum must be"),
        ((1, "2", 1, None), "maximum must be"),
        ((1, None, 1, None), "maximum must be"),
    ],
)
def test_what_is_wrong_is_named(arguments: tuple, wrong: str) -> None:
    found = limits.problem(arguments)
    assert found.startswith(wrong) and bool(found) is bool(wrong)
    if wrong:
        with pytest.raises(ValueError, match=wrong.split()[0]):
            limits.limits(arguments)


def test_the_integers_of_numpy_are_integers() -> None:
    numpy = pytest.importorskip("numpy")
    found = limits.limits((numpy.int64(2), numpy.uint8(4), 2, numpy.int32(2)))
    assert found == Limits(2, 4, 2, 2)
    assert all(type(value) is int for value in found)


def test_ranks_that_disagree_are_named() -> None:
    assert limits.differing([(1, 4, 2, None)] * 3) == ""
    everyone = [(1, 8, 2, None), (1, 8, 2, None), (1, 4, 2, None), (1, 6, 2, None)]
    assert limits.differing(everyone) == "maximum must be the same on all ranks: it is 8 on rank 0 and 4 on rank 2"
    assert "preferred" in limits.differing([(1, 8, 2, None), (1, 8, 2, 2)])


@pytest.mark.parametrize(
    ("current", "allowed", "per_node", "expected"),
    [
        (4, Limits(2, 32, 2, None), 1, None),
        (4, Limits(2, 32, 2, 8), 1, 8),
        (4, Limits(2, 32, 2, 9), 1, 8),
        (4, Limits(2, 32, 2, 15), 1, 8),
        (3, Limits(2, 32, 2, 8), 1, 6),
        (3, Limits(4, 32, 2, 5), 1, 6),  # nothing below 5: the smallest there is
        (3, Limits(4, 5, 2, 5), 1, None),
        (4, Limits(1, 20, 1, 7), 1, 7),
        (4, Limits(1, 20, 1, 7), 4, 4),
        (4, Limits(3, 20, 1, 3), 4, 4),
        (8, Limits(2, 32, 2, 6), 4, 4),
        (8, Limits(1, 32, 2, 2), 4, 4),
        (6, Limits(1, 8, 5, 4), 1, 6),
    ],
)
def test_a_preferred_size_goes_to_what_can_be_reached(
    current: int, allowed: Limits, per_node: int, expected: int | None
) -> None:
    assert limits.nearest(current, allowed, per_node) == expected


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 40), st.integers(1, 4), st.integers(1, 4), st.data())
def test_reach_is_what_trying_every_size_finds(
    nodes: int, minimum: int, more: int, factor: int, per_node: int, data: st.DataObject
) -> None:
    current, maximum = nodes * per_node, minimum + more
    preferred = data.draw(st.integers(minimum, maximum))
    allowed = Limits(minimum, maximum, factor, preferred)
    sizes = [s for s in range(minimum, maximum + 1) if s % per_node == 0 and plan.reachable(current, s, factor)]
    below = [s for s in sizes if s <= preferred]
    assert limits.nearest(current, allowed, per_node) == (below[-1] if below else sizes[0] if sizes else None)
    others = any(s != current for s in sizes)
    assert bool(limits.hopeless(current, allowed, per_node)) is not (others or minimum == maximum == current)


@pytest.mark.parametrize(
    ("current", "allowed", "per_node", "text"),
    [
        (4, Limits(4, 4), 1, ""),
        (4, Limits(2, 8), 1, ""),
        (4, Limits(5, 7, 2), 1, "no other size from 5 to 7 is reachable from 4 by factor 2"),
        (4, Limits(3, 5), 2, "no other size from 3 to 5 fills whole nodes of 2 ranks and is reachable from 4"),
        (4, Limits(8, 8), 1, ""),
    ],
)
def test_bounds_that_reach_nothing_are_told(current: int, allowed: Limits, per_node: int, text: str) -> None:
    assert limits.hopeless(current, allowed, per_node) == text
