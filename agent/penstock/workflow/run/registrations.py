"""Workflows whose jobs their owners have submitted: stages that are registered, and jobs that are followed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.api import Decision, Verb
from penstock.core.pace import Pace, at_once
from penstock.core.parts import Site
from penstock.errors import NotFound, NotPermitted
from penstock.host.logins import login
from penstock.workflow.phases import RunPhase, Submitter
from penstock.workflow.run.book import Book
from penstock.workflow.run.carrying import subject_of
from penstock.workflow.run.room import UserRoom
from penstock.workflow.state import WorkflowRun
from penstock.workflow.stored import note_rules, read_latest
from penstock.workflow.strategy import Rules
from penstock.workflow.submit.admission import (
    Registration,
    admit,
    plan,
    plan_for_owner,
    planned,
    read_registration,
    settled,
)
from penstock.workflow.submit.chains import begun_because, followed_because, join, read_links

__all__ = ["Registrations"]


class Registrations:
    """With one agent, as far as there is `room`. `absorbed` is told the number of a run that has become part of
    another."""

    def __init__(self, site: Site, rules: Rules, book: Book, room: UserRoom, absorbed: Callable[[int], None]) -> None:
        self._observer, self._executor, self._store = site.observer, site.executor, site.store
        self._clock, self._wake = site.clock, site.wake
        self._rules, self._book, self._room, self._absorbed = rules, book, room, absorbed

    async def plan(self, uid: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Whether these stages could be registered, and which jobs they come after. Raises what `register` would."""
        self._check_allowed(uid)
        asked = await Pace().walk(read_registration(request, self._clock.now()))
        runs = await Pace().walk(read_latest(self._store, uid, self._book.runs))
        asked = settled(runs, asked)
        run, before = plan(runs, asked)
        plan_for_owner(asked.strategy, self._rules)
        self._room.check(uid, asked, run)
        return planned(run, before, asked.stages)

    async def register(self, uid: int, request: Mapping[str, Any]) -> int:
        """Take charge of stages whose jobs the user has submitted; the workflow's number.

        Raises UserError, NotFound, NotNow, and NotPermitted for a job that Slurm says is somebody else's. One that the
        last look does not show is believed until the next look, and nothing is done to it before.
        """
        self._check_allowed(uid)
        asked = await Pace().walk(read_registration(request, self._clock.now()))
        self._check_owner(uid, (stage.job for stage in asked.stages))
        if any(stage.job == 0 for stage in asked.stages):
            raise NotFound("stages are registered with their jobs")
        known = await self._latest_of(uid)
        now = self._clock.now()
        run, _before = plan([known[number] for number in sorted(known)], asked)
        made = plan_for_owner(asked.strategy, self._rules)
        self._room.check(uid, asked, run)
        with self._book.together():
            if run is None:
                note_rules(self._store, self._rules)
                number = self._store.runs.add(uid, {}, now, Submitter.OWNER)
                run = asked.begun(number, uid, login(uid), now, made)
                if made.reasons:
                    self._store.decisions.record(Decision(Verb.NOTHING, subject_of(run), made.reasons), now)
            run = admit(run, asked.stages, earlier=[known[n] for n in sorted(known)])
            if asked.more is not None:
                run = replace(run, open_until=now + asked.more if asked.more else None)
            self._book.save(run)
        self._wake(f"workflow {run.id} has new stages")
        self._observer.want()
        return run.id

    async def follow(self, uid: int, request: Mapping[str, Any]) -> int:
        """Follow jobs that the user's own script has submitted behind one another; the number of their workflow.

        Jobs that are known already are left as they are. Raises UserError, NotNow, and NotPermitted for a job that
        Slurm says is somebody else's.
        """
        self._check_allowed(uid)
        links = read_links(request, self._clock.now())
        self._check_owner(uid, (link.job for link in links))
        known = await self._latest_of(uid)
        now, earlier = self._clock.now(), [known[number] for number in sorted(known)]
        found = join(earlier, links)
        if found.run is not None and not found.stages:
            return found.run.id
        more = sum((run.stages for run in found.gone if run.phase.final), ())
        self._room.check(uid, Registration(found.name, "auto", found.stages), found.run, more)
        with self._book.together():
            run, begun = found.run, found.run is None
            if run is None:
                run = found.begun(self._store.runs.add(uid, {}, now, Submitter.OWNER), uid, login(uid), now)
            run = admit(run, found.stages, earlier=earlier)
            self._book.save(run)
            for other in found.gone:
                why = f"its jobs are part of workflow {run.id} ({run.name}) now"
                self._book.save(replace(other, stages=(), units=(), phase=RunPhase.COMPLETED, why=why))
                self._absorbed(other.id)
            if begun:
                self._store.decisions.record(Decision(Verb.NOTHING, subject_of(run), begun_because()), now)
            for stage in found.stages:
                reasons = followed_because(run, stage, found.gone)
                self._store.decisions.record(Decision(Verb.ADOPT, subject_of(run, stage.name), reasons), now)
        self._wake(f"workflow {run.id} has new jobs")
        self._observer.want()
        return run.id

    def _check_owner(self, uid: int, jobs: Iterable[int]) -> None:
        """Raises NotPermitted for a job that the last look shows to be somebody else's."""
        seen = self._observer.last
        for number in jobs:
            job = seen.jobs.get(number) if seen else None
            if job is not None and job.uid != uid:
                raise NotPermitted(f"job {job.id} is not yours")

    async def _latest_of(self, uid: int) -> dict[int, WorkflowRun]:
        """The latest workflows of jobs that this user has submitted, by number. What is planned with these holds until
        something else is done."""
        stored = await Pace().walk(read_latest(self._store, uid, self._book.runs))
        if any(run.id not in self._book.runs and not run.phase.final for run in stored):  # it has ended meanwhile
            stored = at_once(read_latest(self._store, uid, self._book.runs))
        known = {run.id: run for run in stored if run.phase.final}
        return known | {number: run for number, run in self._book.runs.items() if run.owned and run.uid == uid}

    def _check_allowed(self, uid: int) -> None:
        pause_control = self._executor.pause_control
        refused = pause_control.refuses("workflows", uid, strict=False) or pause_control.rehearses(
            uid, "the agent only watches for now, and takes no workflows of other users"
        )
        if refused is not None:
            raise NotPermitted(refused.text, by_setting=True)
