"""The queue of a cluster as it is planned for who asks about the nodes of one partition. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.api import Job, Node, Partition, Snapshot, plural
from penstock.errors import Infeasible
from penstock.future.cluster import YEAR, Cluster
from penstock.future.plan import Claim, ClusterQueue, PendingJob, Policy
from penstock.future.turns import believed

__all__ = ["PartitionQueue", "queue_for"]


@dataclass(frozen=True, slots=True)
class PartitionQueue:
    """The queue with the names of its nodes (bit i is `names[i]`) and the nodes `within` that are asked about. `notes`
    say what the plan cannot take into account."""

    queue: ClusterQueue
    names: tuple[str, ...]
    within: int
    notes: tuple[str, ...]


def _any(_node: Node) -> bool:
    return True


def _nothing(_job: Job) -> float:
    return 0.0


def queue_for(
    snapshot: Snapshot,
    partition: Partition,
    suits: Callable[[Node], bool] = _any,
    weight: Callable[[Job], float] = _nothing,
    policy: Policy = "conservative",
) -> PartitionQueue:
    """The cluster as it is planned: times are seconds since the epoch, bit i is the i-th node by name.

    A node is taken as a whole by whoever runs on any part of it. Running jobs last until their time limit, pending ones
    ask for theirs. Asked about are the nodes of the partition that suit; Infeasible if there is none. `weight` is what
    a second of a job's delay costs.
    """
    cluster = Cluster.of(believed(snapshot))
    names, now = cluster.bits.names, cluster.now
    claims, notes = [], []
    down = sum(closed.nodes for closed in cluster.closed if not closed.name)
    if down:
        some = sorted(cluster.bits.named(down))
        notes.append(
            f"{plural(len(some), 'node')} down or drained, planned as if they stayed so: {', '.join(some[:8])}"
        )
    claims += [
        Claim(f"reservation {closed.name}" if closed.name else "down", closed.nodes, closed.start, closed.end)
        for closed in cluster.closed
    ]
    if cluster.clearing:
        claims.append(Claim("clearing", cluster.clearing, now, now + cluster.unknown.overdue))
    if cluster.waking:
        claims.append(Claim("waking", cluster.waking, now, now + snapshot.wakes_in))
        notes.append(cluster.waking_note)
    claims += [Claim(str(held.job.id), held.nodes, held.start, held.end) for held in cluster.held]
    if cluster.shared:
        notes.append("jobs share nodes: a node counts as taken until the last of them ends")
    waiting = _waiting(cluster, weight)
    if left_out := cluster.left_out:
        notes.append(
            f"{plural(left_out, 'pending job')} left out of the plan: held, with a later begin time, over a limit, "
            "behind a dependency, or for a reservation"
        )
    within = [n for n in partition.nodes if n in snapshot.nodes and suits(snapshot.nodes[n])]
    if not within:
        raise Infeasible(f"no node of partition {partition.name} has what is requested")
    queue = ClusterQueue(len(names), now, tuple(claims), tuple(waiting), policy, cluster.planned)
    return PartitionQueue(queue, names, cluster.mask(within), tuple(notes))


def _waiting(cluster: Cluster, weight: Callable[[Job], float]) -> Iterator[PendingJob]:
    """The queue in its order, arrays as their tasks."""
    tasks: Counter[int] = Counter()
    for entry in cluster.queue():
        job = entry.job
        name = str(job.id) if job.tasks <= 1 else f"{job.id}_{tasks[job.id]}"
        tasks[job.id] += 1
        duration = min(entry.duration, YEAR)  # what the delay of one without any limit is counted for
        yield PendingJob(name, entry.nodes, duration, entry.within, weight(job), entry.after)
