"""Run by mpiexec on eight ranks: moves arrays in many ways and compares each element with an oracle of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

from dmr.bridge import Bridge
from dmr.distributions import Block, Block2D, BlockCyclic, Cyclic, Explicit, Replicated
from dmr.redistribute import Moved, move

WORLD = MPI.COMM_WORLD
SIZES = [(1, 3), (4, 2), (3, 5), (5, 2)]


def bridges(olds: int, news: int) -> Iterator[Bridge | None]:
    """Both kinds between so many ranks; None on ranks that have no part in it."""
    # All new.
    color = 0 if WORLD.rank < olds else 1 if WORLD.rank < olds + news else MPI.UNDEFINED
    local = WORLD.Split(color, -WORLD.rank)  # in reverse, so that ranks differ from those before
    if local == MPI.COMM_NULL:
        yield None
    else:
        inter = local.Create_intercomm(0, WORLD, olds + news - 1 if color == 0 else olds - 1)
        old = tuple(reversed(range(olds)))
        new = tuple(range(news))
        mine = local.rank
        yield Bridge(inter, old, new, old.index(mine) if color == 0 else None, mine if color else None)
        inter.Free()
        local.Free()
    # Some stay, under another number.
    size = max(olds, news) + 1
    comm = WORLD.Split(0 if WORLD.rank < size else MPI.UNDEFINED)
    if comm == MPI.COMM_NULL:
        yield None
        return
    old = tuple(range(olds))
    new = tuple((2 * i + 1) % size if size % 2 else size - 1 - i for i in range(news))
    find = [side.index(comm.rank) if comm.rank in side else None for side in (old, new)]
    yield Bridge(comm, old, new, *find)
    comm.Free()


def owned(kind: object, n: int, p: int, r: int) -> list[int]:
    """What rank r holds of one axis, told in another way than the library does."""
    if isinstance(kind, Block):
        return np.array_split(np.arange(n), p)[r].tolist()
    if isinstance(kind, Cyclic):
        return [i for i in range(n) if i % p == r]
    if isinstance(kind, BlockCyclic):
        return [i for i in range(n) if i // kind.block % p == r]
    assert isinstance(kind, Explicit)
    return scattered(n, p)[r]


def scattered(n: int, p: int) -> list[list[int]]:
    order = np.random.default_rng(n * 100 + p).permutation(n)
    owner = np.random.default_rng(n * 200 + p).integers(0, p, n)
    return [[int(i) for i in order if owner[i] == r] for r in range(p)]


GRIDS = {1: (1, 1), 2: (2, 1), 3: (3, 1), 4: (2, 2), 5: (5, 1)}


def block(whole: np.ndarray, kind: object, p: int, r: int) -> np.ndarray:
    if isinstance(kind, Replicated):
        return whole
    if isinstance(kind, Block2D):
        rows, columns = GRIDS[p]
        whole = np.array_split(whole, rows, kind.axes[0])[r // columns]
        return np.array_split(whole, columns, kind.axes[1])[r % columns]
    return whole.take(owned(kind, whole.shape[kind.axis], p, r), kind.axis)


def given(kind: object, whole: np.ndarray, p: int, r: int) -> object:
    if isinstance(kind, Explicit):
        n = whole.shape[kind.axis]
        return Explicit(scattered(n, p)[r], cut=scattered, axis=kind.axis)
    return kind


KINDS = [
    Block(),
    Block(axis=1),
    Cyclic(),
    Cyclic(axis=-1),
    BlockCyclic(2),
    BlockCyclic(3, axis=1),
    Explicit(),
    Explicit(axis=1),
    Block2D(),
    Block2D(axes=(2, 0)),
    Replicated(),
]


def arrays() -> dict[str, np.ndarray]:
    n, m = 17, 11
    return {
        "f8": np.arange(n * m * 2.0).reshape(n, m, 2),
        "f2": np.arange(n * m * 3, dtype="f2").reshape(n, m, 3),
        "fortran": np.asfortranarray(np.arange(n * m * 2.0).reshape(n, m, 2)),
        "c16": (np.arange(n * 3 * 3) * 1j).reshape(n, 3, 3),
        "packed": np.array([(i, i / 7) for i in range(n * m * 1)], [("a", "u1"), ("b", "f8")]).reshape(n, m, 1),
        "few": np.arange(12).astype("M8[s]").reshape(2, 3, 2),
        "none": np.zeros((0, 3, 4)),
    }


def stored(part: np.ndarray, how: int) -> np.ndarray:
    """The same values in memory of another form."""
    if how == 0 or not part.size:
        return part.copy(order="K")
    if how == 1:
        larger = np.zeros([n + 2 for n in part.shape], part.dtype)
        larger[1:-1, 1:-1, 1:-1] = part
        return larger[1:-1, 1:-1, 1:-1]
    return part[::-1].copy()[::-1]


def compare(moved: Moved | None, bridge: Bridge, wholes: dict[str, np.ndarray], kind: object, news: int) -> None:
    if bridge.new_rank is None:
        assert moved is None
        return
    assert moved is not None and list(moved.values) == list(wholes)
    for name, whole in wholes.items():
        expected = block(whole, kind, news, bridge.new_rank)
        found = moved.values[name]
        told = (kind, name, found.shape, expected.shape)
        assert found.shape == expected.shape and found.dtype == expected.dtype, told
        assert (found == expected).all(), told
        if isinstance(kind, Explicit):
            assert moved.distributions[name].indices == owned(kind, whole.shape[kind.axis], news, bridge.new_rank)


def everything(sizes: list[tuple[int, int]], rooms: list[int], few: bool) -> None:
    wholes = arrays()
    count = itertools.count()
    for olds, news in sizes:
        for bridge in bridges(olds, news):
            for before, after in itertools.product(KINDS, KINDS):
                turn = next(count)
                if bridge is None or (few and turn % 7):
                    continue
                parts = None
                if bridge.old_rank is not None:
                    parts = {
                        name: (
                            stored(block(whole, before, olds, bridge.old_rank), (turn + i) % 3),
                            given(before, whole, olds, bridge.old_rank),
                            given(after, whole, olds, 0),
                        )
                        for i, (name, whole) in enumerate(wholes.items())
                    }
                moved = move(bridge, parts, max_extra_memory=rooms[turn % len(rooms)], pairs=turn % 2 == 0)
                compare(moved, bridge, wholes, after, news)
