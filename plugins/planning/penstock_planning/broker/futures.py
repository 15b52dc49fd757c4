"""When jobs of a bag would start on a candidate in futures of its queue that are drawn from its past (`future.draws`).

A plan by time limits (`starts.planned`) has everybody run as long as they may. Users ask for several times what they
need, so it is late by as much, and then slow nodes that are free at once look better than fast ones that soon are.
Shorter jobs put into the same plan are wrong, too: the scheduler goes by limits, so what fits beside its reservations
and what does not is another. A replay has both: it decides by limits, and jobs end when they are done. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from penstock.api import Snapshot
from penstock.core.pace import at_once
from penstock.future.bands import drawn_starts, queue_starts
from penstock.future.cluster import Cluster
from penstock.future.draws import Drawing
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.present import Present
from penstock.future.replay import HORIZON, OwnJob
from penstock_planning.broker.partitions import Candidate
from penstock_planning.broker.starts import Starts

__all__ = ["foreseen"]

_FUTURES: Final = 9
"""Drawn at each look: medians of so many choose as well as those of more, and every pass over a bag asks anew."""
_WORK: Final = 500_000
"""What one candidate may take, in units of some two microseconds. In deeper queues the plan by limits stands."""
_MOST: Final = 5000
"""Tasks in the queue that are looked at."""


def foreseen(
    snapshot: Snapshot,
    candidate: Candidate,
    job: OwnJob,
    count: int,
    past: QueuePast,
    own: Collection[int] = (),
) -> Starts | None:
    """The same as `starts.planned` for `count` further jobs like `job`, in the median of nine futures; `own` are the
    ids of jobs (of arrays: the array's) that are the bag's, and run as long.

    None where nothing can be drawn: of too few jobs it is known how long they ran, jobs share nodes, the candidate is
    but a part of its partition, one of its own is in the queue that lacks more than nodes, or the queue is too deep.
    """
    cluster = Cluster.of(snapshot)
    nodes = cluster.nodes_of(candidate.partition.name)
    if len(past.used) < ENOUGH or not candidate.whole or cluster.mask(candidate.nodes) != nodes:
        return None
    entries = list(cluster.queue(nodes, places=_MOST))
    mine = [place for place, entry in enumerate(entries) if entry.job.head in own]
    waiting = {j.id for j in snapshot.pending(candidate.partition.name) if j.head in own and not j.put_off}
    if not waiting <= cluster.by_job.keys():
        return None
    drawing = Drawing(Present.of(cluster, candidate.partition.name, _MOST), past, 0, dict.fromkeys(mine, job.run))
    jobs = [job] * count
    further = at_once(drawn_starts(drawing, lambda _draw: jobs, work=_WORK, futures=_FUTURES))
    theirs = at_once(queue_starts(drawing, mine, _WORK, _FUTURES)) if mine else []
    if not further or len(theirs) != len(mine):
        return None
    found: dict[int, list[float]] = {}
    waited: dict[int, float] = {}
    for place, starts in zip(mine, theirs, strict=True):
        entry = entries[place].job
        found.setdefault(entry.head, []).append(min(_middle(starts) - cluster.now, HORIZON))
        waited[entry.head] = cluster.now - entry.submit
    drawn = [[start - cluster.now for start in starts] for starts in further]
    medians = sorted(median for starts in drawn if (median := _middle(starts)) < math.inf)
    return Starts({job: sorted(starts) for job, starts in found.items()}, medians, waited, drawn[: len(medians)])


def _middle(ascending: Sequence[float]) -> float:
    return ascending[len(ascending) // 2]
