"""penstock select: where a task finishes first, or runs cheapest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from penstock.config import load
from penstock.console.former import formerly
from penstock.console.output import ago, emit_json, table
from penstock.errors import Infeasible, NotNow, PenstockError, UserError
from penstock.future.cluster import Cluster
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.affinities import affinity_named
from penstock_planning.broker.assess import Assessed, ClusterMarket, assess, divided, lanes_of, rows_of
from penstock_planning.broker.bags import BagRun
from penstock_planning.broker.place import place
from penstock_planning.broker.resources import read_resources
from penstock_planning.broker.tasks import Bag, read_bags
from penstock_planning.commands.market import at_market, bags_of
from penstock_planning.select.consumables import Metric, Resource
from penstock_planning.select.matchmaking import matching, nearest
from penstock_planning.select.ranking import Affinity, RankedRow, rank
from penstock_planning.select.spread import ends

__all__ = ["select"]

_UNITS: Final = {Metric.TIME: "K s", Metric.MONEY: "K SU", Metric.ENERGY: "K J"}
_MOST: Final = 100_000


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@formerly("--task", "FILE", "file", type=click.Path(path_type=Path))
@formerly("--site", "--site-file", "site", type=click.Path(path_type=Path))
@click.option(
    "--resources", metavar="FILE", type=click.Path(path_type=Path), help="Select among these, not among Slurm's."
)
@click.option("-n", "count", metavar="N", type=click.IntRange(1, _MOST), help="How many tasks (default: the file's).")
@click.option("-M", "--clusters", metavar="NAMES", help="Only these clusters, by commas (default: all of the site).")
@click.option(
    "--metric", metavar="NAME", default="ttc", show_default=True, help="ttc, cost, energy, or an extension's."
)
@click.option("--quantile", metavar="Q", help="Time to completion within which 100 Q % are done. [default: expected]")
@click.option("--clock", type=click.Choice(["base", "max"]), default="base", help="Which clock counts [default: base].")
@click.option(
    "--site-file",
    "site",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="What Slurm does not know of its nodes.",
)
@click.option("--best", is_flag=True, help="All tasks to the best resource, as in the paper.")
@click.option("--submit", is_flag=True, help="Submit the tasks, as job arrays.")
@click.option("--explain", is_flag=True, help="Say what the figures are made of.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def select(
    file: Path | None,
    resources: Path | None,
    count: int | None,
    clusters: str | None,
    metric: str,
    quantile: str | None,
    clock: str,
    site: Path | None,
    best: bool,
    submit: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Say where a task ends first, or runs cheapest, and send it.

    The time to completion (TTC) is the predicted wait (Tq) plus the predicted run time (Tx). Resources are the
    partitions of all clusters of the site, or those of a file. Several tasks are spread over resources so that the last
    one is done as early as possible. Submitted tasks are followed, and moved while they wait, by `penstock bags`.

    With --json its "resources", best first: {"resource", "viable", "why", "cost", "tx", "tq", "ttc"} (seconds); of
    several tasks each names its "task"; without --resources it says how many "tasks" in how many "jobs" go there, and
    under which "qos", where the file names any.

    \b
    penstock select md.yaml -n 1024 --explain
    penstock select md.yaml -n 1024 --submit
    penstock select md.yaml --resources machines.yaml --json
    """
    if file is None:
        raise UserError("a task file must be named: penstock select FILE")
    affinity, wanted = affinity_named(metric), _share(quantile)
    path = file
    bags = read_bags(path)
    if count is not None and len(bags) > 1:
        raise UserError(f"-n: {path} has {len(bags)} tasks; say in the file how many there are of each (count)")
    bags = [replace(bag, count=count or bag.count) for bag in bags]
    if submit:  # as sbatch does; and moved tasks, which are submitted from anywhere, run there as well
        here = [str(Path(bag.options.get("workdir", ".")).absolute()) for bag in bags]
        bags = [replace(b, options={**b.options, "workdir": path}) for b, path in zip(bags, here, strict=True)]
    if resources is None:
        live = _Live(path, bags, metric, wanted, best=best, submit=submit, explain=explain, as_json=as_json)
        asyncio.run(live.run(clusters, site, clock))
        return
    if submit:
        raise UserError("--submit and --resources: only what Slurm has can be submitted to")
    offered = read_resources(resources)
    found, waits = [one.resource for one in offered], {o.resource.name: o.wait for o in offered if o.wait is not None}
    if waits and len(waits) < len(found):
        silent = ", ".join(o.resource.name for o in offered if o.wait is None)
        click.echo(f"penstock: no `tq` is given for {silent}: counted as no wait", err=True)
    ranked = {b.task.name: rank(b.task, found, waits, affinity=affinity, quantile=wanted) for b in bags}
    if as_json:
        emit_json({"resources": _json(bags, ranked)})
    else:
        for bag in bags:
            _show(bag, found, ranked[bag.task.name], affinity, explain=explain)
    _complain(path, bags, found, ranked)


