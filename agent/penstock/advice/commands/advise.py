"""penstock advise: time limits and memory that a user's own past runs would do with."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from penstock.advice.commands import DAYS
from penstock.advice.commands.answers import Advice as AdviceAnswer
from penstock.advice.commands.answers import AdvisedJob, AdvisedMemory
from penstock.config import Config, load
from penstock.console.options import number
from penstock.console.output import emit_json, table
from penstock.errors import PenstockError
from penstock.values.durations import duration_text

if TYPE_CHECKING:
    from penstock.advice.advice import Advice
    from penstock.advice.commands.used_memory import UsedMemory
    from penstock.advice.memory import MemoryAdvice
    from penstock.api import AccountingRecord, Snapshot
    from penstock.future.bits import BitProfile

__all__ = ["advise_"]

_DAY: Final = 86400.0
_RISK: Final = 1.0


@dataclass(frozen=True)
class _Found:
    """Of one kind of job: its limit, what `--time-min` may be beside that, its memory (None: not known)."""

    limit: Advice
    least: Advice
    memory: MemoryAdvice | None
    sooner: float | None


@click.command("advise")
@number(
    "risk", f"Chance in % that a job is cut off at its new limit (default: {_RISK:g}).", 0, 50, "above 0, at most 50"
)
@number(
    "time-min-risk",
    "The same for --time-min, to which Slurm may shorten a limit (default: as --risk).",
    0,
    50,
    "above 0, at most 50",
)
@click.option("--days", type=click.IntRange(1, 3650), default=DAYS, show_default=True, help="How far back to look.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def advise_(risk: float | None, time_min_risk: float | None, days: int, as_json: bool) -> None:
    """Say which of your jobs could ask for less time or memory.

    It goes by your own jobs in accounting: those of one name (but for numbers in it), size and partition; stages of
    workflows count as WORKFLOW/STAGE, and `penstock submit --shorten` takes their limits from here. A limit, or memory
    a node, is suggested where at most --risk of all runs would need more. For 1 % that takes 99 runs; with fewer, the
    table says how far those that there are carry. `sooner` is by how much such a job would start earlier with the
    shorter limit, were it submitted now. `time-min` is for `sbatch --time-min` beside the limit that the job has: Slurm
    shortens that, down to so much, only where the job then starts at once. Nothing is changed.
    """
    import asyncio  # slow to load

    from penstock.advice.advice import runs_needed  # slow to load
    from penstock.api import plural  # slow to load

    config = load()
    asked = (_RISK if risk is None else risk) / 100
    least = asked if time_min_risk is None else time_min_risk / 100
    records, shown, used = asyncio.run(_look(config, days * _DAY))
    found = _found(records, shown, used, asked, least)
    if as_json:
        emit_json(
            AdviceAnswer(
                risk=asked,
                time_min_risk=least,
                runs_needed=runs_needed(asked),
                no_memory=used.unknown,
                memory_unscheduled=used.unscheduled,
                no_time_min=used.kept,
                jobs=[*map(_of, found)],
            )
        )
        return
    if not found:
        click.echo(
            f"Accounting knows of no job of yours in {plural(days, 'day')} that completed or ran into its limit."
        )
        return
    table(
        "Time limits",
        ("job", "nodes", "partition", "runs", "limit", "enough", "risk", "sooner", "time-min", "its risk"),
        [_told(each) for each in found],
    )
    if used.kept:
        click.echo(f"`time-min` would do nothing: {used.kept}.")
    _show_memory(found, used)
    counts = [len(a.limit.runs.took) for a in found if a.limit.limit is None]
    counts += [len(a.memory.past.used) for a in found if a.memory is not None and a.memory.memory is None]
    if any(count < runs_needed(asked) for count in counts):
        click.echo(
            f"A risk of {asked:.3g} takes {plural(runs_needed(asked), 'run')}; `--risk 5` takes {runs_needed(0.05)}."
        )


def _found(
    records: Sequence[AccountingRecord],
    shown: Snapshot,
    used: UsedMemory,
    risk: float,
    least: float,
) -> list[_Found]:
    from penstock.advice.advice import advise, past_runs
    from penstock.advice.commands.shortening import named
    from penstock.advice.memory import advise_memory, past_memory  # slow to load

    memory = {
        past.kind: advise_memory(past, risk)
        for past in past_memory(records, {job: (m.asked, m.used) for job, m in used.jobs.items()}, named)
        if past.used
    }
    advised = [advise(runs, risk) for runs in past_runs(records, named)]
    free = {name: _free(shown, name) for name in {a.runs.kind.partition for a in advised if a.limit}}
    return [
        _Found(a, advise(a.runs, least), memory.get(a.runs.kind), _sooner(free.get(a.runs.kind.partition), a))
        for a in advised
    ]


async def _look(config: Config, ago: float) -> tuple[Sequence[AccountingRecord], Snapshot, UsedMemory]:
    from penstock.advice.commands.shortening import of_the_user  # slow to load
    from penstock.advice.commands.used_memory import used_memory
    from penstock.console.backends import backend_of
    from penstock.site.viewing import whole_look  # slow to load

    async with backend_of(config) as backend:
        records = of_the_user(await backend.history(since=time.time() - ago))
        return records, await whole_look(config, backend), await used_memory(config, backend, ago)


def _free(shown: Snapshot, name: str) -> tuple[BitProfile, float, int] | None:
    """What the queue leaves free from now on, and the nodes of the partition; None where that cannot be said."""
    from penstock.future.partition import queue_for
    from penstock.future.plan import make_plan  # slow to load

    if name not in shown.partitions:
        return None
    try:
        known = queue_for(shown, shown.partitions[name])
    except PenstockError:
        return None
    return make_plan(known.queue).profile, known.queue.now, known.within


def _sooner(free: tuple[BitProfile, float, int] | None, advice: Advice) -> float | None:
    """By how many seconds the job would start earlier, were it submitted now; None where that cannot be said."""
    if advice.limit is None or free is None:
        return None
    profile, now, within = free
    before, after = (
        profile.earliest(advice.runs.kind.nodes, limit, now, within) for limit in (advice.runs.limit, advice.limit)
    )
    return None if before is None or after is None else before[0] - after[0]


def _of(found: _Found) -> AdvisedJob:
    advice, kind = found.limit, found.limit.runs.kind
    return AdvisedJob.told(
        kind,
        advice.runs,
        found,
        job=kind.name,
        runs=len(advice.runs.took),
        suggested=advice.limit,
        risk=round(advice.risk, 6),
        time_min=found.least.limit,
        time_min_risk=round(found.least.risk, 6),
        memory=None if found.memory is None else _memory_of(found.memory),
    )


def _memory_of(advice: MemoryAdvice) -> AdvisedMemory:
    used, risk = _most(advice), round(advice.risk, 6)
    return AdvisedMemory.told(advice.past, runs=len(advice.past.used), used=used, suggested=advice.memory, risk=risk)


def _told(found: _Found) -> tuple[object, ...]:
    advice, sooner = found.limit, found.sooner
    kind = advice.runs.kind
    enough = "" if advice.limit is None else duration_text(advice.limit)
    gain = "" if sooner is None else duration_text(sooner) if sooner else "no"
    row = (kind.name, kind.nodes, kind.partition, len(advice.runs.took), duration_text(advice.runs.limit))
    least = ("", "") if found.least.limit is None else (duration_text(found.least.limit), f"{found.least.risk:.1%}")
    return (*row, enough, f"{advice.risk:.1%}", gain, *least)


def _show_memory(found: Sequence[_Found], used: UsedMemory) -> None:
    if used.unknown:
        click.echo(f"Of memory nothing is said: {used.unknown}.")
        return
    rows = [_memory_told(each.memory) for each in found if each.memory is not None]
    if not rows:
        click.echo("Of memory nothing is said: accounting has MaxRSS for no whole run of these jobs.")
        return
    table("Memory of a node", ("job", "nodes", "partition", "runs", "asked", "used", "enough", "risk"), rows)
    if used.unscheduled:
        click.echo(f"Asking for less memory would start no job sooner: {used.unscheduled}.")


def _memory_told(advice: MemoryAdvice) -> tuple[object, ...]:
    from penstock.advice.commands.used_memory import megabytes  # slow to load

    kind, past, most = advice.past.kind, advice.past, _most(advice)
    asked, used, enough = (None if each is None else megabytes(each) for each in (past.asked, most, advice.memory))
    return (kind.name, kind.nodes, kind.partition, len(past.used), asked, used, enough, f"{advice.risk:.1%}")


def _most(advice: MemoryAdvice) -> float | None:
    """Bytes a node that a run which was not ended for lack of memory used at most."""
    return max((used for used in advice.past.used if used < math.inf), default=None)
