"""The order of an owner's own jobs in the queue, where an administrator has chosen a policy that ranks them.

A job that stands before another one of the same owner with a lower rank is put back behind the last of those, by a
nice value: what the owner could do, too, and no more. Nobody is put ahead of the place that Slurm gives, so nobody
else waits longer for it.

What stands between them counts. A job is not put behind another owner's, nor behind one that has no rank: those would
gain by it, and its owner less than it loses. So it is put back as far as such a job, and no further. Where all who wait
are ranked and one owner's, there is a margin, so that a job needs to be put back once only, although shorter ones come
after. A job that is put back is not put back again. Whoever is killed in between leaves jobs in another order, and
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
    lines: dict[str, list[Job]] = {}
    for job in sorted(snapshot.pending(), key=lambda job: (-job.priority, job.id)):
        lines.setdefault(job.partition, []).append(job)
    found = []
    for line in lines.values():
        alone = len({job.uid for job in line}) == 1 and all(job.id in ranks for job in line)
        for place, job in enumerate(line):
            if job.id not in ranks or job.held:
                continue
            last: Job | None = None
            for other in line[place + 1 :]:
                if other.uid != job.uid or other.id not in ranks:
                    break
                if ranks[other.id] < ranks[job.id]:
                    last = other
            if last is not None:
                found.append(PutBack(job, job.priority - last.priority + (_MARGIN if alone else 1), last))
    return found
