"""Carries out what guiding asks for, and keeps every guided workflow in the store.

Each act is preceded by a look that is younger than a second, and idempotent or compared with a look that is younger
than the act, so an act whose answer was lost, or an agent that was killed, needs no reading back.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import structlog

from penstock.api import AccountingRecord, Decision, Job, Reason, Snapshot, Verb
from penstock.clock import Clock, Rest
from penstock.errors import NotFound, NotNow, NotPermitted, PenstockError, StoreError
from penstock.executor import Concern, Executor
from penstock.guided.admission import Registration, admit, plan, registration, weight
from penstock.guided.instructions import (
    Finished,
    Instruction,
    Lookup,
    Observe,
    Ran,
    Release,
    Repoint,
    Requeue,
    Rules,
    View,
)
from penstock.guided.machine import step
from penstock.guided.state import GuidedRun, Kept, guided_from_dict, guided_to_dict
from penstock.guided.stored import latest_runs, planned
from penstock.logins import login
from penstock.observe import Observer
from penstock.second_look import SecondLook
from penstock.slurm.base import Changer, Reader
from penstock.store import Store
from penstock.waits.shelf import Shelf
from penstock.workflow.state import RunPhase

__all__ = ["GuidedController"]

_log = structlog.get_logger(__name__)
_MOST_OPEN: Final = 1000  # workflows of one user: each is looked through in every pass
_MOST_TEXT: Final = 8_000_000  # characters of all of these, by their `weight`
_REMEMBERED: Final = 9  # run times per stage


class GuidedController:
    """All guided workflows of one agent, whoever's they are. `finished` counts them by how they ended."""

    def __init__(
        self,
        backend: Reader,
        observer: Observer,
        executor: Executor,
        store: Store,
        clock: Clock,
        shelf: Shelf,
        wake: Callable[[str], None],
        *,
        accrues: bool,
        ages_from_release: bool = False,
    ) -> None:
        self._backend = backend
        self._observer = observer
        self._executor = executor
        self._store = store
        self._clock = clock
        self._shelf = shelf
        self._wake = wake
        self._ages = (accrues, ages_from_release)
        self._second_look = SecondLook(observer)
        self._records: dict[int, AccountingRecord] = {}
        self._lookups: dict[int, Rest] = {}
        self._unknown: set[int] = set()  # jobs that accounting, when it was asked last, did not know
        # When a job was last changed: an older look does not show it.
        self._changed_at: dict[int, float] = {}
        self.finished: Counter[str] = Counter()
        # Called with a run as it was (None: not known) and as it is, in the transaction that saves it.
        self.on_change: Callable[[GuidedRun | None, GuidedRun], None] = lambda _before, _after: None
        self.runs: dict[int, GuidedRun] = {}
        for number, _uid, state in store.runs(live_only=True, kind="guided"):
            try:
                self.runs[number] = guided_from_dict(state)
            except (KeyError, TypeError, ValueError):
                _log.exception("a stored workflow cannot be read; its jobs are left alone", workflow=number)

    # -- what users ask (any time, from the door) ----------------------------------------------------------------------

    def plan(self, uid: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Whether these stages could be registered, and which jobs they come after. Raises what `register` would."""
        self._check_allowed(uid)
        return planned(latest_runs(self._store, uid), request, self._clock.now())

    def register(self, uid: int, request: Mapping[str, Any]) -> int:
        """Take charge of stages whose jobs the user has submitted; the workflow's number.

        Raises UserError, NotFound, NotNow, and NotPermitted for a job that Slurm says is somebody else's. One that the
        last look does not show is believed until the next look, and nothing is done to it before.
        """
        self._check_allowed(uid)
        now = self._clock.now()
        asked = registration(request, now)
        seen = self._observer.last
        for stage in asked.stages:
            job = seen.jobs.get(stage.job) if seen else None
            if job is not None and job.uid != uid:
                raise NotPermitted(f"job {job.id} is not yours")
        if any(stage.job == 0 for stage in asked.stages):
            raise NotFound("stages are registered with their jobs")
        run, _before = plan(latest_runs(self._store, uid), asked)
        self._check_room(uid, asked, run)
        with self._kept():
            if run is None:
                number = self._store.add_run(uid, {}, now, kind="guided")
                run = GuidedRun(number, uid, login(uid), asked.workflow, asked.strategy, now)
            self._save(admit(run, asked.stages))
        self._wake(f"workflow {run.id} has new stages")
        self._observer.want()
        return run.id

    def _check_room(self, uid: int, asked: Registration, run: GuidedRun | None) -> None:
        """One user's workflows must not fill the agent's memory, nor the state file."""
        open_ = [other for other in self.runs.values() if other.uid == uid]
        if run is None and len(open_) >= _MOST_OPEN:
            raise NotNow(f"{_MOST_OPEN} workflows of yours have not ended: cancel some, or wait")
        if sum(weight(other.stages) for other in open_) + weight(asked.stages) > _MOST_TEXT:
            raise NotNow(
                f"the scripts of your workflows that have not ended are longer than {_MOST_TEXT} characters: cancel "
                "some workflows, or wait"
            )

    def _check_allowed(self, uid: int) -> None:
        brake = self._executor.brake
        refused = brake.refuses("workflows", uid, strict=False) or brake.rehearses(uid, "no workflows are taken yet")
        if refused is not None:
            raise NotPermitted(refused.text)

    def cancel(self, uid: int, number: int) -> list[int]:
        """Release nothing more of a workflow; the jobs its owner has to cancel. Raises `NotFound`."""
        run = self.runs.get(number)
        if run is None or uid not in (0, run.uid):
            raise NotFound(f"no running workflow {number}")
        self._save(replace(run, phase=RunPhase.CANCELLING, why="cancelled by its owner"))
        self._wake(f"workflow {number} is cancelled")
        return list(run.jobs())

    # -- one pass ----------------------------------------------------------------------------------------------------

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """One step of every workflow; the decisions taken."""
        decisions: list[Decision] = []
        if not self.runs:
            return decisions
        rows = self._rows(snapshot)
        for number, run in list(self.runs.items()):
            if (held := self.held(run)) is not None:
                decisions.append(Decision(Verb.HOLD, _subject(run), (held,)))
                continue
            try:
                decisions += await self._step(number, snapshot, rows)
            except StoreError:
                raise  # nothing can be written down, of no workflow: the loop says so
            except Exception:
                # One bad subject must not keep the others from being served.
                _log.exception("a workflow could not be guided", workflow=number)
        return decisions

    def next_wake(self, now: float) -> float | None:
        """When a stage is due or should end; infinity while workflows merely go on."""
        if not self.runs:
            return None
        instants = [math.inf]
        for run in self.runs.values():
            if self.held(run) is not None:
                continue
            for stage in run.stages:
                end = None if stage.start is None or stage.expect is None else stage.start + stage.expect + 1.0
                waits = stage.released is None and not stage.phase.final
                instants += [t for t in (stage.due if waits else None, end) if t is not None and t > now]
            if run.id in self._lookups:
                instants.append(self._lookups[run.id].end(now))
        return min(instants)

    def held(self, run: GuidedRun) -> Reason | None:
        """Why the run is left alone for now: one of its jobs is to be."""
        if run.phase is RunPhase.CANCELLING:
            return None
        brake, seen = self._executor.brake, self._observer.last.jobs if self._observer.last else {}
        paused = brake.paused("workflows", run.uid, [stage.partition for stage in run.stages])
        paused = paused or brake.rehearses(run.uid, "nothing is done to its jobs")
        if paused is not None or brake.rules is None:
            return paused
        for stage in run.stages:
            job = seen.get(stage.job)
            if job is None and stage.phase.final:
                continue
            place = stage if job is None else job
            where = ([place.partition], [place.account], [place.qos])
            # What is not known of a job that was never seen is not held against it: nothing is done to it.
            if (refused := brake.refuses("workflows", run.uid, *where, strict=job is not None)) is not None:
                return refused
        return None

    def _rows(self, snapshot: Snapshot) -> dict[int, list[Job]]:
        """What the look shows of the jobs that matter; an array's running tasks stand under the array's id."""
        wanted = {stage.job for run in self.runs.values() for stage in run.stages}
        rows: dict[int, list[Job]] = {}
        for job in snapshot.jobs.values():
            key = job.array_job if job.array_job in wanted else job.id
            if key in wanted:
                rows.setdefault(key, []).append(job)
        return rows

    async def _step(self, number: int, snapshot: Snapshot, rows: Mapping[int, list[Job]]) -> list[Decision]:
        run = self.runs[number]
        if run.phase.final:  # the agent died between the last step and this
            return [self._finish(number, run.phase is RunPhase.COMPLETED, run.why or "")]
        records = {s.job: self._records[s.job] for s in run.stages if s.job in self._records and s.job not in rows}
        unknown = frozenset(s.job for s in run.stages if s.job in self._unknown)
        view = View(snapshot.taken_at, rows, MappingProxyType(records), snapshot.nodes, unknown)
        accrues, anew = self._ages
        rules = Rules(accrues, self._shelf.predict, lambda stage: self._ran(run, stage), ages_from_release=anew)
        done = step(run, view, self._clock.now(), rules)
        if done.run is not run or done.instructions:
            with self._kept():
                self._save(done.run)
                for instruction in done.instructions:
                    self._learn(done.run, instruction)
        decisions = [Decision(Verb.NOTHING, _subject(done.run, stage), (reason,)) for stage, reason in done.notes]
        if not any(isinstance(i, Lookup) for i in done.instructions):
            self._lookups.pop(number, None)
        for instruction in done.instructions:
            try:
                decision = await self._carry_out(number, instruction, snapshot)
            except StoreError:
                raise
            except PenstockError as e:
                _log.info("not now", workflow=number, why=str(e))
                continue
            if decision is not None:
                decisions.append(decision)
        return decisions

    @property
    def _handing_back(self) -> bool:
        off = self._executor.brake.off
        return off is not None and off.release

    async def hand_back(self, number: int, instructions: Iterable[Instruction], snapshot: Snapshot) -> list[Decision]:
        """Carry these out while all is off: what was kept back is given back to its owner."""
        decisions = []
        for instruction in instructions:
            try:
                if (decision := await self._carry_out(number, instruction, snapshot)) is not None:
                    decisions.append(decision)
            except StoreError:
                raise
            except PenstockError as e:
                _log.info("not now", workflow=number, why=str(e))
        return decisions

    async def _carry_out(self, number: int, instruction: Instruction, snapshot: Snapshot) -> Decision | None:
        match instruction:
            case Release(stage=stage, job=job, reasons=reasons, kept=kept, reset_age=anew):
                if kept is Kept.HOLD:
                    free = lambda slurm: slurm.release(job)  # noqa: E731
                else:  # leaves a hold as it is that was put on since the last look
                    free = lambda slurm: slurm.update(job, begin="now", reset_age=anew)  # noqa: E731
                if not await self._act(Verb.RELEASE, number, stage, job, snapshot, free):
                    return None
                self._mark(number, stage, job, released=self._clock.now())
                return Decision(Verb.RELEASE, _subject(self.runs[number], stage), reasons, {"job": job})
            case Repoint(stage=stage, job=job, dependency=wanted, reasons=reasons):
                point = lambda slurm: slurm.update(job, dependency=wanted)  # noqa: E731
                if not await self._act(Verb.REPOINT, number, stage, job, snapshot, point):
                    return None
                details: dict[str, str | int | float | None] = {"job": job, "dependency": wanted}
                return Decision(Verb.REPOINT, _subject(self.runs[number], stage), reasons, details)
            case Requeue(stage=stage, job=job, reasons=reasons):
                if not await self._act(Verb.REQUEUE, number, stage, job, snapshot, lambda slurm: slurm.requeue(job)):
                    return None
                self._mark(number, stage, job, requeued_at=self._clock.now())
                return Decision(Verb.REQUEUE, _subject(self.runs[number], stage), reasons, {"job": job})
            case Lookup(jobs=jobs):
                await self._look_up(number, jobs)
            case Finished(ok=ok, why=why):
                return self._finish(number, ok, why)
            case Observe() | Ran():
                pass  # learned when the state was saved
        return None

    async def _act(
        self,
        verb: Verb,
        number: int,
        stage: str,
        job: int,
        snapshot: Snapshot,
        request: Callable[[Changer], Awaitable[None]],
    ) -> bool:
        """Change a job, unless the look is older than the last change of it, its back-off is not over, or a look that
        is younger than a second shows that the job has changed since."""
        subject = _subject(self.runs[number], stage)
        if not self._executor.ready(subject) or self._changed_at.get(job, -math.inf) >= snapshot.taken_at:
            return False
        if not await self._second_look.confirms(job, snapshot):
            self._wake(f"job {job} is decided anew")
            return False
        run, seen = self.runs[number], snapshot.jobs.get(job)
        concern = Concern("workflows", run.uid, job) if seen is None else Concern.of("workflows", seen)
        handing_back = self._handing_back and verb is not Verb.REQUEUE
        concern = replace(concern, ends=run.phase is RunPhase.CANCELLING or handing_back)
        await self._executor.act(verb.value, subject, {"job": job}, request, concern)
        self._changed_at[job] = self._clock.now()
        self._observer.want()
        return True

    def _mark(self, number: int, stage: str, job: int, **changes: float) -> None:
        run = self.runs[number]
        entry = run.get(stage)
        if entry is not None and entry.job == job:  # it may have been submitted again meanwhile
            self._save(run.with_stage(replace(entry, **changes)))  # type: ignore[arg-type]

    def _learn(self, run: GuidedRun, instruction: Instruction) -> None:
        if isinstance(instruction, Observe):
            self._shelf.observe(instruction.geometry, instruction.observation, instruction.estimate)
        elif isinstance(instruction, Ran) and instruction.seconds > 0:
            known = (self._store.learned(_ran_key(run, instruction.stage)) or {}).get("seconds", [])
            seconds = [*known, instruction.seconds][-_REMEMBERED:]
            self._store.save_learned(_ran_key(run, instruction.stage), {"seconds": seconds}, self._clock.now())

    def _ran(self, run: GuidedRun, stage: str) -> float | None:
        """How long the stage of this name ran when this user's workflow of this name had it: the median (s)."""
        known = self._store.learned(_ran_key(run, stage))
        return float(statistics.median(known["seconds"])) if known else None

    async def _look_up(self, number: int, jobs: tuple[int, ...]) -> None:
        """Accounting for jobs that left the queue; asked at growing intervals, since it may lag."""
        now = self._clock.now()
        rest = self._lookups.get(number, Rest())
        if rest.lasts(now):
            return
        self._lookups[number] = rest.longer(now, 0.5)
        found = await self._backend.history(ids=jobs)
        self._unknown |= set(jobs) - {record.id for record in found}
        for record in found:
            self._unknown.discard(record.id)
            self._records[record.id] = record
        if any(job in self._records and self._records[job].state.ended for job in jobs):
            self._wake("accounting answered")

    def _finish(self, number: int, ok: bool, why: str) -> Decision:
        run = self.runs[number]
        self._store.save_run(number, guided_to_dict(run), finished=self._clock.now())
        del self.runs[number]
        for stage in run.stages:
            self._records.pop(stage.job, None)
            self._unknown.discard(stage.job)
            self._changed_at.pop(stage.job, None)
        self._lookups.pop(number, None)
        self.finished[run.phase.value] += 1
        return Decision(Verb.NOTHING, _subject(run), (Reason("completed" if ok else run.phase.value, why),))

    def _save(self, run: GuidedRun) -> None:
        """On the disk first: what is known here alone would be acted on, and forgotten when the agent dies."""
        before = self.runs.get(run.id)
        if before != run:
            self._store.save_run(run.id, guided_to_dict(run))
            self.runs[run.id] = run
            self.on_change(before, run)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """What is saved inside holds if all of it became durable; else all is as before."""
        before = dict(self.runs)
        try:
            with self._store.together():
                yield
        except BaseException:
            self.runs = before
            raise


def _ran_key(run: GuidedRun, stage: str) -> str:
    return f"run time {run.uid} {run.name}/{stage}"


def _subject(run: GuidedRun, stage: str = "") -> str:
    return f"workflow {run.id}/{stage}" if stage else f"workflow {run.id}"
