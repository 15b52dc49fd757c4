"""Listing 3 of the DMR paper, its complete example, with this library: tasks that are handed on.

    python -m dmr.launch -n 2 python -m dmr.examples.listing --steps 100 --numbers 1000

On an expansion each process splits its data and hands the parts `onto` several new ones; on a shrink the senders give
their data to a receiver first, which hands all of it `onto` one. Then the old processes end, and `compute` goes on in
the new ones.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import dmr
from dmr.examples.common import Paper, parse, parser, report, save

PAPER = Paper(25, 1, 16)


def compute(data: NDArray[np.float64], step: int, options: argparse.Namespace) -> None:
    """Goes on with the step: at first, or in a process that others handed this to."""
    comm = dmr.world()
    report(options, comm, step, "compute")
    while step < options.steps:
        action, _, handler = dmr.dmr_check_status(comm, options.min, options.max, options.factor, options.preferred)
        if handler is not None:
            onto, senders, receiver = handler.mapping
            if action is dmr.Action.EXPAND:
                for target, part in zip(onto, np.array_split(data, len(onto)), strict=True):
                    handler.offload(compute, part, step, options, onto=target)
            elif receiver is not None:
                comm.send(data, receiver)
            else:
                everything = np.concatenate([*(comm.recv(source=sender) for sender in senders), data])
                handler.offload(compute, everything, step, options, onto=onto[0])
            handler.finish()
            return
        data = iterate(data)
        step += 1
        time.sleep(options.step_seconds)
    end(comm, data, options)


def iterate(data: NDArray[np.float64]) -> NDArray[np.float64]:
    """One step of the work, the logistic map: chaotic, so that no step that is lost or done twice goes unnoticed."""
    return 3.75 * data * (1.0 - data)


def end(comm: MPI.Intracomm, data: NDArray[np.float64], options: argparse.Namespace) -> None:
    """Writes the result."""
    before = comm.exscan(len(data)) or 0
    save(comm, options.out, (options.numbers,), (slice(before, before + len(data)),), data)
    report(options, comm, options.steps, "end")


def main() -> None:
    """Begins, or goes on with what the processes before handed to this one."""
    made = parser("listing", "The paper's listing 3.", 100)
    made.add_argument("--numbers", type=int, default=1000)
    options: Any = parse(made, PAPER)
    parent = dmr.inherited()
    if parent is not None:
        parent.run()
        return
    comm = dmr.world()
    start, stop = dmr.block_bounds(options.numbers, comm.size, comm.rank)
    compute((np.arange(start, stop) + 1.0) / (options.numbers + 2.0), 0, options)


if __name__ == "__main__":
    main()
