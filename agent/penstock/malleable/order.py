"""The order of an owner's own jobs in the queue, where an administrator has chosen a policy that ranks them.

A job that stands before another one of the same owner with a lower rank is put back behind the last of those, by a
nice value: what the owner could do, too, and no more. Nobody is put ahead of the place that Slurm gives, so nobody
else waits longer for it. The margin is there so that a job needs to be put back once only, although shorter ones come
after; a job that is put back is not put back again. Whoever is killed in between leaves jobs in another order, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.api import Job, Snapshot

__all__ = ["PutBack", "put_back"]

_MARGIN: Final = 1000
"""Points of priority. Under priority/basic each job that is submitted later has one less."""


class PutBack(NamedTuple):
    """A job, the nice value that puts it behind `behind`, and that one."""

    job: Job
    nice: int
    behind: Job


def put_back(snapshot: Snapshot, ranks: Mapping[int, int]) -> list[PutBack]:
    """Who is to be put back behind whom, first in line first."""
    pending = (job for number in ranks if (job := snapshot.jobs.get(number)) and job.pending and not job.held)
    line = sorted(pending, key=lambda job: (-job.priority, job.id))
    found = []
    for place, job in enumerate(line):
        shorter = [
            other
            for other in line[place + 1 :]
            if (other.uid, other.partition) == (job.uid, job.partition) and ranks[other.id] < ranks[job.id]
        ]
        if shorter:
            found.append(PutBack(job, job.priority - shorter[-1].priority + _MARGIN, shorter[-1]))
    return found
