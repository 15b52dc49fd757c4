"""Bodies that attract each other, malleable in two lines (*): all pairs, leapfrog steps.

    python -m dmr.launch -n 4 python -m dmr.examples.nbody --bodies 2000 --out bodies.npy

Each process has the bodies of a block. Forces are summed over all bodies in one order, that of their numbers, so that
the result is the same to the last bit whatever the number of processes, and however often it changes on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import dmr
from dmr.examples.common import Paper, parse, parser, pause, report, save

Points = NDArray[np.float64]

PAPER = Paper(25, 1, 16, 1)
SOFTENING = 1e-2


def bodies(comm: MPI.Intracomm, n: int) -> tuple[Points, Points]:
    """Positions and velocities of this rank's bodies, shape (bodies, 3), scattered over a cube."""
    body = np.arange(*dmr.block_bounds(n, comm.size, comm.rank))[:, None]
    axis = np.arange(3)
    position = (body * body * (axis + 1) + (101 + 7 * axis) * body) % 1013 / 1013
    velocity = ((41 + axis) * body % 211 / 211 - 0.5) / 10
    return position, velocity


def accelerations(comm: MPI.Intracomm, mine: Points, n: int) -> Points:
    """What all `n` bodies, of equal mass 1/n, do to this rank's."""
    counts = [3 * (stop - start) for start, stop in (dmr.block_bounds(n, comm.size, r) for r in range(comm.size))]
    everyone = np.empty((n, 3))
    comm.Allgatherv(mine, [everyone, counts])
    total = np.zeros_like(mine)
    for other in everyone:
        away = other - mine
        squares = away * away
        square = squares[:, 0] + squares[:, 1] + squares[:, 2] + SOFTENING
        total += away / (square * np.sqrt(square) * n)[:, None]
    return total


def main() -> None:
    """Reads the options and lets the bodies move."""
    made = parser("nbody", "Malleable N-body simulation.", 25)
    made.add_argument("--bodies", type=int, default=1000)
    made.add_argument("--dt", type=float, default=0.01)
    options = parse(made, PAPER)
    n, dt = options.bodies, options.dt

    app = dmr.App(options.min, options.max, options.factor, options.preferred, ahead=options.ahead)
    app.register("position", lambda: bodies(app.comm, n)[0], dmr.Block())  # (*)
    app.register("velocity", lambda: bodies(app.comm, n)[1], dmr.Block())

    step: Any = None
    for step in app.steps(options.steps):  # (*)
        if app.changed:
            report(options, app.comm, step, "resized" if app.resumed or step else "start")
        position, velocity = app["position"], app["velocity"]
        position += velocity * (dt / 2)
        velocity += accelerations(app.comm, position, n) * dt
        position += velocity * (dt / 2)
        pause(options, app.comm)

    mine = slice(*dmr.block_bounds(n, app.comm.size, app.comm.rank))
    save(app.comm, options.out, (n, 6), (mine,), np.hstack([app["position"], app["velocity"]]))
    report(options, app.comm, options.steps, "end")


if __name__ == "__main__":
    main()
