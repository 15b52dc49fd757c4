"""The part of pools that get their own allocations."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.api import SiteConfig
from penstock.config import Config
from penstock.core.extensions import ExtensionPoint
from penstock.core.findings import Finding, Within
from penstock.core.parts import Controller, Part
from penstock_pool.checks import pool_checks
from penstock_pool.placement import PLACEMENTS

if TYPE_CHECKING:
    from penstock_pool.auto.feeds import PoolFeeds

__all__ = ["PoolsPart"]


class PoolsPart(Part):
    """It looks after the pools of the agent's user, every few seconds."""

    name: ClassVar[str] = "pools"
    _feeds: PoolFeeds

    @staticmethod
    def check(config: Config) -> None:
        """See `Part`."""
        PLACEMENTS.make(config.pool.placement)

    @staticmethod
    def checks(config: Config, within: Within) -> Iterable[Finding]:
        """See `Part`."""
        return pool_checks(config, within)

    @staticmethod
    def extension_points() -> Iterable[ExtensionPoint]:
        """See `Part`."""
        return (PLACEMENTS,)

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        from penstock_pool.auto.feeds import PoolFeeds  # slow to load, and commands ask this class, too

        site = self._site
        self._feeds = PoolFeeds(site.config(), site.reader, site.executor, site.waits, site.clock, site.wake)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self._feeds,)

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """See `Part`."""
        yield self._feeds.watch()
