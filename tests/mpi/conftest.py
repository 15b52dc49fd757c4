from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dmr import credential

TIME_LIMIT = 150


@pytest.fixture
def key(tmp_path: Path) -> credential.Key:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(32))
    return credential.load_key(path)


@pytest.fixture
def mpirun(tmp_path: Path):
    """Runs `mpiexec -n N python ARGS...` with the launcher that needs no cluster; returns the finished process.

    `launched`: with `python -m dmr.launch` in place of mpiexec. `options` are further ones of mpiexec.
    """
    pytest.importorskip("mpi4py")
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        pytest.skip("no mpiexec beside this Python: pip install mpich")

    def run(
        ranks: int,
        *args: str,
        agent: str = "",
        launched: bool = False,
        options: Sequence[str] = (),
        time_limit: float = TIME_LIMIT,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "DMR", "PMI", "HYDRA"))}
        environment = {
            # Slurm's resource manager would be chosen because of SLURM_JOB_ID, and then want a node list.
            "HYDRA_LAUNCHER": "fork",
            "HYDRA_RMK": "user",
            "SLURM_JOB_ID": "42",
            # By where they run, all ranks of a test would be those of one node.
            "DMR_RANKS_PER_NODE": "1",
            # Most programs here end before new processes could be up; those of `test_dmr_ahead` do not.
            "DMR_START_AHEAD": "0",
            "DMR_KEY_FILE": str(tmp_path / "key"),
            **({"DMR_AGENT": agent} if agent else {}),
            **environment,
        }
        starter = [sys.executable, "-m", "dmr.launch"] if launched else [str(mpiexec)]
        command = [*starter, *options, "-n", str(ranks), sys.executable, *args]
        return subprocess.run(
            command, cwd=tmp_path, env=inherited | environment, capture_output=True, text=True, timeout=time_limit
        )

    return run
