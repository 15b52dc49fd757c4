"""Workflows whose stages have slots of their own: submitted into them, followed, and mended when a slot is of no use.

They are run like any other (`penstock.workflow.run.runner`); here is what slots need besides: exchanging them, and
giving them back. A run is stored before each act, and every act looks first whether it was done already, so a kill in
between leaves nothing twice: the next pass goes on from the store and from what Slurm says.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from penstock.api import AccountingRecord, Decision, Job, Reason, Snapshot, Verb
from penstock.core.acts import KnownJob, PutIntoReservation, Unreserve
from penstock.core.executor import Concern, Executor, Payload
from penstock.errors import Infeasible, LeftAlone, NotNow, NotPermitted, PenstockError
from penstock.slurm.base import Reader
from penstock.values.waits import Estimate
from penstock.workflow.phases import RunPhase
from penstock.workflow.phases import StagePhase as Stands
from penstock.workflow.run.carrying import Carrier, subject_of
from penstock.workflow.run.identity import known_job
from penstock.workflow.run.instructions import Finished, RunStep, SlurmView, Submit
from penstock.workflow.run.runner import Runner
from penstock.workflow.run.turn import fresh
from penstock.workflow.state import StageRun, StageSlot, WorkflowRun
from penstock_planning.hold.exchanges import CAN_BEGIN_EARLIER, FOR_THE_BETTER
from penstock_planning.hold.holds import Holds
from penstock_planning.hold.ledger import Ledger
from penstock_planning.plan.holding import Hold, HoldPhase, WantedSlot
from penstock_planning.plan.pricing import cancelling
from penstock_planning.plan.racing import Beside, RaceMove, race
from penstock_planning.plan.repair import (
    Drop,
    Free,
    Holes,
    SlotChange,
    StageNow,
    StageProgress,
    repair,
)

__all__ = ["Finder", "ReservedRuns"]

Finder = Callable[[WorkflowRun], Awaitable[Holes]]
"""Makes what is free for a run's stages from a look at the cluster as it is now."""

Records = Mapping[int, AccountingRecord]
"""What accounting says of jobs that are not in the queue any more, by their numbers."""

_FAILED: Final = (Stands.FAILED, Stands.CANCELLED)


class _Page:
    """One run of the ledger."""

    def __init__(self, ledger: Ledger, run: WorkflowRun) -> None:
        self._ledger = ledger
        self.runs: dict[int, WorkflowRun] = {run.id: run}

    @property
    def run(self) -> WorkflowRun:
        """As it is now."""
        (run,) = self.runs.values()
        return run

    def save(self, run: WorkflowRun) -> None:
        """Keep the run as it is now."""
        if self.runs[run.id] != run:
            self._ledger.store_run(run)
            self.runs[run.id] = run


class _Nothing:
    """No hole at all; whether one was looked for."""

    searched = False

    def find(self, nodes: int, duration: float, after: float) -> Free | None:
        """See `Holes`."""
        self.searched = True
        return None

    def take(self, hole: Free, duration: float) -> None:
        """See `Holes`."""

    def give(self, slot: Free, duration: float) -> None:
        """See `Holes`."""


