"""`penstock plan --reserve`: every stage's slot becomes a reservation, and its job goes into it.

Whoever may not reserve gets the next best thing. Where the site takes requests, its operator is asked for the slots,
and the jobs wait in the queue meanwhile: each goes into its slot when that begins, if it has not begun. Else it is the
workflow as a chain under `auto`, as `penstock submit` hands it over. Which it was, and why, is said.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from penstock.config import Config
from penstock.errors import Infeasible, NotPermitted, PenstockError
from penstock.workflow.commands.handing import hand_over
from penstock.workflow.documents import in_slots
from penstock.workflow.model import Stage
from penstock.workflow.state import StageSlot, WorkflowRun
from penstock_planning.commands.flows import Flows
from penstock_planning.commands.hold import with_reservations
from penstock_planning.commands.planning import LiveSource
from penstock_planning.hold.holds import NOT_PERMITTED
from penstock_planning.hold.reservations import Reservations
from penstock_planning.plan.heft import ScheduledTask
from penstock_planning.plan.holding import HoldPhase, WantedSlot
from penstock_planning.plan.workflows import ScheduleChoice

__all__ = ["Begun", "begin", "begin_chain"]

_CHAIN: Final = "auto"


@dataclass(frozen=True)
class Begun:
    """What became of the plan: `jobs` by stage in their reservations (or, `asked`, in the queue beside slots that were
    asked for), or `workflows` as they were handed over (a number, None: at the next tick), by name, and `why` not in
    reservations."""

    jobs: Mapping[str, int] = field(default_factory=dict)
    workflows: Mapping[str, int | None] = field(default_factory=dict)
    why: str = ""
    asked: bool = False

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        if self.asked:
            return {"by": "requests", "why": self.why, "jobs": dict(self.jobs)}
        if self.jobs:
            return {"by": "reservations", "jobs": dict(self.jobs)}
        return {"by": "chain", "why": self.why, "workflows": dict(self.workflows)}

    def lines(self) -> list[str]:
        """For people."""
        if self.asked:
            told = [
                f"Nothing is reserved: {self.why}. The site's operator is asked for the slots (`penstock hold list`), "
                "and the jobs wait in the queue meanwhile:"
            ]
            return told + [f"Submitted batch job {job} for stage {name}" for name, job in self.jobs.items()]
        if self.jobs:
            return [
                f"Submitted batch job {job} for stage {name} into its reservation" for name, job in self.jobs.items()
            ]
        told = [f"Nothing is reserved: {self.why}. It runs as a chain of jobs under `{_CHAIN}` instead:"]
        for name, number in self.workflows.items():
            as_what = "left for the next `penstock tick`" if number is None else f"submitted as workflow {number}"
            told.append(f"{name} is {as_what}")
        return told


def begin(config: Config, flows: Flows, source: LiveSource, found: ScheduleChoice, account: str) -> Begun:
    """The slots reserved and the jobs submitted into them; where that is not permitted, slots asked for and the jobs in
    the queue; where the site takes no requests, or not these, the workflows as chains."""
    try:
        return Begun(_reserve_and_submit(flows, source, found, account))
    except NotPermitted as error:
        why = str(error)
    try:
        return Begun(_reserve_and_submit(flows, source, found, account, asked=True), why=why, asked=True)
    except (Infeasible, NotPermitted) as error:
        return begin_chain(config, flows, source, f"{why}; {error}")


def begin_chain(config: Config, flows: Flows, source: LiveSource, why: str) -> Begun:
    """The workflows handed over as chains. AgentUnavailable, which says so too, where nobody runs them."""
    done: dict[str, int | None] = {}
    for flow in flows.written:
        here = replace(flow, partition=flow.partition or source.partition.name)
        try:
            done[flow.name] = hand_over(config, here, _CHAIN)
        except PenstockError as error:
            begun = "".join(f"; {name} runs as workflow {number}" for name, number in done.items())
            raise type(error)(f"nothing is reserved: {why}; and as a chain: {error}{begun}") from None
    return Begun(workflows=done, why=why)


def _reserve_and_submit(
    flows: Flows, source: LiveSource, found: ScheduleChoice, account: str, asked: bool = False
) -> dict[str, int]:
    """All slots or none, then the jobs, each behind those it comes after; their numbers by stage. `asked`: an operator
    is asked for the slots, and the jobs wait in the queue.

    Raises Infeasible with Slurm's reason if a slot cannot be had, NotPermitted if the caller may reserve none, and what
    Slurm says if it takes a job not; then nothing is left of any workflow.
    """
    token = secrets.token_hex(3)

    async def work(reservations: Reservations) -> dict[str, int]:
        if asked and not reservations.may_request:
            raise NotPermitted("no request can be left for an operator (`provision.requests`, `provision.request_key`)")
        slots = await _open_all(reservations, flows, source, found, account, token, asked)
        begun: list[WorkflowRun] = []
        try:
            for i, flow in enumerate(flows.flows):
                here = replace(flow, workdir=flow.workdir or str(Path.cwd()), partition=source.partition.name)
                stages = {item.stage.name: slots.pop(item.name) for item in flows.items if item.flow == i}
                run = in_slots(f"{flow.name}-{token}", here, stages, reservations.backend.now())
                begun.append(await reservations.runs.begin(run))
        except PenstockError:
            for run in begun:
                await reservations.runs.abandon(run)
            for slot in slots.values():
                await reservations.holds.cancel(slot.hold)
            raise
        jobs = {(i, stage.name): stage.job or 0 for i, run in enumerate(begun) for stage in run.stages}
        return {item.name: jobs[item.flow, item.stage.name] for item in flows.items}

    return with_reservations(work)


async def _open_all(
    reservations: Reservations,
    flows: Flows,
    source: LiveSource,
    found: ScheduleChoice,
    account: str,
    token: str,
    asked: bool,
) -> dict[str, StageSlot]:
    """The slots, held or asked for, by the names of the items."""
    method, wished = ("request", HoldPhase.ASKED) if asked else ("reservation", HoldPhase.HELD)
    opened: dict[str, StageSlot] = {}
    user, view = reservations.backend.whoami(), reservations.holds.view()
    try:
        for placed, f in zip(found.schedule.placed, _prices(found), strict=True):
            item = flows.items[placed.task]
            name = f"{flows.flows[item.flow].name}-{token}-{item.stage.name}"
            wanted = replace(_wanted(name, item.stage, placed, f, source, account, user), method=method)
            got = await reservations.holds.open(wanted, view)
            opened[item.name] = StageSlot(name, got, whole=item.whole, queued=asked)
            held = reservations.ledger.hold(got)
            if held.reason.startswith(NOT_PERMITTED):
                raise NotPermitted(held.reason)
            if held.phase is not wished:
                raise Infeasible(f"the slot of stage {item.name} cannot be had: {held.reason or held.phase}")
    except PenstockError:
        for stage in opened.values():
            await reservations.holds.cancel(stage.hold)
        raise
    return opened


def _prices(found: ScheduleChoice) -> tuple[float, ...]:
    return found.prices or (0.0,) * len(found.schedule.placed)


def _wanted(
    name: str, stage: Stage, placed: ScheduledTask, f: float, source: LiveSource, account: str, user: str
) -> WantedSlot:
    situation = source.situation
    length = placed.end - placed.start
    price = situation.pricing.unit(placed.start, length)
    return WantedSlot(
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
        nodelist=situation.named(placed.nodes),
    )
