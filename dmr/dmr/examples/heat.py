"""The heat equation on a plate, malleable in two lines (*): explicit Euler steps, the plate dealt in two dimensions.

    python -m dmr.launch -n 4 python -m dmr.examples.heat --rows 512 --cols 512 --steps 2000 --out plate.npy

The rim is held at 0. The result is the same to the last bit whatever the number of processes, and however often it
changes on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import dmr
from dmr.examples.common import Paper, parse, parser, pause, report, save

Plate = NDArray[np.float64]

# The paper has no such program; its Jacobi is the nearest.
PAPER = Paper(10_000, 2, 32, 8, 15.0)


class Patch:
    """Where the block of one rank lies in the plate, and who is around it: north, south, west, east."""

    def __init__(self, comm: MPI.Intracomm, rows: int, cols: int) -> None:
        down, across = dmr.Block2D().grid_of(comm.size)
        row, col = divmod(comm.rank, across)
        self.comm = comm
        self.rows = slice(*dmr.block_bounds(rows, down, row))
        self.cols = slice(*dmr.block_bounds(cols, across, col))
        self.north = comm.rank - across if row > 0 else MPI.PROC_NULL
        self.south = comm.rank + across if row < down - 1 else MPI.PROC_NULL
        self.west = comm.rank - 1 if col > 0 else MPI.PROC_NULL
        self.east = comm.rank + 1 if col < across - 1 else MPI.PROC_NULL

    def hot_spots(self) -> Plate:
        """This rank's block at the start: no two points alike, so that no exchange of them goes unnoticed."""
        row, col = np.ogrid[self.rows, self.cols]
        block: Plate = (row * row + 37 * row + 11 * col * col) % 1009 / 1009
        return block

    def step(self, block: Plate, conductivity: float) -> Plate:
        """The block one step later; exchanges its rim with the neighbours."""
        wide = np.pad(block, 1)
        for to, mine, source, theirs in (
            (self.north, block[0], self.south, wide[-1, 1:-1]),
            (self.south, block[-1], self.north, wide[0, 1:-1]),
            (self.west, block[:, 0], self.east, wide[1:-1, -1]),
            (self.east, block[:, -1], self.west, wide[1:-1, 0]),
        ):
            halo = np.zeros_like(mine)
            self.comm.Sendrecv(np.ascontiguousarray(mine), to, recvbuf=halo, source=source)
            theirs[:] = halo
        around = (wide[:-2, 1:-1] + wide[2:, 1:-1]) + (wide[1:-1, :-2] + wide[1:-1, 2:])
        return block + conductivity * (around - 4.0 * block)


def main() -> None:
    """Reads the options and solves."""
    made = parser("heat", "Malleable heat equation in two dimensions.", 1000)
    made.add_argument("--rows", type=int, default=512)
    made.add_argument("--cols", type=int, default=512)
    made.add_argument("--conductivity", type=float, default=0.2, help="times the step over the spacing squared; < 0.25")
    options = parse(made, PAPER)
    # A prime number of ranks has one below the other, and no grid is wider than high.
    most = min(options.rows, (options.cols + 1) ** 2 - 1)
    if MPI.COMM_WORLD.size > most:
        made.error(f"a plate of {options.rows} x {options.cols} is for {most} rank{'s' * (most != 1)} at most")

    app = dmr.App(options.min, min(options.max, most), options.factor, options.preferred, ahead=options.ahead)
    patch = Patch(app.comm, options.rows, options.cols)
    app.register("plate", patch.hot_spots, dmr.Block2D())  # (*)

    step: Any = None
    for step in app.steps(options.steps):  # (*)
        if app.changed:
            patch = Patch(app.comm, options.rows, options.cols)
            report(options, app.comm, step, "resized" if app.resumed or step else "start")
        app["plate"] = patch.step(app["plate"], options.conductivity)
        pause(options, app.comm)

    save(app.comm, options.out, (options.rows, options.cols), (patch.rows, patch.cols), app["plate"])
    report(options, app.comm, options.steps, "end")


if __name__ == "__main__":
    main()
