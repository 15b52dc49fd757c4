"""penstock plan: whole workflows on the slots of a queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from penstock.config import load
from penstock.console.options import number, whole
from penstock.console.output import emit_json, table
from penstock.errors import UserError
from penstock.future.bits import members
from penstock.future.queued import QueueStart
from penstock.workflow.commands.packing import PackingOptions, packing_options
from penstock_planning.commands.answers import Placed, Plan
from penstock_planning.commands.flows import Flows, load_flows
from penstock_planning.commands.front import show_front, values
from penstock_planning.commands.gantt import Bar, as_picture, as_text
from penstock_planning.commands.likely import chain_starts
from penstock_planning.commands.planning import (
    FileSource,
    LiveSource,
    Source,
    Where,
    bars,
    open_source,
    picture_options,
    source_options,
)
from penstock_planning.commands.siteplan import Wish
from penstock_planning.commands.sites import Among, plan_over_sites, site_options
from penstock_planning.hold.reservations import LEAD
from penstock_planning.plan.holding import Limits
from penstock_planning.plan.live import Needs
from penstock_planning.plan.workflows import DEFAULT_METHOD, METHODS, ScheduleChoice, check_reservable, plan_workflow

__all__ = ["plan"]

_ANY_NODE: Final = "a plan's slots may be on any node"
_NAME_IT: Final = "what all nodes of a plan must have say --gres, --mem and -C"
_REQUESTS_PER_STAGE = 3  # to make its reservation, to look at it, to submit its job


@click.command()
@click.argument("workflows", metavar="WORKFLOW...", nargs=-1, required=True, type=click.Path(path_type=Path))
@source_options
@site_options
@packing_options
@number("alpha", "0: only the makespan counts, 1: only the cost (default: 0.5; with --deadline 1).", -1e-9, 1, "0 to 1")
@click.option("--deadline", metavar="T", help="The last stage must have ended by then.")
@number("budget", "The plan must not cost more.", 0, 1e15, "a number above 0")
@click.option("--method", metavar="|".join(METHODS), default=DEFAULT_METHOD, show_default=True, help="How to plan.")
@click.option("--reserve", is_flag=True, help="Run it: in reserved slots where you may, else as a chain.")
@click.option("-A", "--account", default="default", metavar="NAME", help="Who pays for --reserve, in the ledger.")
@whole("seed", "Seed of the search (default: 1).", least=0)
@picture_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    workflows: tuple[Path, ...],
    where: Where,
    among: Among,
    packed: PackingOptions,
    alpha: float | None,
    deadline: str | None,
    budget: float | None,
    method: str,
    reserve: bool,
    account: str,
    seed: int | None,
    gantt: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Plan when each stage starts, on what, and at what price.

    --reserve has it run in reserved slots. Who may not reserve gets a chain of jobs under `auto`, as by penstock
    submit; so does --method best-effort.

    best looks at all ways: slots that are free, and slots that others wait for, at the price of their delay; no plan of
    another method is both cheaper and faster than one that it shows. greedy only buys, one stage after the other;
    paper is the search of Singh 2008, which charges whole slots; best-effort tells what the queue alone would give if
    nobody else came. With --queue, seconds of stages count as the file's unit of time and nodes as its
    processors. Every stage is planned for its time limit; one whose file says what it `took` before gets the slot that
    is cheapest to expect, and another one of its whole limit if it takes longer. The tasks of a WfFormat file are
    packed into the nodes of their stages; with --pool and --reserve they run in the pool, which the reserved nodes
    join.
    """
    config = load()
    if alpha is None:  # who names a deadline wants it kept, and no more paid than that takes
        alpha = 0.5 if deadline is None else 1.0
    seed = 1 if seed is None else seed
    packing = packed.packing(config, where.needs.cpus or None, runs=reserve)
    if among.wanted:
        wish = Wish(method, alpha, deadline, budget, seed, account if reserve else None)
        plan_over_sites(workflows, packing, where, among, wish, gantt, picture, as_json)
        return
    live = where.queue_file is None
    flows = load_flows(workflows, packing, live)
    margin = lead = 0.0
    if reserve and not live:
        raise UserError("--reserve is for a cluster and cannot go with --queue")
    if reserve:
        check_reservable(method)
    if reserve and method != "best-effort":
        margin = config.provision.margin
        # Nothing may begin before its job is there, nor sooner than the site wants it to be asked for.
        notice = Limits.preset(config.provision.limits).notice
        lead = notice + LEAD + len(flows.items) * _REQUESTS_PER_STAGE / config.slurm.requests_per_second
    source = open_source(where, {"--deadline": deadline}, flows.durations(margin), lead)
    situation = source.situation
    now = situation.queue.now
    last = source.time("--deadline")
    if last is not None and last == now:
        raise UserError(f"--deadline must be later than now ({source.show(now)})")
    dag = flows.dag(source)
    found = plan_workflow(
        situation,
        dag,
        method,
        alpha,
        math.inf if last is None else last - now,
        math.inf if budget is None else budget * situation.scale,
        seed,
        show=source.show_length,
    )
    # Of nodes that must have something, it is not all of the partition's that a job in the queue waits for.
    queued = []
    if isinstance(source, LiveSource) and not reserve and where.needs == Needs():
        queued = chain_starts(config, source.snapshot, source.partition.name, flows.chained())
    lacking = ""
    if isinstance(source, LiveSource):
        lacking = flows.lacking(
            [source.snapshot.nodes[name] for name in situation.named(situation.within & situation.queue.everything)]
        )
    if not as_json:
        _show(source, flows, found, queued)
    if lacking:
        click.echo(f"penstock: {_ANY_NODE}, but {lacking} ({_NAME_IT})", err=True)
    own = [Bar(flows.items[p.task].name, "own", p.nodes, p.start, p.end) for p in found.schedule.placed]
    drawn = [*bars(situation.plan()), *own]
    end = max([bar.end for bar in drawn if bar.end < math.inf], default=now)
    if gantt and not as_json:
        click.echo(as_text(drawn, situation.names, now, end, source.show), nl=False)
    if picture is not None:
        as_picture(picture, drawn, situation.names, now, end, source.unit)
    begun = None
    if reserve:
        assert isinstance(source, LiveSource)
        from penstock_planning.commands.reserve import begin, begin_chain

        if method == "best-effort":
            begun = begin_chain(config, flows, source, "best effort is what the queue alone gives")
        elif lacking:
            begun = begin_chain(config, flows, source, f"{_ANY_NODE}, but {lacking}")
        else:
            begun = begin(config, flows, source, found, account)
        for line in begun.lines():
            click.echo(line, err=as_json)
    if as_json:
        emit_json(_of(source, flows, method, found, queued, {} if begun is None else {"run": begun.as_json()}))


