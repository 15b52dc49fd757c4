"""What it costs to move an array between ranks, beside a raw Alltoallv of the same bytes in the same run.

    python -m penstock_lab.bench.redistribute [--rounds 5] [--megabytes 64 1000] [--json]

Starts MPI processes on this machine for each pair of sizes, once as if all ranks were replaced (an intercommunicator)
and once as if those that can stay did. "Raw" is one Alltoallv of contiguous buffers with the same counts over the same
communicator, what stays with a rank included, into memory that was allocated for it a moment ago, as the memory of a
moved block is; "raw, warm" the same into memory that was used before. Seconds of wall clock of the slowest rank in the
quickest round. "Extra" is the peak of the allocations in one move beyond the new block, by tracemalloc, the largest of
all ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np
    from mpi4py import MPI

    from dmr.bridge import Bridge
    from dmr.distributions import Distribution

SIZES = [(2, 4), (4, 2), (3, 5)]
ROOM = 16 << 20


def work(olds: int, news: int, megabytes: int, rounds: int, room: int, only: str) -> None:
    """One MPI process: measures, and rank 0 writes lines of JSON."""
    from mpi4py import MPI

    for kind, bridge in bridges(olds, news):
        for name, before, after in moves():
            if only not in name:
                continue
            found = measure(bridge, name, before, after, megabytes, rounds, room)
            if MPI.COMM_WORLD.rank == 0:
                print(json.dumps({"old": olds, "new": news, "MB": megabytes, "ranks": kind, **found}), flush=True)


def moves() -> Iterator[tuple[str, Distribution, Distribution]]:
    from dmr.distributions import Block, Block2D, BlockCyclic, Cyclic

    yield "blocks of rows", Block(), Block()
    yield "blocks of rows, inside a halo", Block(), Block()
    yield "rows in turn, 16 at a time", BlockCyclic(16), BlockCyclic(16)
    yield "blocks of columns", Block(axis=1), Block(axis=1)
    yield "rows, then columns in turn", Block(), Cyclic(axis=1)
    yield "blocks of rows, then a grid", Block(), Block2D()


def bridges(olds: int, news: int) -> Iterator[tuple[str, Bridge | None]]:
    from mpi4py import MPI

    from dmr.bridge import Bridge

    world = MPI.COMM_WORLD
    is_old = world.rank < olds
    local = cast("MPI.Intracomm", world.Split(0 if is_old else 1))
    inter = local.Create_intercomm(0, world, olds if is_old else 0)
    old, new = (local.rank, None) if is_old else (None, local.rank)
    yield "replaced", Bridge(inter, tuple(range(olds)), tuple(range(news)), old, new)
    inter.Free()
    size = max(olds, news)
    some = world.Split(0 if world.rank < size else MPI.UNDEFINED)
    if some == MPI.COMM_NULL:
        yield "stay", None
        return
    old, new = (some.rank if some.rank < side else None for side in (olds, news))
    yield "stay", Bridge(some, tuple(range(olds)), tuple(range(news)), old, new)
    some.Free()


def measure(
    bridge: Bridge | None,
    name: str,
    before: Distribution,
    after: Distribution,
    megabytes: int,
    rounds: int,
    room: int,
) -> dict[str, Any]:
    import numpy as np
    from mpi4py import MPI

    from dmr.distributions import block_shape
    from dmr.redistribute import move

    side = round((megabytes * 1e6 / 8) ** 0.5)
    shape = (side, side)
    parts, extra = None, 0
    if bridge is not None and bridge.old_rank is not None:
        block = np.ones(block_shape(before, shape, len(bridge.old), bridge.old_rank))
        if "halo" in name:
            block = np.ones([n + 2 for n in block.shape])[1:-1, 1:-1]
        parts = {"x": (block, before, after)}
    counts = raw_counts(bridge, before, after, shape)
    flat = [np.ones(sum(side)) for side in counts]

    def raw(into: np.ndarray) -> None:
        if bridge is not None:
            bridge.comm.Alltoallv([flat[0], counts[0]], [into, counts[1]])

    acts: dict[str, Callable[[], object]] = {
        "raw": lambda: raw(np.empty(sum(counts[1]))),
        "raw, warm": lambda: raw(flat[1]),
        "move": lambda: None if bridge is None else move(bridge, parts, max_extra_memory=room),
    }
    times: dict[str, list[float]] = {act: [] for act in acts}
    for number in range(rounds + 1):
        for act, call in acts.items():
            MPI.COMM_WORLD.Barrier()
            began = time.perf_counter()
            call()
            seconds = MPI.COMM_WORLD.allreduce(time.perf_counter() - began, MPI.MAX)
            if number:  # the first is for warming up
                times[act].append(seconds)
    tracemalloc.start()
    if bridge is not None:
        moved = move(bridge, parts, max_extra_memory=room)
        extra = tracemalloc.get_traced_memory()[1] - (moved.values["x"].nbytes if moved else 0)
    tracemalloc.stop()
    extra = MPI.COMM_WORLD.allreduce(extra, MPI.MAX)
    quickest = {act: min(taken) for act, taken in times.items()}
    return {"move of": name, **quickest, "extra MB": extra / 1e6}


def raw_counts(
    bridge: Bridge | None, before: Distribution, after: Distribution, shape: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Elements to and from each other rank."""
    from mpi4py import MPI

    from dmr import plan

    if bridge is None:
        return [], []

    def shared(source: int, target: int) -> int:
        sets = before.sends(shape, len(bridge.old), source), after.sets(shape, len(bridge.new), target)
        total = 1
        for pieces in map(plan.common, *sets):
            total *= sum(piece.source.length * piece.source.runs for piece in pieces)
        return total

    comm = bridge.comm
    out = [0] * (comm.remote_size if isinstance(comm, MPI.Intercomm) else comm.size)
    into = list(out)
    if bridge.old_rank is not None:
        for j, rank in enumerate(bridge.new):
            out[rank] = shared(bridge.old_rank, j)
    if bridge.new_rank is not None:
        for i, rank in enumerate(bridge.old):
            into[rank] = shared(i, bridge.new_rank)
    return out, into


