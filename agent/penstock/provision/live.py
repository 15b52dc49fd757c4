"""A snapshot of a cluster as something to plan on: who holds which node until when, and who waits for what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.api import Job, Node, Partition, Reservation, Snapshot
from penstock.errors import Infeasible, UserError
from penstock.future.bits import NodeBits
from penstock.future.plan import Claim, Policy, Queue, Waiting
from penstock.provision.pricing import Pricing
from penstock.provision.situation import Situation
from penstock.provision.slots import default_horizon

__all__ = ["Needs", "check_size", "from_snapshot", "gres_counts", "node_price", "partition_of"]

_OVERDUE: Final = 60.0
"""Seconds that a job is given that should have ended by its limit."""
_UNLIMITED: Final = 365 * 86400.0
_TASKS: Final = 1000  # of one array
_SHARED: Final = frozenset({"RESERVED", "MAINTENANCE", "IDLE", "ALLOCATED", "MIXED", "PLANNED", "COMPLETING", "CLOUD"})


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
        has = gres_counts(node.gres)
        return all(has.get(name, 0) >= count for name, count in gres_counts(self.gres).items())


def gres_counts(text: str) -> Mapping[str, int]:
    """How many of each: "gpu:a100:2(S:0-1),nvme:1" -> gpu 2, gpu:a100 2, nvme 1. UserError for what is none."""
    counts: dict[str, int] = {}
    depth, plain = 0, []
    for letter in text:  # what stands in brackets are sockets
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter != ")":
            plain.append(letter)
    for item in filter(None, "".join(plain).split(",")):
        *names, last = item.strip().split(":")
        number = last.upper().rstrip("KM")
        if not names:
            names, count = [last], 1
        elif number.isdigit():
            count = int(number) * {"K": 1024, "M": 1024**2}.get(last[-1:].upper(), 1)
        else:
            names, count = [*names, last], 1
        if len(names) > 2 or not all(names):
            raise UserError(f"--gres: must be such as gpu:2 or gpu:a100:2, not {text[:60]!r}")
        for name in dict.fromkeys((names[0], ":".join(names))):
            counts[name] = counts.get(name, 0) + count
    return counts


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
        raise Infeasible(f"{nodes} nodes can never be had in {partition.name}: at most {most} fit")
    if partition.max_time is not None and duration > partition.max_time:
        raise Infeasible(f"{partition.name} runs nothing for longer than {partition.max_time:g} s")


def node_price(partition: Partition, nodes: Iterable[Node]) -> float:
    """What a node costs a second, in billing hours: the mean over the nodes, by the partition's weights.

    A partition without weights counts CPUs.
    """
    weights = {name.lower(): weight for name, weight in partition.billing.items()} or {"cpu": 1.0}
    prices = []
    for node in nodes:
        gres = gres_counts(node.gres)
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
    names = tuple(sorted(snapshot.nodes))
    bits, now = NodeBits(names), snapshot.taken_at
    needs = needs or Needs()
    claims, notes = [], []
    active = {n for r in snapshot.reservations if r.active for n in r.nodes}
    down = [n for n in names if _is_down(snapshot.nodes[n], n in active)]
    if down:
        claims.append(Claim("down", bits.mask(down), now, math.inf))
        notes.append(f"{len(down)} nodes are down or drained, and count as lost for good: {', '.join(down[:8])}")
    claims += [taken for r in snapshot.reservations if (taken := _reserved(r, snapshot, bits, now)) is not None]
    shared = False
    held: dict[str, int] = {}
    for job in snapshot.jobs.values():
        if not job.state.holds_nodes:
            continue
        known = [n for n in job.nodes if n in snapshot.nodes]
        for name in known:
            shared = shared or name in held
            held[name] = job.id
        end = math.inf if job.end is None else max(job.end, now + _OVERDUE)
        claims.append(Claim(str(job.id), bits.mask(known), min(job.start or now, now), end))
    if shared:
        notes.append("jobs share nodes: a node counts as taken until the last of them ends")
    c = node_price(partition, [snapshot.nodes[n] for n in partition.nodes if n in snapshot.nodes])
    rules = pricing(c)
    cpus = [snapshot.nodes[n].cpus for n in partition.nodes if n in snapshot.nodes]
    per_cpu = c * len(cpus) / max(sum(cpus), 1)
    waiting, left_out = _waiting(snapshot, bits, rules, per_cpu)
    if left_out:
        notes.append(
            f"{left_out} pending jobs are not planned: held, put off, behind a dependency, or for a reservation"
        )
    within = [n for n in partition.nodes if n in snapshot.nodes and needs.met_by(snapshot.nodes[n])]
    if not within:
        raise Infeasible(f"no node of {partition.name} has what is asked for")
    queue = Queue(len(names), now, tuple(claims), tuple(waiting), policy)
    situation = Situation(queue, names, rules, within=bits.mask(within), notes=tuple(notes))
    return replace(situation, horizon=default_horizon(now, situation.plan().last_finish))


def _is_down(node: Node, reserved: bool) -> bool:
    """Whether it will not come back by itself; a reservation's end is known, so being in one is not that."""
    return not node.usable and not (reserved and set(node.state.split("+")) <= _SHARED)


def _reserved(reservation: Reservation, snapshot: Snapshot, bits: NodeBits, now: float) -> Claim | None:
    nodes = bits.mask(n for n in reservation.nodes if n in snapshot.nodes)
    if not nodes or reservation.end <= now:
        return None
    return Claim(f"reservation {reservation.name}", nodes, reservation.start, reservation.end)


def _waiting(snapshot: Snapshot, bits: NodeBits, pricing: Pricing, per_cpu: float) -> tuple[list[Waiting], int]:
    """The queue in its order, arrays as their tasks; how many pending jobs are not in it."""
    out, planned = [], 0
    masks: dict[str, tuple[int, float | None]] = {}
    for job in snapshot.pending():
        if job.reservation or job.put_off:
            continue
        within, longest = masks.get(job.partition, (0, None))
        if not within:
            within, longest = masks[job.partition] = _where(job, snapshot, bits)
        if not within:
            continue
        planned += 1
        duration = job.time_limit or longest or _UNLIMITED
        weight = pricing.weight(job.num_cpus, job.qos, job.account) * per_cpu
        for task in range(min(max(job.tasks, 1), _TASKS)):
            name = str(job.id) if job.tasks <= 1 else f"{job.id}_{task}"
            # One that asked for a later start takes nothing before that.
            after = job.eligible if job.eligible and job.eligible > snapshot.taken_at else -math.inf
            out.append(Waiting(name, max(job.num_nodes, 1), max(duration, 1.0), within, weight, after))
    pending = sum(1 for job in snapshot.jobs.values() if job.pending)
    return out, pending - planned


def _where(job: Job, snapshot: Snapshot, bits: NodeBits) -> tuple[int, float | None]:
    """The nodes of its partitions, and the longest limit of any of them."""
    mask, longest = 0, 0.0
    for name in job.partition.split(","):
        partition = snapshot.partitions.get(name)
        if partition is not None and partition.up:
            mask |= bits.mask(n for n in partition.nodes if n in snapshot.nodes)
            longest = max(longest, partition.max_time or _UNLIMITED)
    return mask, longest or None
