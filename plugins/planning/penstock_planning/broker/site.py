"""The site file: what Slurm does not know of its nodes, above all their clocks.

    defaults: {isa: x86, base: 2.4 GHz}         # of every node
    features:                                   # of nodes with this feature
      skylake: {simd: [sse4.1, avx2, avx512], base: 2.4 GHz, max: 3.7 GHz, watts: 9}
    partitions:                                 # `batch` of every cluster, `far/batch` of one
      far/batch: {base: 2.8 GHz, charge: 0.8, correction: 1.22}
    clusters:                                   # the way from where input of tasks lies; none: it is there
      far: {bandwidth: 100 MB/s, latency: 2s}

The later ones win. `base` and `max` are clocks; `charge` is service units a core-hour where the billing weights do not
say, `watts` the power of a busy core; `preempted` is how often a job that runs there is preempted in an hour, in the
mean; `capabilities` are further ones, as in a resource file; every other key is an
attribute of the form of `compute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from penstock.errors import UserError
from penstock.values.models import Bandwidth, Entry, Latency, Name, Rate, number, read_as
from penstock_planning.broker.consumables import CapabilityEntry
from penstock_planning.broker.files import read
from penstock_planning.plan.transfers import NetworkLink
from penstock_planning.select.consumables import Capability, Consumable

__all__ = ["LinkEntry", "NodeFacts", "SiteFile", "read_site"]

Raw = bool | float | str | list[Any]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of the nodes of a resource; clocks in Hz, None where nobody says."""

    base: float | None = None
    max: float | None = None
    charge: float | None = None
    watts: float | None = None
    correction: float = 1.0
    preempted: float | None = None
    form: Mapping[str, Raw] = field(default_factory=dict)
    capabilities: tuple[Capability, ...] = ()

    def under(self, later: NodeFacts) -> NodeFacts:
        """Both, where the later one wins."""

        def one(name: str) -> Any:  # noqa: ANN401
            own = getattr(later, name)
            return getattr(self, name) if own is None else own

        offered = {cap.consumable for cap in later.capabilities}
        return NodeFacts(
            one("base"),
            one("max"),
            one("charge"),
            one("watts"),
            self.correction if later.correction == 1.0 else later.correction,
            one("preempted"),
            {**self.form, **later.form},
            (*(cap for cap in self.capabilities if cap.consumable not in offered), *later.capabilities),
        )


@dataclass(frozen=True, slots=True)
class SiteFile:
    """The file; an empty one where there is none."""

    defaults: NodeFacts = NodeFacts()
    features: Mapping[str, NodeFacts] = field(default_factory=dict)
    partitions: Mapping[str, NodeFacts] = field(default_factory=dict)
    links: Mapping[str, NetworkLink] = field(default_factory=dict)
    """By cluster."""

    def of(self, cluster: str, partition: str, features: Iterable[str]) -> NodeFacts:
        """What it says of nodes with these features in a partition of a cluster."""
        facts = self.defaults
        for feature in features:
            facts = facts.under(self.features.get(feature, NodeFacts()))
        for name in (partition, f"{cluster}/{partition}"):
            facts = facts.under(self.partitions.get(name, NodeFacts()))
        return facts


def read_site(path: Path) -> SiteFile:
    """The site file. UserError names the place of what is wrong in it."""
    document = read(path, "site file")
    try:
        said = read_as(_Site, document)
        features, partitions = (
            {str(name): _facts(one, f"{key}.{name}") for name, one in getattr(said, key).items()}
            for key in ("features", "partitions")
        )
        links = {name: one.made for name, one in said.clusters.items()}
        return SiteFile(_facts(said.defaults, "defaults"), features, partitions, links)
    except UserError as e:
        raise UserError(f"{path}: {e}") from None


class LinkEntry(Entry):
    """How fast data come, in a file."""

    bandwidth: Bandwidth
    latency: Latency = 0.0

    @property
    def made(self) -> NetworkLink:
        """As plans know it."""
        return NetworkLink(self.bandwidth, self.latency)


class _Site(Entry):
    defaults: dict[Any, Any] = Field(default_factory=dict)
    features: dict[Any, dict[Any, Any]] = Field(default_factory=dict)
    partitions: dict[Any, dict[Any, Any]] = Field(default_factory=dict)
    clusters: dict[Name, LinkEntry] = Field(default_factory=dict)


class _Own(Entry):
    base: Rate | None = None
    max: Rate | None = None
    charge: Annotated[float, number()] | None = None
    watts: Annotated[float, number()] | None = None
    correction: Annotated[float, number(above=True)] = 1.0
    preempted: Annotated[float, number()] | None = None
    capabilities: list[CapabilityEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.base is not None and self.max is not None and self.base > self.max:
            raise ValueError("the base clock is above the maximum")
        return self


def _facts(value: dict[Any, Any], where: str) -> NodeFacts:
    data = {str(key): one for key, one in value.items() if one is not None}
    said = read_as(_Own, {key: one for key, one in data.items() if key in _Own.model_fields}, where)
    form = {key: one for key, one in data.items() if key not in _Own.model_fields}
    try:
        Consumable.of("compute", form)
    except (ValueError, TypeError, AttributeError) as e:
        raise UserError(f"{where}: {e}") from None
    more = tuple(one.made for one in said.capabilities)
    return NodeFacts(said.base, said.max, said.charge, said.watts, said.correction, said.preempted, form, more)
