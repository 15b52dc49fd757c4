"""Runs the cases of a program of many ranks that its command line names."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping

from mpi4py import MPI

__all__ = ["run"]


def run(cases: Mapping[str, Callable[[], None]]) -> None:
    """One after the other, on all ranks together; an error on one of them ends all."""
    world = MPI.COMM_WORLD
    try:
        for name in sys.argv[1:]:
            cases[name]()
            world.Barrier()
            if world.rank == 0:
                print(f"{name}: good", flush=True)
    except BaseException:
        # The others may wait for this rank for ever.
        traceback.print_exc()
        sys.stderr.flush()
        world.Abort(1)
