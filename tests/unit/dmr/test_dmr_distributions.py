"""Who sends what to whom: a move of real lists by the plan alone, between every two distributions and sizes."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr import plan, points
from dmr.distributions import (
    Block,
    Block2D,
    BlockCyclic,
    BlockCyclic2D,
    Cyclic,
    Distribution,
    Explicit,
    Keyed,
    Replicated,
    block_shape,
    ownerless,
)

sizes = st.integers(1, 17)
shapes = st.tuples(st.integers(0, 40), st.integers(0, 6))


def owner(n: int, size: int, seed: int) -> list[list[int]]:
    dealt: list[list[int]] = [[] for _ in range(size)]
    generator = np.random.default_rng(seed)
    for index in generator.permutation(n).tolist():
        dealt[generator.integers(size)].append(index)
    return dealt


@st.composite
def block_cyclic_grids(draw: st.DrawFn, size: int) -> BlockCyclic2D:
    columns = draw(st.sampled_from([c for c in range(1, size + 1) if size % c == 0]))
    pairs = st.tuples(st.integers(1, 5), st.integers(1, 5))
    grid = draw(st.sampled_from([None, (size // columns, columns)]))
    first = draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))
    axes, order = draw(st.sampled_from([(0, 1), (1, 0), (-1, 0)])), draw(st.sampled_from(["row", "column"]))
    return BlockCyclic2D(draw(pairs), grid, axes, first, order)


@st.composite
def distributions(draw: st.DrawFn, shape: tuple[int, ...], size: int) -> Distribution:
    axis = draw(st.integers(-2, 1))
    kind = draw(st.sampled_from([Block, Cyclic, BlockCyclic, Explicit, Block2D, BlockCyclic2D, Keyed, Replicated]))
    if kind is BlockCyclic2D:
        return draw(block_cyclic_grids(size))
    if kind is Keyed:
        parts = owner(shape[0], size, draw(st.integers(0, 1000)))
        return Keyed().before([], [(len(part), *shape[1:]) for part in parts])
    if kind is BlockCyclic:
        return BlockCyclic(draw(st.integers(1, 9)), axis)
    if kind is Block2D:
        return Block2D(axes=draw(st.sampled_from([(0, 1), (1, 0)])))
    if kind is Explicit:
        seed = draw(st.integers(0, 1000))
        return Explicit(cut=lambda n, p: owner(n, p, seed), axis=axis).after(shape, size, Replicated(), 1)
    return Replicated() if kind is Replicated else kind(axis)


@st.composite
def moves(draw: st.DrawFn) -> tuple[tuple[int, int], int, int, Distribution, Distribution]:
    shape, old, new = draw(shapes), draw(sizes), draw(sizes)
    return shape, old, new, draw(distributions(shape, old)), draw(distributions(shape, new))


def elements(sets: tuple[plan.IndexSet, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(list(plan.indices(held)) for held in sets)))


@given(moves())
def test_every_element_arrives_once_at_its_place(
    move: tuple[tuple[int, int], int, int, Distribution, Distribution],
) -> None:
    shape, olds, news, before, after = move
    for target in range(news):
        expected = elements(after.sets(shape, news, target))
        extents = block_shape(after, shape, news, target)
        block: list[tuple[int, ...] | None] = [None] * math.prod(extents)
        for source in range(olds):
            sent = before.sends(shape, olds, source)
            places = itertools.product(*(range(plan.length(held)) for held in sent))
            sent_block = dict(zip(places, elements(sent), strict=True))
            pieces = list(map(points.common, sent, after.sets(shape, news, target)))
            for choice in itertools.product(*pieces):
                froms = itertools.product(*(plan.indices((piece.source,)) for piece in choice))
                tos = itertools.product(*(plan.indices((piece.target,)) for piece in choice))
                for here, (row, column) in zip(froms, tos, strict=True):
                    at = row * extents[1] + column
                    assert block[at] is None
                    block[at] = sent_block[here]
        assert block == expected


@given(moves())
def test_the_whole_follows_from_the_blocks(
    move: tuple[tuple[int, int], int, int, Distribution, Distribution],
) -> None:
    shape, olds, _, before, _ = move
    assert before.whole([block_shape(before, shape, olds, rank) for rank in range(olds)]) == shape


@pytest.mark.parametrize(("size", "grid"), [(1, (1, 1)), (2, (2, 1)), (6, (3, 2)), (7, (7, 1)), (16, (4, 4))])
def test_automatic_grids_are_nearly_square(size: int, grid: tuple[int, int]) -> None:
    assert Block2D().grid_of(size) == grid


def test_a_grid_is_kept_where_it_fits() -> None:
    kind = Block2D((1, 4))
    assert kind.after((8, 8), 4, kind, 4) == kind
    assert kind.after((8, 8), 6, kind, 4) == Block2D()
    with pytest.raises(ValueError, match="1 x 4"):
        kind.sets((8, 8), 6, 0)


@given(st.tuples(st.integers(0, 30), st.integers(0, 30)), st.integers(1, 17), st.data())
def test_block_cyclic_grids_are_those_of_scalapack(shape: tuple[int, int], size: int, data: st.DataObject) -> None:
    """Each element's owner by the formula, one by one; and each block's shape by NUMROC."""
    kind = data.draw(block_cyclic_grids(size))
    rows, columns = kind.grid_of(size)
    owned: dict[int, list[tuple[int, int]]] = {rank: [] for rank in range(size)}
    extents = [shape[axis] for axis in kind.axes]
    for i, j in itertools.product(*map(range, extents)):
        p = (kind.first[0] + i // kind.block[0]) % rows
        q = (kind.first[1] + j // kind.block[1]) % columns
        owned[p * columns + q if kind.order == "row" else q * rows + p].append((i, j))
    for rank in range(size):
        sets = kind.sets(shape, size, rank)
        assert elements(tuple(sets[axis] for axis in kind.axes)) == owned[rank]
        local = block_shape(kind, shape, size, rank)
        for which, place, n, side in zip((0, 1), kind.place(size, rank), extents, (rows, columns), strict=True):
            expected = numroc(n, kind.block[which], place, kind.first[which] % side, side)
            assert local[kind.axes[which]] == expected


def numroc(n: int, block: int, process: int, first: int, processes: int) -> int:
    """ScaLAPACK's NUMROC, from its documented algorithm: whole rounds of blocks, an extra block, the last one."""
    distance = (processes + process - first) % processes
    blocks = n // block
    count, extra = blocks // processes * block, blocks % processes
    return count + (block if distance < extra else n % block if distance == extra else 0)


