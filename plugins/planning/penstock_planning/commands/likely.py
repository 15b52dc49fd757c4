"""When jobs start that are submitted now: at the latest by time limits, and likely."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.api import SiteConfig, Snapshot
from penstock.config import Config
from penstock.console.backends import backend_of
from penstock.core.pace import at_once
from penstock.future.bands import Misses, band_of, drawn_starts, guaranteed_start, guaranteed_starts, likely_starts
from penstock.future.cluster import Cluster
from penstock.future.drawn import OwnJob
from penstock.future.draws import Draw, Drawing
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.present import Present
from penstock.future.queued import DEEP, FEW, WORK, QueueStart, within
from penstock.future.turns import believed
from penstock.waits.live.known import known_past
from penstock.workflow.model import Stage
from penstock.workflow.strategy import Rules
from penstock.workflow.submit.forecast import run_times

__all__ = ["chain_starts", "queue_starts"]


def queue_starts(
    config: Config, snapshot: Snapshot, partition: str, jobs: Sequence[tuple[int, float]]
) -> list[QueueStart]:
    """Of jobs of so many nodes and seconds, each by itself behind all who wait in a look at Slurm."""
    _, present, past, misses = asyncio.run(_look(config, snapshot, partition))
    found = []
    for nodes, limit in jobs:
        guaranteed = at_once(guaranteed_start(present, nodes, limit))
        if len(past.used) < ENOUGH:
            found.append(QueueStart(guaranteed, None, FEW))
        elif not (starts := at_once(likely_starts(present, past, nodes, limit, work=WORK / len(jobs)))):
            found.append(QueueStart(guaranteed, None, DEEP))
        else:
            band = band_of(starts, snapshot.taken_at, misses.wider)
            found.append(QueueStart(guaranteed, within(band, guaranteed)))
    return found


def chain_starts(
    config: Config, snapshot: Snapshot, partition: str, stages: Sequence[tuple[Stage, Sequence[int]]]
) -> list[QueueStart]:
    """Of the stages of workflows, each with the places of those it comes after, all submitted now as jobs that depend
    on one another: none of them has a slot."""
    site, present, past, misses = asyncio.run(_look(config, snapshot, partition))
    by_submission = Rules.of(site).by_submission

    def jobs(runs: Sequence[float]) -> list[OwnJob]:
        return [
            OwnJob(stage.nodes, stage.time_limit, min(run, stage.time_limit), tuple(after))
            for (stage, after), run in zip(stages, runs, strict=True)
        ]

    guaranteed = at_once(guaranteed_starts(present, jobs([s.time_limit for s, _ in stages]), by_submission))
    if len(past.used) < ENOUGH:
        return [QueueStart(at, None, FEW) for at in guaranteed]
    drawing = Drawing(present, past, seed=0)

    def drawn(draw: Draw) -> list[OwnJob]:
        return jobs(run_times([stage for stage, _ in stages], drawing, draw))

    starts = at_once(drawn_starts(drawing, drawn, by_submission, WORK / 2))
    if not starts:
        return [QueueStart(at, None, DEEP) for at in guaranteed]
    return [
        QueueStart(at, within(band_of(known, snapshot.taken_at, misses.wider), at))
        for at, known in zip(guaranteed, starts, strict=True)
    ]


async def _look(config: Config, snapshot: Snapshot, partition: str) -> tuple[SiteConfig, Present, QueuePast, Misses]:
    async with backend_of(config) as backend:
        site = await backend.site()
        past, misses = await known_past(config, backend, site.cluster, snapshot)
    return site, Present.of(Cluster.of(believed(snapshot, site.scheduler_parameters)), partition), past, misses
