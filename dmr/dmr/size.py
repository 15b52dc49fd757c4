"""`python -m dmr.size NODES`: a job script gives its job another size between two programs.

    srun ./narrow
    eval "$(python -m dmr.size 4)"      # the job has four nodes now
    srun ./wide
    eval "$(python -m dmr.size 1)"      # and one

It asks the agent as an MPI program would (DMR paper, section 4.1: a request), waits until the job has its nodes, and
prints what the shell has to know of them; where that cannot be, why (on stderr), and a command that fails. Nothing of
the script may run meanwhile on nodes that the job gives back. MPI programs within resize themselves (`dmr.App`), and
the job's own nodes alone count here, no companion's. Standard library only.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from dmr import job_nodes, slurm_variables, wire
from dmr.client import Client

__all__ = ["Unavailable", "exports", "main", "obtain"]

PATIENCE: Final = 600.0
_AGAIN: Final = 1.0
_REPEAT: Final = 30.0  # what is announced is asked for once
_PASSING: Final = ("busy", "unavailable")  # what the agent may say now and not a moment later


class Unavailable(Exception):
    """The size is not to be had; `str()` says why."""


def exports(nodes: Sequence[str], cpus: Sequence[int], environ: Mapping[str, str], tasks: int | None = None) -> str:
    """The shell's commands that tell srun and every mpiexec of the nodes, as Slurm would have told them at the job's
    start. `nodes`, `cpus`, `tasks`: see `slurm_variables.resized`."""
    said = slurm_variables.resized(environ, nodes, cpus, tasks)
    values = [f"{name}={shlex.quote(value)}" for name, value in said.items() if value is not None]
    gone = [name for name, value in said.items() if value is None]
    return f"export {' '.join(values)}" + (f"; unset {' '.join(gone)}" if gone else "")


def obtain(client: Client, job: int, present: int, wanted: int, patience: float) -> tuple[str, ...]:
    """Gives the job so many nodes in the place of the present ones; their names.

    Raises:
        Unavailable: not within `patience` seconds, or there is no agent that answers.
    """
    deadline = time.monotonic() + patience
    repeat, heard, failure = 0.0, False, ""
    while True:
        check = wire.Check(
            job=job, epoch=0, size=present, minimum=wanted, maximum=wanted, factor=1, per_node=1, method="merge"
        )
        reply = client.request(check)
        if isinstance(reply, wire.Failure):
            failure = f"the agent says {reply.error}: {reply.message}"
            if reply.error not in _PASSING:
                raise Unavailable(failure)
        if isinstance(reply, wire.CheckReply):
            heard, failure = True, ""
            if reply.action != "none" and reply.size == wanted and _taken(client, job, reply):
                return reply.nodes
        now = time.monotonic()
        if now >= deadline:
            why = failure or ("the queue did not give them" if heard else "no agent answers")
            raise Unavailable(f"{wanted} nodes were not to be had within {patience:g} s: {why}")
        if heard and wanted > present and now >= repeat:  # a place in the queue, beside what is idle
            client.request(wire.Announce(job=job, epoch=0, size=wanted, in_seconds=0.0))
            repeat = now + _REPEAT
        time.sleep(_AGAIN)


def _taken(client: Client, job: int, reply: wire.CheckReply) -> bool:
    if not isinstance(client.request(wire.Accept(job=job, epoch=reply.epoch), urgent=True), wire.Done):
        return False
    done = wire.Finished(job=job, epoch=reply.epoch, size=reply.size, nodes=reply.nodes)
    client.request(done, urgent=True)  # a lost one does no harm: the next check tells
    return True


def _client() -> tuple[Client, int]:
    job = os.environ.get("SLURM_JOB_ID", "")
    client = Client.from_environment()
    if client is None or not job.isdigit():
        what = "DMR_AGENT does not name an agent" if job.isdigit() else "this is no Slurm job (SLURM_JOB_ID)"
        raise Unavailable(f"{what}: submit by a workflow or `penstock sbatch`, or see `penstock env`")
    return client, int(job)


def main() -> None:
    """Prints what the shell has to do: where this fails, to fail, since to `eval` nothing is a success."""
    code: str | int | None = 1
    try:
        code = _run()
    except SystemExit as end:  # argparse has said why
        code = end.code
    finally:
        if code:
            print(f"(exit {code})")
    sys.exit(code)


def _run() -> int:
    """Reads the options and gets the nodes; the exit code."""
    logging.basicConfig(format="%(name)s: %(message)s")
    parser = argparse.ArgumentParser(prog="python -m dmr.size", description="Gives this job another number of nodes.")
    parser.add_argument("nodes", type=int)
    parser.add_argument(
        "--wait", type=float, default=PATIENCE, metavar="SECONDS", help=f"at most so long ({PATIENCE:g})"
    )
    parser.add_argument(
        "-n", "--ntasks", type=int, help="so many tasks in all (as many for each node as at the job's start)"
    )
    options = parser.parse_args()
    if options.nodes < 1 or not options.wait >= 0 or (options.ntasks is not None and options.ntasks < 1):
        parser.error("nodes and tasks are counted from 1, seconds from 0")
    try:
        client, job = _client()
        names = job_nodes.nodes(os.environ)
        if len(names) != options.nodes:
            names = list(obtain(client, job, len(names), options.nodes, options.wait))
        print(exports(*job_nodes.facts(job, names, os.environ), os.environ, options.ntasks))
    except (Unavailable, OSError, KeyError, subprocess.SubprocessError, wire.WireError) as why:
        print(f"dmr.size: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    main()
