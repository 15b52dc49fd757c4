from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.mapping import Mapping, mapping
from dmr.plan import block_bounds

SIZES = st.integers(1, 40)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (2, 4, [Mapping((0, 1), (), None), Mapping((2, 3), (), None)]),  # figure 2a
        (4, 2, [Mapping((), (), 1), Mapping((0,), (0,), None), Mapping((), (), 3), Mapping((1,), (2,), None)]),  # 2b
        (1, 3, [Mapping((0, 1, 2), (), None)]),
        (3, 1, [Mapping((), (), 2), Mapping((), (), 2), Mapping((0,), (0, 1), None)]),
        (2, 3, [Mapping((0, 1), (), None), Mapping((2,), (), None)]),
        (3, 2, [Mapping((), (), 1), Mapping((0,), (0,), None), Mapping((1,), (), None)]),
        (2, 2, [Mapping((0,), (), None), Mapping((1,), (), None)]),
    ],
)
def test_the_papers_figure_and_others(old: int, new: int, expected: list[Mapping]) -> None:
    assert [mapping(old, new, rank) for rank in range(old)] == expected
    assert max(m.factor for m in expected) == -(-max(old, new) // min(old, new))


@given(SIZES, SIZES)
def test_every_new_rank_gets_one_task_and_no_data_is_left(old: int, new: int) -> None:
    roles = [mapping(old, new, rank) for rank in range(old)]
    assert [target for role in roles for target in role.onto] == list(range(new))
    for rank, role in enumerate(roles):
        assert (role.receiver is None) is bool(role.onto)
        if role.receiver is not None:
            assert rank in roles[role.receiver].senders
    received = [(sender, rank) for rank, role in enumerate(roles) for sender in role.senders]
    assert received == [(rank, role.receiver) for rank, role in enumerate(roles) if role.receiver is not None]


@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 50), st.booleans())
def test_with_multiples_and_blocks_each_tasks_rows_are_those_of_its_rank(
    small: int, factor: int, rows: int, grow: bool
) -> None:
    n = rows * small * factor
    old, new = (small, small * factor) if grow else (small * factor, small)
    for rank in range(old):
        role = mapping(old, new, rank)
        if not role.onto:
            continue
        first = min((rank, *role.senders))
        held = (block_bounds(n, old, first)[0], block_bounds(n, old, rank)[1])
        assert held == (block_bounds(n, new, role.onto[0])[0], block_bounds(n, new, role.onto[-1])[1])


@pytest.mark.parametrize("wrong", [(0, 2, 0), (2, 0, 0), (2, 4, 2), (4, 2, 4), (4, 2, -1)])
def test_what_is_no_size_or_rank_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no block"):
        mapping(*wrong)
