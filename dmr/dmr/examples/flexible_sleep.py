"""The synthetic program of the DMR paper (section 7.3), malleable in two lines (*): it sleeps, and has data to move.

    python -m dmr.launch -n 1 python -m dmr.examples.flexible_sleep --steps 2 --megabytes 1000

A step sleeps for its seconds divided by the number of processes, as work that scales without loss. The data is dealt in
blocks, each number in its place; at the end every process looks whether it still is. With `--sizes 2,4,1` it asks for
2 processes (one above its maximum or below its minimum is a request; paper, section 4.1), then for 4, then for 1, and
ends when it has had all.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmr
from dmr.examples.common import Paper, parse, parser, pause, report

PAPER = Paper(25, 1, 20)


def sizes(text: str) -> tuple[int, ...]:
    """The option's numbers. Raises ValueError."""
    return tuple(int(word) for word in text.split(","))


def ask(app: dmr.App, options: Any) -> bool:  # noqa: ANN401
    """Asks for the size that is next; false when the last has been had."""
    wanted = options.sizes[app["asked"] // 2 :]
    if app["asked"] % 2 and app.comm.size == wanted[0]:
        app["asked"] += 1
        wanted = wanted[1:]
    if not wanted:
        return False
    if app["asked"] % 2 == 0:
        app["asked"] += 1
        report(options, app.comm, 0, "asks", wanted=wanted[0])
    app.want(wanted[0], wanted[0])
    return True


def main() -> None:
    """Reads the options and sleeps."""
    made = parser("flexible_sleep", "Malleable sleep with data.", 25)
    made.add_argument("--megabytes", type=float, default=8.0, help="of data, in all")
    made.add_argument("--sizes", type=sizes, default=(), help="sizes to ask for one after the other, like 2,4,1")
    made.set_defaults(seconds=1.0)
    options = parse(made, PAPER)
    n = int(options.megabytes * 1e6) // 8

    app = dmr.App(options.min, options.max, options.factor, options.preferred, ahead=options.ahead)

    def numbers() -> NDArray[np.float64]:
        return np.arange(*dmr.block_bounds(n, app.comm.size, app.comm.rank), dtype=np.float64)

    app.register("data", numbers, dmr.Block())  # (*)
    app.register("asked", 0)
    step: Any = None
    for step in app.steps(options.steps):  # (*)
        if app.changed:
            report(options, app.comm, step, "resized" if app.resumed or step else "start")
        if options.sizes and not ask(app, options):
            break
        pause(options, app.comm)

    lost = app.comm.allreduce(int(not np.array_equal(app["data"], numbers())))
    report(options, app.comm, options.steps, "end", lost=lost)
    if lost:
        sys.exit(f"{lost} processes do not have the data they should")


if __name__ == "__main__":
    main()
