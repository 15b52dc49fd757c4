"""The part of held slots, and of workflows in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from penstock.api import SiteConfig
from penstock.config import Config
from penstock.core.parts import Controller, Part, Site
from penstock.holding.passes import Slots, Told
from penstock.holding.reservations import pricing_rules

__all__ = ["SlotsPart"]


class SlotsPart(Part):
    """`told` is called with the reserved workflows that were looked after."""

    name: ClassVar[str] = "slots"
    _slots: Slots

    def __init__(self, site: Site, told: Told) -> None:
        self._site, self._told = site, told

    @staticmethod
    def check(config: Config) -> None:
        """See `Part`."""
        pricing_rules(config)

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        self._slots = Slots(self._site, self._told)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self._slots,)
