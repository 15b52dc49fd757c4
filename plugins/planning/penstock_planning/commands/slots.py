"""penstock slots, penstock quote: what is free when, and what a slot costs."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from penstock.config import load
from penstock.console.options import number, whole
from penstock.console.output import emit_json, table
from penstock.errors import Infeasible, UserError
from penstock.future.plan import QueueSchedule
from penstock.future.queued import QueueStart
from penstock.texts import plural
from penstock_planning.commands import answers as planning
from penstock_planning.commands.explain_plan import compare, estimate_line
from penstock_planning.commands.gantt import as_picture, as_text
from penstock_planning.commands.likely import queue_starts
from penstock_planning.commands.planning import (
    LiveSource,
    Source,
    Where,
    bars,
    open_source,
    picture_options,
    source_options,
)
from penstock_planning.commands.session import serve
from penstock_planning.plan.live import Needs
from penstock_planning.plan.pricing import Quote, choose, quote_all
from penstock_planning.plan.pricing import quote as one_quote
from penstock_planning.plan.slots import Slot

__all__ = ["quote", "slots"]

_LIKELY: Final = 20
"""Slots of which the likely start is worked out, the first ones."""
_LONG: Final = 3600.0
"""Seconds of a slot without end that a job asks for there."""


@click.command()
@source_options
@click.option("--from", "since", metavar="T", help="Only slots that end after T.")
@click.option("--to", "until", metavar="T", help="Only slots that begin before T.")
@whole("nodes", "Only slots with at least N nodes (processors, in a file).", short="-N")
@click.option("-t", "--time", "length", metavar="TIME", help="Only slots at least so long.")
@click.option("--explain", is_flag=True, help="Say when every waiting job starts by our plan and by Slurm's estimate.")
@picture_options
@click.option("--session", is_flag=True, help="Print all on one line of JSON, then answer questions (plan --sites).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def slots(
    where: Where,
    since: str | None,
    until: str | None,
    nodes: int | None,
    length: str | None,
    explain: bool,
    gantt: bool,
    picture: Path | None,
    session: bool,
    as_json: bool,
) -> None:
    """Show what the queue leaves free, as slots.

    A slot is a number of nodes (of processors, in a file) that stay the same ones for its whole duration. Nobody who
    waits is delayed by it. Of a divisible slot a part can be had; an extensible one has no end but the horizon. Starts
    are by everybody's time limits; the likely ones are those of a job in the queue, by how long jobs ran before.
    """
    if session and (since or until or nodes or length or explain or gantt or picture):
        raise UserError("--session says all there is; it goes only with --queue, -p, --cores, --mem, --gres and -C")
    source = open_source(where, {"--from": since, "--to": until}, {"-t/--time": where.length(length)})
    if session:
        serve(source, sys.stdin)
        return
    first, last, least = source.time("--from"), source.time("--to"), source.duration("-t/--time")
    if first is not None and last is not None and last <= first:
        raise UserError(f"--to must be later than --from ({source.show(first)}), not {source.show(last)}")
    plan = source.situation.plan()
    found = [
        s
        for s in source.situation.slots(plan)
        if s.procs >= (nodes or 1)
        and (least is None or s.duration >= least or s.extensible)
        and (first is None or s.end > first)
        and (last is None or s.start < last)
    ]
    if source.situation.horizon is None and plan.last_finish <= plan.queue.now:
        click.echo('nothing ends after now: give the file a "horizon"', err=True)
    likely = _likely(source, found, constrained=where.needs != Needs())
    if as_json:
        emit_json(planning.Slots(slots=[_slot_of(source, s, likely) for s in found]))
    else:
        rows = [
            (
                source.show(s.start),
                *([_likely_text(source, likely[s])] if s in likely else [""] if likely else []),
                s.procs,
                source.show_length(s.duration),
                f"{s.c * source.hours:g}",
                _kind(s.divisible, s.extensible),
                *_names(source, s.nodes),
            )
            for s in found
        ]
        price = "SU a node-hour" if isinstance(source, LiveSource) else "price"
        head = ("start", *(["likely"] if likely else []), "nodes", "duration", price, "kind")
        table("Slots", head if not isinstance(source, LiveSource) else (*head, "which"), rows)
        _notes(source)
    if explain:
        compare(source, plan)
    _draw(source, plan, gantt and not as_json, picture)


def _likely(source: Source, slots: Sequence[Slot], constrained: bool) -> dict[Slot, QueueStart]:
    """Of the first slots that begin later than now, when a job that takes them would begin in the queue, where enough
    is known of how long jobs run."""
    later = [s for s in slots if s.start > source.situation.queue.now][:_LIKELY]
    if not isinstance(source, LiveSource) or constrained or not later:
        return {}
    asked = [(s.procs, min(s.duration, _LONG) if s.extensible else s.duration) for s in later]
    found = queue_starts(load(), source.snapshot, source.partition.name, asked)
    return {s: start for s, start in zip(later, found, strict=True) if start.band is not None}


def _likely_text(source: Source, start: QueueStart) -> str:
    assert start.band is not None
    return source.show(start.band.likely)


def _slot_of(source: Source, slot: Slot, likely: Mapping[Slot, QueueStart]) -> planning.Slot:
    row = source.situation.slot_row(slot) | _nodes(source, slot.nodes)
    return planning.Slot(**row | ({"likely": likely[slot].as_json()} if slot in likely else {}))


def _kind(divisible: bool, extensible: bool) -> str:
    words = [word for word, is_so in (("divisible", divisible), ("extensible", extensible)) if is_so]
    return ", ".join(words) or "as a whole"


def _nodes(source: Source, nodes: int) -> dict[str, list[str]]:
    """The names of nodes, where they have any."""
    if not isinstance(source, LiveSource):
        return {}
    return {"nodes": list(source.situation.named(nodes))}


def _names(source: Source, nodes: int) -> list[str]:
    names = _nodes(source, nodes).get("nodes")
    return [] if names is None else [",".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")]


def _notes(source: Source) -> None:
    for note in source.situation.notes:
        click.echo(note, err=True)


def _draw(source: Source, plan: QueueSchedule, gantt: bool, picture: Path | None) -> None:
    begin, last = plan.queue.now, source.situation.horizon or plan.last_finish
    if gantt:
        click.echo(as_text(bars(plan), source.situation.names, begin, last, source.show), nl=False)
    if picture is not None:
        as_picture(picture, bars(plan), source.situation.names, begin, last, source.unit)


@click.command()
@source_options
@click.option("-N", "--nodes", "procs", metavar="N", help="How many nodes (processors, in a file).")
@click.option("-t", "--time", "length", metavar="TIME", help="For how long.")
@click.option("--at", "at", metavar="T", help="Only a start at T.")
@click.option("--after", "after", metavar="T", help="Only starts from T on, and T itself if it can be had.")
@number("alpha", "Only the best start: 0 the earliest, 1 the cheapest, in between a trade-off.", -1e-9, 1, "0 to 1")
@click.option("--explain", is_flag=True, help="Say which jobs are delayed and by how much, and what Slurm estimates.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quote(
    where: Where,
    procs: str | None,
    length: str | None,
    at: str | None,
    after: str | None,
    alpha: float | None,
    explain: bool,
    as_json: bool,
) -> None:
    """Say what a slot costs, by when it starts.

    To the plain price (nodes x time x c) a slot adds f: the delay of every waiting job that it pushes back, times that
    job's processors. Running jobs and reservations are never moved, so some starts cannot be had. Beside them stands
    when such a job would start in the queue: at the latest by time limits, and likely by how long jobs ran before.
    """
    if procs is None:
        raise UserError("-N/--nodes is missing: how many nodes?")
    if length is None:
        raise UserError("-t/--time is missing: for how long?")
    if at is not None and after is not None:
        raise UserError("--at and --after cannot go together")
    source = open_source(where, {"--at": at, "--after": after}, {"-t/--time": where.length(length)})
    situation = source.situation
    count = _count(procs, situation.queue.size)
    duration = source.duration("-t/--time")
    assert duration is not None
    instant, earliest = source.time("--at"), source.time("--after")
    source.check(count, duration)
    constrained = where.needs != Needs()  # then it is not one of all the partition's nodes that it waits for
    plan = situation.plan()
    if instant is not None:
        quotes = [one_quote(plan, count, duration, instant, situation.pricing, situation.within)]
    else:
        quotes = quote_all(plan, count, duration, situation.pricing, earliest, situation.within)
    if alpha is not None:
        best = choose(quotes, alpha)
        if best is None:
            raise Infeasible(f"{count} processors for {length} cannot be had at any of these starts")
        quotes = [best]
    queued = None
    if isinstance(source, LiveSource) and not constrained:
        (queued,) = queue_starts(load(), source.snapshot, source.partition.name, [(count, duration)])
    if as_json:
        asked = None if queued is None else planning.QueueStart(**queued.as_json())
        emit_json(planning.Quotes(quotes=[_of(source, q) for q in quotes], queued=asked))
        return
    rows = []
    for q in quotes:
        prices = [f"{situation.outside(p):g}" for p in (q.f, q.total)] if q.feasible else ["cannot be had", ""]
        rows.append((source.show(q.start), *prices, *_names(source, q.nodes)))
    unit = " (SU)" if isinstance(source, LiveSource) else ""
    head = ("start", f"for delays{unit}", f"in total{unit}")
    table(
        f"{plural(count, 'node')} for {length}", head if not isinstance(source, LiveSource) else (*head, "which"), rows
    )
    _notes(source)
    if queued is not None:
        click.echo(queued.line(source.show))
    if explain:
        for q in quotes:
            for job, delay in q.delays.items():
                click.echo(f"start {source.show(q.start)}: delays {job} by {source.show_length(delay)}")
        free = next((q.start for q in quotes if q.f == 0), None)
        estimate_line(source, count, duration, free)


def _count(text: str, size: int) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:19]) <= size):
        raise UserError(
            f"-N/--nodes must be a whole number from 1 to {size}, which is all there are, not {text[:40]!r}"
        )
    return int(text)


def _of(source: Source, q: Quote) -> planning.Quote:
    out = source.situation.outside
    f, delays = out(q.f) if q.f < math.inf else None, {job: out(delay) for job, delay in q.delays.items()}
    return planning.Quote.told(q, start=out(q.start), f=f, delays=delays, **_nodes(source, q.nodes))
