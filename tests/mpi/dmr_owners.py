"""Run by mpiexec: records go to their owners, and values are dealt otherwise while a program runs.

On eight ranks, where nothing else is said.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from dmr_moves import joined, old_side
from mpi4py import MPI
from mpi_cases import run

import dmr
from dmr.bridge import Bridge
from dmr.distributions import Block, Block2D, BlockCyclic2D, Cyclic, Distribution, Explicit, Keyed, Replicated
from dmr.redistribute import move
from dmr.sparse import CSRMatrix

WORLD = MPI.COMM_WORLD
KIND = np.dtype([("cell", "i4"), ("place", "f8", (3,))])


def by_cell(keys: np.ndarray, size: int) -> np.ndarray:
    return keys * 7 % size


def records(numbers: list[int]) -> np.ndarray:
    made = np.zeros(len(numbers), KIND)
    made["cell"] = numbers
    made["place"] = np.array(numbers)[:, None] / 7 if numbers else 0
    return made


def held(n: int, size: int) -> list[list[int]]:
    """Any numbers of records on each rank, none on rank 1, in no order."""
    order = np.random.default_rng(n + size).permutation(n)
    owner = np.random.default_rng(n * size).integers(0, size, n)
    return [[int(i) for i in order if size > 1 and owner[i] != 1 and owner[i] == r] for r in range(size)]


def in_place(olds: int, news: int) -> Iterator[Bridge]:
    comm = WORLD.Split(0 if WORLD.rank < max(olds, news) else MPI.UNDEFINED)
    if comm != MPI.COMM_NULL:
        ranks = tuple(range(olds)), tuple(range(news))
        yield Bridge(comm, *ranks, *(comm.rank if comm.rank < size else None for size in (olds, news)))
        comm.Free()


def to_owners() -> None:
    cases = [(n, olds, news) for n in (0, 1, 57) for olds, news in ((1, 8), (8, 1), (3, 5), (5, 2), (4, 4), (7, 8))]
    for n, olds, news in cases:
        mine = held(n, olds) if olds > 1 else [list(range(n))]
        for bridge in itertools.chain(in_place(olds, news), joined(olds, news) if olds + news <= 8 else ()):

            def parts(rank: int, mine=mine) -> dict:
                numbers = mine[rank]
                rows = np.repeat(numbers, 2).astype("i4")
                starts = np.arange(0, 2 * len(numbers) + 1, 2)
                return {
                    "array": (records(numbers), Keyed(by_cell, "cell")),
                    "list": ([str(i) for i in numbers], Keyed(lambda it, size: [int(i) * 7 % size for i in it])),
                    "csr": (
                        CSRMatrix(rows * 1.5, rows, starts, (len(numbers), 99)),
                        Keyed(lambda csr, size: csr.indices[::2] * 7 % size),
                    ),
                }

            moved = move(bridge, old_side(bridge, parts), max_extra_memory=500)
            if bridge.new_rank is None:
                continue
            expected = [i for rank in range(olds) for i in mine[rank] if i * 7 % news == bridge.new_rank]
            assert moved is not None and moved.values["array"].tobytes() == records(expected).tobytes()
            assert moved.values["list"] == [str(i) for i in expected]
            assert moved.values["csr"].data.tolist() == [i * 1.5 for i in expected for _ in range(2)]
            assert moved.values["csr"].shape == (len(expected), 99)
            assert moved.distributions["array"] == Keyed(key="cell")


def from_and_to_other_kinds() -> None:
    whole = np.arange(23 * 2).reshape(23, 2)
    for bridge in joined(3, 5):
        starts = [(0, 9), (9, 9), (9, 23)]

        def parts(rank: int, starts=starts) -> dict:
            owner = Keyed(lambda rows, size: rows[:, 0] % size)
            return {
                "blocks": (np.array_split(whole, 3)[rank], Block(), owner),
                "copies": (whole, Replicated(), owner),
                "turns": (whole[rank::3], Cyclic(), owner),
                "back": (whole[slice(*starts[rank])], owner, Block()),
            }

        moved = move(bridge, old_side(bridge, parts))
        if moved is None:
            continue
        expected = [row.tolist() for row in whole if row[0] % 5 == bridge.new_rank]
        for name in ("blocks", "copies"):
            assert moved.values[name].tolist() == expected, name
        assert sorted(moved.values["turns"].tolist()) == expected
        assert moved.values["back"].tolist() == np.array_split(whole, 5)[bridge.new_rank].tolist()


def memory_of_owners() -> None:
    """Beyond the new block: the buffers, and 8 bytes and more for each record, for its owner and for its place."""
    n, room = 40_000, 1 << 18
    for bridge in joined(3, 5):
        parts = old_side(bridge, lambda rank: {"x": (records(list(range(n))), Keyed(by_cell, "cell"))})
        tracemalloc.start()
        moved = move(bridge, parts, max_extra_memory=room)
        peak = tracemalloc.get_traced_memory()[1] - (moved.values["x"].nbytes if moved else 0)
        tracemalloc.stop()
        assert peak <= room + (1 << 16) + (40 * n if parts else 0), peak


def wrong_owners() -> None:
    """Whatever one rank's function does, all hear of it, and go on."""

    def on_rank_1(rank: int, act: Callable[[], Any]) -> Keyed:
        return Keyed(lambda keys, size: act() if rank == 1 else np.zeros(len(keys), int))

    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: 1 // 0, "x: who owns its records: ZeroDivisionError"),
        (lambda: [5, 0, 0], "x: a record's owner is one of the ranks 0 to 4, not 5"),
        (lambda: [0], "x: the owners of 3 records are an array of shape (1,)"),
    ]
    for bridge in joined(3, 5):
        for act, message in cases:
            parts = old_side(bridge, lambda rank, act=act: {"x": (np.zeros(3), on_rank_1(rank, act))})
            fails(lambda parts=parts, bridge=bridge: move(bridge, parts), message)
        parts = old_side(bridge, lambda rank: {"x": (np.zeros((3, 3)), Block(1), Keyed(lambda rows, size: [0, 0, 0]))})
        fails(lambda parts=parts, bridge=bridge: move(bridge, parts), "x: the owner of a record must be asked where")


