"""The Jacobi solvers of the examples in C and Fortran, under sanitizers: how they are run, and the bits they give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

ROWS, COLS, SWEEPS = 37, 23, 30
OPTIONS = (
    f"--rows={ROWS} --cols={COLS} --sweeps={SWEEPS} --check-every=2 --max=8 --factor=1 --report=report.jsonl "
    "--out=result.bin"
).split()
# The mpirun of these tests starts this Python; it becomes the program at once.
BECOME = ("-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])")
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}


def same(result: Path) -> bool:
    """Bit for bit, and on a field that still moves: at rest it would forgive lost sweeps."""
    row, col = np.ogrid[:ROWS, :COLS]
    field = np.zeros((ROWS + 2, COLS))
    field[0] = 1.0
    field[1:-1] = (row * row + 37 * row + 11 * col) % 1009 / 1009
    field[1:-1, [0, -1]] = 0.0
    change = 0.0
    for _ in range(SWEEPS):
        new = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
        change = float(np.abs(new - field[1:-1, 1:-1]).max())
        field[1:-1, 1:-1] = new
    assert change > 1e-3
    return result.read_bytes() == field[1:-1].tobytes()


def events(folder: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]
    return [(line["event"], line["size"]) for line in lines]
