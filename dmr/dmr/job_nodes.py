"""What Slurm says of the nodes of this process's job now. Standard library only."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from dmr.slurm_variables import expanded, lay_out, resized

__all__ = ["cpus_of", "environment_now", "expand", "facts", "nodes", "output"]

_TIME_LIMIT = 30.0


def output(*command: str) -> str:
    """What a command of Slurm or MPI prints. Raises OSError and subprocess.SubprocessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIME_LIMIT).stdout


def expand(hosts: str) -> list[str]:
    """A list of hosts as names; see `output`."""
    return output("scontrol", "show", "hostnames", hosts).split() if "[" in hosts else hosts.split(",")


def nodes(environ: Mapping[str, str]) -> list[str]:
    """The nodes of this job now; as they were at its start if the controller does not answer."""
    try:
        nodes = expand(output("squeue", "-h", "-j", environ["SLURM_JOB_ID"], "-o", "%N").strip())
        # A job keeps its batch host for life. Where that is missing, another Slurm's job of the same number answered.
        if nodes[0] and environ.get("SLURMD_NODENAME", nodes[0]) in nodes:
            return nodes
    except (OSError, subprocess.SubprocessError):
        pass
    return expand(environ["SLURM_JOB_NODELIST"])


def cpus_of(nodes: Sequence[str], total: int, sizes: Mapping[str, int], environ: Mapping[str, str]) -> list[int]:
    """How many CPUs the job has on each of its nodes; empty where that cannot be told.

    `total`: those of the job; `sizes`: those of each node. Of nodes that it had Slurm has told it. What it has on the
    others is no more than a sum, as no command of 22.05 tells it right of a job that has grown: `scontrol -d` shows the
    CPUs of one node as those of another.
    """
    former = expand(environ.get("SLURM_JOB_NODELIST", ""))
    counts = expanded(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    known = dict(zip(former, counts, strict=True)) if len(former) == len(counts) else {}
    new = [node for node in nodes if node not in known]
    added = total - sum(known.get(node, 0) for node in nodes)
    if new and (added < len(new) or any(node not in sizes for node in new)):
        return []
    room = [sizes[node] for node in new]
    known |= zip(new, lay_out(min(added, sum(room)), room), strict=True)
    return [known[node] for node in nodes]


def facts(job: int, names: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], list[int]]:
    """The job's nodes in Slurm's order, and the CPUs that it has on each; where no controller answers, the names as
    they are, and none."""
    try:
        count, _, hosts = output("squeue", "-h", "-j", str(job), "-o", "%C %N").strip().partition(" ")
        found = expand(hosts)
        if set(found) != set(names):
            return list(names), []
        rows = output("sinfo", "-a", "-h", "-N", "-n", ",".join(found), "-o", "%N %c").split()
        sizes = {name: int(size) for name, size in zip(rows[::2], rows[1::2], strict=True)}
        return found, cpus_of(found, int(count), sizes, environ)
    except (OSError, ValueError, subprocess.SubprocessError):
        return list(names), []


def environment_now(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with Slurm's variables for the nodes that the job has now, which a program before this one may
    have changed. Raises what `output` does, and KeyError outside of a job."""
    environment = dict(environ)
    names = nodes(environ)
    if set(names) != set(expand(environ["SLURM_JOB_NODELIST"])):
        for name, value in resized(environ, *facts(int(environ["SLURM_JOB_ID"]), names, environ)).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
    return environment
