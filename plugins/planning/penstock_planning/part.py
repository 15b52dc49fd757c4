"""The part of held slots, and of workflows in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.config import Config
from penstock.core.findings import Finding, Trouble, Within, failed, fine
from penstock.core.parts import Controller, Part
from penstock.host.logins import login
from penstock.state.filekind import FileKind
from penstock_planning.extending import AFFINITIES, PRICING, pricing_rules
from penstock_planning.hold.ledgerfile import LEDGER
from penstock_planning.hold.requests import load_key

if TYPE_CHECKING:
    from penstock.api import SiteConfig, Snapshot
    from penstock.core.executor import Executor
    from penstock.core.extensions import ExtensionPoint
    from penstock.core.offitems import OffItem
    from penstock.future.expected import SlotFinder
    from penstock.slurm.base import Reader
    from penstock.workflow.state import WorkflowRun
    from penstock_planning.hold.passes import Slots

__all__ = ["SlotsPart"]

# What only a running agent needs, or one command, is imported where it is used: `penstock status` asks this class, too.


class SlotsPart(Part):
    """It says what goes wrong with the reserved workflows that it looks after."""

    name: ClassVar[str] = "slots"
    _slots: Slots

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
        from penstock_planning.plan.shown import shown_slots

        return partial(shown_slots, pricing_rules(config))

    @staticmethod
    def reserved_runs(config: Config, *, final: bool) -> list[dict[str, Any]]:
        """See `Part`."""
        from penstock_planning.hold import reserved

        return reserved.reserved_runs(config, final=final)

    @staticmethod
    async def give_up_run(config: Config, reader: Reader, executor: Executor, name: str) -> None:
        """See `Part`."""
        from penstock_planning.hold import reserved

        await reserved.give_up_run(config, reader, executor, name)

    @staticmethod
    def extension_points() -> Iterable[ExtensionPoint]:
        """See `Part`."""
        return (PRICING, AFFINITIES)

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        from penstock_planning.hold.passes import Slots

        self._slots = Slots(self._site, self._tell)

    def _tell(self, runs: Iterable[WorkflowRun]) -> None:
        """The ledger, and what is in it, are those of the agent's user."""
        from penstock_planning.hold.notices import notices_of

        uid, now = os.geteuid(), self._site.clock.now()
        for run in runs:
            for event in notices_of(run, uid=uid, user=login(uid), now=now):
                self._site.tell(event)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self._slots,)

    async def hand_back(self, snapshot: Snapshot, *, act: bool, drop: bool) -> list[OffItem]:
        """See `Part`."""
        from penstock_planning.hold.handing_back import bags_left, slots_left

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
