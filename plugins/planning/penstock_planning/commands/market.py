"""What commands begin with: the clusters of this site, looked at as the configuration says, and what acts there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from penstock.config import Config
from penstock.console.acting import Acting, acting
from penstock.core.backends import make_backend
from penstock.state.ownership import own_folder
from penstock_planning.broker.assess import ClusterMarket, open_market
from penstock_planning.broker.bags import Bags
from penstock_planning.broker.clock import base_clock
from penstock_planning.broker.clusters import view_clusters
from penstock_planning.broker.site import SiteFile, read_site

__all__ = ["at_market", "bags_of"]


def bags_of(config: Config) -> Bags:
    """This user's bags."""
    return Bags(own_folder(config) / "bags")


@asynccontextmanager
async def at_market(
    config: Config, *, only: Collection[str] = (), site: Path | None = None, clock: str = "base"
) -> AsyncIterator[tuple[ClusterMarket, Acting]]:
    """The market as it is now, and what acts there. `only`: these clusters; `site`: another site file than the
    configuration's."""
    path = site or config.select.site
    known = SiteFile() if path is None else read_site(path)
    # By Slurm's commands: they know of nodes what pyslurm is not asked for.
    slurm = config.slurm if config.slurm.backend == "mock" else replace(config.slurm, backend="cli")
    async with acting(config, make_backend(replace(config, slurm=slurm))) as hand:
        views, problems = await view_clusters(hand.slurm, only)
        market = await open_market(config, views, problems, known, clock=clock, fallback=base_clock())
        try:
            yield market, hand
        finally:
            market.close()
