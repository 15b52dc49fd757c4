"""penstock whatif: what a change of the site would have done, on its own jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from penstock.console.options import choice, number, whole
from penstock.console.output import ago, emit_json
from penstock.errors import PenstockError, UserError
from penstock_lab.cli.backtest import partition_option
from penstock_lab.history.history import History
from penstock_lab.intervals import Interval
from penstock_lab.mock.model import Scheduler
from penstock_lab.whatif.effects import Effect, ReplayError, effect_of, error_of
from penstock_lab.whatif.malleable import driven
from penstock_lab.whatif.simulate import Judged, Setup, starts
from penstock_lab.whatif.simulate import judged as compared
from penstock_lab.whatif.windows import Length, Site, Window, site_of, windows_of

__all__ = ["whatif"]

_MAX_NODES: Final = 100_000
_MOST_DEPTH: Final = 1_000_000
_FEW: Final = 60
Times = list[tuple[float, float]] | None


@dataclass(frozen=True, slots=True)
class _Arm:
    """One way to simulate a window; `share` None: without the programs of malleable jobs."""

    setup: Setup
    share: float | None = None

    def __call__(self, window: Window) -> Times:
        return starts(window, self.setup) if self.share is None else driven(window, self.setup, self.share)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@whole("nodes", "So many nodes instead of those that it has.", most=_MAX_NODES)
@whole("backfill-depth", "A pass looks at so many jobs of the queue (bf_max_job_test).", most=_MOST_DEPTH)
@click.option("--accrue-always", is_flag=True, help="Jobs age from submission on (PriorityFlags=ACCRUE_ALWAYS).")
@number("malleable", "This share of the jobs can be resized, such as 0.2.", 0.0, 1.0, "a number above 0, at most 1")
@choice("policy", tuple(s.value for s in Scheduler), "easy", "As it is: who may overtake whom.")
@whole("depth-now", "As it is: bf_max_job_test.", most=_MOST_DEPTH, default=500)
@click.option("--accrues-now", is_flag=True, help="As it is: with ACCRUE_ALWAYS.")
@click.option("--partition", metavar="NAME", help="Only the jobs of this one, on what they had at most.")
@whole("windows", "How many windows of the log, evenly spread.", most=1000, default=20)
@whole("judged", "How many jobs of each are judged. [default: 300, with --malleable 60]", least=2, most=100_000)
@whole("processes", "How many windows at once. [default: as many as there are CPUs]", most=4096)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def whatif(
    file: Path,
    nodes: int | None,
    backfill_depth: int | None,
    accrue_always: bool,
    malleable: float | None,
    policy: str,
    depth_now: int,
    accrues_now: bool,
    partition: str | None,
    windows: int,
    judged: int | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Say what a change of the site would have done to its own jobs.

    FILE is what `penstock history import` made. Windows of it are replayed on the simulated Slurm that the agent is
    tested with: once as the site is, once with the change, the same arrivals and run times. First stands how far the
    replay as it is lies from the recorded starts. Where the replay's own error is greater than the effect, it
    is said. Several changes are made together; without any the replay's error stands alone.

    \b
    --policy        take the one with the least error; Slurm's backfill lies between easy and conservative
    --malleable     jobs of ten minutes or more, drawn; a quarter to four times their size, 2 % serial; with the agent.
                    Half a minute a window.

    Intervals are of 95 %, over windows. Makespans are from the first judged job to the last one's end.
    """
    history = History(file)
    chosen = partition_option(history, partition)
    site = site_of(history, chosen)
    now = Setup(site.units, Scheduler(policy), depth_now, accrues_now)
    then, changes = _changed(now, site, history, nodes, backfill_depth, accrue_always, malleable)
    count = judged or (300 if malleable is None else _FEW)
    length = Length(count, count, count // 2)
    taken = list(windows_of(history, windows, length, site, min(now.units, then.units), chosen))
    arms = [_Arm(now), _Arm(then)] if malleable is None else [_Arm(now, 0.0), _Arm(then, malleable)]
    most = processes or len(os.sched_getaffinity(0))
    as_it_is = _simulated(arms[0], taken, most, "as it is")
    error = error_of(_pairs(taken, as_it_is, as_it_is))
    if not as_json:
        _tell_error(error, site, now)
    if not changes:
        if as_json:
            emit_json(_told(file, partition, site, now, error, [], None))
        return
    changed = _simulated(arms[1], taken, most, "changed")
    pairs = _pairs(taken, as_it_is, changed)
    effect = effect_of(pairs)
    if len(pairs) < error.windows:
        click.echo(f"{error.windows - len(pairs)} windows are left out: a job did not complete in them", err=True)
    if as_json:
        emit_json(_told(file, partition, site, now, error, changes, effect))
    else:
        _tell_effect(effect, error, changes)


def _changed(
    now: Setup,
    site: Site,
    history: History,
    nodes: int | None,
    depth: int | None,
    accrue_always: bool,
    malleable: float | None,
) -> tuple[Setup, list[str]]:
    """The site as it would be, and in words what is changed."""
    then, changes = now, []
    if nodes is not None:
        each = 1 if site.whole else int(history.about["machine"]["cpus_per_node"]) / site.cpus
        then = replace(then, units=max(round(nodes * each), 1))
        changes.append(f"{nodes} nodes" if site.whole else f"{nodes} nodes ({then.units} for {now.units} of its parts)")
    if depth is not None:
        then = replace(then, depth=depth)
        changes.append(f"a backfill depth of {depth}")
    if accrue_always:
        if now.accrue_always:
            raise UserError("--accrue-always is no change with --accrues-now")
        then = replace(then, accrue_always=True)
        changes.append("ACCRUE_ALWAYS")
    if malleable is not None:
        changes.append(f"{100 * malleable:g} % of the jobs malleable")
    return then, changes


def _pairs(windows: Sequence[Window], now: Sequence[Times], then: Sequence[Times]) -> list[Judged]:
    """The windows in which both simulations came to their end."""
    found = []
    for window, one, other in zip(windows, now, then, strict=True):
        if one is not None and other is not None:
            found.append(compared(window, one, other))
    if not found:
        raise PenstockError("in no window all jobs completed: nothing can be compared")
    return found


def _simulated(arm: _Arm, windows: Sequence[Window], most: int, what: str) -> list[Times]:
    processes = min(most, len(windows))
    if processes == 1:
        return list(_heard(map(arm, windows), len(windows), what))
    with ProcessPoolExecutor(processes) as pool:
        return list(_heard(pool.map(arm, windows), len(windows), what))


def _heard(found: Iterator[Times], count: int, what: str) -> Iterator[Times]:
    for done, one in enumerate(found, 1):
        if sys.stderr.isatty():
            click.echo(f"\r{what}: window {done} of {count}", err=True, nl=done == count)
        yield one


def _span(interval: Interval) -> str:
    return f"{ago(interval.value)} ({ago(interval.low)} to {ago(interval.high)})"


def _tell_error(error: ReplayError, site: Site, now: Setup) -> None:
    size = f"{now.units} nodes" if site.whole else f"{now.units} parts of {site.cpus} CPUs, as jobs share nodes"
    click.echo(
        f"as it is   {now.policy.value}, depth {now.depth}, {size}; {error.jobs} jobs in {error.windows} windows"
    )
    recorded, simulated = ago(error.recorded.value), ago(error.simulated.value)
    click.echo(f"replay     mean wait {simulated} where {recorded} is recorded: {_span(error.bias)} apart")
    click.echo(f"           a start is off by {_span(error.mean)} in the mean, {_span(error.median)} in the median")


def _tell_effect(effect: Effect, error: ReplayError, changes: Sequence[str]) -> None:
    ratio: Callable[[Interval], str] = partial(Interval.told, form=".3f")
    click.echo(f"change     {', '.join(changes)}")
    click.echo(
        f"wait       mean {ago(effect.now.value)} -> {ago(effect.then.value)}: {ratio(effect.wait)} of what it was"
    )
    click.echo(f"           difference {_span(effect.longer)} in the mean, {_span(effect.median_longer)} in the median")
    click.echo(f"           median {ago(effect.median_now.value)} -> {ago(effect.median_then.value)}")
    click.echo(f"           {effect.later.value:.1%} of the jobs start later, {effect.earlier.value:.1%} earlier")
    click.echo(f"response   {ratio(effect.response)} of what it was (wait and run)")
    click.echo(f"slowdown   {ratio(effect.slowdown)} of what it was (bounded)")
    click.echo(f"makespan   {ratio(effect.makespan)} of what it was; throughput is the inverse")
    click.echo(_verdict(effect, error))


def _verdict(effect: Effect, error: ReplayError) -> str:
    if effect.longer.low <= 0.0 <= effect.longer.high:
        return "The mean wait changes no more than by chance."
    if error.mean.value > abs(effect.longer.value):
        return (
            f"The replay's own error ({ago(error.mean.value)} a start) is greater than this effect "
            f"({ago(abs(effect.longer.value))}): take it as a direction, not as a figure."
        )
    return f"The effect is greater than the replay's own error ({ago(error.mean.value)} a start)."


def _told(
    file: Path,
    partition: str | None,
    site: Site,
    now: Setup,
    error: ReplayError,
    changes: Sequence[str],
    effect: Effect | None,
) -> dict[str, Any]:
    replay = {name: getattr(error, name) for name in ("recorded", "simulated", "bias", "mean", "median")}
    names = [field.name for field in fields(Effect)]
    return {
        "file": str(file),
        "partition": partition,
        "policy": now.policy.value,
        "depth": now.depth,
        "units": now.units,
        "cpus_per_unit": site.cpus,
        "whole_nodes": site.whole,
        "windows": error.windows,
        "jobs": error.jobs,
        "replay_error": {name: _interval(each) for name, each in replay.items()},
        "changes": list(changes),
        "effect": None if effect is None else {name: _interval(getattr(effect, name)) for name in names},
        "verdict": None if effect is None else _verdict(effect, error),
    }


def _interval(interval: Interval) -> dict[str, float]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}
