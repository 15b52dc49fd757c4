"""Carries out what guiding asks for, and keeps every guided workflow in the store.

Each act is preceded by a look that is younger than a second, and idempotent or compared with a look that is younger
than the act, so an act whose answer was lost, or an agent that was killed, needs no reading back.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import structlog

from penstock.api import Decision, Job, Reason, Snapshot, Verb
from penstock.clock import Clock
from penstock.errors import NotFound, NotPermitted, PenstockError, StoreError
from penstock.executor import Concern, Executor
from penstock.fair import Claim, Rounds, Share
from penstock.guided.accounting import Accounting
from penstock.guided.admission import Registration, admit, plan, planned, read_registration
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
from penstock.guided.machine import steps
from penstock.guided.measure import Measure, check_room, measured
from penstock.guided.state import GuidedRun, Kept, guided_from_dict, guided_to_dict
from penstock.guided.stored import read_latest
from penstock.logins import login
from penstock.observe import Observer
from penstock.pace import Pace, at_once
from penstock.second_look import SecondLook
from penstock.slurm.base import Changer, Reader
from penstock.store import Store
from penstock.waits.shelf import Shelf
from penstock.workflow.state import RunPhase

__all__ = ["GuidedController"]

_log = structlog.get_logger(__name__)
_REMEMBERED: Final = 9  # run times per stage
_RUN_TIMES: Final = 50_000  # of stages that are at hand


@dataclass(frozen=True, slots=True)
class _Stepped:
    """That a step over a run has done all that there was to do: what it left, and over what."""

    run: GuidedRun
    look: Snapshot
    brake: tuple[object, ...]
    at: float


class GuidedController:
    """All guided workflows of one agent, whoever's they are. `finished` counts them by how they ended.

    A pass serves each user as far as `share` allows, and takes the rest up at the next (`penstock.fair`). `steps`
    counts the workflows that were looked through.
    """

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
        share: Share | None = None,
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
        self._accounting = Accounting(backend, clock, 0)
        self.share = share or Share()
        self._rounds: Rounds[int] = Rounds()
        self._left = False  # the last pass has left something to the next, for want of room
        self._changes: Counter[int] = Counter()  # made in this pass, by user
        self._measures: dict[int, tuple[GuidedRun, Measure]] = {}
        self._stepped: dict[int, _Stepped] = {}
        self._failures = store.errors
        self._said: dict[int, dict[str, str]] = {}  # by run and stage: the code of what was decided last
        self._run_times: dict[str, float | None] = {}
        self.steps = 0
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

    async def plan(self, uid: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Whether these stages could be registered, and which jobs they come after. Raises what `register` would."""
        self._check_allowed(uid)
        asked = await Pace().walk(read_registration(request, self._clock.now()))
        runs = await Pace().walk(read_latest(self._store, uid, self.runs))
        run, before = plan(runs, asked)
        self._check_room(uid, asked, run)
        return planned(run, before)

    async def register(self, uid: int, request: Mapping[str, Any]) -> int:
        """Take charge of stages whose jobs the user has submitted; the workflow's number.

        Raises UserError, NotFound, NotNow, and NotPermitted for a job that Slurm says is somebody else's. One that the
        last look does not show is believed until the next look, and nothing is done to it before.
        """
        self._check_allowed(uid)
        asked = await Pace().walk(read_registration(request, self._clock.now()))
        seen = self._observer.last
        for stage in asked.stages:
            job = seen.jobs.get(stage.job) if seen else None
            if job is not None and job.uid != uid:
                raise NotPermitted(f"job {job.id} is not yours")
        if any(stage.job == 0 for stage in asked.stages):
            raise NotFound("stages are registered with their jobs")
        stored = await Pace().walk(read_latest(self._store, uid, self.runs))
        # From here on nothing else is done: what is planned must be what is there.
        now = self._clock.now()
        if any(run.id not in self.runs and not run.phase.final for run in stored):  # it has ended meanwhile
            stored = at_once(read_latest(self._store, uid, self.runs))
        known = {run.id: run for run in stored if run.phase.final}
        known |= {number: run for number, run in self.runs.items() if run.uid == uid}
        run, _before = plan([known[number] for number in sorted(known)], asked)
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
        """One user's workflows must not fill the agent's memory, nor the state file, nor its time."""
        open_ = [self._measure(other) for other in self.runs.values() if other.uid == uid]
        more = list(asked.stages)
        if run is not None and run.id not in self.runs:  # it goes on with all that it had
            more += [stage for stage in run.stages if stage.name not in {s.name for s in asked.stages}]
        check_room(open_, measured(more), self.share, fresh=run is None)

    def _measure(self, run: GuidedRun) -> Measure:
        """Taken anew only of what has changed."""
        known = self._measures.get(run.id)
        if known is None or known[0] is not run:
            known = self._measures[run.id] = run, measured(run.stages)
        return known[1]

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
        """One step of as many workflows as each user may have in a pass; the decisions taken."""
        decisions: list[Decision] = []
        self._left = False
        if not self.runs:
            return decisions
        pace = Pace()
        self._changes.clear()
        if self._store.errors != self._failures:  # what was said last may have been lost
            self._failures = self._store.errors
            self._said.clear()
        now = self._clock.now()
        claims = [
            Claim(number, run.uid, self._measure(run).work)
            for number, run in self.runs.items()
            if self._has_news(run, snapshot, now)
        ]
        chosen, self._left = self._rounds.choose(claims, self.share.work)
        rows = self._rows(snapshot, chosen)
        for number in chosen:
            await pace.after(1)
            run = self.runs.get(number)
            if run is None:
                continue
            if (held := self.held(run)) is not None:
                decisions.append(Decision(Verb.HOLD, _subject(run), (held,)))
                continue
            try:
                decisions += self._news(number, await self._step(number, snapshot, rows, pace))
            except StoreError:
                raise  # nothing can be written down, of no workflow: the loop says so
            except Exception:
                # One bad subject must not keep the others from being served.
                _log.exception("a workflow could not be guided", workflow=number)
        await self._look_up(pace)
        return decisions

    def _has_news(self, run: GuidedRun, snapshot: Snapshot, now: float) -> bool:
        """Whether a step over this run can come to anything else than the last one did: the look is another one, the
        run is not what that step has left, something of it has become due, or what may be done has changed."""
        known = self._stepped.get(run.id)
        if known is None or known.run is not run or known.look is not snapshot or known.brake != self._brake():
            return True
        instants = self._measure(run).instants
        return bisect_right(instants, known.at) < bisect_right(instants, now)

    def _brake(self) -> tuple[object, ...]:
        brake = self._executor.brake
        return brake.pauses, brake.rules, brake.dry_run

    def _news(self, number: int, decisions: list[Decision]) -> list[Decision]:
        """Those that say something else than the last one of their stage; the store would find that out one by one."""
        said = self._said.setdefault(number, {})
        fresh = []
        for decision in decisions:
            codes = f"{decision.verb} {' '.join(reason.code for reason in decision.reasons)}"
            if said.get(decision.subject) != codes:
                said[decision.subject] = codes
                fresh.append(decision)
        if number not in self.runs:
            del self._said[number]
        return fresh

    def next_wake(self, now: float) -> float | None:
        """When a stage is due or should end; infinity while workflows merely go on."""
        if not self.runs:
            return None
        if self._left:
            return now
        instants = [math.inf]
        for run in self.runs.values():
            known = self._measure(run).instants
            place = bisect_right(known, now)
            if place < len(known) and self.held(run) is None:
                instants.append(known[place])
        if (due := self._accounting.due(now)) is not None:
            instants.append(due)
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

    def _rows(self, snapshot: Snapshot, runs: Iterable[int]) -> dict[int, list[Job]]:
        """What the look shows of these runs' jobs; an array's running tasks stand under the array's id."""
        wanted = {stage.job for number in runs for stage in self.runs[number].stages}
        rows: dict[int, list[Job]] = {}
        for job in snapshot.jobs.values():
            key = job.array_job if job.array_job in wanted else job.id
            if key in wanted:
                rows.setdefault(key, []).append(job)
        return rows

    async def _step(self, number: int, snapshot: Snapshot, rows: Mapping[int, list[Job]], pace: Pace) -> list[Decision]:
        run = self.runs[number]
        if run.phase.final:  # the agent died between the last step and this
            return [self._finish(number, run.phase is RunPhase.COMPLETED, run.why or "")]
        known = self._accounting.records
        records = {s.job: known[s.job] for s in run.stages if s.job in known and s.job not in rows}
        view = View(snapshot.taken_at, rows, MappingProxyType(records), snapshot.nodes)
        accrues, anew = self._ages
        rules = Rules(accrues, self._shelf.predict, lambda stage: self._ran(run, stage), ages_from_release=anew)
        self.steps += 1
        now = self._clock.now()
        done = await pace.walk(steps(run, view, now, rules))
        if self.runs.get(number) is not run:
            return []  # its owner has changed it meanwhile, and asked for a pass by that
        if done.run is not run or done.instructions:
            with self._kept():
                self._save(done.run)
                for instruction in done.instructions:
                    self._learn(done.run, instruction)
            await pace.breathe()
        self._left |= done.more
        decisions = [Decision(Verb.NOTHING, _subject(done.run, stage), (reason,)) for stage, reason in done.notes]
        complete = not done.more
        for instruction in done.instructions:
            try:
                decision = await self._carry_out(number, instruction, snapshot)
            except StoreError:
                raise
            except PenstockError as e:
                _log.info("not now", workflow=number, why=str(e))
                complete = False
                continue
            if decision is not None:
                decisions.append(decision)
            elif isinstance(instruction, Release | Repoint | Requeue):
                complete = False
        if complete and number in self.runs:
            self._stepped[number] = _Stepped(self.runs[number], snapshot, self._brake(), now)
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
                run = self.runs[number]
                asked = {s.job: s.asked_at or 0.0 for s in run.stages}
                self._accounting.want(run.uid, {job: asked[job] for job in jobs})
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
        """Change a job, unless the look is older than the last change of it, its back-off is not over, its owner has
        had so many changes in this pass, or a look that is younger than a second shows that the job has changed
        since."""
        run = self.runs[number]
        subject = _subject(run, stage)
        if not self._executor.ready(subject) or self._changed_at.get(job, -math.inf) >= snapshot.taken_at:
            return False
        if self._changes[run.uid] >= self.share.changes:
            self._left = True
            return False
        self._changes[run.uid] += 1
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
            self._run_times.pop(_ran_key(run, instruction.stage), None)

    def _ran(self, run: GuidedRun, stage: str) -> float | None:
        """How long the stage of this name ran when this user's workflow of this name had it: the median (s)."""
        key = _ran_key(run, stage)
        if key not in self._run_times:
            if len(self._run_times) >= _RUN_TIMES:
                self._run_times.clear()
            known = self._store.learned(key)
            self._run_times[key] = float(statistics.median(known["seconds"])) if known else None
        return self._run_times[key]

    async def _look_up(self, pace: Pace) -> None:
        """Accounting for jobs that left the queue: one question for all, and how often it was put is kept with each."""
        self._accounting.most = self.share.lookups
        asked = frozenset(await self._accounting.ask())
        if not asked:
            return
        now, known = self._clock.now(), self._accounting.records
        ended = {job for job in asked if job in known and known[job].state.ended}
        for number, run in list(self.runs.items()):
            await pace.after(len(run.stages))
            if self.runs.get(number) is not run or asked.isdisjoint(run.jobs()):
                continue  # one that its owner has changed meanwhile is asked for once more
            stages = tuple(
                replace(s, asked=s.asked + 1, asked_at=now) if s.job in asked and not s.phase.final else s
                for s in run.stages
            )
            self._save(replace(run, stages=stages))
        if ended:
            self._wake("accounting answered")

    def _finish(self, number: int, ok: bool, why: str) -> Decision:
        run = self.runs[number]
        self._store.save_run(number, guided_to_dict(run), finished=self._clock.now())
        del self.runs[number]
        self._measures.pop(number, None)
        self._stepped.pop(number, None)
        self._accounting.forget(stage.job for stage in run.stages)
        for stage in run.stages:
            self._changed_at.pop(stage.job, None)
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