def test_a_grid_of_blocks_in_turn_is_kept_where_it_fits() -> None:
    kind = BlockCyclic2D((2, 3), (2, 2), first=(1, 1), order="column")
    assert kind.after((9, 9), 4, kind, 4) is kind
    assert kind.after((9, 9), 6, kind, 4) == BlockCyclic2D((2, 3), first=(1, 1), order="column")


def by_cell(keys: np.ndarray, size: int) -> np.ndarray:
    return keys * 7 % size


def test_owners_of_records_are_asked_with_their_keys() -> None:
    records = np.array([(1, 0.5), (4, 0.25)], [("cell", "i4"), ("mass", "f8")])
    assert Keyed(by_cell, "cell").owners(records, 3).tolist() == [1, 1]
    assert Keyed(lambda block, size: [len(one) % size for one in block]).owners(["", "a", "bb"], 2).tolist() == [
        0,
        1,
        0,
    ]
    assert Keyed(by_cell).owners(np.zeros(0, np.int64), 3).tolist() == []
    assert Keyed(lambda block, size: []).owners([], 3).tolist() == []


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        (lambda keys, size: [0], r"owners of 2 records are an array of shape \(1,\)"),
        (lambda keys, size: [[0], [0]], r"shape \(2, 1\)"),
        (lambda keys, size: [0, size], "ranks 0 to 3, not 4"),
        (lambda keys, size: [-1, 0], "ranks 0 to 3, not -1"),
        (lambda keys, size: [0.0, 1.0], "ranks 0 to 3, not 0.0"),
        (lambda keys, size: np.array([True, False]), "ranks 0 to 3, not True"),
    ],
)
def test_owners_that_are_none(owner, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Keyed(owner).owners(np.zeros(2, np.int64), 4)


def test_records_travel_without_the_function_and_are_then_counts() -> None:
    kind = Keyed(by_cell, "cell")
    there = pickle.loads(pickle.dumps(kind))
    assert there == kind and there.by_owner
    with pytest.raises(ValueError, match="not known in this process"):
        there.owners(np.zeros(1, [("cell", "i8")]), 2)
    held = ownerless(kind)
    assert held == Keyed(key="cell") and ownerless(Block()) == Block()
    even = held.after((7, 2), 3, held.before([], [(7, 2), (0, 2)]), 2)
    assert [block_shape(even, (7, 2), 3, rank) for rank in range(3)] == [(3, 2), (2, 2), (2, 2)]
    assert even.on(0).strayed and not held.strayed
    with pytest.raises(ValueError, match="not known before"):
        kind.sets((3,), 2, 0)


def test_a_record_must_be_whole_for_its_owner_to_be_asked() -> None:
    kind = Keyed(by_cell)
    assert kind.after((4, 4), 3, Cyclic(), 2).by_owner
    assert kind.after((4, 4), 3, Block2D((2, 1)), 2).by_owner
    for old in (Block(1), Block2D((1, 2))):
        with pytest.raises(ValueError, match="all of it is"):
            kind.after((4, 4), 3, old, 2)


def test_explicit_sets_keep_their_order_when_nobody_says_otherwise() -> None:
    mine = [[4, 1], [0, 5, 2], [3]]
    old = Explicit(mine[0]).before([Explicit(part).mine for part in mine])
    new = Explicit(mine[0]).after((6,), 4, old, 3)
    assert [new.on(rank).indices for rank in range(4)] == [[4, 1], [0, 5], [2], [3]]
    assert [Explicit().after((6,), 2, Block(), 3).on(rank).indices for rank in range(2)] == [[0, 1, 2], [3, 4, 5]]


def test_explicit_takes_whatever_counts() -> None:
    for mine in (range(2, 8, 2), [2, 4, 6], (2, 4, 6), np.array([2, 4, 6]), iter([2, 4, 6])):
        assert Explicit(mine).indices == [2, 4, 6]


def test_an_explicit_distribution_travels_without_its_function() -> None:
    kind = Explicit([3, 1], cut=lambda n, size: [])
    copy = pickle.loads(pickle.dumps(kind))
    assert copy == kind and copy.indices == [3, 1]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([[0, 1], [1, 2]], "index 1 of rank 1 is held twice"),
        ([[0, 1], [3, 4]], "no rank holds index 2"),
        ([[0, 1], None], "rank 1 does not say"),
        ([[0, -1], [1, 2]], "index -1 of rank 0 is negative"),
    ],
)
def test_sets_that_do_not_fit_together(sets: list[list[int] | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Explicit().before([Explicit(mine).mine for mine in sets])


@given(st.integers(1, 6), st.integers(65, 300), st.integers(0, 1000), st.sampled_from([np.int64, np.uint16, list]))
def test_large_irregular_sets_are_arrays_and_fit_together(size: int, n: int, seed: int, kind) -> None:
    mine = owner(n, size, seed)
    given_as = [list(part) if kind is list else np.array(part, kind) for part in mine]
    old = Explicit().before([Explicit(part).mine for part in given_as])
    assert [old.on(rank).indices for rank in range(size)] == mine
    assert pickle.loads(pickle.dumps(old)) == old and hash(old) == hash(pickle.loads(pickle.dumps(old)))
    dealt = Explicit().after((n,), 3, old, size)
    chain = itertools.chain.from_iterable
    assert list(chain(dealt.on(rank).indices for rank in range(3))) == list(chain(mine))


@pytest.mark.parametrize(
    ("index", "other", "message"),
    [
        (5, 400, "no rank holds index 5"),
        (5, 6, "no rank holds index 5"),
        (5, -3, "index -3 of rank [01] is negative"),
        (399, 398, "index 398 of rank [01] is held twice"),
    ],
)
def test_what_is_wrong_with_large_sets_is_said_too(index: int, other: int, message: str) -> None:
    order = np.random.default_rng(0).permutation(400)
    order[order == index] = other
    with pytest.raises(ValueError, match=message):
        Explicit().before([Explicit(part).mine for part in (order[:200], order[200:])])


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda n, size: [range(n)], r"cut\(6, 2\) gives 1 index sets"),
        (lambda n, size: [range(n), range(n)], r"cut\(6, 2\): index 0 of rank 1 is held twice"),
        (lambda n, size: [range(3), range(3, 5)], r"cut\(6, 2\): the index sets hold 5 elements of 6"),
    ],
)
def test_cuts_that_do_not_fit(cut, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Explicit(cut=cut).after((6,), 2, Block(), 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BlockCyclic(0),
        lambda: BlockCyclic(1.5),
        lambda: Block2D((0, 1)),
        lambda: Block2D((2, 2, 2)),
        lambda: Block2D(axes=(0,)),
        lambda: BlockCyclic2D((0, 1)),
        lambda: BlockCyclic2D((1, 1, 1)),
        lambda: BlockCyclic2D((1, 1), first=(-1, 0)),
        lambda: BlockCyclic2D((1, 1), order="C"),
        lambda: BlockCyclic2D((1, 1), (2, 2)).sets((3, 3), 3, 0),
        lambda: Block2D(axes=(0, -2)).sets((3, 3), 2, 0),
        lambda: Explicit([0.5]),
        lambda: Block(axis=2).sets((3, 3), 2, 0),
        lambda: Cyclic(axis=-3).whole([(3, 3)]),
    ],
)
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(ValueError, match=r"."):
        make()


@pytest.mark.parametrize("mine", [list(np.flatnonzero([1, 0, 1])), [np.uint8(0), 2], np.array([0, 2], "u4"), (0, 2)])
def test_indices_of_numpy_are_whole_numbers_too(mine: Iterable[int]) -> None:
    assert Explicit(mine).indices == [0, 2]
    assert all(type(index) is int for index in Explicit(mine).indices)


@pytest.mark.parametrize(
    ("mine", "wrong"), [([0, 1.0], "1.0"), (np.array([0.5]), "0.5"), (["a"], "'a'"), ([np.float64(1)], "np.float64")]
)
def test_other_indices_are_refused(mine: Iterable[int], wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"an index set holds whole numbers, not {wrong}")):
        Explicit(mine)
