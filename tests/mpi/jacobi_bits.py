"""The Jacobi solvers of the examples in C and Fortran, under sanitizers: how they are run, and the bits they give."""

from __future__ import annotations

import json
from pathlib import Path

from penstock_lab.soak.solver import serial

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
    field, change = serial(ROWS, COLS, SWEEPS)
    assert change > 1e-3
    return result.read_bytes() == field.tobytes()


def events(folder: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in (folder / "report.jsonl").read_text().splitlines()]
    return [(line["event"], line["size"]) for line in lines]
