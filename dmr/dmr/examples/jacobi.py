"""Jacobi's method for Laplace's equation, malleable: it may grow and shrink while it runs.

    python -m dmr.launch -n 2 python -m dmr.examples.jacobi --rows 512 --cols 512 --sweeps 2000 --out result.npy

The field is dealt to the ranks in blocks of rows. The upper edge is held at 1, the other edges at 0. The result is the
same to the last bit whatever the number of ranks, and however often it changes on the way. What makes the program
malleable is marked with (*).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import dmr

Field = NDArray[np.float64]


def initial_block(comm: MPI.Intracomm, rows: int, cols: int) -> Field:
    """This rank's rows of a bumpy first guess: no two rows alike, so that no exchange of rows goes unnoticed."""
    start, stop = dmr.block_bounds(rows, comm.size, comm.rank)
    row, col = np.ogrid[start:stop, :cols]
    block: Field = (
        (row * row + 37 * row + 11 * col) % 1009 / 1009
    )  # whole numbers first: the same bits on every machine
    block[:, [0, -1]] = 0.0
    return block


def with_halo(comm: MPI.Intracomm, block: Field) -> Field:
    """The block between one halo row above and one below; at the outermost ranks these are the field's edges."""
    field = np.pad(block, ((1, 1), (0, 0)))
    if comm.rank == 0:
        field[0] = 1.0
    return field


def sweep(comm: MPI.Intracomm, field: Field) -> float:
    """Replaces every point by the mean of its neighbours; returns the largest change anywhere."""
    above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    below = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
    comm.Sendrecv(field[1], above, recvbuf=field[-1], source=below)
    comm.Sendrecv(field[-2], below, recvbuf=field[0], source=above)
    inner = field[1:-1, 1:-1]
    new = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
    change = float(np.max(np.abs(new - inner), initial=0.0))
    inner[:] = new
    return float(comm.allreduce(change, op=MPI.MAX))  # a maximum does not depend on the order of the ranks


def gather(comm: MPI.Intracomm, block: Field) -> Field | None:
    """The whole field on rank 0, None elsewhere."""
    counts = comm.gather(block.size)
    if counts is None:
        comm.Gatherv(block, None)
        return None
    whole = np.empty((sum(counts) // block.shape[1], block.shape[1]))
    comm.Gatherv(block, [whole, counts])
    return whole


def solve(comm: MPI.Intracomm, options: argparse.Namespace) -> None:
    """Sweeps from the beginning, or from where the processes that this one replaces stopped."""
    parent = dmr.inherited(comm)  # (*)
    if parent is None:
        block, done, change = initial_block(comm, options.rows, options.cols), 0, 0.0
        report(comm, options, done, "start")
    else:  # (*)
        arrays, state = parent.receive()
        block, done, change = arrays["field"], state["done"], state["change"]
        report(comm, options, done, "resized", before=parent.size_before)
    field = with_halo(comm, block)

    while done < options.sweeps:
        change = sweep(comm, field)
        done += 1
        time.sleep(options.sweep_seconds)
        if done % options.check_every == 0 and done < options.sweeps:
            action, size, handler = dmr.dmr_check_status(comm, options.min, options.max, options.factor)  # (*)
            if handler:
                report(comm, options, done, str(action), to=size)
                handler.send({"field": field[1:-1]}, done=done, change=change)
                handler.finish()
                return  # the new processes go on from here

    whole = gather(comm, np.ascontiguousarray(field[1:-1]))
    if whole is not None:
        np.save(options.out, whole)
        print(f"{done} sweeps, last change {change:.6e}, on {comm.size} ranks at the end", flush=True)
    report(comm, options, done, "end", change=change)


def report(comm: MPI.Intracomm, options: argparse.Namespace, done: int, event: str, **more: Any) -> None:  # noqa: ANN401
    """Rank 0 appends a line of JSON to the report, if one is wanted."""
    if comm.rank == 0 and options.report:
        line = {"time": time.time(), "sweep": done, "size": comm.size, "event": event, **more}
        with Path(options.report).open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    """Reads the options and solves."""
    parser = argparse.ArgumentParser(prog="dmr.examples.jacobi", description="Malleable Jacobi solver.")
    parser.add_argument("--rows", type=int, default=512, help="rows of the field, at least one per rank")
    parser.add_argument("--cols", type=int, default=512)
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--out", default="result.npy", help="the final field")
    parser.add_argument("--min", type=int, default=1, help="fewest processes")
    parser.add_argument("--max", type=int, default=16, help="most processes")
    parser.add_argument("--factor", type=int, default=2, help="sizes are multiplied or divided by this; 1: any size")
    parser.add_argument("--check-every", type=int, default=10, help="sweeps between two checks")
    parser.add_argument("--sweep-seconds", type=float, default=0.0, help="pause after each sweep, to make it last")
    parser.add_argument("--report", help="file of JSON lines: time, sweep, size, event")
    options = parser.parse_args()
    if options.rows < max(options.max, MPI.COMM_WORLD.size):
        parser.error("every rank needs at least one row")
    solve(MPI.COMM_WORLD, options)


if __name__ == "__main__":
    main()
