"""penstock select: where a task finishes first, or runs cheapest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from penstock.config import load
from penstock.errors import Infeasible, NotNow, UserError
from penstock.future.cluster import Cluster
from penstock_planning.broker.acts import BagActs
from penstock_planning.broker.assess import assess
from penstock_planning.broker.choice import Preference, choose, choose_offered
from penstock_planning.broker.place import place
from penstock_planning.broker.resources import read_resources
from penstock_planning.broker.tasks import Bag, read_bags
from penstock_planning.commands.choices import Telling, end, show
from penstock_planning.commands.market import Reach, at_market, bags_of

__all__ = ["select"]

_MOST: Final = 100_000


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
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
    # Only the time to completion has something to spread.
    by = Preference.named(metric, _share(quantile), alone=best or metric != "ttc")
    bags = _bags(file, count, submit)
    told = Telling(by.affinity.metric, explain, as_json)
    if resources is None:
        only = [name.strip() for name in (clusters or "").split(",") if name.strip()]
        asyncio.run(_on_slurm(file, bags, by, Reach(only, site, clock), submit, told))
    elif submit:
        raise UserError("--submit and --resources: only what Slurm has can be submitted to")
    else:
        _among(file, bags, by, resources, told)


def _bags(path: Path, count: int | None, submit: bool) -> list[Bag]:
    """The bags of the file, of `count` tasks if that is said; to be submitted they know the folder that they run in."""
    bags = read_bags(path)
    if count is not None and len(bags) > 1:
        raise UserError(f"-n: {path} has {len(bags)} tasks; say in the file how many there are of each (count)")
    bags = [replace(bag, count=count or bag.count) for bag in bags]
    if submit:  # as sbatch does; and moved tasks, which are submitted from anywhere, run there as well
        here = [str(Path(bag.options.get("workdir", ".")).absolute()) for bag in bags]
        bags = [replace(b, options={**b.options, "workdir": path}) for b, path in zip(bags, here, strict=True)]
    return bags


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


def _among(path: Path, bags: Sequence[Bag], by: Preference, resources: Path, told: Telling) -> None:
    """Among the resources of a file."""
    offered = read_resources(resources)
    found, waits = [one.resource for one in offered], {o.resource.name: o.wait for o in offered if o.wait is not None}
    if waits and len(waits) < len(found):
        silent = ", ".join(o.resource.name for o in offered if o.wait is None)
        click.echo(f"penstock: no `tq` is given for {silent}: counted as no wait", err=True)
    choices = [choose_offered(bag, found, waits, by) for bag in bags]
    for choice in choices:
        show(choice, told)
    end(path, choices, told)


async def _on_slurm(path: Path, bags: Sequence[Bag], by: Preference, where: Reach, submit: bool, told: Telling) -> None:
    """Among Slurm's partitions; to `submit` the tasks are sent there."""
    config = load()
    kept, choices, problems = bags_of(config), [], []
    if submit and any(bag.run is None for bag in bags):
        raise UserError(f"{path}: --submit needs a `run` of every task")
    async with at_market(config, where) as (market, hand):
        for problem in market.problems:
            click.echo(f"penstock: {problem}", err=True)
        waking = {name: Cluster.of(view.snapshot).waking_note for name, view in market.views.items()}
        for bag in bags:
            assessed = await assess(market, bag, bag.count, kept.corrections())
            choice = choose(bag, bag.count, assessed, by)
            if submit and choice.jobs:
                with kept.locked():
                    now = market.views[min(market.views)].backend.now()
                    run = kept.new(bag, bag.count, now, {**by.settings, **where.settings})
                    acts = BagActs(hand.executor, run)
                    problems += await place(run, assessed, choice.jobs, partial(kept.save, run), now, acts)
                choice = replace(choice, sent=run)
            show(choice, told, waking)
            choices.append(choice)
    end(path, choices, told)
    unknown = [choice.bag.task.name for choice in choices if choice.viable and choice.sent is None]
    if submit and unknown:
        raise Infeasible(f"{', '.join(unknown)}: not submitted, as of no viable resource the {told.metric} is known")
    if problems:
        raise NotNow(f"not all was submitted: {'; '.join(problems)} (penstock bags tries again)")
