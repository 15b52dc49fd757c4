"""Short ways to make what a policy is shown, for its tests: a job and a look at a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from penstock.api import Job, JobState, Node, Partition, Snapshot

__all__ = ["NODES", "make_job", "make_snapshot"]

NODES: Final = tuple(f"n{i}" for i in range(1, 9))
"""The names of the nodes of the cluster that `make_snapshot` makes where it is given none: "n1" to "n8"."""


def make_job(number: int, *nodes: str, **changes: object) -> Job:
    """A job of alice's in the partition batch, submitted at 0, with a time limit of an hour: one that runs on these
    nodes since 0, or a pending one of one node when there are none. `changes` are fields of `Job` with other values, in
    its units; TypeError for what is no field."""
    job = Job(
        id=number,
        uid=1000,
        user="alice",
        account="science",
        partition="batch",
        qos="normal",
        state=JobState.RUNNING if nodes else JobState.PENDING,
        reason="None" if nodes else "Resources",
        submit=0.0,
        eligible=0.0,
        start=0.0 if nodes else None,
        end=3600.0 if nodes else None,
        time_limit=3600.0,
        num_nodes=max(1, len(nodes)),
        num_cpus=max(1, len(nodes)),
        nodes=nodes,
        priority=100,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def make_snapshot(
    jobs: Iterable[Job] = (), at: float = 0.0, down: Iterable[str] = (), nodes: Sequence[str] = NODES
) -> Snapshot:
    """A look, `at` seconds since the epoch, at a cluster of these nodes of two cores, all in the partition batch, with
    these jobs; those that are `down` cannot be used."""
    broken = set(down)
    return Snapshot(
        taken_at=at,
        jobs={j.id: j for j in jobs},
        nodes={n: Node(n, "DOWN" if n in broken else "IDLE", 2, n not in broken, ("batch",)) for n in nodes},
        partitions={"batch": Partition("batch", tuple(nodes), True, True, None, 600.0, None)},
    )
