"""penstock select: where a task finishes first, or runs cheapest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from penstock.broker.affinities import affinity_named
from penstock.broker.resources import read_resources
from penstock.broker.tasks import Bag, read_bags
from penstock.cli.output import ago, emit_json, table
from penstock.errors import Infeasible, PenstockError, UserError
from penstock.select.consumables import Metric, Resource
from penstock.select.matchmaking import matching, nearest
from penstock.select.ranking import Affinity, Row, rank

__all__ = ["select"]

_UNITS: Final = {Metric.TIME: "K s", Metric.MONEY: "K SU", Metric.ENERGY: "K J"}


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--task", "task_file", metavar="FILE", type=click.Path(path_type=Path), help="The task file.")
@click.option("--resources", metavar="FILE", type=click.Path(path_type=Path), help="Resources to select among.")
@click.option("--metric", metavar="NAME", default="ttc", show_default=True, help="ttc, cost, energy, or a plug-in's.")
@click.option("--quantile", metavar="Q", help="Time to completion within which 100 Q % are done. [default: expected]")
@click.option("--explain", is_flag=True, help="Say what the figures are made of.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def select(
    file: Path | None,
    task_file: Path | None,
    resources: Path | None,
    metric: str,
    quantile: str | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Say on which resource a task finishes first, or runs cheapest (paper 000).

    The time to completion is the predicted wait plus the predicted run time. With --json a list, best first, of
    {"resource", "viable", "why", "cost", "tx", "tq", "ttc"} (seconds); of several tasks each row names its "task".

    \b
    penstock select --task md.yaml --resources machines.yaml
    """
    if (file is None) == (task_file is None):
        raise UserError("one task file must be named: penstock select FILE (or --task FILE)")
    affinity, wanted = affinity_named(metric), _share(quantile)
    path = file or task_file
    assert path is not None
    bags = read_bags(path)
    if resources is None:
        raise UserError("--resources is missing: a file of resources to select among")
    offered = read_resources(resources)
    found, waits = [one.resource for one in offered], {o.resource.name: o.wait for o in offered if o.wait is not None}
    if waits and len(waits) < len(found):
        silent = ", ".join(o.resource.name for o in offered if o.wait is None)
        click.echo(f"penstock: no `tq` is given for {silent}: counted as no wait", err=True)
    ranked = {b.task.name: rank(b.task, found, waits, affinity=affinity, quantile=wanted) for b in bags}
    _show(bags, found, ranked, affinity, as_json=as_json, explain=explain)
    _complain(path, bags, found, ranked)


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


def _show(
    bags: Sequence[Bag],
    resources: Sequence[Resource],
    ranked: Mapping[str, Sequence[Row]],
    affinity: Affinity,
    *,
    as_json: bool,
    explain: bool,
) -> None:
    if as_json:
        several = len(bags) > 1
        rows: list[dict[str, Any]] = []
        for name, each in ranked.items():
            rows += [{**({"task": name} if several else {}), **asdict(row)} for row in each]
        emit_json(rows)
        return
    for bag in bags:
        rows_of = ranked[bag.task.name]
        table(
            f"{bag.task.name}",
            ("resource", _UNITS[affinity.metric], "Tx", "Tq", "TTC", "why"),
            [
                (r.resource, None if r.cost is None else f"{r.cost:.4g}", ago(r.tx), ago(r.tq), ago(r.ttc), _why(r))
                for r in rows_of
            ],
        )
        if explain:
            _explain(bag, resources, rows_of)


def _why(row: Row) -> str | None:
    return row.why if row.viable else f"not viable: {row.why}"


def _explain(bag: Bag, resources: Sequence[Resource], rows: Sequence[Row]) -> None:
    by_name = {res.name: res for res in resources}
    for row in (r for r in rows if r.viable):
        res = by_name[row.resource]
        click.echo(f"{row.resource}:")
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
    path: Path, bags: Sequence[Bag], resources: Sequence[Resource], ranked: Mapping[str, Sequence[Row]]
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
