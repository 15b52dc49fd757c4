"""Jacobi over MPI that knows nothing of Penstock: on SIGUSR1 it saves its state and ends, at its start it loads it.

`python elastic_saves.py STATE OUT SWEEPS SECONDS [EVERY]`; with EVERY it also saves after so many sweeps, and while
there is a file `stubborn` it does not end. Each rank holds rows of the field; the sums are not reduced, so the bits are
the same for each number of ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

ROWS, COLS = 48, 32


def main() -> None:
    state, out, sweeps, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    every = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    comm = MPI.COMM_WORLD
    told: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _frame: None if Path("stubborn").exists() else told.append(number))
    row, col = np.ogrid[:ROWS, :COLS]
    field = np.zeros((ROWS + 2, COLS))
    field[0] = 1.0
    field[1:-1] = (row * row + 37 * row + 11 * col) % 1009 / 1009
    field[1:-1, [0, -1]] = 0.0
    first = 0
    if state.exists():
        saved = np.load(state)
        first, field = int(saved["sweep"]), saved["field"]
    lower, upper = ROWS * comm.rank // comm.size + 1, ROWS * (comm.rank + 1) // comm.size + 1
    comm.Barrier()
    if comm.rank == 0:
        Path("up").touch()
        print(f"program: {comm.size} ranks from sweep {first}", flush=True)
    for sweep in range(first, sweeps):
        ends = comm.allreduce(len(told))  # all or none
        if ends or (every and sweep % every == 0):
            if comm.rank == 0:
                new = state.with_name("new-state.npz")
                np.savez(new, sweep=sweep, field=field)
                new.replace(state)
            comm.Barrier()
            if ends:
                return
        new = field.copy()
        inner = field[lower - 1 : upper + 1]
        mine = 0.25 * (inner[:-2, 1:-1] + inner[2:, 1:-1] + inner[1:-1, :-2] + inner[1:-1, 2:])
        for start, part in comm.allgather((lower, mine)):
            new[start : start + len(part), 1:-1] = part
        field = new
        time.sleep(seconds)
    if comm.rank == 0:
        done = out.with_name(f"new-{os.getpid()}")
        done.write_bytes(field[1:-1].tobytes())
        done.replace(out)


if __name__ == "__main__":
    main()