def fails(act: Callable[[], object], message: str) -> None:
    try:
        act()
    except ValueError as error:
        assert str(error).startswith(message), (str(error), message)
    else:
        raise AssertionError(f"took what is wrong: {message}")


def while_running() -> None:
    """On any number of ranks, a program deals its values otherwise as often as it likes."""
    size, rank = WORLD.size, WORLD.rank
    whole = np.arange(13 * 6.0).reshape(13, 6)
    app = dmr.App()
    app.register("x", np.array_split(whole, size)[rank], Block())
    app.register("particles", records(held(31, 9)[rank]), Keyed(by_cell, "cell"))
    app.register("same", whole.copy())
    mine = np.random.default_rng(3).permutation(13)[rank::size]
    grid = BlockCyclic2D((2, 1), first=(1, 0))
    kinds: list[tuple[Distribution, np.ndarray | None]] = [
        (Cyclic(axis=1), whole[:, rank::size]),
        (Explicit(mine), whole[mine]),
        (Explicit(cut=lambda n, p: [range(n)] + [[]] * (p - 1)), whole if rank == 0 else whole[:0]),
        (Block2D(), None),
        (grid, None),
        (Explicit(range(6)[rank::size], axis=-1), whole[:, rank::size]),
        (Replicated(), whole),
        (Block(), np.array_split(whole, size)[rank]),
    ]
    for step in app.steps(len(kinds)):
        kind, expected = kinds[step]
        before = app["x"]
        app.redistribute("x", kind)
        if expected is None:
            sets = kind.sets(whole.shape, size, rank)
            expected = whole[np.ix_(*(list(dmr.plan.indices(part)) for part in sets))]
        assert app["x"].tolist() == expected.tolist(), (kind, rank)
        assert app.distribution("x") == kind or isinstance(kind, Explicit)
        assert not before.flags.writeable and app["x"].flags.writeable
        # Each particle goes on to another cell, and then to whom that belongs.
        app["particles"]["cell"] += 1
        app.redistribute("particles")
        cells = app["particles"]["cell"]
        assert (by_cell(cells, size) == rank).all()
        assert WORLD.allreduce(len(cells)) == WORLD.allreduce(len(held(31, 9)[rank]))
    app.redistribute("same", Block())
    assert app["same"].tolist() == np.array_split(whole, size)[rank].tolist()
    last = size - 1
    own = list(range(13))[rank::size]
    cases = [
        ("y", None, "'y' is not registered; registered: x, particles, same (rank 0)"),
        ("x", "rows", "x: 'rows' is not a distribution"),
        ("x", Block(2), "x: it has 2 axes, so there is no axis 2"),
        ("x", Block2D((size, 2)), f"x: the grid {size} x 2 is not one of {size} ranks"),
        ("x", Explicit([*own, 0] if rank == last else own), f"x: index 0 of rank {last} is held twice"),
        ("x", Explicit(own[1:]), "x: no rank holds index 0"),
        ("x", Explicit(own[:-1]), "x: the index sets of all ranks are those of a whole"),
        ("particles", Keyed(lambda keys, size: 1 // 0), "particles: who owns its records: ZeroDivisionError"),
    ]
    if size > 1:
        cases += [
            ("same" if rank == last else "x", Block(), f"same: redistributed on rank {last}, while rank 0 does x"),
            ("x", Cyclic() if rank == last else Block(), "x: the ranks differ in distribution afterwards"),
            ("x", Explicit(None if rank == last else own), f"x: rank {last} does not say which indices it holds"),
            ("x" if rank else "y", Block(), "'y' is not registered"),
        ]
    now = app["x"].copy()
    for name, kind, message in cases:
        fails(lambda name=name, kind=kind: app.redistribute(name, kind), message)
        assert app["x"].tolist() == now.tolist() and app["x"].flags.writeable
    app.redistribute("x", Cyclic())
    assert app["x"].tolist() == whole[rank::size].tolist()


CASES = {f.__name__: f for f in (to_owners, from_and_to_other_kinds, memory_of_owners, wrong_owners, while_running)}


if __name__ == "__main__":
    run(CASES)
