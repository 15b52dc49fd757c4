"""The MPI programs of a soak: Jacobi, what each must compute, and what is to be said of its end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["End", "Risk", "Solver", "ended", "lost_by", "serial"]

_CONVERGED = 1e-6


@dataclass(frozen=True, slots=True)
class Risk:
    """Why a program may end that takes a growth up from `since` until `until`: the nodes were just being killed."""

    why: str
    since: float
    until: float


@dataclass
class Solver:
    """A Jacobi job, and what is known of it (s since the epoch); `shape` are its rows and columns. `lost` is why it may
    end as it likes: its node was killed. What it says it has computed has to be right all the same."""

    name: str
    job: int
    shape: tuple[int, int]
    sweeps: int
    begun: float
    over: float | None = None
    state: str = ""
    lost: str = ""
    risks: list[Risk] = field(default_factory=list)

    @property
    def result(self) -> str:
        """The file with its field."""
        return f"{self.name}.npy"

    @property
    def report(self) -> str:
        """The file in which it says when it was resized."""
        return f"{self.name}.jsonl"

    def command(self, size: int, most: int, pause: float) -> str:
        """The line of its batch script: begin on `size` nodes, use at most `most`, `pause` seconds for each sweep."""
        rows, cols = self.shape
        words = [sys.executable, "-m", "dmr.launch", "-n", str(size), "-ppn", "1", sys.executable]
        words += ["-m", "dmr.examples.jacobi", "--rows", str(rows), "--cols", str(cols), "--sweeps", str(self.sweeps)]
        words += ["--check-every", "1", "--min", "1", "--max", str(most), "--factor", "2"]
        words += ["--sweep-seconds", f"{pause:g}", "--out", self.result, "--report", self.report]
        return f"exec {shlex.join(words)}"


class End(StrEnum):
    """How a program has ended."""

    EXACT = "exact"
    LOST = "lost with a node that was killed"
    WRONG = "wrong"


def lost_by(risks: Iterable[Risk], taken_up: Iterable[float]) -> str:
    """Why the program may have ended that took growths up at these instants; empty: for no such reason."""
    instants = list(taken_up)
    return next((r.why for r in risks if any(r.since <= at <= r.until for at in instants)), "")


def ended(one: Solver, found: NDArray[np.float64] | None) -> tuple[End, list[str]]:
    """What its end is, and what is wrong with it; `found` is the field that it has written."""
    if one.state != "COMPLETED":
        if one.lost:
            return End.LOST, []
        return End.WRONG, [f"{one.name} (job {one.job}) ended {one.state}, though no node that it used was killed"]
    expected, change = serial(*one.shape, one.sweeps)
    if change <= _CONVERGED:  # a converged field would hide lost rows
        return End.WRONG, [f"{one.name}: {one.sweeps} sweeps are too many to see a lost row"]
    if found is None:
        return End.WRONG, [f"{one.name} (job {one.job}) has completed without a result"]
    if found.tobytes() != expected.tobytes():
        rows = sorted({int(r) for r in np.argwhere(found != expected)[:, 0]}) if found.shape == expected.shape else []
        return End.WRONG, [f"{one.name} (job {one.job}) has wrong bits, in rows {rows[:20]}"]
    return End.EXACT, []


def serial(rows: int, cols: int, sweeps: int) -> tuple[NDArray[np.float64], float]:
    """`dmr.examples.jacobi` without MPI: the field after the sweeps, and the last change."""
    row, col = np.ogrid[:rows, :cols]
    field = np.zeros((rows + 2, cols))
    field[0] = 1.0
    field[1:-1] = (row * row + 37 * row + 11 * col) % 1009 / 1009
    field[1:-1, [0, -1]] = 0.0
    change = 0.0
    for _ in range(sweeps):
        new = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
        change = float(np.abs(new - field[1:-1, 1:-1]).max())
        field[1:-1, 1:-1] = new
    return field[1:-1], change
