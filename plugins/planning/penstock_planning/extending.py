"""Where planning can be extended: what a slot costs, and which resource suits a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.config import Config
from penstock.core.extensions import ExtensionPoint
from penstock.errors import UserError

if TYPE_CHECKING:
    from penstock_planning.plan.pricing import Pricing

__all__ = ["AFFINITIES", "PRICING", "pricing_rules"]

PRICING: Final = ExtensionPoint(
    "penstock.pricing",
    "pricing",
    "`provision.pricing`",
    {"paper": "penstock_planning.plan.pricing:PaperPricing"},
    protocols=("penstock_planning.plan.pricing:Pricing",),
)
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
    ("penstock_planning.select.ranking:Affinity",),
)


def pricing_rules(config: Config) -> Callable[[float], Pricing]:
    """The site's rules, made from what a node costs for a second. ConfigError if they are not installed, or broken."""
    PRICING.make(config.provision.pricing, 1.0)  # what lacks a method is refused before it is needed
    rules: Callable[[float], Pricing] = PRICING.load(config.provision.pricing)
    return rules
