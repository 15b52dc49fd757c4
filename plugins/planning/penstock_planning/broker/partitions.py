"""Partitions of real clusters as resources: what their nodes offer, by Slurm and the site file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.api import Node, Partition, Reservation, SiteConfig
from penstock.values.gres import Gres, node_gres
from penstock_planning.broker.site import NodeFacts, SiteFile
from penstock_planning.plan.transfers import NetworkLink
from penstock_planning.select.consumables import ISAS, Capability, Consumable, Resource

__all__ = ["Candidate", "Rig", "candidates", "gpus_in"]

_MB: Final = 2.0**20
_UNSAID: Final = 1e18
"""Bytes of memory of nodes of which the site says none: no limit."""


@dataclass(frozen=True, slots=True)
class Rig:
    """What each node of a candidate has at least: CPUs, bytes of memory (None: not said), GPUs by model ("": any)."""

    cpus: int
    memory: float | None
    gpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Nodes of one kind in a partition of a cluster. `constraint` tells them from the partition's others ("" if there
    are none). `notes` is what was taken for want of better. `preempted` is how often a running job is preempted in an
    hour, `link` the way on which input comes, by the site file (None: it is there)."""

    resource: Resource
    cluster: str
    partition: Partition
    nodes: frozenset[str]
    usable: frozenset[str]
    rig: Rig
    whole: bool
    max_array: int
    constraint: str = ""
    notes: tuple[str, ...] = ()
    billing: Mapping[str, float] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    preempted: float | None = None
    link: NetworkLink | None = None

    @property
    def name(self) -> str:
        """The resource's."""
        return self.resource.name


@dataclass(frozen=True, slots=True)
class _Alike:
    """The nodes of one kind in a partition, and what the candidate of them is called and told apart by."""

    name: str
    constraint: str
    nodes: Sequence[Node]


def candidates(
    site: SiteConfig,
    partitions: Sequence[Partition],
    nodes: Mapping[str, Node],
    reservations: Iterable[Reservation],
    known: SiteFile,
    *,
    clock: str = "base",
    fallback: float | None = None,
) -> list[Candidate]:
    """A candidate per partition and kind of nodes, called `cluster/partition` or `cluster/partition:kind`. Nodes are of
    one kind that have the same features and models of GPUs.

    `clock` is which of the two clocks counts; `fallback` (Hz) that of nodes of which nobody says one.
    """
    kept = _kept_for_ever(reservations)
    found = []
    for partition in partitions:
        groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Node]] = {}
        for name in partition.nodes:
            if name in nodes:
                groups.setdefault(_kind(nodes[name]), []).append(nodes[name])
        common = set.intersection(*(set(features) for features, _ in groups)) if groups else set()
        for (features, models), group in groups.items():
            own = "&".join(f for f in features if f not in common)
            name = f"{site.cluster}/{partition.name}"
            if len(groups) > 1:
                twins = [other for same, other in groups if same == features]
                kind = [own] if own else []
                kind += [model for model in models if len(twins) > 1]
                name += f":{'&'.join(kind) or 'plain'}"
            facts = known.of(site.cluster, partition.name, (*features, *models))
            link = known.links.get(site.cluster)
            alike = _Alike(name, own, group)
            found.append(_candidate(site, partition, alike, facts, kept, link, clock=clock, fallback=fallback))
    return found


def _kind(node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its features and its models of GPUs, ascending."""
    return tuple(sorted(node.features)), tuple(sorted(filter(None, gpus_in(node_gres(node.gres)))))


def _kept_for_ever(reservations: Iterable[Reservation]) -> frozenset[str]:
    """Nodes that a reservation without an end keeps."""
    return frozenset(node for r in reservations if r.active and r.end == float("inf") for node in r.nodes)


def _candidate(
    site: SiteConfig,
    partition: Partition,
    alike: _Alike,
    facts: NodeFacts,
    kept: Collection[str],
    link: NetworkLink | None,
    *,
    clock: str,
    fallback: float | None,
) -> Candidate:
    group = alike.nodes
    rig = Rig(
        min(min(n.cpus for n in group), partition.max_cpus_per_node or 10**9),
        None if any(n.memory is None for n in group) else _MB * min(n.memory or 0.0 for n in group),
        _common_gpus([gpus_in(node_gres(n.gres)) for n in group]),
    )
    rate = facts.base if clock == "base" else facts.max or facts.base
    notes = []
    if rate is None and fallback is not None:
        rate = fallback
        notes.append(f"its clock is not known: counted with {rate / 1e9:.2f} GHz")
    form = dict(facts.form)
    archs = {n.arch for n in group}
    if "isa" not in form and len(archs) == 1 and "" not in archs:
        form["isa"] = list(ISAS.get(min(archs), [min(archs)]))
    offers = []
    if rate is not None:
        offers.append(Capability(Consumable.of("compute", form), rate))
    offers.append(Capability(Consumable.of("memory"), capacity=rig.memory or _UNSAID))
    for model, count in rig.gpus.items():
        offers.append(Capability(Consumable.of("gpu", {"model": model} if model else {}), capacity=float(count)))
    own = {(cap.consumable.type, cap.held) for cap in facts.capabilities}
    offers = [*(o for o in offers if (o.consumable.type, o.held) not in own), *facts.capabilities]
    charge = facts.charge
    if charge is None:
        charge = _charge(partition.billing, rig)
    whole = partition.exclusive or site.select_type == "select/linear"
    return Candidate(
        Resource(alike.name, tuple(offers), charge, facts.watts, facts.correction),
        site.cluster,
        partition,
        frozenset(n.name for n in group),
        frozenset(n.name for n in group if n.usable and n.name not in kept),
        rig,
        whole,
        site.max_array,
        alike.constraint,
        tuple(notes),
        dict(partition.billing),
        frozenset(group[0].features),
        facts.preempted,
        link,
    )


def _charge(billing: Mapping[str, float], rig: Rig) -> float:
    """Service units a core-hour, by the billing weights of a full node; one without any, as Slurm itself counts."""
    weights = {name.lower(): weight for name, weight in billing.items()}
    if not weights:
        return 1.0
    total = weights.get("cpu", 0.0) * rig.cpus + weights.get("mem", 0.0) * (rig.memory or 0.0) / 2**30
    gpus = sum(rig.gpus.values())
    total += weights.get("gres/gpu", 0.0) * gpus + weights.get("node", 0.0)
    return total / rig.cpus


def gpus_in(items: Iterable[Gres]) -> dict[str, int]:
    """GPUs by model: "gpu:a100:4(S:0-1),gpu:2" -> {"a100": 4, "": 2}."""
    found: dict[str, int] = {}
    for item in items:
        if item.name == "gpu":
            found[item.type] = found.get(item.type, 0) + item.number
    return found


def _common_gpus(each: Sequence[dict[str, int]]) -> dict[str, int]:
    models = set.intersection(*(set(one) for one in each)) if each else set()
    return {model: min(one[model] for one in each) for model in sorted(models)}
