"""`python -m dmr.launch -n 4 -ppn 1 python app.py`: mpiexec, set up so that the program can be resized later.

All arguments are mpiexec's. Inside a Slurm job this adds what spawning on later nodes needs (run on 22.05, MPICH 5.0):

- the nodes are named on the command line and `SLURM_JOB_NODELIST` is taken away: srun, which hydra starts for every
  spawn, believes it and would refuse more nodes than mpiexec began with ("Only allocated 2 nodes asked for 4"), and
  hydra would wait for it for ever;
- `SLURM_OVERLAP=1`: else srun waits for nodes on which the old processes still run.

The nodes are those that the job has now, which differ from the variables if it was resized before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["main", "prepare"]

_TIME_LIMIT = 30.0


def prepare(
    arguments: Sequence[str], environ: Mapping[str, str], nodes: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The arguments and environment for mpiexec on the given nodes."""
    environment = dict(environ) | {"SLURM_OVERLAP": "1", "DMR_LAUNCHED": "1"}
    for name in ("SLURM_NODELIST", "SLURM_JOB_NODELIST"):
        environment.pop(name, None)
    # srun would apply it to hydra's proxies, of which there is one on each node.
    per_node = environment.pop("SLURM_NTASKS_PER_NODE", None)
    if "-ppn" in arguments[:-1]:
        per_node = arguments[arguments.index("-ppn") + 1]
    if per_node:
        environment.setdefault("DMR_RANKS_PER_NODE", per_node)
    return ["-launcher", "slurm", "-hosts", ",".join(nodes), *arguments], environment


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIME_LIMIT).stdout


def _expand(hosts: str) -> list[str]:
    return _output("scontrol", "show", "hostnames", hosts).split() if "[" in hosts else hosts.split(",")


def _nodes(environ: Mapping[str, str]) -> list[str]:
    """The nodes of this job now; as they were at its start if the controller does not answer."""
    try:
        nodes = _expand(_output("squeue", "-h", "-j", environ["SLURM_JOB_ID"], "-o", "%N").strip())
        # A job keeps its batch host for life. Where that is missing, another Slurm's job of the same number answered.
        if nodes[0] and environ.get("SLURMD_NODENAME", nodes[0]) in nodes:
            return nodes
    except (OSError, subprocess.SubprocessError):
        pass
    return _expand(environ["SLURM_JOB_NODELIST"])


def main() -> None:
    """Becomes mpiexec."""
    beside = str(Path(sys.executable).parent / "mpiexec")
    mpiexec = beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    if mpiexec is None:
        sys.exit("dmr.launch: no mpiexec; pip install mpich, or put MPICH's on PATH")
    arguments, environment = sys.argv[1:], dict(os.environ)
    if "SLURM_JOB_ID" in os.environ and os.environ.get("HYDRA_LAUNCHER", "slurm") == "slurm":
        try:
            arguments, environment = prepare(arguments, os.environ, _nodes(os.environ))
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            sys.exit(f"dmr.launch: cannot find out the nodes of job {os.environ['SLURM_JOB_ID']}: {error}")
    os.execve(mpiexec, [mpiexec, *arguments], environment)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
