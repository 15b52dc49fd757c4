"""The command lines of an elastic job, and what its commands find in their environment. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from dmr.elastic.words import ElasticNode

__all__ = ["cleaned", "hosts_of", "remote_shell", "resize", "srun"]

# What Slurm and MPI said about the batch script; a step of a companion hears of its own job from srun.
_OF_THE_JOB: Final = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "PMI_", "PMIX_", "HYDRA_", "PRTE_")


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a batch script as it would be without its job."""
    return {k: v for k, v in environ.items() if k == "SLURM_CONF" or not k.startswith(_OF_THE_JOB)}


def srun(member: ElasticNode, line: str, output: str = "") -> list[str]:
    """`line` on one node, with all that its job has there.

    Beside what runs there (`--overlap`), with all of the job's memory and cores; without `--cpu-bind=none` a step of
    one task may be bound to one core.
    """
    argv = ["srun", f"--jobid={member.job}", "--nodes=1", "--ntasks=1", f"--nodelist={member.host}", "--overlap"]
    argv += ["--mem=0", "--cpu-bind=none", "--input=none", "--quiet"]
    if output:
        argv += [f"--output={output}", "--open-mode=append"]
    return [*argv, "bash", "-c", line]


def hosts_of(members: Sequence[ElasticNode]) -> str:
    """Their names, as commands find them."""
    return ",".join(m.host for m in members)


def resize(event: str, members: Sequence[ElasticNode], job: int, seconds: float | None = None) -> dict[str, str]:
    """What a command hears of a resize."""
    found = {
        "PENSTOCK_RESIZE_EVENT": event,
        "PENSTOCK_RESIZE_HOSTS": hosts_of(members),
        "PENSTOCK_RESIZE_JOB": str(job),
        "PENSTOCK_RESIZE_COMPANIONS": ",".join(sorted({str(m.job) for m in members if m.job != job})),
    }
    return found if seconds is None else {**found, "PENSTOCK_RESIZE_SECONDS": f"{seconds:g}"}


def remote_shell(members: Sequence[ElasticNode]) -> str:
    """A script that does what `ssh HOST COMMAND` would, by srun in the job that holds the host.

    With it, `mpiexec` of MPICH, Intel MPI and Open MPI starts one program over a job and its companions.
    """
    cases = "\n".join(f"{shlex.quote(m.host)}) job={m.job} ;;" for m in members)
    return f"""#!/bin/sh
while :; do case "$1" in -l) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=$1; shift
case "$host" in
{cases}
*) echo "elastic: $host is no node of this job" >&2; exit 255 ;;
esac
for name in $(env | sed -n 's/^\\(SLURM[A-Z0-9_]*\\)=.*/\\1/p'); do
    [ "$name" = SLURM_CONF ] || unset "$name"
done
exec srun --jobid="$job" --nodes=1 --ntasks=1 --nodelist="$host" --overlap --mem=0 --cpu-bind=none --input=none \\
    --quiet sh -c "$*"
"""
