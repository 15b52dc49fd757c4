"""Jacobi's method for Laplace's equation, malleable: it may grow and shrink while it runs.

This program moves its data itself; `dmr.examples.heat` leaves that to the library, in two lines.

    python -m dmr.launch -n 2 python -m dmr.examples.jacobi --rows 512 --cols 512 --sweeps 2000 --out result.npy

The field is dealt to the ranks in blocks of rows. The upper edge is held at 1, the other edges at 0. The result is the
same to the last bit whatever the number of ranks, and however often it changes on the way. What makes the program
malleable is marked with (*).
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import dmr
from dmr.examples.common import Paper, parse, parser, pause, report, save

Field = NDArray[np.float64]

PAPER = Paper(10_000, 2, 32, 8, 15.0)


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


def solve(options: argparse.Namespace) -> None:
    """Sweeps from the beginning, or from where the processes that this one replaces stopped."""
    parent = dmr.inherited()  # (*)
    if parent is None:
        comm = dmr.world()  # (*) in place of MPI.COMM_WORLD
        block, done, change = initial_block(comm, options.rows, options.cols), 0, 0.0
        report(options, comm, done, "start")
    else:  # (*)
        arrays, state = parent.receive()
        comm = dmr.world()
        block, done, change = arrays["field"], state["done"], state["change"]
        report(options, comm, done, "resized", before=parent.size_before)
    field = with_halo(comm, block)
    check = dmr.dmr_icheck_status if options.ahead else dmr.dmr_check_status

    while done < options.steps:
        change = sweep(comm, field)
        done += 1
        pause(options, comm)
        if done % options.check_every == 0 and done < options.steps:
            action, size, handler = check(comm, options.min, options.max, options.factor, options.preferred)  # (*)
            if handler:
                report(options, comm, done, str(action), to=size)
                handler.send({"field": field[1:-1]}, done=done, change=change)
                try:
                    handler.finish()
                except dmr.Lost:  # the new processes have died: go on here
                    continue
                return  # the new processes go on from here

    rows = slice(*dmr.block_bounds(options.rows, comm.size, comm.rank))
    save(comm, options.out, (options.rows, options.cols), (rows,), field[1:-1])
    if comm.rank == 0:
        print(f"{done} sweeps, last change {change:.6e}, on {comm.size} ranks at the end", flush=True)
    report(options, comm, done, "end", change=change)


def main() -> None:
    """Reads the options and solves."""
    made = parser("jacobi", "Malleable Jacobi solver.", 1000, step="sweep")
    made.add_argument("--rows", type=int, default=512, help="rows of the field, at least one per rank")
    made.add_argument("--cols", type=int, default=512)
    made.add_argument("--check-every", type=int, default=10, help="sweeps between two checks")
    made.set_defaults(out="result.npy")
    options = parse(made, PAPER)
    if options.rows < max(options.max, MPI.COMM_WORLD.size):
        made.error("every rank needs at least one row")
    solve(options)


if __name__ == "__main__":
    main()
