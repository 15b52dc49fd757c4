"""The part of held slots, and of workflows in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from penstock.api import SiteConfig, Snapshot
from penstock.broker.affinities import AFFINITIES
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.core.extensions import ExtensionPoint
from penstock.core.findings import Finding, Trouble, Within, failed, fine
from penstock.core.offitems import OffItem
from penstock.core.parts import Controller, Part, Site
from penstock.future.expected import SlotFinder
from penstock.holding import reserved
from penstock.holding.ledgerfile import LEDGER
from penstock.holding.passes import Slots, Told
from penstock.holding.requests import load_key
from penstock.holding.reservations import PRICING, pricing_rules
from penstock.provision.shown import shown_slots
from penstock.slurm.base import Reader
from penstock.state.filekind import FileKind

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

    @staticmethod
    def checks(config: Config, within: Within) -> Iterable[Finding]:
        """See `Part`."""
        yield _request_key(config, within)

    @staticmethod
    def files() -> Iterable[FileKind]:
        """See `Part`."""
        return (LEDGER,)

    @staticmethod
    def free_slots(config: Config) -> SlotFinder | None:
        """See `Part`."""
        return partial(shown_slots, pricing_rules(config))

    @staticmethod
    def reserved_runs(config: Config, *, final: bool) -> list[dict[str, Any]]:
        """See `Part`."""
        return reserved.reserved_runs(config, final=final)

    @staticmethod
    async def give_up_run(config: Config, reader: Reader, executor: Executor, name: str) -> None:
        """See `Part`."""
        await reserved.give_up_run(config, reader, executor, name)

    @staticmethod
    def extension_points() -> Iterable[ExtensionPoint]:
        """See `Part`."""
        return (PRICING, AFFINITIES)

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        self._slots = Slots(self._site, self._told)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self._slots,)

    async def hand_back(self, snapshot: Snapshot, *, act: bool, drop: bool) -> list[OffItem]:
        """See `Part`."""
        from penstock.holding.handing_back import bags_left, slots_left  # slow to load

        site, config = self._site, self._site.config()
        slots = await slots_left(config, site.reader, site.executor, snapshot, act=act, drop=drop)
        return [*slots, *bags_left(config)]


def _request_key(config: Config, within: Within) -> Finding:
    provision = config.provision
    if provision.requests is None:
        return failed(
            "request-key",
            "`provision.requests` is not set, so no slots can be requested by signed files",
            "set `provision.requests` (a folder) and `provision.request_key` (a file of 16 random bytes or more)",
            "an operator has to look into the folder and run `penstock hold grant` for each request",
        )
    found = within(lambda: load_key(provision.request_key))
    if isinstance(found, Trouble):
        change = "set `provision.request_key` to a file of at least 16 random bytes that users cannot read"
        return failed("request-key", found.why, change)
    return fine("request-key", f"signed requests are written to {provision.requests}")
