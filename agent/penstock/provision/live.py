"""The picture of a cluster as a queue with prices: what slots, quotes and plans of workflows are made on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from penstock.api import Node, Partition, Snapshot, plural
from penstock.errors import Infeasible, UserError
from penstock.future.cluster import YEAR, Cluster
from penstock.future.plan import Claim, ClusterQueue, PendingJob, Policy
from penstock.future.turns import believed
from penstock.provision.pricing import Pricing
from penstock.provision.situation import Situation
from penstock.provision.slots import default_horizon
from penstock.values.gres import Gres, asked_gres, counts, node_gres

__all__ = ["Needs", "check_size", "from_snapshot", "node_price", "partition_of"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What every node of a slot must have: cores, MB of memory, features (all of them), GRES as sbatch takes it."""

    cpus: int = 0
    memory: float = 0.0
    gres: str = ""
    features: frozenset[str] = frozenset()

    def met_by(self, node: Node) -> bool:
        """Whether a node has all that."""
        if node.cpus < self.cpus or (node.memory or 0.0) < self.memory or not self.features <= set(node.features):
            return False
        has = counts(node_gres(node.gres))
        return all(has.get(name, 0) >= count for name, count in counts(self._asked()).items())

    def _asked(self) -> list[Gres]:
        try:
            return asked_gres(self.gres)
        except ValueError as e:
            raise UserError(f"--gres: must be such as gpu:2, gpu:a100:2 or memory:4G, not {str(e)[:60]!r}") from None


def partition_of(snapshot: Snapshot, name: str | None) -> Partition:
    """The partition of that name, or the default one. UserError if there is none."""
    if name is not None:
        if name not in snapshot.partitions:
            raise UserError(f"-p: there is no partition {name!r} (partitions: {', '.join(snapshot.partitions)})")
        return snapshot.partitions[name]
    for partition in snapshot.partitions.values():
        if partition.default:
            return partition
    raise UserError(f"-p is missing: no partition is the default (partitions: {', '.join(snapshot.partitions)})")


def check_size(situation: Situation, partition: Partition, nodes: int, duration: float) -> None:
    """Raises Infeasible if no slot of this size can ever be had, with the limit."""
    fitting = (situation.within & situation.queue.everything).bit_count()
    most = min(fitting, partition.max_nodes or fitting)
    if nodes > most:
        raise Infeasible(f"{plural(nodes, 'node')} can never be had in {partition.name}: at most {most} fit")
    if partition.max_time is not None and duration > partition.max_time:
        raise Infeasible(f"partition {partition.name} runs nothing for longer than {partition.max_time:g} s")


def node_price(partition: Partition, nodes: Iterable[Node]) -> float:
    """What a node costs a second, in billing hours: the mean over the nodes, by the partition's weights.

    A partition without weights counts CPUs.
    """
    weights = {name.lower(): weight for name, weight in partition.billing.items()} or {"cpu": 1.0}
    prices = []
    for node in nodes:
        gres = counts(node_gres(node.gres.lower()))
        price = weights.get("cpu", 0.0) * node.cpus + weights.get("node", 0.0)
        price += weights.get("mem", 0.0) * (node.memory or 0.0) / 1024
        price += sum(gres.get(name[5:], 0) * weight for name, weight in weights.items() if name.startswith("gres/"))
        prices.append(price)
    return sum(prices) / len(prices) / 3600 if prices else 0.0


def from_snapshot(
    snapshot: Snapshot,
    partition: Partition,
    pricing: Callable[[float], Pricing],
    needs: Needs | None = None,
    policy: Policy = "conservative",
) -> Situation:
    """The cluster as it is planned: times are seconds since the epoch, bit i is the i-th node by name.

    A node is taken as a whole by whoever runs on any part of it. Running jobs last until their time limit, pending ones
    ask for theirs. Prices are in the site's billing unit, by the hour; `pricing` makes the rules from what a node costs
    for a second. The horizon is the larger of 48 hours and five minutes past the last finish.
    """
    cluster = Cluster.of(believed(snapshot))
    names, now = cluster.bits.names, cluster.now
    needs = needs or Needs()
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
    c = node_price(partition, [snapshot.nodes[n] for n in partition.nodes if n in snapshot.nodes])
    rules = pricing(c)
    cpus = [snapshot.nodes[n].cpus for n in partition.nodes if n in snapshot.nodes]
    per_cpu = c * len(cpus) / max(sum(cpus), 1)
    waiting = _waiting(cluster, rules, per_cpu)
    if left_out := cluster.left_out:
        notes.append(
            f"{plural(left_out, 'pending job')} left out of the plan: held, with a later begin time, over a limit, "
            "behind a dependency, or for a reservation"
        )
    within = [n for n in partition.nodes if n in snapshot.nodes and needs.met_by(snapshot.nodes[n])]
    if not within:
        raise Infeasible(f"no node of partition {partition.name} has what is requested")
    queue = ClusterQueue(len(names), now, tuple(claims), tuple(waiting), policy, cluster.planned)
    situation = Situation(queue, names, rules, within=cluster.mask(within), notes=tuple(notes))
    return replace(situation, horizon=default_horizon(now, situation.plan().last_finish))


def _waiting(cluster: Cluster, pricing: Pricing, per_cpu: float) -> Iterator[PendingJob]:
    """The queue in its order, arrays as their tasks."""
    tasks: Counter[int] = Counter()
    for entry in cluster.queue():
        job = entry.job
        name = str(job.id) if job.tasks <= 1 else f"{job.id}_{tasks[job.id]}"
        tasks[job.id] += 1
        weight = pricing.weight(job.num_cpus, job.qos, job.account) * per_cpu
        duration = min(entry.duration, YEAR)  # what the delay of one without any limit is counted for
        yield PendingJob(name, entry.nodes, duration, entry.within, weight, entry.after)
