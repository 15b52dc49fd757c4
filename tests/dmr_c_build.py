"""Builds the C library for tests, each variant once per session; says what is missing where it cannot."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from places import PROJECT

SOURCES = PROJECT / "dmr" / "c"
SANITIZED = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"


def built(target: str, sanitize: str = SANITIZED, compiler: str = "mpicc") -> Path:
    """The folder with what `make TARGET` gives; skips the test where there is no compiler, and fails it in CI.

    The compiler `mpicc_abi` has the header of MPI's standard ABI, whose names of ports are long enough for all."""
    mpicc = Path(sys.executable).parent / compiler
    missing = [name for name in ("cc", "make") if shutil.which(name) is None]
    if target != "plain" and not mpicc.exists():
        missing.append("mpicc")
    if missing:
        reason = f"the C library cannot be built: no {', '.join(missing)} (apt-get install gcc make; pip install mpich)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return _make(target, sanitize, str(mpicc))


@cache
def _folder() -> Path:
    # Where other users can run it, too.
    folder = Path(tempfile.mkdtemp(prefix="pst-c-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    return folder


@cache
def _make(target: str, sanitize: str, mpicc: str) -> Path:
    folder = _folder() / f"{Path(mpicc).name}-{'sanitized' if sanitize else 'plain'}"
    words = ["make", "-s", "-j2", target, f"OUT={folder}", f"MPICC={mpicc}", f"SANITIZE={sanitize}", "CFLAGS=-O1 -g"]
    done = subprocess.run(words, cwd=SOURCES, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    return folder


@cache
def preload() -> dict[str, str]:
    """The environment in which a Python can load what was built with SANITIZED."""
    found = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True, timeout=20
    )
    return {"LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
