"""What the example programs share: options, the paper's parameters, a report, and a file of results."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

__all__ = ["Paper", "parse", "parser", "pause", "report", "save"]


class Paper(NamedTuple):
    """A row of the DMR paper's table 1; the factor is that of section 7.5, `period` in seconds."""

    iterations: int
    minimum: int
    maximum: int
    preferred: int | None = None
    period: float = 0.0
    factor: int = 2


def parser(name: str, description: str, steps: int, step: str = "step") -> argparse.ArgumentParser:
    """The options that all programs have; `step` is what they call one."""
    made = argparse.ArgumentParser(prog=f"dmr.examples.{name}", description=description)
    made.add_argument("--paper", action="store_true", help="steps, sizes and inhibitor as in the paper's table 1")
    made.add_argument(f"--{step}s", dest="steps", type=int, default=steps)
    made.add_argument("--min", type=int, default=1, help="fewest processes")
    made.add_argument("--max", type=int, default=16, help="most processes")
    made.add_argument("--factor", type=int, default=2, help="sizes are multiplied or divided by this; 1: any size")
    made.add_argument("--preferred", type=int, help="the size it would like best")
    made.add_argument(
        f"--{step}-seconds", dest="step_seconds", type=float, default=0.0, help=f"pause in each {step}, to make it last"
    )
    made.add_argument(
        "--seconds",
        type=float,
        default=0.0,
        help=f"more pause in each {step}, so much on one process and less on more, as work that scales",
    )
    made.add_argument("--ahead", action="store_true", help=f"ask while a {step} runs, take the answer after it")
    made.add_argument("--out", help="file for the result")
    made.add_argument("--report", help="file of JSON lines: time, step, size, event")
    return made


def parse(made: argparse.ArgumentParser, paper: Paper, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; with --paper the paper's where nothing else is said."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if "--paper" in given:
        made.set_defaults(
            steps=paper.iterations,
            min=paper.minimum,
            max=paper.maximum,
            factor=paper.factor,
            preferred=paper.preferred,
        )
        os.environ.setdefault("DMR_INHIBITOR_SECONDS", str(paper.period))
    return made.parse_args(given)


def pause(options: argparse.Namespace, comm: MPI.Intracomm) -> None:
    """Makes a step last, as the options say."""
    time.sleep(options.step_seconds + options.seconds / comm.size)


def report(options: argparse.Namespace, comm: MPI.Intracomm, step: int, event: str, **more: Any) -> None:  # noqa: ANN401
    """Rank 0 appends a line of JSON to the report, if one is wanted."""
    if comm.rank == 0 and options.report:
        line = {"time": time.time(), "step": step, "size": comm.size, "event": event, **more}
        with Path(options.report).open("a") as file:
            file.write(json.dumps(line) + "\n")


def save(
    comm: MPI.Intracomm, path: str | None, shape: tuple[int, ...], where: tuple[slice, ...], block: np.ndarray[Any, Any]
) -> None:
    """Writes the whole array, of which each rank holds the part at `where`; collective."""
    parts = comm.gather((where, block))
    if parts is None or not path:
        return
    whole = np.empty(shape, block.dtype)
    for place, part in parts:
        whole[place] = part
    np.save(path, whole)
