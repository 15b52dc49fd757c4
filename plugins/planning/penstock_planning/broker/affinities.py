"""The affinities by name."""

from __future__ import annotations

from penstock_planning.extending import AFFINITIES
from penstock_planning.select.consumables import Metric
from penstock_planning.select.ranking import Affinity

__all__ = ["affinity_named"]


def affinity_named(name: str) -> Affinity:
    """The affinity of that name. Raises UserError, or ConfigError when its extension is broken."""
    made: Affinity = AFFINITIES.make(name)
    try:
        Metric(made.metric)
    except (AttributeError, ValueError) as e:
        raise AFFINITIES.broken(name, e) from e
    return made
