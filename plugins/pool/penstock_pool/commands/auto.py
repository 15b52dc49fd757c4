"""penstock pool auto: a pool that gets its own allocations."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.config import Config, load
from penstock.console.output import ago, emit_json, table
from penstock.console.times import TIME, Duration
from penstock.errors import AgentUnavailable, NotNow, PenstockError, UserError
from penstock.ipc.client import ask_agent
from penstock.texts import plural
from penstock.values.durations import duration_text
from penstock_pool.client import ask
from penstock_pool.commands import answers as pools
from penstock_pool.commands.view import in_pool
from penstock_pool.demand import Demand, demand_from_dict
from penstock_pool.folder import PoolFolder, pool_folder

if TYPE_CHECKING:
    from penstock.console.acting import Acting
    from penstock.state.store import Store
    from penstock_pool.auto.choose import AllocationVerdict
    from penstock_pool.auto.order import AutoAllocation, AutoState

__all__ = ["auto"]

_PATIENCE: Final = 10.0
_PERIOD: Final = 5.0
_STALE: Final = 300.0


@click.command()
@in_pool
@click.option("--max-nodes", type=click.IntRange(1, 100_000), help="Nodes that work at once, at most: gives the order.")
@click.option(
    "-t", "--time", "limit", type=TIME, metavar="TIME", help="Time limit of an allocation, at most.  [default: 1h]"
)
@click.option(
    "--partition", "partitions", multiple=True, metavar="NAME", help="Where; can be repeated.  [default: Slurm's]"
)
@click.option("-A", "--account", metavar="NAME", help="Account that is charged.")
@click.option("--qos", metavar="NAME", help="QOS of the allocations.")
@click.option("--cores", type=click.IntRange(1), help="Cores of each node.  [default: whole nodes]")
@click.option("--max-jobs", type=click.IntRange(1, 10_000), help="Jobs that run, at most.  [default: 20]")
@click.option(
    "--idle",
    type=Duration(5),
    metavar="TIME",
    help="A node leaves after so long without a task, or when a twentieth of its time was idle.  [default: 5m]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be asked for now, and why; ask for nothing.")
@click.option("--watch", is_flag=True, help="Look after it here, until Ctrl-C: where no agent of yours runs.")
@click.option("--resume", is_flag=True, help="Try again after too many failures.")
@click.option("--off", is_flag=True, help="No more allocations: what waits is taken back, what runs ends when idle.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("options", nargs=-1, metavar="[-- SBATCH-OPTIONS]")
def auto(
    name: str,
    options: tuple[str, ...],
    *,
    dry_run: bool,
    watch: bool,
    resume: bool,
    off: bool,
    as_json: bool,
    **said: Any,  # noqa: ANN401
) -> None:
    """Have a pool get its own allocations; without options: show those it has.

    Your agent asks Slurm for as many nodes, and for as long, as bring your tasks to their end soonest, by what it knows
    of the queue: as jobs of one node each, short ones where these find a hole. The next ones are submitted before the
    last ones end. What is not needed any more is taken back, and what is idle ends.

    \b
    penstock pool auto --max-nodes 8 --time 4h
    penstock pool auto
    penstock pool auto --off
    """
    import asyncio

    from penstock_pool.auto.order import AutoOrder, AutoState, read_state  # slow to load

    if sum((dry_run, watch, resume, off)) > 1:
        raise click.UsageError("--dry-run, --watch, --resume and --off exclude each other")
    config = load()
    folder = pool_folder(config, name)
    folder.check()
    given = {key: value for key, value in said.items() if value not in (None, ())}
    if (given or options) and (resume or off):
        raise click.UsageError("--resume and --off take no other options")
    if dry_run:
        state = _ordered(folder, given, options, keep=False)
        if folder.address() is None:
            raise AgentUnavailable(f"pool {name!r} has no scheduler; {folder.start} starts one")
        demand = demand_from_dict(ask(folder, "demand"))
        _say_verdict(folder, state, asyncio.run(_look(config, folder, state, demand)), as_json)
        return
    if given or options:
        _ordered(folder, given, options, keep=True)
    elif off:
        _turn_off(folder)
    elif resume:
        _resume(folder)
    if watch:
        _watch(config, folder)
        return
    state = read_state(folder) or AutoState(AutoOrder(0, 0.0), off=True)
    if as_json:
        emit_json(_of(folder, state, state.told))
    else:
        _show(config, folder, state)


def _ordered(folder: PoolFolder, given: Mapping[str, Any], options: tuple[str, ...], *, keep: bool) -> AutoState:
    """The order as it is with these options; written down with `keep`."""
    from penstock_pool.auto.order import AutoOrder, AutoState, held_alone, read_state, write_state  # slow to load

    if bad := next((word for word in options if not word.startswith("-")), None):
        raise UserError(f"{bad!r}: what stands behind -- are options of sbatch, written as --name=value")
    with held_alone(folder, _PATIENCE):
        state = read_state(folder)
        if state is None or state.off:
            if "max_nodes" not in given:
                raise UserError(f"--max-nodes says how many nodes pool {folder.name!r} may have")
            old = [] if state is None else state.allocations
            state = AutoState(AutoOrder(given["max_nodes"], 3600.0), old)
        changed = {**given, "workdir": str(Path.cwd()), "python": sys.executable}
        if options:
            changed["options"] = options
        state.order = replace(state.order, **changed)
        if keep:
            write_state(folder, state)
    return state


def _turn_off(folder: PoolFolder) -> None:
    from penstock_pool.auto.order import held_alone, read_state, write_state  # slow to load

    with held_alone(folder, _PATIENCE):
        state = read_state(folder)
        if state is None:
            raise UserError(f"pool {folder.name!r} does not get its own allocations")
        state.off = True
        write_state(folder, state)


def _resume(folder: PoolFolder) -> None:
    from penstock_pool.auto.order import held_alone, read_state, write_state  # slow to load

    with held_alone(folder, _PATIENCE):
        state = read_state(folder)
        if state is None or not state.paused:
            raise UserError(f"pool {folder.name!r} has not given up")
        state.paused, state.failed, state.lost = "", 0, 0
        write_state(folder, state)


async def _look(config: Config, folder: PoolFolder, state: AutoState, demand: Demand) -> AllocationVerdict:
    """What would be asked for now, with a look at the queue and nothing learned."""
    from penstock.console.acting import acting
    from penstock.state.store import Store  # slow to load
    from penstock_pool.auto.acts import AutoActs
    from penstock_pool.auto.passes import AutoPass  # slow to load

    async with acting(config) as hand:
        looking = _Looking(config, hand, Store(":memory:"))
        acts = AutoActs(hand.executor, folder, state.order)
        snapshot = await looking.look()
        return await AutoPass(hand.slurm, acts, looking.waits, lambda: None).look(state, demand, snapshot)


class _Looking:
    """Slurm looked at by a command, and what that tells of waits."""

    def __init__(self, config: Config, hand: Acting, store: Store) -> None:
        from penstock.core.observe import Observer
        from penstock.waits.live.predictor import Predictions  # slow to load

        slurm = hand.slurm
        self._observer = Observer(slurm, slurm, min_interval=config.slurm.min_interval, stale_after=_STALE)
        self.waits = Predictions(config, slurm, store, slurm)
        self._slurm = slurm
        self._started = False

    async def look(self) -> Any:  # noqa: ANN401
        """A picture that may be acted on. Raises NotNow where there is none."""
        if not self._started:
            self.waits.start((await self._slurm.site()).cluster)
            self._started = True
        snapshot = await self._observer.look()
        if not snapshot.usable:
            raise NotNow("; ".join(snapshot.problems))
        await self.waits.forecast.reconcile(snapshot)
        return snapshot


def _watch(config: Config, folder: PoolFolder) -> None:
    import asyncio

    from penstock_pool.auto.order import read_state  # slow to load

    if read_state(folder) is None:
        raise UserError(f"--max-nodes says how many nodes pool {folder.name!r} may have")
    if _agent_is_mine(config):
        raise UserError("your agent looks after the pool; stop that first, or let it")
    try:
        asyncio.run(_passes(config, folder))
    except KeyboardInterrupt:
        click.echo("penstock: the pool is not looked after any more; its allocations end when they are idle", err=True)


async def _passes(config: Config, folder: PoolFolder) -> None:
    import asyncio

    from penstock.console.acting import acting
    from penstock_pool.auto.feeds import one_pass
    from penstock_pool.auto.order import held_alone, read_state  # slow to load

    told = ""
    async with acting(config) as hand:
        executor = hand.executor
        looking = _Looking(config, hand, hand.store)
        while read_state(folder) is not None:
            try:
                snapshot = await looking.look()
                with held_alone(folder):
                    done = await one_pass(folder, snapshot, hand.slurm, executor, looking.waits)
                for reason in done.verdict.reasons if done.verdict else ():
                    click.echo(f"{time.strftime('%H:%M:%S')} {reason}")
                said = ""
            except PenstockError as e:
                said = str(e)
            if said and said != told:
                click.echo(f"penstock: {said}; it is tried again", err=True)
            told = said
            await asyncio.sleep(_PERIOD)


def _agent_is_mine(config: Config) -> bool:
    try:
        return bool(ask_agent(config, "ping")["uid"] == os.geteuid())
    except PenstockError:
        return False


def _say_verdict(folder: PoolFolder, state: AutoState, verdict: AllocationVerdict, as_json: bool) -> None:
    if as_json:
        emit_json(_of(folder, state, asdict(verdict)))
        return
    for reason in verdict.reasons:
        click.echo(f"Would submit {reason}")
    if not verdict.submit:
        click.echo("Would submit nothing")
    if verdict.unreachable:
        click.echo(f"{plural(verdict.unreachable, 'task')} need more than an allocation may have: they wait")


def _of(folder: PoolFolder, state: AutoState, told: Mapping[str, Any]) -> pools.Auto:
    now = time.time()
    rows = [
        pools.AutoAllocation.told(
            each,
            each.shape,
            expected=max(each.waits[1] - (now - each.submitted), 0.0) if each.started is None else None,
        )
        for each in state.allocations
    ]
    order = pools.AutoOrder.told(state.order) if state.order.max_nodes else None
    verdict = None
    if told:
        submit = [pools.AutoSubmission(**shape, jobs=count) for shape, count in told["submit"]]
        verdict = pools.AutoVerdict(**{**told, "submit": submit})
    return pools.Auto.told(state, pool=folder.name, on=not state.off, order=order, allocations=rows, verdict=verdict)


def _show(config: Config, folder: PoolFolder, state: AutoState) -> None:
    if state.off and not state.allocations:
        click.echo(f"Pool {folder.name!r} does not get its own allocations; --max-nodes has it do so")
        return
    order = state.order
    what = f"{plural(order.max_nodes, 'node')} at most, for {duration_text(order.limit)} at most"
    click.echo(f"Pool {folder.name!r}: {'no more allocations' if state.off else what}")
    if state.paused:
        click.echo(f"It has given up: {state.paused}; --resume tries again")
    if folder.address() is None:
        click.echo(f"It has no scheduler: nothing is asked for; {folder.start} starts it")
    elif not _agent_is_mine(config):
        click.echo("No agent of yours runs: start one (`penstock agent`), or have `penstock pool auto --watch` do it")
    if state.allocations:
        rows = [_row(each) for each in state.allocations]
        table("", ("job", "state", "nodes", "limit", "since", "starts"), rows)
    for reason in state.told.get("reasons", ()):
        click.echo(f"Last: {reason}")
    if lost := state.told.get("unreachable"):
        click.echo(f"{plural(lost, 'task')} need more than an allocation may have: they wait")


def _row(each: AutoAllocation) -> tuple[str, ...]:
    now = time.time()
    if each.leaving:
        state = "leaving"
    elif each.started is not None:
        state = "works" if each.joined else "starts"
    else:
        state = "waits" if each.job is not None else "is submitted"
    since = each.submitted if each.started is None else each.started
    starts = ""
    if each.started is None and not each.leaving:
        left = [wait - (now - each.submitted) for wait in (each.waits[1], each.waits[3])]
        starts = f"in {ago(max(left[0], 0.0))}, 9 of 10 in {ago(max(left[1], 0.0))}"
    return (
        "" if each.job is None else str(each.job),
        state,
        str(each.shape.nodes),
        duration_text(each.shape.limit),
        f"{ago(max(now - since, 0.0))} ago",
        starts,
    )