class ReservedRuns:
    """The runs of one ledger. `second` is what ending a second earlier is worth, in service units."""

    def __init__(self, backend: Reader, executor: Executor, holds: Holds, ledger: Ledger, second: float = 0.0) -> None:
        self._backend, self._executor, self._holds = backend, executor, holds
        self._ledger, self._second = ledger, second
        self._runner = Runner(accrues=False)

    async def begin(self, run: WorkflowRun) -> WorkflowRun:
        """Store a run whose slots are all held, and submit its jobs. If Slurm takes one of them not, all is given back
        and the reason raised."""
        self._executor.check(self._concern(run))
        self._ledger.store_run(run)
        page, carrier = self._opened(run)
        try:
            await self._advance(page, carrier, await self._look(), {}, [])
            for stage in page.run.stages:
                if stage.job is None:
                    raise Infeasible(f"stage {stage.name}: {stage.failure or 'it was not submitted'}")
        except PenstockError:
            await self.abandon(page.run)
            raise
        return page.run

    async def abandon(self, run: WorkflowRun) -> None:
        """Give up all of it: its jobs and its slots."""
        told = Reason("given-up", "the workflow is given up, with all its jobs and slots")
        self._executor.record(Decision(Verb.CANCEL, subject_of(run), (told,)))
        page, _ = self._opened(run)
        page.save(replace(_dropped(run, {s.name: "" for s in run.stages}), phase=RunPhase.CANCELLING))
        await self._clear(page)
        self._close(page, await self._look(), {})

    async def advance(self, finder: Finder) -> list[str]:
        """One pass over all runs that are not over; what was done, in words. One that is paused is left as it
        is."""
        said: list[str] = []
        for run in self._ledger.runs():
            page, carrier = self._opened(run)
            news: list[str] = []
            try:
                self._executor.check(self._concern(run))
                await self._tend(page, carrier, finder, news)
            except LeftAlone as why:
                _tell(page, "", f"left alone: {why}", news)
            except (Infeasible, NotPermitted, NotNow) as error:
                _tell(page, "", str(error), news)
            said += [f"{run.name}: {line}" for line in news]
            for line in news:
                self._executor.record(Decision(Verb.CHANGE, subject_of(run), (Reason(line, line),)))
        return said

    def _opened(self, run: WorkflowRun) -> tuple[_Page, Carrier]:
        page = _Page(self._ledger, run)
        backend, executor = self._backend, self._executor  # each pass takes a look of its own: nobody is to be woken
        return page, Carrier(backend, lambda: None, executor, backend, self._runner, page, lambda _why: None, 0)

    def _concern(self, run: WorkflowRun) -> Concern:
        wanted = [self._ledger.hold(stage.held.hold).wanted for stage in run.stages]
        partitions, accounts = {w.partition for w in wanted}, {w.account for w in wanted}
        return Concern("workflows", os.geteuid(), (*partitions,), (*accounts,), (run.qos,))

    async def _tend(self, page: _Page, carrier: Carrier, finder: Finder, news: list[str]) -> None:
        await carrier.settle(page.run.id)
        snapshot = await self._look()
        gone = [job for job in page.run.jobs() if job not in snapshot.jobs]
        records = {record.id: record for record in await self._backend.history(ids=gone)} if gone else {}
        await self._advance(page, carrier, snapshot, records, news)
        await self._clear(page)
        await self._mend(page, snapshot, finder, news)
        await self._advance(page, carrier, snapshot, records, news)
        await self._clear(page)
        self._close(page, snapshot, records)

    # -- running -----------------------------------------------------------------------------------------------------

    async def _look(self) -> Snapshot:
        """The jobs that there are now: all that the runner goes by here."""
        now = self._backend.now()
        return Snapshot(now, {job.id: job for job in await self._backend.jobs()}, {}, {})

    async def _advance(
        self, page: _Page, carrier: Carrier, snapshot: Snapshot, records: Records, news: list[str]
    ) -> None:
        """Steps of the runner over one look, until all jobs that can be are in their slots, each behind those before
        it."""
        for _ in range(len(page.run.stages) + 1):
            step = self._step(page.run, snapshot, records)
            page.save(step.run)
            for stage, reason in step.notes:
                self._executor.record(Decision(Verb.NOTHING, subject_of(step.run, stage), (reason,)))
                if reason.code == "overrun":
                    _tell(page, stage, reason.text, news)
            acts = [order for order in step.instructions if not isinstance(order, Finished)]
            for decision in await carrier.carry_out(page.run.id, acts, snapshot):
                self._executor.record(decision)
            if not any(isinstance(order, Submit) for order in acts):
                break

    def _close(self, page: _Page, snapshot: Snapshot, records: Records) -> None:
        """What has ended, and has nothing left, is over."""
        run = page.run
        if run.leaving or not all(stage.phase.final for stage in run.stages):
            return
        page.save(self._step(run, snapshot, records).run)

    def _step(self, run: WorkflowRun, snapshot: Snapshot, records: Records) -> RunStep:
        holds = frozenset(number for number, hold in self._ledger.holds().items() if not hold.phase.final)
        held = holds - {number for _slot, number in run.leaving}
        view = SlurmView(snapshot.taken_at, snapshot.jobs, MappingProxyType(records), held=held)
        return self._runner.step(run, view, self._backend.now(), lambda _geometry: Estimate(0, 0.0))

    # -- mending -----------------------------------------------------------------------------------------------------

    async def _mend(self, page: _Page, snapshot: Snapshot, finder: Finder, news: list[str]) -> None:
        """Exchange or give up slots where that is needed."""
        run = page.run
        over = [s.held for s in run.stages if s.phase.final and not self._ledger.hold(s.held.hold).phase.final]
        page.save(_leaving(run, *over))
        if any(stage.held.queued for stage in run.stages):
            await self._race(page, snapshot.jobs, news)
            return
        stages, now, asked = self._now(page.run, snapshot.jobs), self._backend.now(), _Nothing()
        notice = self._holds.limits.notice
        changes = repair(stages, now, asked, self._second, notice)
        if asked.searched:  # only then the whole cluster is looked at
            changes = repair(stages, now, await finder(page.run), self._second, notice)
        for change in changes:
            if isinstance(change, Drop):
                page.save(_dropped(page.run, {change.stage: change.why}))
                news.append(f"stage {change.stage} is given up: {change.why}")
            elif await self._move(page, change, news):
                news.append(f"stage {change.stage} gets another slot: {change.why}")
            elif change.moves:
                break  # those behind it were to move to where this one would have made room

    async def _race(self, page: _Page, jobs: Mapping[int, Job], news: list[str]) -> None:
        """Jobs that wait in the queue, beside slots that were asked for: each goes into its slot when that begins, and
        gives it up once it has begun, or can begin there no more."""
        for stage in page.run.stages:
            lost = [page.run.stages[i].name for i in stage.after if page.run.stages[i].phase in _FAILED]
            if lost and not stage.phase.final:
                why = f"stage {lost[0]}, which it comes after, has failed"
                page.save(_dropped(page.run, {stage.name: why}))
                news.append(f"stage {stage.name} is given up: {why}")
                continue
            beside, name = self._beside(page.run, stage, jobs), stage.held.name
            for move in race(beside, self._backend.now()):
                if move is RaceMove.GIVE_UP:
                    await self._holds.cancel(stage.held.hold)
                    began = beside.standing is StageProgress.RUNNING
                    why = "it began in the queue" if began else "what it comes after ends too late for its slot"
                    news.append(f"stage {stage.name} gives up its slot: {why}")
                elif stage.job is not None and await self._put(
                    page, stage, stage.job, name if move is RaceMove.ENTER else ""
                ):
                    where = "goes into its slot" if move is RaceMove.ENTER else "goes back into the queue"
                    news.append(f"stage {stage.name} {where}")

    def _beside(self, run: WorkflowRun, stage: StageRun, jobs: Mapping[int, Job]) -> Beside:
        hold, job = self._ledger.hold(stage.held.hold), jobs.get(stage.job or -1)
        wanted = hold.wanted
        return Beside(
            _standing(stage),
            (wanted.start, wanted.end + wanted.margin) if hold.phase is HoldPhase.HELD else None,
            not hold.phase.final,
            job is not None and all(run.stages[i].phase is Stands.DONE for i in stage.after),
            run.unit(run.stages.index(stage)).time_limit,
            job is not None and job.reservation == stage.held.name,
        )

    def _now(self, run: WorkflowRun, jobs: Mapping[int, Job]) -> list[StageNow]:
        out = []
        for stage, unit in zip(run.stages, run.units, strict=True):
            hold, job = self._ledger.hold(stage.held.hold), jobs.get(stage.job or -1)
            wanted = hold.wanted
            gone = hold.phase.final or (stage.held.name, stage.held.hold) in run.leaving
            slot = None if gone else (wanted.start, wanted.end + wanted.margin)
            latest = self._backend.now() + unit.time_limit if job is None or job.end is None else job.end
            penalty = cancelling(wanted.f, wanted.penalty)
            standing = _standing(stage)
            limit, on = unit.time_limit, wanted.nodelist
            out.append(StageNow(stage.name, unit.nodes, limit, unit.after, standing, slot, latest, penalty, on))
        return out

    async def _move(self, page: _Page, move: SlotChange, news: list[str]) -> bool:
        """Whether the stage has the other slot. The new one first; the old one is given up once the job stands for the
        new one. For an earlier slot a job that waits is put from one into the other, which its owner may, and keeps its
        number: others depend on it."""
        run = page.run
        place = next(i for i, stage in enumerate(run.stages) if stage.name == move.stage)
        if move.moves:
            try:
                await self._holds.move(run.stages[place].held.hold, move.to.start, move.to.nodes)
            except (Infeasible, NotNow, NotPermitted) as error:
                _kept(page, move, str(error), news)
                return False
            page.save(replace(run, told={**run.told, move.stage: move.why}))
            return True
        stage, length = run.stages[place], run.units[place].time_limit
        old, moves = self._ledger.hold(stage.held.hold).wanted, stage.held.moves + 1
        wanted = replace(
            old,
            name=f"{run.name}-{move.stage}-{moves}",
            start=move.to.start,
            duration=length,
            base=old.base * (length + old.margin) / (old.duration + old.margin),
            f=0.0,
            nodelist=move.to.nodes,
        )
        try:
            number, held = await self._held(wanted)
        except Infeasible as error:
            _kept(page, move, str(error), news)
            return False
        if held.phase is not HoldPhase.HELD:
            _kept(page, move, held.reason, news)
            return False
        slot = StageSlot(wanted.name, number, moves, stage.held.whole)
        again = replace(fresh(stage), attempt=0, slot=slot)
        if move.why == CAN_BEGIN_EARLIER and stage.phase is Stands.QUEUED and stage.job is not None:
            if not await self._put(page, stage, stage.job, wanted.name):
                await self._holds.cancel(number)
                return False  # it has begun in the slot that it has, or is gone: the next pass sees which
            again = replace(stage, slot=slot)
        run = _leaving(run, stage.held)
        page.save(replace(run.put(place, again), told={**run.told, move.stage: move.why}))
        return True

    async def _put(self, page: _Page, stage: StageRun, job: int, slot: str) -> bool:
        """Have a job that waits stand for another slot. Whether it does."""
        payload: Payload = {"job": job, "slot": slot}
        try:
            act = PutIntoReservation(known_job(page.run, job, os.geteuid()), slot)
            await self._executor.act(act, subject_of(page.run, stage.name), payload, self._concern(page.run))
        except (Infeasible, NotPermitted):
            return False
        return True

    async def _held(self, wanted: WantedSlot) -> tuple[int, Hold]:
        """A hold of this name, opened now or before a kill."""
        for number, hold in self._ledger.holds().items():
            if hold.wanted.name == wanted.name:
                return number, hold
        number = await self._holds.open(wanted, exchange=True)
        return number, self._ledger.hold(number)

    async def _clear(self, page: _Page) -> None:
        """Give back what is to be given up: jobs first, because Slurm keeps a reservation that one waits for."""
        if not page.run.leaving:
            return
        subject, concern = subject_of(page.run), Concern("workflows", os.geteuid(), ends=True)
        jobs = await self._backend.jobs()
        for slot, number in page.run.leaving:
            own = [stage for stage in page.run.stages if stage.held.queued and stage.held.name == slot]
            names = [name for stage in own for name in (slot, f"{slot}.{stage.attempt}")]
            mine = {number for name in names for number in await self._backend.find(name)}
            for job in jobs:
                if (job.reservation == slot or job.id in mine) and not job.state.ended:
                    await self._executor.cancel(KnownJob.of(job), subject, concern)
            await self._holds.cancel(number)
            if slot in {r.name for r in await self._backend.reservations()}:
                try:
                    await self._unreserve(slot, subject, concern)
                except NotNow:
                    continue  # its job is still leaving: at the next pass
                except NotPermitted:
                    if not own:
                        raise
                    # An operator has made it. Slurm drops it itself, as nobody uses it (PURGE_COMP).
            page.save(replace(page.run, leaving=tuple(one for one in page.run.leaving if one != (slot, number))))

    async def _unreserve(self, slot: str, subject: str, concern: Concern) -> None:
        await self._executor.act(Unreserve(slot), subject, {"slot": slot}, concern)


