"""A Snakemake of its own for tests, with its plug-in for Slurm and Penstock's, that a cluster's users can read."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from places import PROJECT

READY = os.environ.get("PENSTOCK_TEST_SNAKEMAKE", "")
"""A virtual environment that has all of it already, to be used instead of a new one."""
SHARED = os.environ.get("PENSTOCK_TEST_SHARED", "")
"""A folder in which the first test run that needs one makes it for all that go on at the same time."""
PACKAGES = ("snakemake==9.27.1", "snakemake-executor-plugin-slurm==2.8.0", "pytest<9", "pytest-timeout")
OURS = (str(PROJECT / "dmr"), f"{PROJECT}[pool]", str(PROJECT / "plugins" / "snakemake-executor"))


@contextmanager
def programs() -> Iterator[Path]:
    """The folder of its programs. Skips the test where no package index can be reached; fails it in CI."""
    if READY:
        yield Path(READY) / "bin"
        return
    if SHARED:
        place = Path(SHARED)
        with (place / "snakemake.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            if not (place / "snakemake.made").exists():
                _install(place / "venv")
                (place / "snakemake.made").touch()
        yield place / "venv" / "bin"
        return
    place = Path(tempfile.mkdtemp(prefix="penstock-snakemake-", dir="/var/tmp"))
    try:
        place.chmod(0o755)
        _install(place / "venv")
        yield place / "venv" / "bin"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _install(place: Path) -> None:
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", place], check=True, umask=0o022)
    pip = [str(place / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
    first = subprocess.run([*pip, "--no-deps", PACKAGES[0]], capture_output=True, text=True, umask=0o022)
    if first.returncode != 0:
        reason = f"no package index can be reached for {PACKAGES[0]}: {first.stderr.strip()[-300:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    subprocess.run([*pip, *PACKAGES, *OURS], check=True, umask=0o022)
