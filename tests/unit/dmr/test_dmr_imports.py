"""What each new rank of a resize has to load before it can take over: the others wait for it."""

from __future__ import annotations

import subprocess
import sys

import dmr


def test_a_rank_does_not_load_what_only_others_need() -> None:
    """The launcher's asyncio, a restart's checkpoints, and what numpy and mpi4py would not load anyway."""
    program = "import sys, dmr; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    dear = {"asyncio", "ssl", "secrets", "shutil", "subprocess", "dmr.restart", "dmr.supervisor", "numpy", "mpi4py"}
    assert not dear & set(loaded)


def test_every_name_has_one_home() -> None:
    """Those that are loaded when they are used: none is promised and then not found."""
    homes = [name for names in dmr._HOMES.values() for name in names]
    assert sorted(homes) == sorted(dmr.__all__)
