"""What an agent costs that has lived for a day: its memory, and its share of a core while nothing happens.

The day is virtual, of the usual work without mishaps, in one life. The share is that of the passes that the agent then
makes in an idle hour, each measured here; Slurm's commands come on top (`bench.idle` measures them on a real one).
The memory is that of this process, the simulated Slurm in it included: an upper bound.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from penstock_lab.soak import invariants
from penstock_lab.soak.chaos import Storm
from penstock_lab.soak.invariants import Memory
from penstock_lab.soak.virtual import Report, settings, site_of
from penstock_lab.soak.world import START, World

__all__ = ["idle"]

HOUR: Final = 3600.0
_MOST_MEMORY: Final = 120e6
_MOST_SHARE: Final = 0.01


async def _idle(folder: Path, seed: int, hours: float, tell: Callable[[str], None]) -> Report:
    world = World(folder, seed, settings(), site_of(seed))
    storm = Storm(world, seed)
    report = Report(seed, "idle", folder=str(folder))
    process, began = psutil.Process(), time.process_time()

    async def live(seconds: float) -> None:
        end = world.now + seconds
        while world.now < end:
            await world.tick(end)
            await storm.act()

    def measure() -> None:
        gc.collect()
        report.memory.append(Memory(world.now, float(process.memory_info().rss)))

    storm.begin(kills=False, load=1.0, fair=True)
    while world.now - START < hours * HOUR:
        await live(HOUR)
        measure()
        if round((world.now - START) / HOUR) % 6 == 0:
            tell(f"{(world.now - START) / HOUR:.0f} h: {report.memory[-1].size / 1e6:.1f} MB, {world.passes} passes")
    storm.end()
    while world.living():
        await storm.settle()
        await live(HOUR / 2)
    await live(HOUR)
    measure()
    before, passes = time.process_time(), world.passes
    await live(4 * HOUR)
    share = (time.process_time() - before) / (4 * HOUR)
    report.hours, report.seconds = (world.now - START) / HOUR, time.process_time() - began
    report.counts = {**dict(world.counts), "lives": world.lives, "passes": world.passes}
    report.counts["passes in an idle hour"] = (world.passes - passes) // 4
    report.door = {"idle share of a core, %": 100 * share, "memory, MB": report.memory[-1].size / 1e6}
    report.wrong = invariants.memory_flat(report.memory[-1:], 0.0, 0.0, _MOST_MEMORY)
    if share > _MOST_SHARE:
        report.wrong.append(f"an idle agent takes {share:.2%} of a core, more than {_MOST_SHARE:.0%}")
    if world.lives != 1:
        report.wrong.append(f"it was to live once, and lived {world.lives} times")
    report.wrong += world.wrong
    world.app.store.connection._db.close()
    return report


def idle(folder: Path, seed: int, hours: float, tell: Callable[[str], None] = lambda _text: None) -> Report:
    """After so many hours of virtual time."""
    return asyncio.run(_idle(folder, seed, hours, tell))
