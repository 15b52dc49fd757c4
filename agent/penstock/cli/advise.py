"""penstock advise: time limits that a user's own past runs would do with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from penstock.api import AccountingRecord, Snapshot, plural
from penstock.cli.backends import backend_of
from penstock.cli.options import number
from penstock.cli.output import emit_json, table
from penstock.cli.shortening import DAYS, named
from penstock.config import Config, load
from penstock.core.viewing import whole_look
from penstock.errors import PenstockError
from penstock.future.bits import BitProfile
from penstock.holding.reservations import pricing_rules
from penstock.provision.advice import Advice, advise, past_runs, runs_needed
from penstock.provision.live import from_snapshot
from penstock.values.durations import duration_text

__all__ = ["advise_"]

_DAY: Final = 86400.0
_RISK: Final = 1.0


@click.command("advise")
@number(
    "risk", f"Chance in % that a job is cut off at its new limit (default: {_RISK:g}).", 0, 50, "above 0, at most 50"
)
@click.option("--days", type=click.IntRange(1, 3650), default=DAYS, show_default=True, help="How far back to look.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def advise_(risk: float | None, days: int, as_json: bool) -> None:
    """Say which of your jobs could do with shorter time limits.

    It goes by your own jobs in accounting: those of one name (but for numbers in it), size and partition; stages of
    workflows count as WORKFLOW/STAGE, and `penstock submit --shorten` takes their limits from here. A limit is
    suggested where at most --risk of all runs would take longer. For 1 % that takes 99 runs; with fewer, the table says
    how far those that there are carry. The last column is by how much such a job would start earlier, were it submitted
    now. Nothing is changed.
    """
    config = load()
    asked = (_RISK if risk is None else risk) / 100
    records, shown = asyncio.run(_look(config, time.time() - days * _DAY))
    found = [advise(runs, asked) for runs in past_runs(records, named)]
    free = {name: _free(config, shown, name) for name in {a.runs.kind.partition for a in found if a.limit is not None}}
    sooner = {advice: _sooner(free.get(advice.runs.kind.partition), advice) for advice in found}
    if as_json:
        emit_json({"risk": asked, "runs_needed": runs_needed(asked), "jobs": [_row(a, sooner[a]) for a in found]})
        return
    if not found:
        click.echo(
            f"Accounting knows of no job of yours in {plural(days, 'day')} that completed or ran into its limit."
        )
        return
    table(
        "Time limits",
        ("job", "nodes", "partition", "runs", "limit", "enough", "risk", "sooner"),
        [_told(each) for each in sooner.items()],
    )
    if any(a.limit is None and len(a.runs.took) < runs_needed(asked) for a in found):
        click.echo(
            f"A risk of {asked:.3g} takes {plural(runs_needed(asked), 'run')}; `--risk 5` takes {runs_needed(0.05)}."
        )


async def _look(config: Config, since: float) -> tuple[Sequence[AccountingRecord], Snapshot]:
    async with backend_of(config) as backend:
        return await backend.history(since=since), await whole_look(config, backend)


def _free(config: Config, shown: Snapshot, name: str) -> tuple[BitProfile, float, int] | None:
    """What the queue leaves free from now on, and the nodes of the partition; None where that cannot be said."""
    if name not in shown.partitions:
        return None
    try:
        situation = from_snapshot(shown, shown.partitions[name], pricing_rules(config))
    except PenstockError:
        return None
    return situation.plan().profile, situation.queue.now, situation.within


def _sooner(free: tuple[BitProfile, float, int] | None, advice: Advice) -> float | None:
    """By how many seconds the job would start earlier, were it submitted now; None where that cannot be said."""
    if advice.limit is None or free is None:
        return None
    profile, now, within = free
    before, after = (
        profile.earliest(advice.runs.kind.nodes, limit, now, within) for limit in (advice.runs.limit, advice.limit)
    )
    return None if before is None or after is None else before[0] - after[0]


def _row(advice: Advice, sooner: float | None) -> dict[str, Any]:
    kind = advice.runs.kind
    return {
        "job": kind.name,
        "nodes": kind.nodes,
        "partition": kind.partition,
        "runs": len(advice.runs.took),
        "limit": advice.runs.limit,
        "suggested": advice.limit,
        "risk": round(advice.risk, 6),
        "sooner": sooner,
    }


def _told(found: tuple[Advice, float | None]) -> tuple[object, ...]:
    advice, sooner = found
    kind = advice.runs.kind
    enough = "" if advice.limit is None else duration_text(advice.limit)
    gain = "" if sooner is None else duration_text(sooner) if sooner else "no"
    row = (kind.name, kind.nodes, kind.partition, len(advice.runs.took), duration_text(advice.runs.limit))
    return (*row, enough, f"{advice.risk:.1%}", gain)
