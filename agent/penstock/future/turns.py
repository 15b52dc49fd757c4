"""Whether Slurm has had its turn: what it says of a job counts once it has looked at the job and at all idle nodes.

Nodes that became free a moment ago belong to the queue, and right after an end Slurm's estimated starts are still those
of before. A round of its scheduler later (`turn_of`) both can be believed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.api import Job, Snapshot
from penstock.future.cluster import WAITS_FOR_NODES

__all__ = ["Turns", "believed", "grant_of", "partitions_of", "turn_of"]


def turn_of(parameters: Collection[str]) -> float:
    """Seconds after which Slurm has looked at all that there was, by the site's SchedulerParameters.

    A round of backfill may be under way; then comes bf_interval, then another round. A round takes bf_max_time at most,
    which is bf_interval where it is not set. The other scheduler looks every sched_interval.
    """
    values = _named(parameters)
    interval = _seconds(values, "bf_interval", 30.0)
    backfill = interval + 2 * _seconds(values, "bf_max_time", interval)
    return max(backfill, _seconds(values, "sched_interval", 60.0))


def grant_of(parameters: Collection[str]) -> float:
    """Seconds by which the end of a job that comes last moves while it waits for the next round of backfill, and
    because backfill reckons in steps of bf_resolution."""
    values = _named(parameters)
    return _seconds(values, "bf_interval", 30.0) + _seconds(values, "bf_resolution", 60.0)


def _named(parameters: Collection[str]) -> Mapping[str, str]:
    return dict(text.split("=", 1) for text in parameters if "=" in text)


def _seconds(values: Mapping[str, str], name: str, default: float) -> float:
    try:
        return max(float(values[name]), 0.0)
    except (KeyError, ValueError):
        return default


class Turns:
    """Who has been looked at by Slurm in this picture, if that takes it `turn` seconds."""

    def __init__(self, snapshot: Snapshot, turn: float) -> None:
        self._snapshot = snapshot
        self._turn = turn
        self._settled: dict[str, bool] = {}

    def passed_over(self, job: Job) -> bool:
        """Whether Slurm has seen a waiting job together with all nodes that are idle for it, and left it waiting."""
        if job.eligible is None or self._recent(max(job.submit, job.eligible)):
            return False
        return all(self._all_seen(name) for name in partitions_of(job, self._snapshot))

    def believed(self) -> Snapshot:
        """The picture without the estimated starts that are older than the idleness of nodes.

        Right after an end Slurm's estimates are still those of before: a job seems to wait for something else than the
        nodes that were freed for it.
        """
        waiting = (j for j in self._snapshot.pending() if j.start is not None and j.reason in WAITS_FOR_NODES)
        if not (old := {j.id: replace(j, start=None) for j in waiting if not self.passed_over(j)}):
            return self._snapshot
        return replace(self._snapshot, jobs={**self._snapshot.jobs, **old})

    def _recent(self, instant: float) -> bool:
        return self._snapshot.taken_at - instant < self._turn

    def _all_seen(self, partition: str) -> bool:
        if partition not in self._settled:
            idle = [self._snapshot.nodes[n].idle_since for n in self._snapshot.idle_nodes(partition)]
            self._settled[partition] = all(since is not None and not self._recent(since) for since in idle)
        return self._settled[partition]


def partitions_of(job: Job, snapshot: Snapshot) -> list[str]:
    """The partitions in which a job waits, as far as they are there."""
    return [name for name in job.partition.split(",") if name in snapshot.partitions]


def believed(snapshot: Snapshot, parameters: Collection[str] = ()) -> Snapshot:
    """The picture without estimates that are too old, by the site's SchedulerParameters (or Slurm's defaults)."""
    return Turns(snapshot, turn_of(parameters)).believed()
