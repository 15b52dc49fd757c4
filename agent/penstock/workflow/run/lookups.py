"""What became of jobs that left the queue: which ones accounting is asked for, when, and what its answers change."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from penstock.core.pace import Pace
from penstock.host.clock import Clock, Rest
from penstock.workflow.run.accounting import Accounting
from penstock.workflow.run.book import Book
from penstock.workflow.run.seen import UNSEEN_TRIES
from penstock.workflow.run.views import Views
from penstock.workflow.state import WorkflowRun

__all__ = ["AGENTS_OWN", "Lookups"]

AGENTS_OWN: Final = -1
"""Whose share those count for that the agent submits."""


class Lookups:
    """Of the runs in `book`. `wake` asks for a pass, where the answers have news for one."""

    def __init__(
        self, accounting: Accounting, views: Views, book: Book, clock: Clock, wake: Callable[[str], None]
    ) -> None:
        self._accounting, self._views, self._book = accounting, views, book
        self._clock, self._wake = clock, wake
        # Until when accounting is not asked again for jobs that were given up, by run and job.
        self._sought: dict[int, dict[int, Rest]] = {}

    def want(self, run: WorkflowRun, jobs: Iterable[int], now: float) -> None:
        """These jobs left the queue: accounting is asked at growing intervals, since it may lag."""
        asked = {stage.job: stage.asked_at or 0.0 for stage in run.stages}
        wanted = {}
        for job in jobs:
            if job in asked:
                wanted[job] = asked[job]
            elif not (rest := self._sought.get(run.id, {}).get(job, Rest())).lasts(now):
                self._sought.setdefault(run.id, {})[job] = rest.longer(now, 0.5)
                wanted[job] = 0.0
        if wanted:
            self._accounting.want(run.uid if run.owned else AGENTS_OWN, wanted)

    def keep_only(self, run: int, jobs: Collection[int]) -> None:
        """Of the jobs that the run has given up these alone are still sought."""
        if run in self._sought:
            self._sought[run] = {j: r for j, r in self._sought[run].items() if j in jobs}

    def rests(self, run: int, now: float) -> bool:
        """Whether there is nothing to ask yet for any job that the run has given up."""
        return all(rest.lasts(now) for rest in self._sought.get(run, {}).values())

    def due(self, now: float) -> float:
        """When accounting is to be asked next; infinity when nothing is wanted."""
        asks = self._accounting.due(now)
        ends = [rest.end(now) for sought in self._sought.values() for rest in sought.values()]
        return min([math.inf if asks is None else asks, *ends])

    async def ask(self, pace: Pace) -> None:
        """One question for all users' jobs; how often it was put is kept with each stage."""
        asked = frozenset(await self._accounting.ask())
        if not asked:
            return
        now, known = self._clock.now(), self._accounting.records
        ended = {job for job in asked if job in known and known[job].state.ended}
        enough = False  # now that nobody knows one of them a pass can conclude something
        missing: set[tuple[int, str, float | None]] = set()
        for number, run in list(self._book.runs.items()):
            await pace.after(len(run.stages))
            if self._book.runs.get(number) is not run or asked.isdisjoint(run.jobs()):
                continue  # one that its user has changed meanwhile is asked for once more
            stages = tuple(
                replace(s, asked=s.asked + 1, asked_at=now) if s.job in asked and not s.phase.final else s
                for s in run.stages
            )
            unknown = [s for s in stages if s.asked >= UNSEEN_TRIES and s.job in asked and s.job not in known]
            enough |= any(s.asked == UNSEEN_TRIES for s in unknown)
            missing |= {(s.job, s.called, s.born) for s in unknown if s.job is not None}
            self._book.save(replace(run, stages=stages))
        enough |= await self._views.lost_in_a_crash(missing)
        if ended or enough:
            self._wake("accounting answered")

    def forget(self, run: WorkflowRun) -> None:
        """The run has ended."""
        self._accounting.forget([j for j in (*run.discarded, *(stage.job for stage in run.stages)) if j is not None])
        self._sought.pop(run.id, None)
