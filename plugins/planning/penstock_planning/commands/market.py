"""What commands begin with: the clusters of this site, looked at as the configuration says, and what acts there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock.config import Config
from penstock.console.acting import Acting, acting
from penstock.core.backends import make_backend
from penstock.state.ownership import own_folder
from penstock_planning.broker.assess import ClusterMarket, open_market
from penstock_planning.broker.bags import Bags
from penstock_planning.broker.clock import base_clock
from penstock_planning.broker.clusters import view_clusters
from penstock_planning.broker.site import SiteFile, read_site

__all__ = ["Reach", "at_market", "bags_of"]


@dataclass(frozen=True, slots=True)
class Reach:
    """Where to look: at `only` these clusters (none: all of the site), by another site file than the configuration's,
    and by which of its clocks (base, max)."""

    only: Sequence[str] = ()
    site: Path | None = None
    clock: str = "base"

    @classmethod
    def kept(cls, settings: Mapping[str, Any]) -> Reach:
        """Where a bag was sent, from its settings."""
        site = settings.get("site")
        return cls(settings.get("clusters", ()), Path(site) if site else None, settings.get("clock", "base"))

    @property
    def settings(self) -> dict[str, Any]:
        """What a bag's passes go on with."""
        site = None if self.site is None else str(self.site.absolute())
        return {"site": site, "clock": self.clock, "clusters": list(self.only)}


_ALL: Final = Reach()


def bags_of(config: Config) -> Bags:
    """This user's bags."""
    return Bags(own_folder(config) / "bags")


@asynccontextmanager
async def at_market(config: Config, where: Reach = _ALL) -> AsyncIterator[tuple[ClusterMarket, Acting]]:
    """The market as it is now, and what acts there."""
    path = where.site or config.select.site
    known = SiteFile() if path is None else read_site(path)
    # By Slurm's commands: they know of nodes what pyslurm is not asked for.
    slurm = config.slurm if config.slurm.backend == "mock" else replace(config.slurm, backend="cli")
    async with acting(config, make_backend(replace(config, slurm=slurm))) as hand:
        views, problems = await view_clusters(hand.slurm, where.only)
        market = await open_market(config, views, problems, known, clock=where.clock, fallback=base_clock())
        try:
            yield market, hand
        finally:
            market.close()