def run(olds: int, news: int, megabytes: int, rounds: int, room: int, only: str) -> Iterator[dict[str, Any]]:
    mpiexec = Path(sys.executable).parent / "mpiexec"
    arguments = [
        "--work",
        str(olds),
        str(news),
        str(megabytes),
        "--rounds",
        str(rounds),
        "--room",
        str(room),
        "--only",
        only,
    ]
    command = [str(mpiexec), "-n", str(olds + news), sys.executable, __file__, *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMI"))}
    # More processes than cores: who waits must not keep a core from who works.
    environment |= {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield from map(json.loads, running.stdout)
    if running.returncode:
        raise SystemExit(f"mpiexec ended with {running.returncode}")


def line(row: dict[str, Any]) -> str:
    cells = [str(row["MB"]), f"{row['old']} to {row['new']}", row["ranks"], row["move of"]]
    cells += [f"{row[key]:.3f}" for key in ("move", "raw", "raw, warm")]
    cells += [f"{row['raw'] / row['move']:.2f}", f"{row['extra MB']:.1f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[64, 1000])
    parser.add_argument("--room", type=int, default=ROOM, help="bytes for buffers on each rank")
    parser.add_argument("--only", default="", help="moves whose name holds this")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--work", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        olds, news, megabytes = options.work
        work(olds, news, megabytes, options.rounds, options.room, options.only)
        return
    if not options.json:
        print("| MB | ranks | old ones | move of | move s | raw s | raw, warm s | raw / move | extra MB |")
        print("|---|---|---|---|---|---|---|---|---|")
    for megabytes in options.megabytes:
        for olds, news in SIZES:
            for row in run(olds, news, megabytes, options.rounds, options.room, options.only):
                print(json.dumps(row) if options.json else line(row), flush=True)
    if not options.json:
        room = options.room / 1e6
        print(f"\n{options.rounds} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, room {room:.1f} MB")


if __name__ == "__main__":
    main()