class _Live:
    """The command among Slurm's own partitions."""

    def __init__(
        self,
        path: Path,
        bags: Sequence[Bag],
        metric: str,
        quantile: float | None,
        *,
        best: bool,
        submit: bool,
        explain: bool,
        as_json: bool,
    ) -> None:
        self._path = path
        self._bags = bags
        self._affinity = affinity_named(metric)
        self._quantile = quantile
        # Only the time to completion has something to spread.
        self._alone = metric if best or metric != "ttc" else None
        self._submit = submit
        self._explain = explain
        self._as_json = as_json

    async def run(self, clusters: str | None, site: Path | None, clock: str) -> None:
        """Look, rank, spread; with --submit also send."""
        config = load()
        only = [name.strip() for name in (clusters or "").split(",") if name.strip()]
        kept, rows, ranked, problems, unknown = bags_of(config), [], {}, [], []
        resources: list[Resource] = []
        settings = {
            "quantile": self._quantile,
            "site": None if site is None else str(site.absolute()),
            "clock": clock,
            "clusters": only,
            "alone": self._alone,
        }
        if self._submit and any(bag.run is None for bag in self._bags):
            raise UserError(f"{self._path}: --submit needs a `run` of every task")
        async with at_market(config, only=only, site=site, clock=clock) as (market, hand):
            for problem in market.problems:
                click.echo(f"penstock: {problem}", err=True)
            for bag in self._bags:
                assessed = await assess(market, bag, bag.count, kept.corrections())
                resources = [a.candidate.resource for a in assessed]
                ranked[bag.task.name] = found = rows_of(bag, assessed, self._affinity, self._quantile)
                alone = None if self._alone is None else self._affinity
                jobs = divided(bag, bag.count, assessed, self._quantile, alone)
                submitted: BagRun | None = None
                if self._submit and jobs:
                    with kept.locked():
                        submitted = run = kept.new(
                            bag, bag.count, market.views[min(market.views)].backend.now(), settings
                        )
                        save = partial(kept.save, run)
                        problems += await place(run, assessed, jobs, save, run.created, BagActs(hand.executor, run))
                elif self._submit and any(row.viable for row in found):
                    unknown.append(bag.task.name)
                if self._as_json:
                    rows += self._rows(bag, assessed, found, jobs, submitted)
                else:
                    self._show(bag, assessed, found, jobs, submitted, market)
        if self._as_json:
            emit_json({"resources": rows})
        _complain(self._path, self._bags, resources, ranked)
        if unknown:
            what = self._affinity.metric
            raise Infeasible(f"{', '.join(unknown)}: not submitted, as of no viable resource the {what} is known")
        if problems:
            raise NotNow(f"not all was submitted: {'; '.join(problems)} (penstock bags tries again)")

    def _rows(
        self,
        bag: Bag,
        assessed: Sequence[Assessed],
        rows: Sequence[RankedRow],
        jobs: Mapping[str, int],
        submitted: BagRun | None,
    ) -> list[dict[str, Any]]:
        by_name = {a.candidate.name: a for a in assessed}
        found, left = [], bag.count
        for row in rows:
            a = by_name[row.resource]
            tasks = min(jobs.get(row.resource, 0) * a.shape.per, left)
            left -= tasks
            one: dict[str, Any] = {"jobs": jobs.get(row.resource, 0), "tasks": tasks}
            if bag.qos:
                one["qos"] = a.qos
            if submitted is not None:
                one["bag"] = submitted.id
                one["job_ids"] = [array.job for array in submitted.arrays if array.lane == row.resource]
            found.append({**({"task": bag.task.name} if len(self._bags) > 1 else {}), **asdict(row), **one})
        return found

    def _show(
        self,
        bag: Bag,
        assessed: Sequence[Assessed],
        rows: Sequence[RankedRow],
        jobs: Mapping[str, int],
        submitted: BagRun | None,
        market: ClusterMarket,
    ) -> None:
        _show(bag, [a.candidate.resource for a in assessed], rows, self._affinity, explain=False)
        blind = [a.candidate for a in assessed if a.why is None and a.candidate.notes]
        if blind and not self._explain:
            names, notes = ", ".join(c.name for c in blind), "; ".join(dict.fromkeys(n for c in blind for n in c.notes))
            click.echo(f"{names}: {notes} (a site file says more: --site-file)")
        for cluster, view in market.views.items():
            if note := Cluster.of(view.snapshot).waking_note:
                click.echo(f"{cluster}: {note}")
        by_name, done = {a.candidate.name: a for a in assessed}, ends(jobs, lanes_of(assessed))
        for name, number in jobs.items() if bag.count > 1 else ():
            a = by_name[name]
            each = "" if a.shape.per == 1 else f" of {a.shape.per} tasks"
            each += f" under QOS {a.qos}" if len(bag.qos) > 1 else ""
            begin, end = ago(a.starts[0]), ago(done[name])
            click.echo(f"{name}: {_jobs(number)}{each}, the first starts in {begin}, the last is done in {end}")
        if bag.count > 1 and jobs:
            click.echo(f"{bag.count} tasks are done in {ago(max(done.values()))}")
        if self._explain:
            for a in (a for a in assessed if a.why is None):
                _explain(bag, a.candidate.resource)
                for note in a.candidate.notes:
                    click.echo(f"  {note}")
                quantiles = ", ".join(f"{100 * q:.0f} % {ago(s)}" for q, s in a.wait.quantiles)
                click.echo(f"  wait: expected {ago(a.wait.expected)}; {quantiles}")
                share = market.waits[a.candidate.cluster].share(bag.options)
                if share is not None:
                    click.echo(f"    your fair-share factor there is {share:.2f}")
                said = {"Slurm says": a.slurm, "mean of similar jobs of the last 7 days": a.week}
                for who, seconds in said.items():
                    if seconds is not None:
                        click.echo(f"    {who} {ago(seconds)}")
                if a.shape.fetch:
                    click.echo(f"  input: {ago(a.shape.fetch)} more until it is there, on a link that is free")
                if a.preemptions is not None:
                    often = f"preempted once in {ago(1 / a.preemptions.rate)} of running ({a.preemptions.source})"
                    click.echo(f"  {often}: {ago(a.rework)} more are expected")
        if submitted is not None:
            for array in submitted.arrays:
                click.echo(f"Submitted {_jobs(len(array.pieces))} as job {array.job} to {array.lane}")
            click.echo(f"Bag {submitted.id}: penstock bags {submitted.id}")


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise UserError(f"--quantile must be a number between 0 and 1 such as 0.95, not {text!r}")
    return share


