"""What of all resources suits a bag: they are ranked, and its jobs are divided among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock_planning.broker.assess import Assessed
from penstock_planning.broker.bags import BagRun
from penstock_planning.broker.partitions import Candidate
from penstock_planning.broker.tasks import Bag
from penstock_planning.extending import AFFINITIES
from penstock_planning.select.consumables import Metric, Resource
from penstock_planning.select.matchmaking import offered_nowhere
from penstock_planning.select.ranking import Affinity, RankedRow, Sooner, Wait, rank
from penstock_planning.select.spread import Lane, ends, spread

__all__ = ["Choice", "Preference", "choose", "choose_offered", "lanes_of"]


@dataclass(frozen=True, slots=True)
class Preference:
    """By what resources are ranked: their affinity, and the quantile (0 to 1) of the wait; None: the expected one.
    `alone`: the best gets all tasks. `name` is the affinity's."""

    affinity: Affinity = field(default_factory=Sooner)
    quantile: float | None = None
    alone: bool = False
    name: str = "ttc"

    @classmethod
    def named(cls, name: str, quantile: float | None = None, *, alone: bool = False) -> Preference:
        """By the affinity of that name. Raises UserError, or ConfigError when its extension is broken."""
        affinity: Affinity = AFFINITIES.make(name)
        try:
            Metric(affinity.metric)
        except (AttributeError, ValueError) as e:
            raise AFFINITIES.broken(name, e) from e
        return cls(affinity, quantile, alone, name)

    @classmethod
    def kept(cls, settings: Mapping[str, Any]) -> Preference:
        """By what a bag was sent, from its settings. Raises as `named`."""
        alone = settings.get("alone")
        return cls.named(alone or "ttc", settings.get("quantile"), alone=bool(alone))

    @property
    def settings(self) -> dict[str, Any]:
        """The part of it that a bag's passes go on with."""
        return {"quantile": self.quantile, "alone": self.name if self.alone else None}


@dataclass(frozen=True, slots=True)
class Choice:
    """The resources for a bag: `rows`, best first, and those of them that are viable, in the order in which they are
    explained. `nowhere` says what no resource offers, where that is why none is viable.

    Of Slurm's partitions also what was `assessed`, by name; how many jobs go to each, and when the last of them ends
    (s from now); and the bag as it was `sent` there.
    """

    bag: Bag
    rows: Sequence[RankedRow]
    viable: Sequence[Resource]
    nowhere: str | None = None
    assessed: Mapping[str, Assessed] = field(default_factory=dict)
    jobs: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, float] = field(default_factory=dict)
    sent: BagRun | None = None


def choose_offered(bag: Bag, offered: Sequence[Resource], waits: Mapping[str, Wait], by: Preference) -> Choice:
    """Among resources of which no more is known than what they offer, and how long (s) one waits for them."""
    rows = rank(bag.task, offered, waits, affinity=by.affinity, quantile=by.quantile)
    by_name = {resource.name: resource for resource in offered}
    viable = [by_name[row.resource] for row in rows if row.viable]
    return Choice(bag, rows, viable, None if viable else offered_nowhere(bag.task, offered))


def choose(bag: Bag, count: int, assessed: Sequence[Assessed], by: Preference) -> Choice:
    """Among Slurm's partitions, for `count` tasks: their jobs are spread so that the last is done first. They go
    nowhere where none is viable, or `alone` and of none is known what counts."""
    offered, lanes = [a.candidate.resource for a in assessed], lanes_of(assessed, by.quantile)
    rows = rank(
        bag.task,
        offered,
        {a.candidate.name: a.wait for a in assessed},
        more={a.candidate.name: a.rework + a.shape.fetch for a in assessed},
        excluded={a.candidate.name: a.why for a in assessed if a.why is not None},
        affinity=by.affinity,
        quantile=by.quantile,
    )
    viable = [a.candidate.resource for a in assessed if a.why is None]
    if by.alone:
        first = next((row.resource for row in rows if row.viable and row.cost is not None), None)
        lanes = [lane for lane in lanes if lane.name == first]
    jobs = spread(count, lanes) if lanes else {}
    done = ends(jobs, lanes_of(assessed))
    nowhere = None if viable else offered_nowhere(bag.task, offered)
    return Choice(bag, rows, viable, nowhere, {a.candidate.name: a for a in assessed}, jobs, done)


def lanes_of(assessed: Sequence[Assessed], quantile: float | None = None) -> list[Lane]:
    """The viable candidates as lanes; with a quantile, as late as they may be with that probability."""
    viable = [a for a in assessed if a.why is None]
    return [
        replace(
            a.lane,
            starts=a.fed(a.starts if quantile is None else a.starts_at(quantile)),
            shared=_shared(a.candidate, [other.candidate for other in viable]),
        )
        for a in viable
    ]


def _shared(one: Candidate, all_: Sequence[Candidate]) -> dict[str, float]:
    """The part of its nodes that others have as well."""
    common = {
        other.name: len(one.usable & other.usable)
        for other in all_
        if other.cluster == one.cluster and other.name != one.name
    }
    return {name: number / len(one.usable) for name, number in common.items() if number}
