"""`penstock plan --reserve`: every stage's slot becomes a reservation, and its job goes into it."""

from __future__ import annotations

import secrets
from pathlib import Path

from penstock.api import JobSpec
from penstock.cli.hold import with_keeper
from penstock.cli.planning import LiveSource
from penstock.errors import Infeasible, PenstockError
from penstock.holding.keeper import Keeper
from penstock.holding.ledger import Ledger
from penstock.provision.heft import Placed
from penstock.provision.holding import Phase, Wanted
from penstock.provision.workflows import Choice
from penstock.slurm.base import Backend
from penstock.workflow.model import Stage, Workflow

__all__ = ["reserve_and_submit"]


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
            slots = {name: slot for name, (_, slot) in opened.items()}
            return await _submit(flow, backend, slots, f"{flow.name}-{token}")
        except PenstockError:
            for got, _ in opened.values():
                await keeper.cancel(got)
            raise

    return with_keeper(work)


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


async def _submit(flow: Workflow, backend: Backend, slots: dict[str, str], run: str) -> dict[str, int]:
    jobs: dict[str, int] = {}
    try:
        for stage in flow.order:
            after = [f"afterok:{jobs[parent]}" for parent in stage.after]
            script = f"#!/bin/sh\n{stage.command}\n"
            spec = JobSpec(
                name=slots[stage.name],
                script=script,
                nodes=stage.nodes,
                time_limit=stage.time_limit,
                partition=flow.partition,
                account=flow.account,
                qos=flow.qos,
                workdir=flow.workdir or str(Path.cwd()),
                reservation=slots[stage.name],
                dependency=",".join(after) or None,
                environment={**flow.environment, "PENSTOCK_RUN": run, "PENSTOCK_STAGE": stage.name},
            )
            jobs[stage.name] = await backend.submit(spec)
    except PenstockError:
        for job in jobs.values():
            await backend.cancel(job)
        raise
    return jobs
