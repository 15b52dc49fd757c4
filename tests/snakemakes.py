"""A Snakemake of its own for tests, with its plug-in for Slurm and Penstock's, that a cluster's users can read."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from environments import environment
from places import PROJECT

READY = os.environ.get("PENSTOCK_TEST_SNAKEMAKE", "")
"""A virtual environment that has all of it already, to be used instead of a new one."""
PACKAGES = ("snakemake==9.27.1", "snakemake-executor-plugin-slurm==2.8.0", "pytest<9", "pytest-timeout")
OURS = (
    str(PROJECT / "dmr"),
    f"{PROJECT}[pool]",
    *(str(PROJECT / "plugins" / name) for name in ("fronts", "pool", "snakemake-executor")),
)


def programs() -> AbstractContextManager[Path]:
    """The folder of its programs; see `environment`."""
    return environment("snakemake", PACKAGES, OURS, READY)
