"""Virtual environments of a test's own, from a package index, that a cluster's users can read."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["environment"]

SHARED = os.environ.get("PENSTOCK_TEST_SHARED", "")
"""A folder in which the first test run that needs one makes it for all that go on at the same time."""


@contextmanager
def environment(name: str, packages: Sequence[str], ours: Sequence[str], ready: str = "") -> Iterator[Path]:
    """The folder of the programs of an environment with these packages and parts of the project; `ready` is one that
    has all of it already. Skips the test where no package index can be reached; fails it in CI."""
    if ready:
        yield Path(ready) / "bin"
        return
    if SHARED:
        place = Path(SHARED) / name
        with place.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            if not (made := place.with_suffix(".made")).exists():
                _install(place, packages, ours)
                made.touch()
        yield place / "bin"
        return
    place = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-", dir="/var/tmp"))
    try:
        place.chmod(0o755)
        _install(place / "venv", packages, ours)
        yield place / "venv" / "bin"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _install(place: Path, packages: Sequence[str], ours: Sequence[str]) -> None:
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", place], check=True, umask=0o022)
    pip = [str(place / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
    first = subprocess.run([*pip, "--no-deps", packages[0]], capture_output=True, text=True, umask=0o022)
    if first.returncode != 0:
        reason = f"no package index can be reached for {packages[0]}: {first.stderr.strip()[-300:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    subprocess.run([*pip, *packages, *ours], check=True, umask=0o022)