def _standing(stage: StageRun) -> StageProgress:
    if stage.phase in _FAILED:
        return StageProgress.FAILED
    return {Stands.RUNNING: StageProgress.RUNNING, Stands.DONE: StageProgress.DONE}.get(
        stage.phase, StageProgress.WAITING
    )


def _leaving(run: WorkflowRun, *slots: StageSlot) -> WorkflowRun:
    """The run, which gives these up, too."""
    return replace(run, leaving=tuple(dict.fromkeys((*run.leaving, *((slot.name, slot.hold) for slot in slots)))))


def _dropped(run: WorkflowRun, why: Mapping[str, str]) -> WorkflowRun:
    """The run without these stages, and why each is given up."""
    for i, stage in enumerate(run.stages):
        if stage.name in why:
            run = replace(_leaving(run, stage.held), told={**run.told, stage.name: why[stage.name]})
            if not stage.phase.final:
                run = run.put(i, replace(stage, phase=Stands.CANCELLED, failure=why[stage.name]))
    return run


def _kept(page: _Page, move: SlotChange, reason: str, news: list[str]) -> None:
    """It has no other slot. No news if the one that it has will do: people are told of delays."""
    if move.why not in FOR_THE_BETTER:
        _tell(page, move.stage, f"gets no other slot, although {move.why}: {reason}", news)


def _tell(page: _Page, stage: str, text: str, news: list[str]) -> None:
    """Said once, of a stage or, if it has no name, of the run."""
    if page.run.told.get(stage) != text:
        page.save(replace(page.run, told={**page.run.told, stage: text}))
        news.append(f"stage {stage} {text}" if stage else text)