def _json(bags: Sequence[Bag], ranked: Mapping[str, Sequence[RankedRow]]) -> list[dict[str, Any]]:
    several = len(bags) > 1
    return [{**({"task": name} if several else {}), **asdict(row)} for name, rows in ranked.items() for row in rows]


def _show(
    bag: Bag, resources: Sequence[Resource], rows: Sequence[RankedRow], affinity: Affinity, *, explain: bool
) -> None:
    table(
        bag.task.name,
        ("resource", _UNITS[affinity.metric], "Tx", "Tq", "TTC", "why"),
        [
            (r.resource, None if r.cost is None else f"{r.cost:.4g}", ago(r.tx), ago(r.tq), ago(r.ttc), _why(r))
            for r in rows
        ],
    )
    by_name = {res.name: res for res in resources}
    if explain:
        for row in (r for r in rows if r.viable):
            _explain(bag, by_name[row.resource])


def _why(row: RankedRow) -> str | None:
    return row.why if row.viable else f"not viable: {row.why}"


def _explain(bag: Bag, res: Resource) -> None:
    click.echo(f"{res.name}:")
    for req in bag.task.requirements:
        best = max(matching(req, res), key=lambda cap: cap.rate or cap.capacity or 0.0)
        if req.held:
            click.echo(f"  {req}: has {best.capacity:g}")
        else:
            assert best.rate is not None
            share = bag.task.parallel.share(req.consumable.type)
            faster = "" if share == 1 else f", {1 / share:.2f} times as fast on {bag.task.parallel.cores} cores"
            click.echo(f"  {req} at {best.rate:g}/s: {req.amount / best.rate:.4g} s{faster}")
    if res.correction != 1:
        click.echo(f"  corrected by {res.correction:.3f}")


def _complain(
    path: Path, bags: Sequence[Bag], resources: Sequence[Resource], ranked: Mapping[str, Sequence[RankedRow]]
) -> None:
    """A task that can run nowhere is an error, said after all that could be said."""
    problems: list[PenstockError] = []
    for bag in bags:
        if any(row.viable for row in ranked[bag.task.name]):
            continue
        for req in bag.task.requirements:
            if any(matching(req, res) for res in resources):
                continue
            near = nearest(req.consumable, resources)
            hint = "" if near is None else f"; the nearest is {near[0]} of {near[1]}"
            problems.append(UserError(f"{path}: {bag.task.name} needs {req}, which no resource offers{hint}"))
            break
        else:
            problems.append(Infeasible(f"{path}: no resource is viable for {bag.task.name}"))
    if problems:
        for other in problems[1:]:
            click.echo(f"penstock: {other}", err=True)
        raise problems[0]
