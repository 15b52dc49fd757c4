"""The affinities by name."""

from __future__ import annotations

from typing import Final

from penstock.core.extensions import ExtensionPoint
from penstock.errors import UserError
from penstock_planning.select.consumables import Metric
from penstock_planning.select.ranking import Affinity

__all__ = ["AFFINITIES", "affinity_named"]

AFFINITIES: Final = ExtensionPoint(
    "penstock.affinity",
    "affinity",
    "--metric",
    {
        "ttc": "penstock_planning.select.ranking:Sooner",
        "cost": "penstock_planning.select.ranking:Cheaper",
        "energy": "penstock_planning.select.ranking:Frugal",
    },
    UserError,
    "`penstock select --metric`",
)


def affinity_named(name: str) -> Affinity:
    """The affinity of that name. Raises UserError, or ConfigError when its extension is broken."""
    made: Affinity = AFFINITIES.make(name)
    try:
        Metric(made.metric)
    except (AttributeError, ValueError) as e:
        raise AFFINITIES.broken(name, e) from e
    return made
