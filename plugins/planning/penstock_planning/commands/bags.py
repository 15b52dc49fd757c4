"""penstock bags: what became of bags of tasks that `penstock select --submit` sent off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import click

from penstock.config import Config, load
from penstock.console.output import ago, clock, emit_json, table
from penstock.errors import NotNow, PenstockError
from penstock.values.durations import duration_text
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import ClusterMarket
from penstock_planning.broker.bags import BagRun, Bags
from penstock_planning.broker.choice import Preference
from penstock_planning.broker.follow import Progress, summary
from penstock_planning.broker.passes import Pass, run_pass
from penstock_planning.commands import answers as planning
from penstock_planning.commands.market import Reach, at_market, bags_of
from penstock_planning.select.spread import Hysteresis

__all__ = ["bags"]

_PERIOD: Final = 120.0


@click.command()
@click.argument("number", required=False, type=click.IntRange(1))
@click.option("--watch", is_flag=True, help="Go on until all tasks are done; a look every two minutes.")
@click.option("--stay", is_flag=True, help="Move nothing.")
@click.option("--cancel", "stop", is_flag=True, help="Cancel what waits and runs of the bag.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bags(number: int | None, watch: bool, stay: bool, stop: bool, as_json: bool) -> None:
    """Follow bags of tasks, and move them to where they end sooner.

    Every call makes one pass, over the bag of that number or all that are not finished; let a crontab do so, or
    use --watch. A task that waits is moved if it is expected to be done `select.gain` seconds, and `select.gain_share`
    of what is left, sooner elsewhere. A bag that was sent to the best resource alone (--best, or by another --metric
    than ttc) stays there, and one that was sent to some clusters (-M) moves among these.

    \b
    penstock bags
    penstock bags 3 --watch
    """
    config = load()
    kept = bags_of(config)
    if stop:
        if number is None:
            raise click.UsageError("--cancel needs the number of a bag")
        asyncio.run(_cancel(config, kept, number))
        return
    troubled = False
    while True:
        try:
            numbers = [number] if number is not None else kept.numbers()
            runs, passes = asyncio.run(_pass(config, kept, numbers, stay=stay))
        except NotNow as error:
            if not watch:
                raise
            if not troubled:
                click.echo(f"penstock: {error}; it is tried again every {duration_text(_PERIOD)}", err=True)
            troubled = True
        else:
            if not watch or all(run.finished is not None for run in runs):
                break
            troubled = False
        time.sleep(_PERIOD)
    if as_json:
        emit_json(planning.Bags(bags=[_of(run, passes.get(run.id)) for run in runs]))
        return
    _show(runs, passes)


async def _pass(
    config: Config, kept: Bags, numbers: Sequence[int], *, stay: bool
) -> tuple[list[BagRun], dict[int, Pass]]:
    """A pass over those bags that are not finished; all of them as they are then, and what was found and done."""
    runs: list[BagRun] = []
    found: dict[int, Pass] = {}
    hysteresis = None if stay else Hysteresis(config.select.gain, config.select.gain_share)
    for number in numbers:
        run = kept.load(number)
        if run.finished is None:
            with kept.locked():
                run = kept.load(number)  # another command may have saved it meanwhile
                if run.finished is None:
                    found[number] = await _tend(config, kept, run, hysteresis)
        runs.append(run)
    return runs, found


async def _tend(config: Config, kept: Bags, run: BagRun, hysteresis: Hysteresis | None) -> Pass:
    by = Preference.kept(run.settings)
    async with at_market(config, Reach.kept(run.settings)) as (market, hand):
        return await run_pass(kept, run, market, BagActs(hand.executor, run), hysteresis, by)


async def _cancel(config: Config, kept: Bags, number: int) -> None:
    with kept.locked():
        run = kept.load(number)
        if run.finished is None:
            async with at_market(config) as (market, hand):
                acts = BagActs(hand.executor, run)
                await run_pass(kept, run, market, acts, None)  # it may have ended since anybody looked
                if run.finished is None:
                    await _stop(kept, run, market, acts)
                    click.echo(f"Bag {number} is cancelled")
                    return
    click.echo(f"Bag {number} had ended before")


async def _stop(kept: Bags, run: BagRun, market: ClusterMarket, acts: BagActs) -> None:
    """Cancel its jobs. Raises NotNow, and leaves it as it is, if one of them cannot be."""
    failed = []
    for array in (a for a in run.arrays if a.job is not None):
        try:
            await acts.cancel(market.views[array.cluster], array)
        except (KeyError, PenstockError) as e:
            failed.append(f"job {array.job} on {array.cluster}: {e}")
    if failed:
        raise NotNow(f"not all was cancelled: {'; '.join(failed)}")
    run.finished, run.unplaced = time.time(), []
    run.settings["cancelled"] = True
    kept.save(run)


def _progress(run: BagRun, done: Pass | None) -> Progress:
    """How far it is; of a bag that is finished nothing waits or runs, even if it was cancelled."""
    p = summary(run, {}) if done is None else done.progress
    return p if run.finished is None else replace(p, waiting=0, running=0, unplaced=0)


def _of(run: BagRun, done: Pass | None) -> planning.Bag:
    p = _progress(run, done)
    return planning.Bag.told(
        run,
        bag=run.id,
        name=run.bag.task.name,
        tasks=run.count,
        cancelled=run.settings.get("cancelled", False),
        progress=planning.Progress.told(p, homeless=p.unplaced),  # its former name, for one release
        arrays=[
            planning.Array.told(a, resource=a.lane, jobs=len(a.pieces), withdrawn=len(a.withdrawn)) for a in run.arrays
        ],
        problems=[] if done is None else done.problems,
    )


def _show(runs: list[BagRun], passes: dict[int, Pass]) -> None:
    rows: list[tuple[object, ...]] = []
    for run in runs:
        done = passes.get(run.id)
        p, moved = _progress(run, done), sum(move["tasks"] for move in run.moves)
        counts = (p.waiting + p.unplaced, p.running, p.done, p.failed, moved)
        how = "cancelled " if run.settings.get("cancelled") else ""
        rows.append((run.id, run.bag.task.name, run.count, *counts, how + clock(run.finished)))
        for problem in () if done is None else done.problems:
            click.echo(f"penstock: bag {run.id}: {problem}", err=True)
        for move in () if done is None else done.moves:
            click.echo(f"bag {run.id}: a job moves to {move.to}: done in {ago(move.end)} instead of {ago(move.before)}")
    table("Bags", ("bag", "name", "tasks", "waiting", "running", "done", "failed", "moved", "finished"), rows)
