"""`penstock plan --reserve`: every stage's slot becomes a reservation, and its job goes into it."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.cli.hold import with_keeper
from penstock.cli.planning import LiveSource, pricing_rules, take_snapshot
from penstock.config import load
from penstock.errors import Infeasible, PenstockError
from penstock.holding.keeper import Keeper
from penstock.holding.ledger import Ledger
from penstock.holding.runs import Finder, Run, Runs, StageRun
from penstock.provision.heft import Placed
from penstock.provision.holding import Phase, Wanted
from penstock.provision.live import from_snapshot, partition_of
from penstock.provision.repair import Find, Free
from penstock.provision.workflows import Choice
from penstock.slurm.base import Backend
from penstock.workflow.model import Stage, Workflow

__all__ = ["finder", "reserve_and_submit"]

_LEAD: Final = 10.0
"""Seconds that making a reservation may take."""


def reserve_and_submit(flow: Workflow, source: LiveSource, found: Choice, account: str) -> dict[str, int]:
    """All slots or none, then the jobs, each behind those it comes after; their numbers by stage.

    Raises Infeasible with Slurm's reason if a slot cannot be had; the others are given back.
    """
    token = secrets.token_hex(3)

    async def work(backend: Backend, keeper: Keeper, book: Ledger) -> dict[str, int]:
        opened: dict[str, tuple[int, str]] = {}
        try:
            for placed, f in zip(found.schedule.placed, _prices(found), strict=True):
                stage = flow.stages[placed.task]
                wanted = _wanted(
                    f"{flow.name}-{token}-{stage.name}", stage, placed, f, source, account, backend.whoami()
                )
                got = await keeper.open(wanted)
                held = book.hold(got)
                opened[stage.name] = got, wanted.name
                if held.phase is not Phase.HELD:
                    raise Infeasible(f"the slot of stage {stage.name} cannot be had: {held.reason or held.phase}")
        except PenstockError:
            for got, _ in opened.values():
                await keeper.cancel(got)
            raise
        stages = {name: StageRun(slot, number) for name, (number, slot) in opened.items()}
        here = replace(flow, workdir=flow.workdir or str(Path.cwd()), partition=source.partition.name)
        run = await Runs(backend, keeper, book).begin(Run(f"{flow.name}-{token}", here, stages))
        return {name: stage.job or 0 for name, stage in run.stages.items()}

    return with_keeper(work)


def finder(backend: Backend) -> Finder:
    """The search for other slots of a run's stages, on the cluster as it is now."""
    config = load()

    async def look(run: Run) -> Find:
        snapshot = await take_snapshot(backend)
        partition = partition_of(snapshot, run.flow.partition)
        situation = from_snapshot(snapshot, partition, pricing_rules(config))
        free = situation.plan().profile
        soonest = math.ceil(snapshot.taken_at + _LEAD)

        def find(nodes: int, duration: float, after: float) -> Free | None:
            length = 60 * math.ceil((duration + config.provision.margin) / 60)
            found = free.earliest(nodes, length, max(math.ceil(after), soonest), situation.within)
            if found is None:
                return None
            return Free(found[0], tuple(n for i, n in enumerate(situation.names) if found[1] >> i & 1))

        return find

    return look


def _prices(found: Choice) -> tuple[float, ...]:
    return found.prices or (0.0,) * len(found.schedule.placed)


def _wanted(name: str, stage: Stage, placed: Placed, f: float, source: LiveSource, account: str, user: str) -> Wanted:
    situation = source.situation
    length = placed.end - placed.start
    price = situation.pricing.unit(placed.start, length)
    return Wanted(
        name=name,
        user=user,
        account=account,
        nodes=stage.nodes,
        partition=source.partition.name,
        start=placed.start,
        duration=stage.time_limit,
        method="reservation",
        base=stage.nodes * length * price,
        f=f,
        penalty=situation.pricing.penalty,
        node_second=price,
        margin=length - stage.time_limit,
        nodelist=tuple(n for i, n in enumerate(situation.names) if placed.nodes >> i & 1),
    )
