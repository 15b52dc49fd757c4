"""`penstock plan --reserve`: every stage's slot becomes a reservation, and its job goes into it."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

from penstock.cli.hold import with_office
from penstock.cli.planning import LiveSource
from penstock.errors import Infeasible, PenstockError
from penstock.holding.office import Office
from penstock.holding.runs import Run, StageRun
from penstock.provision.heft import Placed
from penstock.provision.holding import Phase, Wanted
from penstock.provision.workflows import Choice
from penstock.workflow.model import Stage, Workflow

__all__ = ["reserve_and_submit"]


def reserve_and_submit(flow: Workflow, source: LiveSource, found: Choice, account: str) -> dict[str, int]:
    """All slots or none, then the jobs, each behind those it comes after; their numbers by stage.

    Raises Infeasible with Slurm's reason if a slot cannot be had; the others are given back.
    """
    token = secrets.token_hex(3)

    async def work(office: Office) -> dict[str, int]:
        keeper = office.keeper
        opened: dict[str, tuple[int, str]] = {}
        try:
            for placed, f in zip(found.schedule.placed, _prices(found), strict=True):
                stage = flow.stages[placed.task]
                wanted = _wanted(
                    f"{flow.name}-{token}-{stage.name}", stage, placed, f, source, account, office.backend.whoami()
                )
                got = await keeper.open(wanted)
                held = office.ledger.hold(got)
                opened[stage.name] = got, wanted.name
                if held.phase is not Phase.HELD:
                    raise Infeasible(f"the slot of stage {stage.name} cannot be had: {held.reason or held.phase}")
        except PenstockError:
            for got, _ in opened.values():
                await keeper.cancel(got)
            raise
        stages = {name: StageRun(slot, number) for name, (number, slot) in opened.items()}
        here = replace(flow, workdir=flow.workdir or str(Path.cwd()), partition=source.partition.name)
        run = await office.runs.begin(Run(f"{flow.name}-{token}", here, stages))
        return {name: stage.job or 0 for name, stage in run.stages.items()}

    return with_office(work)


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
