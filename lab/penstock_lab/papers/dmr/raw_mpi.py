"""What MPI alone takes to move data between two groups of processes: a yardstick of `penstock bench dmr --part resize`.

    mpiexec -n OLD+NEW python -m penstock_lab.papers.dmr.raw_mpi OLD BYTES ROUNDS

In each round the first OLD processes send BYTES to the others, as numbers dealt in blocks to all of a side, with one
MPI_Alltoallv between the two groups into memory that was allocated a moment ago. Rank 0 prints a line of JSON for a
round: the seconds of the slowest process.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI

import dmr

__all__: list[str] = []


def shared(mine: tuple[int, int], others: int, n: int) -> list[int]:
    """How many of n numbers a block, from `mine[0]` to `mine[1]`, shares with each of the other side's blocks."""
    blocks = (dmr.block_bounds(n, others, rank) for rank in range(others))
    return [max(min(mine[1], high) - max(mine[0], low), 0) for low, high in blocks]


def move(inter: MPI.Intercomm, n: int, *, sends: bool) -> float:
    """The numbers go from one side to the other; this process's seconds."""
    counts = shared(dmr.block_bounds(n, inter.Get_size(), inter.Get_rank()), inter.Get_remote_size(), n)
    nothing = [0] * len(counts)
    out = np.ones(sum(counts) if sends else 0)
    MPI.COMM_WORLD.Barrier()
    began = time.perf_counter()
    into = np.empty(0 if sends else sum(counts))
    inter.Alltoallv([out, counts if sends else nothing], [into, nothing if sends else counts])
    return time.perf_counter() - began


def main() -> None:
    """One process of either side."""
    world = MPI.COMM_WORLD
    old, volume, rounds = (int(word) for word in sys.argv[1:4])
    sends = world.rank < old
    local = world.Split(0 if sends else 1)
    assert isinstance(local, MPI.Intracomm)
    inter = local.Create_intercomm(0, world, old if sends else 0)
    for _round in range(rounds):
        seconds = world.allreduce(move(inter, volume // 8, sends=sends), MPI.MAX)
        if world.rank == 0:
            print(json.dumps({"move": seconds}), flush=True)


if __name__ == "__main__":
    main()
