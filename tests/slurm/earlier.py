"""Commit fd8d5927, from the project's history: its source, and its modules in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from places import PROJECT

COMMIT = "fd8d5927"


def source(folder: Path) -> Path:
    """Its files, below `folder`."""
    place = folder / f"penstock-{COMMIT}"
    place.mkdir(mode=0o755)
    packed = subprocess.run(["git", "-C", str(PROJECT), "archive", COMMIT], capture_output=True, timeout=120)
    if packed.returncode != 0:
        reason = f"this checkout has not the history: {packed.stderr.decode(errors='replace').strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed.stdout, check=True, timeout=120)
    return place


def modules(folder: Path) -> Path:
    """Put into PYTHONPATH this comes before today's; libraries are those of this environment."""
    place, files = folder / "modules", source(folder)
    words = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", str(place)]
    subprocess.run([*words, str(files), str(files / "dmr")], check=True, timeout=600)
    asked = [sys.executable, "-c", "import dmr, penstock; print(dmr.__file__, penstock.__file__)"]
    told = subprocess.run(asked, env={"PYTHONPATH": str(place)}, check=True, timeout=60, capture_output=True, text=True)
    assert all(file.startswith(f"{place}/") for file in told.stdout.split()), told.stdout
    return place
