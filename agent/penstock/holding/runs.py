"""Workflows whose stages have slots of their own: submitted into them, followed, and mended when a slot is of no use.

A run is stored before each act, and every act looks first whether it was done already, so a kill in between leaves
nothing twice: the next pass goes on from the store and from what Slurm says.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.api import AccountingRecord, Decision, Job, JobSpec, JobState, Reason, Verb
from penstock.errors import Infeasible, LeftAlone, NotFound, NotNow, NotPermitted, PenstockError
from penstock.executor import Concern, Executor
from penstock.holding.keeper import Keeper
from penstock.holding.ledger import Ledger
from penstock.provision.holding import Hold, Phase, Wanted
from penstock.provision.pricing import cancelling
from penstock.provision.repair import CAN_BEGIN_EARLIER, Drop, Find, Move, StageNow, Standing, repair
from penstock.slurm.base import Reader
from penstock.workflow.model import Stage, Workflow, workflow_from_dict, workflow_to_dict

__all__ = ["Finder", "Run", "Runs", "StageRun"]

Finder = Callable[["Run"], Awaitable[Find]]
"""Makes the search for free slots from a look at the cluster as it is now."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """A stage's hold and job; `slot` names its reservation and its job. `moves` counts the slots that it had before.

    `whole` is the time limit of its next slot if it takes longer than this one, which was made short on purpose.
    `behind` are the jobs that its job waits for, `killed` is one in this slot that Slurm cancelled as waiting in vain.
    """

    slot: str
    hold: int
    job: int | None = None
    standing: Standing = Standing.WAITING
    moves: int = 0
    whole: float | None = None
    behind: tuple[int, ...] = ()
    killed: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A workflow in its slots. `leaving` are (slot, hold) that are given up and may have a job or reservation left."""

    name: str
    flow: Workflow
    stages: Mapping[str, StageRun]
    leaving: tuple[tuple[str, int], ...] = ()
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """Whether nothing is left to do or to give back."""
        return not self.leaving and all(s.standing.final for s in self.stages.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "name": self.name,
            "flow": workflow_to_dict(self.flow),
            "stages": {name: asdict(stage) for name, stage in self.stages.items()},
            "leaving": [list(one) for one in self.leaving],
            "told": dict(self.told),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Run:
        """What `to_dict` gave."""
        stages = {
            name: StageRun(**{**s, "standing": Standing(s["standing"]), "behind": tuple(s.get("behind", ()))})
            for name, s in data["stages"].items()
        }
        leaving = tuple((str(slot), int(hold)) for slot, hold in data["leaving"])
        return cls(data["name"], workflow_from_dict(data["flow"]), stages, leaving, data["told"])

    def with_stage(self, name: str, stage: StageRun) -> Run:
        """With another state of one stage."""
        return replace(self, stages={**self.stages, name: stage})


class Runs:
    """The runs of one ledger. `second` is what ending a second earlier is worth, in service units."""

    def __init__(
        self, backend: Reader, executor: Executor, keeper: Keeper, ledger: Ledger, second: float = 0.0
    ) -> None:
        self._backend, self._executor, self._keeper = backend, executor, keeper
        self._ledger, self._second = ledger, second

    async def begin(self, run: Run) -> Run:
        """Store a run whose slots are all held, and submit its jobs. If Slurm takes one of them not, all is given back
        and the reason raised."""
        self._store(run)
        try:
            return await self._submit(run, new=True)
        except PenstockError:
            await self.abandon(run)
            raise

    async def abandon(self, run: Run) -> None:
        """Give up all of it: its jobs and its slots."""
        told = Reason("given-up", "it is given up, with all its jobs and slots")
        self._executor.record(Decision(Verb.CANCEL, f"workflow {run.name}", (told,)))
        await self._clear(self._dropped(run, dict.fromkeys(run.stages, "")))

    async def tend(self, finder: Finder) -> list[str]:
        """One pass over all runs that are not over; what was done, in words. One that the brake is on for is left as it
        is."""
        said: list[str] = []
        for stored in self._ledger.runs():
            run = Run.from_dict(stored)
            try:
                self._executor.check(self._subject(run))
                news = await self._tend(run, finder)
            except LeftAlone as why:
                _, news = self._news(self._stored(run), "", f"left alone: {why}")
            except (Infeasible, NotPermitted, NotNow) as error:
                _, news = self._news(self._stored(run), "", str(error))
            said += [f"{run.name}: {line}" for line in news]
            for line in news:
                self._executor.record(Decision(Verb.CHANGE, f"workflow {run.name}", (Reason(line, line),)))
        return said

    def _stored(self, run: Run) -> Run:
        """As far as it has come."""
        return Run.from_dict(next(r for r in self._ledger.runs() if r["name"] == run.name))

    def _subject(self, run: Run) -> Concern:
        wanted = [self._ledger.hold(stage.hold).wanted for stage in run.stages.values()]
        partitions, accounts = {w.partition for w in wanted}, {w.account for w in wanted}
        return Concern("workflows", os.geteuid(), None, (*partitions,), (*accounts,), (run.flow.qos or "",))

    async def _tend(self, run: Run, finder: Finder) -> list[str]:
        jobs = {job.id: job for job in await self._backend.jobs()}
        run, news = await self._look(run, jobs)
        run = await self._clear(await self._submit(run))
        run, more = await self._mend(run, jobs, finder)
        await self._clear(await self._submit(run))
        return news + more

    # -- looking -----------------------------------------------------------------------------------------------------

    async def _look(self, run: Run, jobs: Mapping[int, Job]) -> tuple[Run, list[str]]:
        """How its jobs stand, and what is to be told. The slots of those that have ended are given back."""
        said: list[str] = []
        unknown: set[str] = set()
        for name, parents in [(stage.name, stage.after) for stage in run.flow.order]:
            stage = run.stages[name]
            if stage.job is None or stage.standing.final:
                continue
            seen = await self._seen(stage.job, jobs.get(stage.job))
            if seen is None or (_never_ran(seen) and not unknown.isdisjoint(parents)):
                unknown.add(name)  # accounting lags, of it or of what it waited for
                continue
            state = seen.state
            if _never_ran(seen) and _in_vain(stage, [run.stages[parent] for parent in parents]):
                run = run.with_stage(name, replace(stage, job=None, behind=(), killed=stage.job))
                self._store(run)
                continue
            if state is JobState.TIMEOUT and stage.whole is not None:
                run, news = self._news(self._overrun(run, name, stage.whole), name, "takes longer than its slot")
                said += news
                continue
            standing = _standing(state)
            if standing is not stage.standing:
                run = run.with_stage(name, replace(stage, standing=standing))
                if standing.final:
                    run = replace(run, leaving=(*run.leaving, (stage.slot, stage.hold)))
                self._store(run)
        return run, said

    async def _seen(self, number: int, job: Job | None) -> Job | AccountingRecord | None:
        if job is not None:
            return job
        records = await self._backend.history(ids=[number])
        return records[-1] if records else None

    def _overrun(self, run: Run, name: str, whole: float) -> Run:
        """What it did is lost: it waits for another slot, of its whole time limit."""
        old = run.stages[name]
        stages = tuple(replace(s, time_limit=whole) if s.name == name else s for s in run.flow.stages)
        run = run.with_stage(name, StageRun(old.slot, old.hold, moves=old.moves))
        return replace(run, flow=replace(run.flow, stages=stages), leaving=(*run.leaving, (old.slot, old.hold)))

    def _now(self, run: Run, jobs: Mapping[int, Job]) -> list[StageNow]:
        out = []
        for stage in run.flow.order:
            mine = run.stages[stage.name]
            hold, job = self._ledger.hold(mine.hold), jobs.get(mine.job or -1)
            wanted = hold.wanted
            slot = None if hold.phase.final else (wanted.start, wanted.end + wanted.margin)
            latest = self._backend.now() + stage.time_limit if job is None or job.end is None else job.end
            penalty = cancelling(wanted.f, wanted.penalty)
            out.append(
                StageNow(stage.name, stage.nodes, stage.time_limit, stage.after, mine.standing, slot, latest, penalty)
            )
        return out

    # -- acting ------------------------------------------------------------------------------------------------------

    async def _mend(self, run: Run, jobs: Mapping[int, Job], finder: Finder) -> tuple[Run, list[str]]:
        """Exchange or give up slots where that is needed; the run then, and what was done."""
        said: list[str] = []
        stages, now, searched = self._now(run, jobs), self._backend.now(), []

        def nothing(*_search: float) -> None:
            searched.append(True)

        notice = self._keeper.limits.notice
        changes = repair(stages, now, nothing, self._second, notice)
        if searched:  # only then the whole cluster is looked at
            changes = repair(stages, now, await finder(run), self._second, notice)
        for change in changes:
            if isinstance(change, Drop):
                run = self._dropped(run, {change.stage: change.why})
                said.append(f"stage {change.stage} is given up: {change.why}")
            else:
                run, news = await self._move(run, change)
                said += news
        return run, said

    def _dropped(self, run: Run, why: Mapping[str, str]) -> Run:
        for name, reason in why.items():
            stage = run.stages[name]
            run = run.with_stage(name, replace(stage, standing=Standing.FAILED))
            run = replace(run, leaving=(*run.leaving, (stage.slot, stage.hold)), told={**run.told, name: reason})
        self._store(run)
        return run

    async def _move(self, run: Run, move: Move) -> tuple[Run, list[str]]:
        """The new slot first; the old one is given up once the job stands for the new one."""
        stage = run.stages[move.stage]
        old = self._ledger.hold(stage.hold).wanted
        moves = stage.moves + 1
        length = run.flow.stages[run.flow.index(move.stage)].time_limit
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
            return self._kept(run, move, str(error))
        if held.phase is not Phase.HELD:
            return self._kept(run, move, held.reason)
        run = run.with_stage(move.stage, StageRun(wanted.name, number, moves=moves, whole=stage.whole))
        run = replace(run, leaving=(*run.leaving, (stage.slot, stage.hold)), told={**run.told, move.stage: move.why})
        self._store(run)
        return run, [f"stage {move.stage} gets another slot: {move.why}"]

    def _kept(self, run: Run, move: Move, reason: str) -> tuple[Run, list[str]]:
        """It has no other slot. No news if the one that it has will do: people are told of delays."""
        if move.why == CAN_BEGIN_EARLIER:
            return run, []
        return self._news(run, move.stage, f"keeps its slot though {move.why}: {reason}")

    async def _held(self, wanted: Wanted) -> tuple[int, Hold]:
        """A hold of this name, opened now or before a kill."""
        for number, hold in self._ledger.holds().items():
            if hold.wanted.name == wanted.name:
                return number, hold
        number = await self._keeper.open(wanted, exchange=True)
        return number, self._ledger.hold(number)

    def _news(self, run: Run, stage: str, text: str) -> tuple[Run, list[str]]:
        """Said once, of a stage or, if it has no name, of the run."""
        if run.told.get(stage) == text:
            return run, []
        run = replace(run, told={**run.told, stage: text})
        self._store(run)
        return run, [f"stage {stage} {text}" if stage else text]

    async def _submit(self, run: Run, new: bool = False) -> Run:
        """Every stage that waits has a job in its slot, behind the jobs of those it comes after. Of a `new` run none
        can be there yet."""
        changed = False
        for stage in run.flow.order:
            mine = run.stages[stage.name]
            if mine.standing is not Standing.WAITING:
                continue
            after = [run.stages[parent] for parent in stage.after]
            jobs = [p.job for p in after if p.standing is not Standing.DONE]
            behind = tuple(job for job in jobs if job is not None)
            if len(behind) < len(jobs):
                continue  # one that it comes after needs another slot first
            dependency = ",".join(f"afterok:{job}" for job in behind)
            if mine.job is None:
                if (mine.slot, mine.hold) in run.leaving or self._ledger.hold(mine.hold).phase.final:
                    continue  # it needs another slot first
                found = [] if new else await self._backend.find(mine.slot)
                there = bool(found) and found[-1] != mine.killed
                job = found[-1] if there else await self._sent(run, stage, dependency)
                run, changed = run.with_stage(stage.name, replace(mine, job=job, behind=behind)), True
                self._store(run)
            elif changed or _outdated(mine, after):
                try:
                    await self._pointed(run, stage.name, mine.job, dependency)
                except (Infeasible, NotFound):
                    continue  # it has begun, or is gone: the next look says which
                run = run.with_stage(stage.name, replace(mine, behind=behind))
                self._store(run)
        return run

    async def _sent(self, run: Run, stage: Stage, dependency: str) -> int:
        spec = self._spec(run, stage, dependency)
        return await self._executor.act(
            "submit",
            _named(run, stage.name),
            {"name": spec.name, "nodes": spec.nodes},
            lambda slurm: slurm.submit(spec),
            self._concern(run, stage.name),
        )

    async def _pointed(self, run: Run, stage: str, job: int, dependency: str) -> None:
        await self._executor.act(
            "repoint",
            _named(run, stage),
            {"job": job, "dependency": dependency},
            lambda slurm: slurm.update(job, dependency=dependency),
            self._concern(run, stage, job),
        )

    def _concern(self, run: Run, stage: str, job: int | None = None) -> Concern:
        wanted = self._ledger.hold(run.stages[stage].hold).wanted
        place = ((wanted.partition,), (run.flow.account or wanted.account,), (run.flow.qos or "",))
        return Concern("workflows", os.geteuid(), job, *place)

    def _spec(self, run: Run, stage: Stage, dependency: str) -> JobSpec:
        flow, slot = run.flow, run.stages[stage.name].slot
        wanted = self._ledger.hold(run.stages[stage.name].hold).wanted
        return JobSpec(
            name=slot,
            script=f"#!/bin/sh\n{stage.command}\n",
            nodes=stage.nodes,
            time_limit=stage.time_limit,
            partition=wanted.partition,
            account=flow.account,
            qos=flow.qos,
            workdir=flow.workdir,
            reservation=slot,
            dependency=dependency or None,
            environment={**flow.environment, "PENSTOCK_RUN": run.name, "PENSTOCK_STAGE": stage.name},
        )

    async def _clear(self, run: Run) -> Run:
        """Give back what is to be given up: jobs first, because Slurm keeps a reservation that one waits for."""
        if not run.leaving:
            return run
        for slot, number in run.leaving:
            subject = f"workflow {run.name}"
            concern = Concern("workflows", os.geteuid())
            for job in await self._backend.find(slot):
                try:
                    await self._executor.cancel(job, subject, concern)
                except NotFound:
                    continue
            await self._keeper.cancel(number)
            if slot in {r.name for r in await self._backend.reservations()}:
                try:
                    await self._dropped_slot(subject, slot)
                except NotNow:
                    continue  # its job is still leaving: at the next pass
            run = replace(run, leaving=tuple(one for one in run.leaving if one != (slot, number)))
        self._store(run)
        return run

    async def _dropped_slot(self, subject: str, slot: str) -> None:
        concern = Concern("workflows", os.geteuid(), ends=True)
        await self._executor.act("unreserve", subject, {"slot": slot}, lambda slurm: slurm.unreserve(slot), concern)

    def _store(self, run: Run) -> None:
        self._ledger.store_run(run.name, run.to_dict(), run.final)


def _named(run: Run, stage: str) -> str:
    return f"workflow {run.name}/{stage}"


def _standing(state: JobState) -> Standing:
    if state.ended:
        return Standing.DONE if state is JobState.COMPLETED else Standing.FAILED
    return Standing.WAITING if state in (JobState.PENDING, JobState.REQUEUED) else Standing.RUNNING


def _never_ran(seen: Job | AccountingRecord) -> bool:
    """Whether it was cancelled while it waited. Slurm then gives the moment of the end as its start."""
    began = seen.start is not None and seen.end is not None and seen.start < seen.end
    return seen.state is JobState.CANCELLED and not began


def _in_vain(stage: StageRun, parents: Sequence[StageRun]) -> bool:
    """Whether a stage's job was cancelled because of one that a parent has given up (Slurm's kill_invalid_depend), and
    not because a parent failed, or by its user."""
    return any(not p.standing.final for p in parents) and _outdated(stage, parents)


def _outdated(stage: StageRun, parents: Sequence[StageRun]) -> bool:
    """Whether its job waits for one that is no parent's any more."""
    return not {p.job for p in parents}.issuperset(stage.behind)
