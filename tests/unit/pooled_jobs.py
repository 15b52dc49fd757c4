"""Tasks that are jobs, for tests."""

from __future__ import annotations

from penstock_pool.model import PoolTask
from penstock_pool.terms import FIRST_JOB, AfterJob, ArrayPlace, JobTerms

__all__ = ["after", "array", "job"]


def job(name: str = "j", *, key: str = "", **terms: object) -> PoolTask:
    """One; the terms are those of `JobTerms`."""
    made = JobTerms(FIRST_JOB, name, "script", "environment", **terms)  # type: ignore[arg-type]
    return PoolTask(("run.sh",), name=key, retries=0, job=made, workdir="/home/a")


def after(kind: str, number: int, **more: object) -> AfterJob:
    """A condition on task `number` of the pool."""
    return AfterJob(kind, FIRST_JOB + number, **more)  # type: ignore[arg-type]


def array(count: int, most: int = 0, key: str = "k", **terms: object) -> list[PoolTask]:
    """Tasks 10, 12, 14 and so on of one array."""
    places = [ArrayPlace(i, 10 + 2 * i, 10, 8 + 2 * count, count, 2, most) for i in range(count)]
    return [job(key=f"{key}.{place.position}", array=place, **terms) for place in places]
