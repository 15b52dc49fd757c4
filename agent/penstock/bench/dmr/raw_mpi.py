"""What MPI alone takes to start processes and to move data to them: a yardstick of `penstock bench dmr --part resize`.

    mpiexec -n OLD python -m penstock.bench.dmr.raw_mpi NEW BYTES ROUNDS

Each round starts NEW processes by MPI_Comm_spawn and moves BYTES to them with one MPI_Alltoallv, as numbers dealt in
blocks to all, into memory that was allocated a moment ago. Rank 0 prints a line of JSON for a round, in seconds of the
slowest rank.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI

import dmr

__all__: list[str] = []


def counts(mine: tuple[int, int], others: int, n: int) -> list[int]:
    """How many of n numbers a block, from `mine[0]` to `mine[1]`, shares with each of the other side's blocks."""
    blocks = (dmr.block_bounds(n, others, rank) for rank in range(others))
    return [max(min(mine[1], high) - max(mine[0], low), 0) for low, high in blocks]


def move(inter: MPI.Intercomm, n: int, *, sends: bool) -> float:
    """The numbers go from one side to the other; on the sending side the seconds of the slowest rank that receives."""
    local = inter.Get_rank(), inter.Get_size()
    shared = counts(dmr.block_bounds(n, local[1], local[0]), inter.Get_remote_size(), n)
    nothing = [0] * inter.Get_remote_size()
    out = np.ones(sum(shared)) if sends else np.empty(0)
    inter.Barrier()
    began = time.perf_counter()
    into = np.empty(0 if sends else sum(shared))
    inter.Alltoallv([out, shared if sends else nothing], [into, nothing if sends else shared])
    seconds = time.perf_counter() - began
    slowest = inter.allreduce(seconds, MPI.MAX)  # of the other side's ranks
    return float(slowest) if sends else seconds


def main() -> None:
    """The old side, or started by it the new one."""
    parent = MPI.Comm.Get_parent()
    new, volume, rounds = (int(word) for word in sys.argv[1:4])
    if parent != MPI.COMM_NULL:
        parent.Barrier()
        move(parent, volume // 8, sends=False)
        parent.Disconnect()
        return
    for _round in range(rounds):
        MPI.COMM_WORLD.Barrier()
        began = time.perf_counter()
        inter = MPI.COMM_WORLD.Spawn(sys.executable, ["-m", "penstock.bench.dmr.raw_mpi", *sys.argv[1:4]], new)
        inter.Barrier()
        spawned = MPI.COMM_WORLD.allreduce(time.perf_counter() - began, MPI.MAX)
        moved = move(inter, volume // 8, sends=True)
        inter.Disconnect()
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps({"old": MPI.COMM_WORLD.size, "new": new, "spawn": spawned, "move": moved}), flush=True)


if __name__ == "__main__":
    main()
