"""The picture of a cluster as a queue with prices: what slots, quotes and plans of workflows are made on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from penstock.api import Job, Node, Partition, Snapshot, plural
from penstock.errors import Infeasible, UserError
from penstock.future.partition import queue_for
from penstock.future.plan import Policy
from penstock.values.gres import Gres, asked_gres, counts, node_gres
from penstock_planning.plan.pricing import Pricing
from penstock_planning.plan.situation import Situation
from penstock_planning.plan.slots import default_horizon

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
    """The cluster as it is planned (see `queue_for`), with its prices.

    These are in the site's billing unit, by the hour; `pricing` makes the rules from what a node costs for a second.
    The horizon is the larger of 48 hours and five minutes past the last finish.
    """
    needs = needs or Needs()
    c = node_price(partition, [snapshot.nodes[n] for n in partition.nodes if n in snapshot.nodes])
    rules = pricing(c)
    cpus = [snapshot.nodes[n].cpus for n in partition.nodes if n in snapshot.nodes]
    per_cpu = c * len(cpus) / max(sum(cpus), 1)

    def weight(job: Job) -> float:
        return rules.weight(job.num_cpus, job.qos, job.account) * per_cpu

    known = queue_for(snapshot, partition, needs.met_by, weight, policy)
    situation = Situation(known.queue, known.names, rules, within=known.within, notes=known.notes)
    return replace(situation, horizon=default_horizon(known.queue.now, situation.plan().last_finish))
