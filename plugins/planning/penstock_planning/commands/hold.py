"""penstock hold, penstock ledger: slots that are really held, and what they cost."""

from __future__ import annotations

import asyncio
import math
import os
import pwd
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import click

from penstock.config import load
from penstock.console.acting import acting
from penstock.console.groups import CommandGroup
from penstock.console.options import number
from penstock.console.output import clock, emit_json, table
from penstock.console.times import TIME
from penstock.core.acts import Reserve
from penstock.core.executor import Concern, Payload
from penstock.errors import Infeasible, NotNow, PenstockError, UserError
from penstock.site.viewing import take_snapshot
from penstock.state.ownership import is_readable, ledger_path
from penstock.values.durations import duration_text
from penstock.workflow.commands.packing import pool_commands
from penstock_planning.commands import answers as planning
from penstock_planning.commands.answers import Account, Entry, HoldAnswer, Holds, HoldTick
from penstock_planning.commands.planning import LiveSource, Where, cluster_options
from penstock_planning.extending import pricing_rules
from penstock_planning.hold import requests
from penstock_planning.hold.holds import NOT_PERMITTED
from penstock_planning.hold.idle import IdleJob, idle_submission
from penstock_planning.hold.ledger import Ledger, open_ledger
from penstock_planning.hold.reservations import Reservations
from penstock_planning.plan.holding import METHODS, Hold, HoldPhase, WantedSlot
from penstock_planning.plan.pricing import quote

