"""What the last picture of Slurm adds to an answer about a user's work: why jobs wait, and which are others. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from penstock.api import Job, Snapshot

__all__ = ["jobs_besides", "known_jobs", "with_reasons"]

_MOST: Final = 200
Json = dict[str, Any]


def with_reasons(run: Json, snapshot: Snapshot | None) -> Json:
    """A workflow with what Slurm says its waiting jobs wait for, as `reason` of a stage."""
    seen: Mapping[int, Job] = snapshot.jobs if snapshot else {}
    return {**run, "stages": [_with_reason(stage, seen.get(stage["job"] or 0)) for stage in run["stages"]]}


def _with_reason(stage: Json, job: Job | None) -> Json:
    return {**stage, "reason": job.reason} if job is not None and job.pending else stage


def known_jobs(runs: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]) -> set[int]:
    """The numbers of jobs that an answer tells of already: of stages, of malleable and moldable jobs."""
    found = {stage["job"] for run in runs for stage in run["stages"] if stage["job"] is not None}
    for job in others:
        found.add(job["job"])
        found |= {companion["job"] for companion in job.get("companions", ())}
        found |= {job["resizer"]} if job.get("resizer") else set()
    return found


def jobs_besides(snapshot: Snapshot | None, uid: int, known: Collection[int]) -> list[Json]:
    """The user's other jobs in the queue, those that run first: an MPI program that has not asked the agent yet, an
    elastic job that has not begun, and whatever else there is. `name` is what squeue calls one (`41_2`)."""
    if snapshot is None:
        return []
    mine = [
        job
        for job in snapshot.jobs.values()
        if job.uid == uid and not job.state.ended and job.id not in known and job.head not in known
    ]
    mine.sort(key=lambda job: (job.pending, job.id))
    return [_told(job) for job in mine[:_MOST]]


def _told(job: Job) -> Json:
    task = job.array_job is not None and job.array_task is not None
    return {
        "job": job.id,
        "name": f"{job.array_job}_{job.array_task}" if task else str(job.id),
        "state": job.state.value.lower(),
        "reason": job.reason if job.pending else "",
        "nodes": job.least_nodes if job.pending else len(job.nodes),
        "tasks": job.tasks,
        "submitted": job.submit,
        "start": None if job.pending else job.start,
    }
