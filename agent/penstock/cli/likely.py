"""When a job starts that is submitted now: at the latest by time limits, and likely."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.api import Snapshot
from penstock.cli.backends import backend_of
from penstock.config import Config
from penstock.core.pace import at_once
from penstock.future.bands import Band, Misses, band_of, guaranteed_start, likely_starts
from penstock.future.cluster import Cluster
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.present import Present
from penstock.future.turns import believed
from penstock.predictions.known import known_past

__all__ = ["QueueStart", "queue_starts"]

_WORK: Final = 5_000_000
"""What all may take together: some ten seconds."""
_FEW: Final = "of too few jobs it is known how long they ran"
_DEEP: Final = "the queue is too deep to draw its futures"


@dataclass(frozen=True, slots=True)
class QueueStart:
    """`guaranteed`: if nobody is put before it; infinite: never. `band` None: it is not known, and `why`."""

    guaranteed: float
    band: Band | None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        names = ("low", "likely", "high")
        likely = (None, None, None) if self.band is None else map(_finite, self.band)
        return {"guaranteed": _finite(self.guaranteed), **dict(zip(names, likely, strict=True))}

    def line(self, show: Callable[[float], str]) -> str:
        """For people."""
        told = f"In the queue such a job starts at {show(self.guaranteed)} by everybody's time limits"
        if self.guaranteed == math.inf:
            told = "In the queue such a job never starts by everybody's time limits"
        if self.band is None:
            return f"{told}; when it likely does is not known: {self.why}."
        if self.band.likely == math.inf:
            return f"{told}, and likely not within 30 days."
        return f"{told}, likely at {show(self.band.likely)} (9 in 10: {show(self.band.low)} to {show(self.band.high)})."


def queue_starts(
    config: Config, snapshot: Snapshot, partition: str, jobs: Sequence[tuple[int, float]]
) -> list[QueueStart]:
    """Of jobs of so many nodes and seconds, each by itself behind all who wait in a look at Slurm."""
    present, past, misses = asyncio.run(_look(config, snapshot, partition))
    found = []
    for nodes, limit in jobs:
        guaranteed = at_once(guaranteed_start(present, nodes, limit))
        if len(past.used) < ENOUGH:
            found.append(QueueStart(guaranteed, None, _FEW))
        elif not (starts := at_once(likely_starts(present, past, nodes, limit, work=_WORK / len(jobs)))):
            found.append(QueueStart(guaranteed, None, _DEEP))
        else:
            # Nobody runs beyond the limit, so it is not later than that but where somebody is put before it.
            band = Band(*(min(at, guaranteed) for at in band_of(starts, snapshot.taken_at, misses.wider)))
            found.append(QueueStart(guaranteed, band))
    return found


async def _look(config: Config, snapshot: Snapshot, partition: str) -> tuple[Present, QueuePast, Misses]:
    async with backend_of(config) as backend:
        site = await backend.site()
        past, misses = await known_past(config, backend, site.cluster, snapshot)
    return Present.of(Cluster.of(believed(snapshot, site.scheduler_parameters)), partition), past, misses


def _finite(value: float) -> float | None:
    return value if value < math.inf else None
