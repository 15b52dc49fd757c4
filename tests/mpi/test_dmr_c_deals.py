"""Rows of programs in C that are dealt in turn, or as the program says, under sanitizers: they are what they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dmr_fake_agent import FakeAgent

from dmr import credential
from dmr_c_build import SANITIZED, SOURCES, built

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]

BECOME = ("-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])")
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


@pytest.fixture(scope="module")
def program() -> str:
    library = built("all", compiler="mpicc_abi")
    out = library / "deals"
    source = Path(__file__).with_name("dmr_c_deals.c")
    mpicc = Path(sys.executable).parent / "mpicc_abi"
    words = [mpicc, "-O1", "-g", "-Wall", "-Werror", *SANITIZED.split(), f"-I{SOURCES}", "-o", out, source]
    words += [f"-L{library}", f"-Wl,-rpath,{library}", "-ldmr"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return str(out)


@pytest.mark.parametrize(
    ("rows", "block", "sizes"),
    [
        (1001, 3, (4, 3, 1, 5)),
        pytest.param(7, 1, (5, 2, 6), marks=pytest.mark.long),  # ranks without a row
        pytest.param(1, 4, (3, 1), marks=pytest.mark.long),
        pytest.param(0, 1, (3,), marks=pytest.mark.long),
        pytest.param(50_000, 64, (3, 4), marks=pytest.mark.long),
    ],
)
def test_rows_are_what_they_were(
    mpirun, key: credential.Key, program: str, rows: int, block: int, sizes: tuple[int, ...]
) -> None:
    steps = 4 * (len(sizes) + 1)
    with FakeAgent(key, sizes, patience=1) as agent:
        done = mpirun(2, *BECOME, program, str(rows), str(block), str(steps), agent=agent.address, DMR_TIMEOUT="20",
                      **SANITIZER)  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert [int(line.split()[1]) for line in said if line.startswith("size")] == [2, *sizes], done.stderr
    assert said[-1] == f"made {steps} steps"


@pytest.mark.parametrize(
    ("mistake", "why"),
    [
        ("block", "the length of a block must be the same on all old and new ranks: it is between 3 and 4"),
        ("twice", "two old ranks send the same row, or one sends it twice"),
        ("nobody", "a row is received that no old rank sends"),
        ("unwanted", "a row is sent that no new rank receives"),
        ("negative", "a length or an index is negative"),
    ],
)
def test_a_mistake_is_heard_of_on_all_ranks(mpirun, key: credential.Key, program: str, mistake: str, why: str) -> None:
    with FakeAgent(key, (3,), patience=1) as agent:
        done = mpirun(2, *BECOME, program, "100", "3", "50", mistake, agent=agent.address, DMR_TIMEOUT="20",
                      **SANITIZER)  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = sorted(line for line in done.stdout.splitlines() if not line.startswith("size"))
    assert said == [f"{side} {rank}: {why}" for side, size in (("new", 3), ("old", 2)) for rank in range(size)]
