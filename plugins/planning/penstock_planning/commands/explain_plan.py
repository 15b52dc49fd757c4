"""Our plan of the queue beside Slurm's own estimates, and why they differ."""

from __future__ import annotations

import asyncio
import math

import click

from penstock.api import JobSpec, StartEstimate
from penstock.config import load
from penstock.console.backends import backend_of
from penstock.console.output import table
from penstock.errors import PenstockError
from penstock.future.plan import QueueSchedule
from penstock_planning.commands.planning import LiveSource, Source

__all__ = ["compare", "estimate_line"]

_SAME = 60.0  # seconds


def compare(source: Source, plan: QueueSchedule) -> None:
    """A table of every waiting job: our start, Slurm's (`squeue --start`), and the likely reason where they differ."""
    rows = []
    estimates = {}
    if isinstance(source, LiveSource):
        estimates = {str(job.id): job.start for job in source.snapshot.jobs.values()}
    for job, start in zip(plan.queue.waiting, plan.starts, strict=True):
        slurm = estimates.get(job.id.split("_")[0])
        shown = "" if slurm is None else source.show(slurm)
        rows.append(
            (job.id, job.procs, source.show_length(job.duration), source.show(start), shown, _why(plan, start, slurm))
        )
    table("Waiting jobs", ("job", "nodes", "limit", "our plan", "Slurm", ""), rows)


def _why(plan: QueueSchedule, ours: float, slurm: float | None) -> str:
    if slurm is None or abs(ours - slurm) <= _SAME:
        return ""
    if slurm < ours:
        later = [
            c for c in plan.queue.claims if plan.queue.now < c.start and c.start < math.inf and slurm <= c.start <= ours
        ]
        if later:
            return f"Slurm's estimate knows nothing of {later[0].id}, which begins later"
        return "Slurm's backfill has not looked at everybody ahead of it, or expects jobs to end early"
    return "Slurm looked at an older queue, or keeps whole slots of its backfill window"


def estimate_line(source: Source, nodes: int, duration: float, free: float | None) -> None:
    """What `sbatch --test-only` says of such a job, beside the first start that delays nobody."""
    if not isinstance(source, LiveSource):
        return
    try:
        found = asyncio.run(_estimate(source, nodes, duration))
    except PenstockError as error:
        click.echo(f"Slurm names no start for such a job: {error}")
        return
    click.echo(f"Slurm (sbatch --test-only) would start such a job at {source.show(found.start)}.")
    if free is not None and found.start > free + _SAME:
        click.echo(
            "That is later than our plan has room for it: --test-only adds the work of all waiting jobs of equal or "
            "higher priority, divided by the partition's CPUs, even for a job that could start now."
        )
    elif free is not None and found.start < free - _SAME:
        click.echo(
            "That is earlier than our plan has room for it: --test-only leaves reservations that begin later out of "
            "account, or the job would overtake some that our plan serves first."
        )


async def _estimate(source: LiveSource, nodes: int, duration: float) -> StartEstimate:
    async with backend_of(load()) as backend:
        script = "#!/bin/sh\ntrue\n"
        return await backend.estimate(JobSpec("penstock-quote", script, nodes, duration, source.partition.name))
