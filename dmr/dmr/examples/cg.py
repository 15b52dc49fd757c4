"""Conjugate gradients for Poisson's equation on a square, malleable in two lines (*).

    python -m dmr.launch -n 4 python -m dmr.examples.cg --points 512 --steps 500 --out solution.npy

The square is dealt to the processes in blocks of rows. Sums over all points are rounded differently for different
numbers of processes; beside that the result does not depend on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import dmr
from dmr.examples.common import Paper, parse, parser, pause, report, save

Field = NDArray[np.float64]

PAPER = Paper(10_000, 2, 32, 8, 15.0)


def load(comm: MPI.Intracomm, points: int) -> Field:
    """The right-hand side: this rank's rows."""
    start, stop = dmr.block_bounds(points, comm.size, comm.rank)
    row, col = np.ogrid[start:stop, :points]
    block: Field = (row * row + 37 * row + 11 * col) % 1009 / 1009 - 0.5
    return block


def laplacian(comm: MPI.Intracomm, block: Field) -> Field:
    """The five-point Laplacian of the field, 0 around the square."""
    wide = np.pad(block, 1)
    above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    below = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
    comm.Sendrecv(wide[1], above, recvbuf=wide[-1], source=below)
    comm.Sendrecv(wide[-2], below, recvbuf=wide[0], source=above)
    return 4.0 * block - wide[:-2, 1:-1] - wide[2:, 1:-1] - wide[1:-1, :-2] - wide[1:-1, 2:]


def dot(comm: MPI.Intracomm, a: Field, b: Field) -> float:
    """The inner product over all ranks."""
    return float(comm.allreduce(float(np.vdot(a, b))))


def main() -> None:
    """Reads the options and solves."""
    made = parser("cg", "Malleable conjugate gradients.", 500)
    made.add_argument("--points", type=int, default=512, help="points along each side, at least one per process")
    made.add_argument("--tolerance", type=float, default=0.0, help="end when the residual has become that much smaller")
    options = parse(made, PAPER)
    if options.points < max(options.max, MPI.COMM_WORLD.size):
        made.error("every process needs at least one row")

    app = dmr.App(options.min, options.max, options.factor, options.preferred, ahead=options.ahead)
    rows = dmr.Block()
    app.register("solution", lambda: np.zeros_like(load(app.comm, options.points)), rows)  # (*)
    app.register("residual", lambda: load(app.comm, options.points), rows)
    app.register("direction", lambda: load(app.comm, options.points), rows)
    app.register("norm", lambda: dot(app.comm, app["residual"], app["residual"]))
    app.register("first norm", lambda: app["norm"])

    step: Any = None
    for step in app.steps(options.steps):  # (*)
        comm, x, r, p, norm = app.comm, app["solution"], app["residual"], app["direction"], app["norm"]
        if app.changed:
            report(options, comm, step, "resized" if app.resumed or step else "start")
        if norm <= options.tolerance**2 * app["first norm"]:
            break
        image = laplacian(comm, p)
        length = norm / dot(comm, p, image)
        x += length * p
        r -= length * image
        app["norm"] = dot(comm, r, r)
        p *= app["norm"] / norm
        p += r
        pause(options, comm)

    mine = slice(*dmr.block_bounds(options.points, app.comm.size, app.comm.rank))
    save(app.comm, options.out, (options.points, options.points), (mine,), app["solution"])
    smaller = (app["norm"] / app["first norm"]) ** 0.5
    report(options, app.comm, options.steps, "end", residual=smaller)
    if app.comm.rank == 0:
        print(f"the residual is {smaller:.3e} of the first, on {app.comm.size} processes at the end", flush=True)


if __name__ == "__main__":
    main()
