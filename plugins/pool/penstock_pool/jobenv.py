"""The environment of a job that runs as a task of a pool: the one that it was submitted with, and what Slurm would have
set in a batch script. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.fronts.programs.step import POOL_JOB, STEPS
from penstock.slurm.option_words import exports_all
from penstock_pool.jobqueue import job_number
from penstock_pool.model import PoolTask

__all__ = ["exported", "job_environment"]

_STAYS: Final = ("SLURM_CONF", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS")
_OF_A_TASK: Final = (POOL_JOB, STEPS, "PENSTOCK_TASK", "PENSTOCK_ATTEMPT")
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_LOGIN: Final = ("HOME", "USER", "LOGNAME", "SHELL", "LANG")


def exported(environ: Mapping[str, str], export: str | None) -> dict[str, str]:
    """What of the submitter's environment a job is given, by `--export`: ALL (or None), NONE, NIL, names, and values.

    Variables of a job in which it was submitted are not its own.
    """
    own = {
        name: value for name, value in environ.items() if not name.startswith(("SLURM_", "SBATCH_")) or name in _STAYS
    }
    own = {name: value for name, value in own.items() if name not in _OF_A_TASK}
    words = [word for word in (export or "ALL").split(",") if word]
    found = own.copy()
    if words and not exports_all(words):
        found = {name: environ[name] for name in (*_LOGIN, *_STAYS) if name in environ} | {"PATH": _PATH}
    for word in words:
        name, equals, value = word.partition("=")
        if exports_all([word]):  # what was said before it counts no more
            found |= own
        elif equals:
            found[name] = value
        elif name in environ:
            found[name] = environ[name]
    return found


def job_environment(
    task: PoolTask,
    number: int,
    submitted: Mapping[str, str],
    *,
    node: str,
    attempt: int,
    user: tuple[int, int, str],
    cluster: str,
) -> dict[str, str]:
    """The whole environment of an attempt; `submitted` is what was kept of the submitter's, `user` the number, the
    group and the name of the pool's owner."""
    terms = task.job
    assert terms is not None
    job = str(job_number(number, terms))
    cores = str(terms.ntasks * terms.cpus)
    said = {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": node,
        POOL_JOB: job,
        "SLURMD_NODENAME": node,
        "SLURM_CLUSTER_NAME": cluster,
        "SLURM_CPUS_ON_NODE": cores,
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": job,
        "SLURM_JOB_ACCOUNT": terms.account,
        "SLURM_JOB_CPUS_PER_NODE": cores,
        "SLURM_JOB_GID": str(user[1]),
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NAME": terms.name,
        "SLURM_JOB_NODELIST": node,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_PARTITION": terms.partition,
        "SLURM_JOB_QOS": terms.qos,
        "SLURM_JOB_UID": str(user[0]),
        "SLURM_JOB_USER": user[2],
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": node,
        "SLURM_PROCID": "0",
        "SLURM_SUBMIT_DIR": terms.submitted_in or task.workdir,
        "SLURM_SUBMIT_HOST": terms.host,
        "SLURM_TASKS_PER_NODE": str(terms.ntasks),
    }
    said = {name: value for name, value in said.items() if value}
    if terms.cpus_said:
        said["SLURM_CPUS_PER_TASK"] = str(terms.cpus)
    if terms.ntasks_said:  # else a script takes itself for a task of srun
        said |= {"SLURM_NPROCS": str(terms.ntasks), "SLURM_NTASKS": str(terms.ntasks)}
    if terms.per_node:
        said["SLURM_NTASKS_PER_NODE"] = str(terms.per_node)
    if task.memory and terms.memory_per_cpu:
        said["SLURM_MEM_PER_CPU"] = str(task.memory // 2**20 // (terms.ntasks * terms.cpus))
    elif task.memory:
        said["SLURM_MEM_PER_NODE"] = str(task.memory // 2**20)
    if task.gpus:
        said["SLURM_GPUS_ON_NODE"] = str(task.gpus)
    if attempt > 1:
        said["SLURM_RESTART_COUNT"] = str(attempt - 1)
    if terms.array is not None:
        array = terms.array
        said |= {
            "SLURM_ARRAY_JOB_ID": str(int(job) - array.position),
            "SLURM_ARRAY_TASK_COUNT": str(array.count),
            "SLURM_ARRAY_TASK_ID": str(array.index),
            "SLURM_ARRAY_TASK_MAX": str(array.largest),
            "SLURM_ARRAY_TASK_MIN": str(array.least),
            "SLURM_ARRAY_TASK_STEP": str(array.step),
        }
    path = submitted.get("PATH", _PATH)
    if terms.fronts:
        path = f"{terms.fronts}/task:{terms.fronts}:{path}"
    return {**submitted, **said, "PATH": path}
