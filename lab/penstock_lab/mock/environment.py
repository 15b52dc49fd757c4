"""What a batch job finds in its environment, and where its output goes."""

from __future__ import annotations

import os
import pwd
import re

from penstock.api import JobSpec
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig

__all__ = ["job_environment", "output_path"]

_TASKS_PER_NODE = re.compile(r"^#SBATCH\s+--ntasks-per-node[= ](\d+)", re.MULTILINE)


def job_environment(job: SimJob, spec: JobSpec, config: ClusterConfig, path: str) -> dict[str, str]:
    """The whole environment of a job that starts now: the user's own, Slurm's variables, and the spec's on top.

    `path` is put in front of PATH, also of one that the spec brings along. Host lists are written out (n1,n2,n3), a
    form that every reader of Slurm's host lists takes.
    """
    try:
        entry = pwd.getpwuid(job.uid)
        home, shell = entry.pw_dir, entry.pw_shell
    except KeyError:
        home, shell = "/", "/bin/sh"
    tasks = _TASKS_PER_NODE.search(spec.script)
    nodes, count = ",".join(job.nodes), str(len(job.nodes))
    times = f"(x{count})" if len(job.nodes) > 1 else ""
    per_node = tasks[1] if tasks else "1"
    slurm = {
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_QOS": job.qos,
        "SLURM_JOB_ACCOUNT": job.account,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_CLUSTER_NAME": config.cluster,
        "SLURM_CPUS_ON_NODE": str(config.cpus),
        "SLURM_JOB_CPUS_PER_NODE": f"{config.cpus}{times}",
        "SLURM_TASKS_PER_NODE": f"{per_node}{times}",
        "SLURM_SUBMIT_DIR": spec.workdir or home,
        "SLURM_RESTART_COUNT": str(job.restarts),
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURMD_NODENAME": job.nodes[0],
    }
    if tasks:
        slurm["SLURM_NTASKS_PER_NODE"] = per_node
        slurm["SLURM_NTASKS"] = str(int(per_node) * len(job.nodes))
    if job.array is not None:
        slurm |= {
            "SLURM_ARRAY_JOB_ID": str(job.array.job),
            "SLURM_ARRAY_TASK_ID": str(job.task),
            "SLURM_ARRAY_TASK_COUNT": str(job.array.count),
            "SLURM_ARRAY_TASK_MIN": str(job.array.first),
            "SLURM_ARRAY_TASK_MAX": str(job.array.last),
        }
    own = {
        "HOME": home,
        "USER": job.user,
        "LOGNAME": job.user,
        "SHELL": shell,
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    environment = own | dict(spec.environment) | slurm
    environment["PATH"] = f"{path}:{environment['PATH']}"
    return environment


def output_path(job: SimJob, spec: JobSpec) -> str:
    """Where stdout and stderr go, relative to the working directory; %j, %A, %a, %x, %u, %N and %% are expanded."""
    meaning = {
        "j": str(job.id),
        "A": str(job.id if job.array is None else job.array.job),
        "a": "4294967294" if job.task is None else str(job.task),  # NO_VAL, as Slurm fills it in
        "x": job.name,
        "u": job.user,
        "N": job.nodes[0],
        "%": "%",
    }
    default = "slurm-%j.out" if job.array is None else "slurm-%A_%a.out"
    return re.sub(r"%([jAaxuN%])", lambda m: meaning[m[1]], spec.output or default)
