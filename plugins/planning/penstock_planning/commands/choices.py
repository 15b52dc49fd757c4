"""What `penstock select` says of the resources for a bag: a table with lines under it, and rows of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from penstock.console.output import ago, emit_json, table
from penstock.errors import Infeasible, PenstockError, UserError
from penstock.texts import plural
from penstock_planning.broker.assess import Assessed
from penstock_planning.broker.choice import Choice
from penstock_planning.select.consumables import Metric, Resource
from penstock_planning.select.matchmaking import matching

__all__ = ["Telling", "end", "show"]

_UNITS: Final = {Metric.TIME: "K s", Metric.MONEY: "K SU", Metric.ENERGY: "K J"}


@dataclass(frozen=True, slots=True)
class Telling:
    """How it is told: costs are in `metric`; what they are made of is explained, or all is JSON."""

    metric: Metric
    explain: bool
    as_json: bool


def show(choice: Choice, told: Telling, waking: Mapping[str, str] | None = None) -> None:
    """Print the table and what is to be said of it, unless all is JSON; `waking` of nodes that are asleep, by
    cluster."""
    if told.as_json:
        return
    table(
        choice.bag.task.name,
        ("resource", _UNITS[told.metric], "Tx", "Tq", "TTC", "why"),
        [
            (
                r.resource,
                None if r.cost is None else f"{r.cost:.4g}",
                ago(r.tx),
                ago(r.tq),
                ago(r.ttc),
                r.why if r.viable else f"not viable: {r.why}",
            )
            for r in choice.rows
        ],
    )
    blind = (
        [] if told.explain else [a.candidate for a in choice.assessed.values() if a.why is None and a.candidate.notes]
    )
    if blind:
        names, notes = ", ".join(c.name for c in blind), "; ".join(dict.fromkeys(n for c in blind for n in c.notes))
        click.echo(f"{names}: {notes} (a site file says more: --site-file)")
    for cluster, note in (waking or {}).items():
        if note:
            click.echo(f"{cluster}: {note}")
    for line in _divided(choice):
        click.echo(line)
    for resource in choice.viable if told.explain else ():
        for line in _explained(choice, resource):
            click.echo(line)
    if choice.sent is not None:
        for array in choice.sent.arrays:
            click.echo(f"Submitted {plural(len(array.pieces), 'job')} as job {array.job} to {array.lane}")
        click.echo(f"Bag {choice.sent.id}: penstock bags {choice.sent.id}")


def end(path: Path, choices: Sequence[Choice], told: Telling) -> None:
    """Print what programs read. A task of the file `path` that can run nowhere is an error, raised after all that could
    be said: UserError where no resource offers what it needs, else Infeasible."""
    if told.as_json:
        emit_json({"resources": [row for choice in choices for row in _rows(choice, named=len(choices) > 1)]})
    problems: list[PenstockError] = []
    for name, nowhere in [(choice.bag.task.name, choice.nowhere) for choice in choices if not choice.viable]:
        if nowhere is None:
            problems.append(Infeasible(f"{path}: no resource is viable for {name}"))
        else:
            problems.append(UserError(f"{path}: {name} {nowhere}"))
    for other in problems[1:]:
        click.echo(f"penstock: {other}", err=True)
    if problems:
        raise problems[0]


def _rows(choice: Choice, *, named: bool) -> Iterator[dict[str, Any]]:
    """What programs read of each resource, best first; `named` with the task, as there are several."""
    left = choice.bag.count
    for row in choice.rows:
        one: dict[str, Any] = {**({"task": choice.bag.task.name} if named else {}), **asdict(row)}
        if (there := choice.assessed.get(row.resource)) is not None:
            one["jobs"] = choice.jobs.get(row.resource, 0)
            one["tasks"] = min(one["jobs"] * there.shape.per, left)
            left -= one["tasks"]
            if choice.bag.qos:
                one["qos"] = there.qos
        if choice.sent is not None:
            one["bag"] = choice.sent.id
            one["job_ids"] = [array.job for array in choice.sent.arrays if array.lane == row.resource]
        yield one


def _divided(choice: Choice) -> Iterator[str]:
    """How many of several tasks go where, and when they are done."""
    bag = choice.bag
    for name, number in choice.jobs.items() if bag.count > 1 else ():
        there = choice.assessed[name]
        each = "" if there.shape.per == 1 else f" of {there.shape.per} tasks"
        each += f" under QOS {there.qos}" if len(bag.qos) > 1 else ""
        begin, end = ago(there.starts[0]), ago(choice.ends[name])
        yield f"{name}: {plural(number, 'job')}{each}, the first starts in {begin}, the last is done in {end}"
    if bag.count > 1 and choice.jobs:
        yield f"{bag.count} tasks are done in {ago(max(choice.ends.values()))}"


def _explained(choice: Choice, res: Resource) -> Iterator[str]:
    """What the figures of a viable resource are made of."""
    task = choice.bag.task
    yield f"{res.name}:"
    for req in task.requirements:
        best = max(matching(req, res), key=lambda cap: cap.rate or cap.capacity or 0.0)
        if req.held:
            yield f"  {req}: has {best.capacity:g}"
        else:
            assert best.rate is not None
            share = task.parallel.share(req.consumable.type)
            faster = "" if share == 1 else f", {1 / share:.2f} times as fast on {task.parallel.cores} cores"
            yield f"  {req} at {best.rate:g}/s: {req.amount / best.rate:.4g} s{faster}"
    if res.correction != 1:
        yield f"  corrected by {res.correction:.3f}"
    if res.name in choice.assessed:
        yield from _awaited(choice.assessed[res.name])


def _awaited(there: Assessed) -> Iterator[str]:
    """What is expected of a partition beside the run time."""
    for note in there.candidate.notes:
        yield f"  {note}"
    quantiles = ", ".join(f"{100 * q:.0f} % {ago(s)}" for q, s in there.wait.quantiles)
    yield f"  wait: expected {ago(there.wait.expected)}; {quantiles}"
    if there.share is not None:
        yield f"    your fair-share factor there is {there.share:.2f}"
    said = {"Slurm says": there.slurm, "mean of similar jobs of the last 7 days": there.week}
    for who, seconds in said.items():
        if seconds is not None:
            yield f"    {who} {ago(seconds)}"
    if there.shape.fetch:
        yield f"  input: {ago(there.shape.fetch)} more until it is there, on a link that is free"
    if there.preemptions is not None:
        often = f"preempted once in {ago(1 / there.preemptions.rate)} of running ({there.preemptions.source})"
        yield f"  {often}: {ago(there.rework)} more are expected"
