"""`python -m dmr.launch -n 4 -ppn 1 python app.py`: mpiexec, so that the program can be resized later.

    python -m dmr.launch [--srun] ARGUMENTS OF MPIEXEC (or of srun) PROGRAM ...

It starts mpiexec, stays its parent (`dmr.supervisor`), ends as it ends. Inside a Slurm job with MPICH or Intel MPI it
adds what processes on later nodes need (run on 22.05, MPICH 5.0):

- the nodes are named on the command line and `SLURM_JOB_NODELIST` is taken away: srun, which hydra starts for every
  spawn, believes it and would refuse more nodes than mpiexec began with ("Only allocated 2 nodes asked for 4"), and
  hydra would wait for it for ever;
- `SLURM_OVERLAP=1`: else srun waits for nodes on which the old processes still run.

The nodes are those that the job has now, which differ from the variables if it was resized before. srun and Open MPI's
mpiexec are told of them by these variables, set anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dmr import checkpoint, command, supervisor
from dmr.job_nodes import environment_now, nodes, output
from dmr.line import start_limit

__all__ = ["find_mpiexec", "main", "nodes", "prepare"]

# A program may leave the directory of its start, from where these are given.
_PATHS = (checkpoint.DIRECTORY, "DMR_KEY_FILE", "DMR_MUNGE_SOCKET")


def prepare(
    arguments: Sequence[str], environ: Mapping[str, str], nodes: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The arguments and environment for hydra's mpiexec on the given nodes."""
    environment = dict(environ) | {"SLURM_OVERLAP": "1"}
    for name in ("SLURM_NODELIST", "SLURM_JOB_NODELIST"):
        environment.pop(name, None)
    # srun would apply it to hydra's proxies, of which there is one on each node.
    environment.pop("SLURM_NTASKS_PER_NODE", None)
    return ["-launcher", "slurm", "-hosts", ",".join(nodes), *arguments], environment


def find_mpiexec() -> str | None:
    """The mpiexec that programs are started with: that of this Python's environment, else the first on PATH."""
    beside = str(Path(sys.executable).parent / "mpiexec")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def _starter(arguments: list[str]) -> tuple[str, str]:
    """The program that starts the ranks, and whose it is: "hydra", "openmpi" or "srun"."""
    if arguments[:1] == ["--srun"]:
        del arguments[0]
        srun = shutil.which("srun")
        if srun is None:
            sys.exit("dmr.launch: --srun, but there is no srun on PATH")
        return srun, "srun"
    mpiexec = find_mpiexec()
    if mpiexec is None:
        sys.exit("dmr.launch: no mpiexec; pip install mpich, or put your MPI's on PATH")
    try:
        version = output(mpiexec, "--version")
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"dmr.launch: {mpiexec} --version fails: {error}")
    open_mpi = any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE", "prterun"))
    return mpiexec, "openmpi" if open_mpi else "hydra"


def main() -> None:
    """Runs the application; ends with its exit code."""
    logging.basicConfig(format="%(name)s: %(message)s")
    arguments, environment = sys.argv[1:], dict(os.environ)
    starter, kind = _starter(arguments)
    job = os.environ.get("SLURM_JOB_ID", "")
    if job and kind != "hydra":
        with contextlib.suppress(OSError, KeyError, ValueError, subprocess.SubprocessError):  # as they were
            environment = environment_now(environment)
    try:
        line = command.parse(kind, starter, arguments)
    except ValueError as error:
        sys.exit(f"dmr.launch: {error}; usage: python -m dmr.launch [--srun] -n RANKS ... PROGRAM ...")
    per_node = str(line.per_node or "") or environment.get("SLURM_NTASKS_PER_NODE", "")
    if per_node:
        environment.setdefault("DMR_RANKS_PER_NODE", per_node)
    scratch = Path.cwd() / f".dmr-checkpoint-{job or os.getpid()}"
    environment[checkpoint.DIRECTORY] = environment.get(checkpoint.DIRECTORY) or str(scratch)
    environment |= {name: str(Path(environment[name]).absolute()) for name in _PATHS if environment.get(name)}
    it = supervisor.Supervisor(line, environment, int(job) if job.isdigit() else 0, start_limit(environment))
    if job and kind == "hydra" and os.environ.get("HYDRA_LAUNCHER", "slurm") == "slurm":
        try:
            arguments, environment = prepare(arguments, environment, nodes(os.environ))
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            sys.exit(f"dmr.launch: cannot find out the nodes of job {job}: {error}")
    code = asyncio.run(it.run([starter, *arguments], environment))
    with contextlib.suppress(OSError):
        scratch.rmdir()  # unless a checkpoint is left in it
    sys.exit(code)


if __name__ == "__main__":
    main()
