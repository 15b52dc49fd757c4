"""On how many nodes a job ends first, as Slurm's queue stands. Pure.

Who waits is planned in Slurm's order, as for those who grow (`future.leftover`). At its turn a moldable job is tried
with each of its shapes, where nobody before it is moved; the one with the earliest end counts, and of those that end as
soon the one with the fewest node-seconds. Ends are by time limits: real run times are shorter, but those of the others
as well.

What it waits with now is kept unless another shape gains more than `_LEAST` seconds and `_SHARE` of the time to its
end: else it would change with every look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import Job
from penstock.future.bits import BitProfile
from penstock.future.cluster import TASKS, WAITS_FOR_NODES, Cluster, QueueEntry
from penstock.future.leftover import LONGEST
from penstock.future.profile import place
from penstock.resize.waiting.model import MoldableJob, MoldShape

__all__ = ["DELAY", "PUT_BACK", "RESTART", "MoldChoice", "choose", "choose_new", "choose_restart"]

PUT_BACK: Final = "BeginTime"
"""Slurm's reason of a job that was put back a moment ago."""
DELAY: Final = 121.0
"""Seconds for which Slurm keeps a job that was put back from starting (the life of a credential, by default)."""
RESTART: Final = 120.0
"""Seconds that a program may take to start again and read its checkpoint."""
_LEAST: Final = 30.0
_SHARE: Final = 0.05
_SHARE_RESTART: Final = 0.25


@dataclass(frozen=True, slots=True)
class MoldChoice:
    """A shape, when the job is then planned to start and to end; `instead` is when it would end as it is, infinite
    where that is not known."""

    shape: MoldShape
    start: float
    end: float
    instead: float = math.inf


def choose(cluster: Cluster, jobs: Mapping[int, MoldableJob]) -> dict[int, MoldChoice]:
    """The shapes that jobs are to wait with from now on, of those that are to change theirs."""
    profile, now = cluster.free(), cluster.now
    found: dict[int, MoldChoice] = {}
    for entry in cluster.queue(places=LONGEST, tasks=TASKS):
        me = jobs.get(entry.job.id)
        waits = entry.job.reason in WAITS_FOR_NODES or entry.job.reason == PUT_BACK
        if me is None or not waits or entry.job.id in found:
            place(profile, entry.ask, now)
            continue
        kept, best = _kept_and_best(cluster, profile, entry, me)
        chosen = kept if best is None else best
        if chosen is not None:
            place(profile, entry._replace(nodes=chosen.shape.nodes, duration=chosen.shape.limit).ask, now)
        if best is not None:
            found[entry.job.id] = best
    return found


def choose_new(cluster: Cluster, partition: str, shapes: Sequence[MoldShape]) -> MoldChoice | None:
    """For a job that is submitted now, behind all who wait; None: nothing can be said."""
    known = cluster.snapshot.partitions
    names = [n for n in partition.split(",") if n in known] or [p.name for p in known.values() if p.default]
    profile = _planned(cluster, cluster.free())
    return _first(
        _placed(profile, shape, cluster.now, cluster.nodes_of(*names))
        for shape in shapes
        if _allowed(cluster, names, shape)
    )


def choose_restart(cluster: Cluster, job: Job, me: MoldableJob, gain: float) -> MoldChoice | None:
    """For a running job that would be stopped now and wait behind all others, with its own nodes free again; None: it
    does not pay: it ends by less than `gain` seconds sooner. `end` is when what is left of its work would be done."""
    here = me.shape(len(job.nodes))
    if here is None or job.start is None:
        return None
    now = cluster.now
    left = me.left(job, now)
    names = job.partition.split(",")
    profile = _planned(cluster, cluster.free(without=[job.id]))
    within = cluster.nodes_of(*names)
    others = [s for s in me.open_shapes if s != here and _allowed(cluster, names, s)]
    best = _first(_placed(profile, shape, now + DELAY, within, left) for shape in others)
    remaining = left * here.limit
    if best is None:
        return None
    best = MoldChoice(best.shape, best.start, best.end + RESTART, now + remaining)
    return best if best.instead - best.end > max(gain, _SHARE_RESTART * remaining) else None


def _kept_and_best(
    cluster: Cluster, profile: BitProfile, entry: QueueEntry, me: MoldableJob
) -> tuple[MoldChoice | None, MoldChoice | None]:
    """What it waits with, where that can start at all; and what it is to wait with from now on, None: the same."""
    job, after = entry.job, max(cluster.now, entry.after)
    nodes = me.asked if job.restarts and me.asked is not None else entry.nodes
    asked = MoldShape(nodes, entry.duration)
    left = 1.0 - me.done
    kept = _placed(profile, asked, after, entry.within, left)
    shapes = [s for s in me.open_shapes if _allowed(cluster, job.partition.split(","), s)]
    best = _first(_placed(profile, shape, after, entry.within, left) for shape in shapes)
    if best is None or best.shape == asked:
        return kept, None
    if kept is not None:
        if asked in shapes and kept.end - best.end <= max(_LEAST, _SHARE * (kept.end - cluster.now)):
            return kept, None
        best = MoldChoice(best.shape, best.start, best.end, kept.end)
    return kept, best


def _planned(cluster: Cluster, profile: BitProfile) -> BitProfile:
    """What is free when all who wait have been given their places."""
    for entry in cluster.queue(places=LONGEST, tasks=TASKS):
        place(profile, entry.ask, cluster.now)
    return profile


def _placed(profile: BitProfile, shape: MoldShape, after: float, within: int, left: float = 1.0) -> MoldChoice | None:
    found = profile.earliest(shape.nodes, shape.limit, after, within)
    return None if found is None else MoldChoice(shape, found[0], found[0] + left * shape.limit)


def _first(options: Iterable[MoldChoice | None]) -> MoldChoice | None:
    """The one that ends first."""
    known = (option for option in options if option is not None)
    return min(known, key=lambda o: (o.end, o.shape.nodes * o.shape.limit), default=None)


def _allowed(cluster: Cluster, partitions: Sequence[str], shape: MoldShape) -> bool:
    """Whether the partitions let a job have this shape."""
    known = cluster.snapshot.partitions
    return all(
        p.min_nodes <= shape.nodes <= (math.inf if p.max_nodes is None else p.max_nodes)
        and shape.limit <= (math.inf if p.max_time is None else p.max_time)
        for p in (known[name] for name in partitions if name in known)
    )
