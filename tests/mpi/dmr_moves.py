"""Run by mpiexec on eight ranks: moves arrays in many ways and compares each element with an oracle of its own."""

from __future__ import annotations

import itertools
import os
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import fake_gpu
import numpy as np
from mpi4py import MPI
from mpi_cases import run

from dmr import distributions, exchange, plan, points
from dmr.bridge import Bridge
from dmr.distributions import Block, Block2D, BlockCyclic, BlockCyclic2D, Cyclic, Explicit, Replicated
from dmr.redistribute import Moved, check, move
from dmr.sparse import CSRMatrix

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
    if isinstance(kind, BlockCyclic2D):
        for axis, size, length, start, place in zip(
            (0, 1), GRIDS[p], kind.block, kind.first, divmod(r, GRIDS[p][1]), strict=True
        ):
            whole = whole.take([i for i in range(whole.shape[axis]) if (start + i // length) % size == place], axis)
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
    BlockCyclic2D((2, 3), first=(1, 0)),
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


def everything(sizes: list[tuple[int, int]], rooms: list[int], every: int = 1) -> None:
    wholes = arrays()
    count = itertools.count()
    for olds, news in sizes:
        for bridge in bridges(olds, news):
            for before, after in itertools.product(KINDS, KINDS):
                turn = next(count)
                if bridge is None or turn % every:
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
                moved = move(bridge, parts, max_extra_memory=rooms[turn % len(rooms)])
                compare(moved, bridge, wholes, after, news)


def old_side(bridge: Bridge, make: Callable[[int], Any]) -> Any:
    return None if bridge.old_rank is None else make(bridge.old_rank)


def joined(olds: int, news: int) -> Iterator[Bridge]:
    yield from (bridge for bridge in bridges(olds, news) if bridge is not None)


def rows_of_csr() -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    lengths = np.array([3, 0, 7, 1, 0, 0, 20, 2, 2, 5, 0, 1])
    columns = [np.arange(length, dtype="i4") * 2 for length in lengths]
    return lengths, columns, [row * 1.5 + i for i, row in enumerate(columns)]


def csr_matrices() -> None:
    lengths, columns, values = rows_of_csr()

    def part(kind: object, size: int, rank: int) -> CSRMatrix:
        held = owned(kind, len(lengths), size, rank)
        data, indices = (np.concatenate([np.zeros(0), *(rows[i] for i in held)]) for rows in (values, columns))
        indptr = np.concatenate([[0], np.cumsum(lengths[held])]).astype("i4")
        return CSRMatrix(data, indices.astype("i4"), indptr, (len(held), 99))

    cases = [(Block(), Block()), (Cyclic(), Explicit()), (BlockCyclic(2), Block()), (Explicit(), Explicit())]
    for (olds, news), (before, after) in itertools.product(SIZES[1:3], cases):
        for bridge in joined(olds, news):

            def parts(rank: int, before=before, after=after, olds=olds) -> dict:
                kind = given(before, lengths, olds, rank)
                return {
                    "m": (part(before, olds, rank), kind, Explicit(cut=scattered) if after == Explicit() else after)
                }

            moved = move(bridge, old_side(bridge, parts), max_extra_memory=256)
            if moved is None:
                continue
            expected, found = part(after, news, bridge.new_rank), moved.values["m"]
            assert isinstance(found, CSRMatrix) and found.shape == expected.shape
            for mine, theirs in zip(found[:3], expected[:3], strict=True):
                assert mine.dtype == theirs.dtype and mine.tolist() == theirs.tolist(), (before, after)


class Body:
    """An object with much memory of its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.place = np.full(1000, float(number))


def objects() -> None:
    wholes = {"few": 3, "many": 29}
    for (olds, news), kind in itertools.product(SIZES[1:3], [Block(), Explicit()]):
        for bridge in joined(olds, news):

            def parts(rank: int, kind=kind, olds=olds) -> dict:
                lists = {
                    name: ([Body(i) for i in owned(kind, n, olds, rank)], given(kind, np.zeros(n), olds, rank))
                    for name, n in wholes.items()
                }
                return {
                    **lists,
                    "step": (7 if rank == 0 else 8, Replicated()),
                    "table": ({"a": np.eye(300) * (1 + rank)}, Replicated()),
                    "scalar": (np.float64(rank + 0.5), Replicated()),
                    "text": (np.array(["x", None]), Replicated()),
                }

            moved = move(bridge, old_side(bridge, parts), max_extra_memory=20_000)
            if moved is None:
                continue
            assert list(moved.values) == ["few", "many", "step", "table", "scalar", "text"]
            for name, n in wholes.items():
                found = [(body.number, body.place.tolist()) for body in moved.values[name]]
                assert found == [(i, [float(i)] * 1000) for i in owned(kind, n, news, bridge.new_rank)]
            assert moved.values["step"] == 7 and moved.values["scalar"] == 0.5
            assert (moved.values["table"]["a"] == np.eye(300)).all()
            assert moved.values["text"].tolist() == ["x", None]


def orders() -> None:
    """Fortran's order is kept, also for a part of a larger array; others are normalised to C's."""
    whole = np.arange(60.0).reshape(10, 6)
    larger = np.zeros((12, 8), order="F")
    for bridge in joined(3, 5):

        def parts(rank: int) -> dict:
            mine = block(whole, Block(), 3, rank)
            larger[1 : len(mine) + 1, 1:7] = mine
            return {
                "f": (np.asfortranarray(mine), Block()),
                "halo": (larger[1 : len(mine) + 1, 1:7], Block()),
                "columns": (np.asfortranarray(block(whole, Block(1), 3, rank)), Block(1)),
                "mixed": (np.array(mine, order="F" if rank else "C"), Block()),
                "strided": (np.repeat(mine, 2, 1)[:, ::2], Block()),
                "copies": (np.asfortranarray(whole), Replicated()),
            }

        moved = move(bridge, old_side(bridge, parts))
        if moved is None:
            continue
        for name, array in moved.values.items():
            kind = Block(1) if name == "columns" else Replicated() if name == "copies" else Block()
            assert (array == block(whole, kind, 5, bridge.new_rank)).all(), name
            assert array.flags.c_contiguous if name in ("mixed", "strided") else array.flags.f_contiguous, name


def gpu() -> None:
    """With a stand-in: directly where MPI takes it and all lies in one piece, else by way of the host."""
    whole = np.arange(68.0).reshape(17, 4)
    kinds = [(Block(), Block()), (Cyclic(), Block()), (Replicated(), Replicated())]
    for bridge in joined(4, 2):
        for direct, (before, after), kind in itertools.product("01", kinds, (fake_gpu.Array, fake_gpu.Tensor)):
            os.environ["DMR_GPU_DIRECT"] = direct
            fake_gpu.made_as = kind
            fake_gpu.COPIES.clear()

            def parts(rank: int, before=before, after=after) -> dict:
                return {"x": (fake_gpu.asarray(block(whole, before, 4, rank)), before, after)}

            moved = move(bridge, old_side(bridge, parts))
            if bridge.old_rank is not None:  # what stays with a rank does not go by way of the host either
                assert bool(fake_gpu.COPIES) == (direct == "0"), (direct, before, kind)
            if moved is not None:
                assert type(moved.values["x"]) is kind
                assert (moved.values["x"].get() == block(whole, after, 2, bridge.new_rank)).all()
    fake_gpu.made_as = fake_gpu.Array
    os.environ.pop("DMR_GPU_DIRECT", None)


def memory() -> None:
    """Nothing beyond the new block and the room for buffers, and a little for lists of counts."""
    orders()  # what is imported at the first move is not of interest
    room, little = 1 << 19, 1 << 16
    whole = np.zeros((600, 1000))
    kinds = [(Block(), Block()), (Cyclic(), Block2D()), (BlockCyclic(3), BlockCyclic(3)), (Block(1), Cyclic(1))]
    kinds += [(Replicated(), Replicated()), (Replicated(), Block()), (Block(), Replicated())]
    for (olds, news), (before, after) in itertools.product([(3, 5), (4, 2)], kinds):
        for bridge in joined(olds, news):
            # Columns of something wider on some ranks: these need buffers where others need none.
            wide = np.zeros((600, 1100))[:, :1000] if WORLD.rank % 2 and before == Block() else whole
            mine = None if bridge.old_rank is None else block(wide, before, olds, bridge.old_rank)
            tracemalloc.start()
            parts = None if mine is None else {"x": (mine, before, after)}
            moved = move(bridge, parts, max_extra_memory=room)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            allowed = room + little + (0 if moved is None else moved.values["x"].nbytes)
            assert peak <= allowed, (before, after, olds, news, peak, allowed)


def errors() -> None:
    """The same on all ranks, old and new, with the name of the array; and all can go on after it."""

    def wrong(value: object, other: object = None, kind: object = Block(), rank: int = 1) -> object:
        return lambda mine: {
            "fine": (np.zeros(3), Block()),
            "x": (value if mine != rank or other is None else other, kind),
        }

    class Unpicklable:
        def __reduce__(self) -> str:
            raise TypeError("not me")

    ok = np.zeros((3, 2))
    cases = [
        (wrong(ok, np.zeros((4, 2))), "x: rank 0 of 3 passes a block of shape (3, 2)"),
        (wrong(ok, np.zeros((3, 3))), "x: rank 1 of 3 passes a block of shape (3, 3)"),
        (wrong(ok, np.zeros((3, 2), "f4")), "x: the ranks differ in dtype: float32 on rank 1, float64 on rank 0"),
        (wrong(ok, np.zeros(3)), "x: the ranks differ in number of axes"),
        (wrong(ok, [1, 2, 3]), "x: the ranks differ in kind of value"),
        (wrong(ok, None, Block(2)), "x: it has 2 axes, so there is no axis 2"),
        (wrong(np.zeros(3, object)), "x: must be an array with at least one dimension and no Python objects"),
        (wrong(np.float64(1)), "x: must be an array"),
        (wrong(np.ma.zeros(3)), "x: is a masked array"),
        (wrong(np.asmatrix(ok)), "x: is a matrix, which would come back as a plain array; pass np.asarray"),
        (wrong(np.zeros(3, [("a", "f8")]).view(np.recarray)), "x: is a recarray, which would come back as a plain"),
        (wrong((1, 2, 3)), "x: is a tuple, which would come back as a plain array; pass a list or np.asarray"),
        (wrong(range(3)), "x: is a range, which would come back as a plain array; pass a list or np.asarray"),
        (wrong(ok, None, "rows"), "x: 'rows' is not a distribution"),
        (wrong(ok, None, Block2D((3, 2))), "x: the grid 3 x 2 is not one of 3 ranks"),
        (wrong(ok, None, Explicit(range(3))), "x: index 0 of rank 1 is held twice"),
        (wrong([Unpicklable()] * 3), "x: does not pickle: TypeError: not me"),
        (wrong(Unpicklable(), None, Replicated()), "x: does not pickle: TypeError: not me"),
        (lambda rank: {"x": (ok, Block()), **({"y": (ok, Block())} if rank == 2 else {})}, "y: rank 0 does not pass"),
        (lambda rank: {"x": (ok, Block(), Explicit(cut=lambda n, p: 1 // 0))}, "x: ZeroDivisionError"),
        (lambda rank: {"x": (ok, Block() if rank else Cyclic())}, "x: the ranks differ in distribution"),
        (lambda rank: {"x": ok}, "x: must be (value, distribution)"),
        (lambda rank: {"x": (CSRMatrix(ok[:, 0], np.zeros(3), np.array([0, 9]), (1, 1)), Block())}, "x: is not a CSR"),
    ]
    for bridge in joined(3, 5):
        for make, message in cases:
            try:
                move(bridge, old_side(bridge, make))
            except ValueError as error:
                assert str(error).startswith(message), (str(error), message)
            else:
                raise AssertionError(f"took what is wrong: {message}")
        moved = move(bridge, old_side(bridge, wrong(ok)))
        assert (moved is None) == (bridge.new_rank is None)
    # The old ranks alone find the same.
    some = WORLD.Split(WORLD.rank < 3)
    if WORLD.rank < 3:
        assert [item.shape for item in check(some, wrong(ok)(some.rank), 5)] == [(9,), (9, 2)]
        try:
            check(some, cases[0][0](some.rank), 5)
        except ValueError as error:
            assert str(error).startswith(cases[0][1])
        else:
            raise AssertionError("check saw nothing")


def small_limit() -> None:
    """As if messages ended at 100 bytes instead of 2**31 - 1."""
    exchange.LIMIT = 100
    honest, sizes = exchange._Lane._bounds, []

    def checked(self: exchange._Lane, number: int) -> tuple[int, int]:
        low, high = honest(self, number)
        sizes.append((high - low) * self._stream.item)
        return low, high

    exchange._Lane._bounds = checked
    everything([(3, 5)], [1 << 20], every=31)
    # Without a buffer on any rank.
    whole = np.arange(160.0)
    for bridge in joined(4, 2):
        moved = move(bridge, old_side(bridge, lambda rank: {"x": (block(whole, Block(), 4, rank), Block())}))
        assert moved is None or (moved.values["x"] == block(whole, Block(), 2, bridge.new_rank)).all()
    exchange._Lane._bounds = honest
    assert max(WORLD.allgather(max(sizes, default=0))) in range(80, 101)


def rectangles() -> None:
    """As if MPI was told of every rectangle of a block, however short its rows are."""
    honest, told = exchange._Rows.message, []

    def counted(self: exchange._Rows, low: int, high: int) -> list[Any]:
        told.append(high - low)
        return honest(self, low, high)

    kept, exchange._SHORT, exchange._Rows.message = exchange._SHORT, 1, counted
    try:
        everything([(3, 5), (4, 2)], [60, 600, 1 << 20], every=13)
    finally:
        exchange._SHORT, exchange._Rows.message = kept, honest
    assert min(WORLD.allreduce(told)) == 1 and max(WORLD.allreduce(told)) > 1


def arrays_of_indices() -> None:
    """Index sets kept as arrays, which sets as small as these are not by themselves."""
    kept = distributions._MANY, points._FEW
    distributions._MANY, points._FEW = 0, 0
    try:
        assert isinstance(Explicit([4, 1, 2]).mine[0], plan.Points)
        for olds, news in [(4, 2), (3, 5)]:
            everything([(olds, news)], [60, 600, 1 << 20], every=19)
        csr_matrices()
        objects()
    finally:
        distributions._MANY, points._FEW = kept


def random_owners() -> None:
    """Many indices without any regularity: in little memory; what it takes in time is not for a test."""
    n, olds, news = 200_000, 3, 5

    def dealt(n: int, size: int) -> list[np.ndarray]:
        owner = np.random.default_rng(size).integers(0, size, n)
        return [np.flatnonzero(owner == rank) for rank in range(size)]

    for bridge in joined(olds, news):

        def parts(rank: int) -> dict:
            mine = dealt(n, olds)[rank]
            return {"x": (mine * 1.0, Explicit(mine, cut=dealt))}

        given = old_side(bridge, parts)
        tracemalloc.start()
        moved = move(bridge, given, max_extra_memory=1 << 18)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 120 * n, peak  # bytes; rank 0 makes new sets, too
        if moved is not None:
            mine = dealt(n, news)[bridge.new_rank]
            assert (moved.values["x"] == mine).all()
            assert moved.distributions["x"].indices == mine.tolist()


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (
        csr_matrices,
        objects,
        orders,
        gpu,
        memory,
        errors,
        small_limit,
        rectangles,
        arrays_of_indices,
        random_owners,
    )
}


CASES["pairs"] = partial(everything, SIZES, [60, 600, 1 << 20], every=23)
CASES["all"] = partial(everything, SIZES, [60, 600, 1 << 20])


if __name__ == "__main__":
    run(CASES)
