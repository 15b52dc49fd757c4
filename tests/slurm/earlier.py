"""Release 0.1.0, from the project's history: its source, and its modules in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from places import PROJECT

RELEASE = "0.1.0"
_COMMIT = "e77d3562"
# What it needed and this release does not.
_MORE = ("networkx", "sortedcontainers")


def source(folder: Path) -> Path:
    """Its files, below `folder`."""
    place = folder / f"penstock-{RELEASE}"
    place.mkdir(mode=0o755)
    packed = subprocess.run(["git", "-C", str(PROJECT), "archive", _COMMIT], capture_output=True, timeout=120)
    if packed.returncode != 0:
        reason = f"this checkout has not the history: {packed.stderr.decode(errors='replace').strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed.stdout, check=True, timeout=120)
    return place


def modules(folder: Path) -> Path:
    """Put into PYTHONPATH this comes before today's; libraries are those of this environment."""
    place = folder / "modules"
    words = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--target", str(place)]
    subprocess.run([*words, str(source(folder)), *_MORE], check=True, timeout=600)
    return place
