"""Runs the scheduler of a pool in this process, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from penstock.config import Config
from penstock_pool.folder import PoolFolder
from penstock_pool.placement import PLACEMENTS
from penstock_pool.scheduler import PoolDoor, PoolScheduler
from penstock_pool.upkeep import PoolRetention

__all__ = ["run_scheduler"]


async def run_scheduler(config: Config, folder: PoolFolder, doors: Sequence[PoolDoor] = ()) -> None:
    """Serve, by these doors, too. Raises StoreError when another scheduler of the pool runs, ConfigError for an unknown
    placement."""
    placement = PLACEMENTS.make(config.pool.placement)
    retention = PoolRetention(config.pool.keep, config.pool.keep_tasks)
    scheduler = PoolScheduler(folder, placement, config.pool.share, config.pool.host, doors, retention)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, scheduler.stop)
    await scheduler.serve()