__all__ = ["hold", "ledger", "with_reservations"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_PATIENCE: Final = 60.0
T = TypeVar("T")
R = TypeVar("R", bound=planning.Hold)


def with_reservations(work: Callable[[Reservations], Awaitable[T]], patience: float = _PATIENCE) -> T:
    """Do something with the configured cluster and ledger, alone."""
    config = load()

    async def run() -> T:
        async with acting(config) as hand:
            reservations = Reservations(config, hand.slurm, hand.executor)
            try:
                async with reservations.alone(patience):
                    return await work(reservations)
            finally:
                reservations.close()

    return asyncio.run(run())


def _uid(users: Sequence[str]) -> int:
    """Whose request it is; the caller's own where the name is not known here."""
    try:
        return pwd.getpwnam(users[0]).pw_uid
    except (IndexError, KeyError):
        return os.geteuid()


@click.group(cls=CommandGroup)
def hold() -> None:
    """Hold slots, so that nobody else gets them.

    As reservations, by request, or by a job that idles until they begin.
    """


@hold.command("open")
@cluster_options
@click.option("-N", "--nodes", type=click.IntRange(1), required=True, metavar="N", help="How many nodes.")
@click.option("-t", "--time", "length", type=TIME, required=True, metavar="TIME", help="For how long.")
@click.option("--at", "at", required=True, metavar="T", help="When it begins.")
@click.option("-A", "--account", default="default", show_default=True, metavar="NAME", help="Who pays, in the ledger.")
@click.option("-u", "--user", metavar="NAME", help="For whom (default: you; others need Operator rights).")
@click.option("--name", metavar="NAME", help="Name of the reservation or job (default: made up).")
@click.option(
    "--kind",
    "method",
    type=click.Choice(["auto", *METHODS]),
    default="auto",
    show_default=True,
    help="auto: a reservation if that is permitted, else a request if the site takes them, else a job that idles.",
)
@click.option(
    "--idle-budget",
    "idle",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    metavar="PERCENT",
    help="What idling may cost at most, of what the slot costs.",
)
@click.option("--run", "command", default="", metavar="COMMAND", help="What the idle job does when the slot begins.")
@click.option("--pool", metavar="NAME", help="Have the idle job work for this pool until the slot begins.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def open_(
    where: Where,
    nodes: int,
    length: float,
    at: str,
    account: str,
    user: str | None,
    name: str | None,
    method: str,
    idle: int,
    command: str,
    pool: str | None,
    as_json: bool,
) -> None:
    """Hold a slot. Its price is that of `penstock quote`; it goes to the ledger when the slot is there."""
    if where.queue_file is not None:
        raise UserError("--queue: a slot can only be held on a cluster")
    if name is not None and not _NAME.fullmatch(name):
        raise UserError(f"--name must be 1 to 40 of A-Z a-z 0-9 _ . -, not {name[:60]!r}")
    config = load()
    meanwhile = "" if pool is None else pool_commands(config, pool).join

    async def work(reservations: Reservations) -> tuple[int, Hold]:
        backend = reservations.backend
        source = LiveSource(
            await take_snapshot(backend), where, pricing_rules(config), {"--at": at}, {"-t/--time": length}
        )
        start, duration = source.time("--at"), source.duration("-t/--time")
        assert start is not None and duration is not None
        source.check(nodes, duration)
        situation = source.situation
        price = quote(situation.plan(), nodes, duration, start, situation.pricing, situation.within)
        wanted = WantedSlot(
            name or f"pst-{secrets.token_hex(4)}",
            user or backend.whoami(),
            account,
            nodes,
            source.partition.name,
            math.ceil(start),
            duration,
            "reservation" if method == "auto" else method,
            nodes * duration * price.c,
            price.f,
            situation.pricing.penalty,
            price.c,
            config.provision.margin,
            command=command,
            workdir=str(Path.cwd()),
            meanwhile=meanwhile,
        )
        return await _open(wanted, method, reservations, source.partition.max_time, duration * idle / 100)

    got, held = with_reservations(work)
    if as_json:
        emit_json(_of(got, held, HoldAnswer))
    else:
        click.echo(_sentence(got, held))
    if held.phase is HoldPhase.FAILED:
        raise PenstockError(held.reason)


async def _open(
    wanted: WantedSlot, method: str, reservations: Reservations, longest: float | None, idle: float
) -> tuple[int, Hold]:
    """Open it; by `auto` the next way where the first is not permitted. `longest`: what a job may take, `idle`: how
    long one may idle."""
    ways = [wanted.method]
    if method == "auto":
        ways = ["reservation", *(["request"] if reservations.may_request else []), "var"]
    for way in ways:
        price = math.inf if way == "var" else wanted.f
        if way != "var" and price == math.inf:
            if way == ways[-1]:
                raise PenstockError("running jobs or reservations have the nodes at that time")
            continue
        if way in ("var", "combined"):
            found = await _idle_job(wanted, reservations, longest, idle, way)
            if found is not None:
                wanted = replace(wanted, submit_at=found.at, run_time=found.run_time)
                wanted = replace(wanted, chance=round(found.chance, 4), idle=round(found.idle, 3))
        got = await reservations.holds.open(replace(wanted, method=way, f=price))
        held = reservations.ledger.hold(got)
        if held.phase is not HoldPhase.FAILED or not held.reason.startswith(NOT_PERMITTED) or way == ways[-1]:
            return got, held
    raise AssertionError("no way was tried")


async def _idle_job(
    wanted: WantedSlot, reservations: Reservations, longest: float | None, idle: float, way: str
) -> IdleJob | None:
    """The job that idles until the slot begins; None: a reservation has to do without one."""
    try:
        return await idle_submission(reservations.backend, wanted.nodes, wanted.start, wanted.duration, longest, idle)
    except Infeasible:
        if way == "var":
            raise
        return None


@hold.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that are settled, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(everything: bool, as_json: bool) -> None:
    """Show what is held, after a look at how it stands."""

    async def work(reservations: Reservations) -> dict[int, Hold]:
        await reservations.holds.tick()
        held = reservations.ledger.holds(everything)
        return {number: each for number, each in held.items() if everything or not each.phase.final}

    # Nothing was ever held where there is no ledger: to say so is no reason to make one.
    _show(with_reservations(work) if is_readable(ledger_path(load())) else {}, as_json)


@hold.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tick(as_json: bool) -> None:
    """One pass over all holds and reserved plans, for a crontab where no agent runs, which does the same.

    It submits idle jobs in time, settles what is over, and mends plans.

    A stage of a workflow of `penstock plan --reserve` that cannot run in its slot gets another one; so does one that
    can begin earlier, if that costs nothing or less than `provision.earlier` says that the time is worth.
    """

    found: Mapping[int, Hold] = {}
    said: list[str] = []
    try:
        if is_readable(ledger_path(load())):
            found, said = with_reservations(Reservations.tick, 0.0)
    except NotNow:
        pass  # somebody else is at it, an agent perhaps
    if as_json:
        emit_json(HoldTick(holds=[_of(*each, planning.Hold) for each in found.items()], changes=said))
    for line in () if as_json else said:
        click.echo(line)


@hold.command()
@click.argument("number", type=int)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cancel(number: int, as_json: bool) -> None:
    """Give a slot up. Before it begins its price comes back, but for the penalty."""

    async def work(reservations: Reservations) -> Hold:
        return await reservations.holds.cancel(number)

    held = with_reservations(work)
    if as_json:
        emit_json(_of(number, held, HoldAnswer))
    else:
        click.echo(_sentence(number, held))


@hold.command()
@click.argument("request", type=click.Path(path_type=Path))
def grant(request: Path) -> None:
    """As an operator: make the reservation that a signed request asks for."""
    config = load()
    spec = requests.read(request, requests.load_key(config.provision.request_key), flags=("PURGE_COMP=10",))

    async def work() -> str:
        async with acting(config) as hand:
            if spec.start + spec.duration <= hand.slurm.now():
                # Whoever has kept a copy of the file could have it granted again, unpaid.
                raise UserError(f"{request}: what it asks for was over before now")
            concern = Concern("slots", _uid(spec.users), (spec.partition or "",))
            payload: Payload = {"slot": spec.name, "nodes": spec.nodes}
            made = await hand.executor.act(Reserve(spec), f"request {spec.name}", payload, concern)
            return ",".join(made.nodes)

    # The ledger that pays for it is that of whoever asked.
    click.echo(f"Made reservation {spec.name} on {asyncio.run(work())}")


@click.command()
@click.option("-A", "--account", metavar="NAME", help="Only this account.")
@number("budget", "Set what the account may spend in all.", -1e-9, 1e15, "a number from 0 on")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ledger(account: str | None, budget: float | None, as_json: bool) -> None:
    """Show what slots have cost, by account, and set budgets.

    \b
    penstock ledger --account NAME --budget X
    """
    if budget is not None and account is None:
        raise UserError("--account is missing: whose budget?")
    config = load()
    if budget is not None and account is not None:
        with closing(open_ledger(config)) as book:
            book.set_budget(account, budget)
    with closing(Ledger.copy_of(ledger_path(config))) as book:
        accounts, lines = [a for a in book.accounts() if account in (None, a.name)], book.lines(account)
    if as_json:
        emit_json(planning.Ledger(accounts=[*map(Account.told, accounts)], entries=[*map(Entry.told, lines)]))
        return
    rows = [(a.name, a.budget, f"{a.spent:g}", f"{a.promised:g}", a.left) for a in accounts]
    table("Accounts", ("account", "budget", "spent", "promised", "left"), rows)
    table(
        "Entries",
        ("hold", "what", "account", "at", "units"),
        [(e.hold, e.kind, e.account, clock(e.at), f"{e.amount:g}") for e in lines],
    )


def _of(got: int, held: Hold, kind: type[R]) -> R:
    wanted = held.wanted
    f = None if wanted.f == math.inf else wanted.f
    return kind.told(wanted, held, hold=got, phase=str(held.phase), f=f)


def _show(found: Mapping[int, Hold], as_json: bool) -> None:
    if as_json:
        emit_json(Holds(holds=[_of(*each, planning.Hold) for each in found.items()]))
        return
    rows = [
        (
            got,
            h.wanted.name,
            h.phase,
            h.wanted.method,
            h.wanted.nodes,
            clock(h.wanted.start),
            clock(h.wanted.end),
            h.reason,
        )
        for got, h in found.items()
    ]
    table("Holds", ("hold", "name", "phase", "by", "nodes", "start", "end", "why"), rows)


def _sentence(got: int, held: Hold) -> str:
    why = f": {held.reason}" if held.reason else ""
    use = f" (sbatch --reservation={held.wanted.name})" if held.phase is HoldPhase.HELD and held.used != "VAR" else ""
    return f"Hold {got} ({held.wanted.name}) is {held.phase}{why}{use}{_idling(held.wanted)}"


def _idling(wanted: WantedSlot) -> str:
    """What is known of the job that idles."""
    if wanted.submit_at is None or wanted.chance is None or wanted.idle is None:
        return ""
    return (
        f"; its job is submitted at {clock(wanted.submit_at)}, runs by {clock(wanted.start)} with a probability of "
        f"{wanted.chance:.0%}, and idles for {duration_text(wanted.idle)} on average, "
        f"{duration_text(wanted.start - wanted.submit_at)} at most"
    )
