"""Run by mpiexec on three ranks: old rank 1 gives up a move just before old rank 0 sends it its rows, and goes on."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from dmr import exchange, redistribute
from dmr.bridge import Bridge
from dmr.distributions import Block
from dmr.plan import block_bounds

WORLD = MPI.COMM_WORLD
ROWS = 30_000
honest = exchange._Lane.begin


class Gone(Exception):
    pass


def look() -> None:
    raise Gone


def late(self: exchange._Lane, slot: int) -> MPI.Request:
    """Old rank 0 is busy for longer than old rank 1 is patient; new rank 2 is as good as dead."""
    time.sleep({0: 2.5, 1: 0.0, 2: 8.0}[WORLD.rank])
    if WORLD.rank == 2:
        raise Gone
    return honest(self, slot)


def main() -> None:
    exchange._Lane.begin = late  # type: ignore[method-assign]
    rank, is_old = WORLD.rank, WORLD.rank < 2
    old = WORLD.Split(0 if is_old else 1, rank)
    bridge = Bridge(WORLD.Dup(), (0, 1), (0, 1, 2), rank if is_old else None, rank)
    start, stop = block_bounds(ROWS, 2, rank % 2)
    with contextlib.suppress(Gone):
        redistribute.move(bridge, {"x": (np.ones(stop - start), Block())} if is_old else None, look=look)
    if is_old:
        # What the program makes next may well be where the new block was to be.
        made = [np.zeros(ROWS // 3) for _ in range(4)] if rank == 1 else []
        for _ in range(200):
            old.allreduce(1)
            time.sleep(0.01)
        if rank == 1:
            # Not printed: whoever passes on what was is ended with the first rank that ends, see below.
            Path("changed").write_text(str([int((array != 0).sum()) for array in made]))
    WORLD.Barrier()
    os._exit(0)  # MPI_Finalize would wait for what was given up


main()