def _of(
    source: Source, flows: Flows, method: str, found: ScheduleChoice, queued: Sequence[QueueStart], run: dict[str, Any]
) -> Plan:
    out, names = source.situation.outside, source.situation.names
    nodes: Sequence[Any] = range(len(names)) if isinstance(source, FileSource) else names
    return Plan(
        **values(method, found, out) | run,
        stages=[
            Placed(
                name=flows.items[p.task].name,
                start=out(p.start),
                end=out(p.end),
                procs=flows.items[p.task].stage.nodes,
                on=list(members(nodes, p.nodes)),
                **flows.items[p.task].as_json() | ({"likely": queued[p.task].as_json()} if queued else {}),
            )
            for p in found.schedule.placed
        ],
    )


def _show(source: Source, flows: Flows, found: ScheduleChoice, queued: Sequence[QueueStart]) -> None:
    out = source.situation.outside
    unit = "SU" if isinstance(source, LiveSource) else ""
    show_front(found, lambda cost: f"{out(cost):g}", source.show_length, unit)
    known = bool(queued) and queued[0].band is not None
    stages = [
        (
            flows.items[p.task].name,
            flows.items[p.task].stage.nodes,
            source.show(p.start),
            source.show(p.end),
            *([queued[p.task].likely(source.show) or "not within 30 days"] if known else []),
        )
        for p in sorted(found.schedule.placed, key=lambda p: (p.start, p.task))
    ]
    head = ("stage", "processors", "start", "end", *(["likely start in the queue"] if known else []))
    table("The chosen one", head, stages)
    for line in flows.shortened(source.show_length):
        click.echo(line)
    if found.queue_alone is not None:
        alone = found.queue_alone
        click.echo(
            f"The queue alone, if nobody else came: cost {out(alone.cost):g}, "
            f"makespan {source.show_length(alone.makespan)}"
        )
    if isinstance(source, LiveSource):
        click.echo(
            "All of it by everybody's time limits"
            + ("; likely is when the stages start as a chain of jobs, without slots" if known else "")
            + "; `penstock try` says how long a chain is likely to take."
        )
    if queued and not known:
        click.echo(f"When the stages likely start in the queue is not known: {queued[0].why}.")
