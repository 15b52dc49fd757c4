"""A controller of the loop: while all is off it hands back what is held, and knows what is left.

The controllers of the features hold as long as the pauses say that it is off. Here their jobs are made to do without an
agent, pass after pass, until nothing is left to do or what is left can only be told. Everything is decided anew from
the state and a look at Slurm, and done by the executor, so a kill at any point costs nothing but time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.api import Decision, Snapshot
from penstock.core.acts import KnownJob
from penstock.core.executor import Concern
from penstock.core.offitems import OffItem
from penstock.core.parts import Part, Site
from penstock.errors import PenstockError, StoreError
from penstock.host.logs import get_logger
from penstock.resize.running.controller import MalleableController
from penstock.shutdown.handing import own_jobs, released
from penstock.shutdown.items import of_left, of_malleable, of_own, of_owned, stray
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.run.instructions import Instruction
from penstock.workflow.state import WorkflowRun

__all__ = ["Drain", "DrainReport"]

_log = get_logger(__name__)
_SOON: Final = 0.5
_SLOTS_EVERY: Final = 5.0


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What there was at a look begun `at`. `busy`: requests for nodes have no answer yet."""

    at: float
    items: tuple[OffItem, ...]
    busy: bool = False

    @property
    def pending(self) -> bool:
        """Whether Penstock is still at it."""
        return self.busy or any(item.pending for item in self.items)

    def to_dict(self, shown: Callable[[int], bool]) -> dict[str, Any]:
        """As JSON-able values, of the users that are `shown`."""
        mine = [item.to_dict() for item in self.items if shown(item.uid)]
        return {"at": self.at, "pending": self.pending, "items": mine}


@dataclass(slots=True)
class _Aside:
    """What is looked at more rarely, and when it was."""

    at: float = -math.inf
    items: list[OffItem] = field(default_factory=list)


class Drain:
    """Of one agent, with all its `parts`. `accrues`: jobs age here while they depend on others."""

    def __init__(
        self,
        site: Site,
        workflows: WorkflowController,
        malleable: MalleableController,
        parts: Callable[[], Iterable[Part]],
        *,
        accrues: bool,
    ) -> None:
        self._backend, self._executor = site.reader, site.executor
        self._store, self._clock = site.store, site.clock
        self._workflows = workflows
        self._malleable = malleable
        self._parts = parts
        self._accrues = accrues
        self._slots = _Aside()
        self._strays = _Aside()
        self.report: DrainReport | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing more happens by itself, by a look that was begun after the order."""
        off, report = self._executor.pause_control.off, self.report
        return off is not None and report is not None and report.at > off.since and not report.pending

    def begin(self) -> None:
        """The order was given, again or for the first time: what was seen before does not count."""
        self.report = None
        self._slots = _Aside()
        self._strays = _Aside()

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Hand back what can be now; the decisions taken."""
        off = self._executor.pause_control.off
        if off is None:
            self.report = None
            return []
        decisions: list[Decision] = []
        self._workflows.carrier.begin_pass()
        try:
            for number in list(self._workflows.runs):
                decisions += await self._guarded(number, self._handed_back(number, snapshot, release=off.release))
            if snapshot.taken_at >= self._slots.at + _SLOTS_EVERY:
                self._slots = _Aside(snapshot.taken_at, await self._held_slots(snapshot, act=True, drop=off.drop_slots))
        except StoreError:  # what cannot be written down is done later, and told until then
            self.report = DrainReport(snapshot.taken_at, tuple(self._items(snapshot)), busy=True)
            raise
        # What was changed in this pass is seen in the next.
        report = DrainReport(snapshot.taken_at, tuple(self._items(snapshot)), busy=self._malleable.waiting)
        if snapshot.taken_at > off.since and not report.busy and self._strays_are_due(report, snapshot):
            await self._look_for_strays(snapshot)
            report = DrainReport(snapshot.taken_at, tuple(self._items(snapshot)), busy=self._malleable.waiting)
        self.report = report
        return decisions

    def next_wake(self, now: float) -> float | None:
        """Soon, as long as something is under way."""
        if self._executor.pause_control.off is None:
            return None
        return now + _SOON if not self.settled else math.inf

    async def preview(self, snapshot: Snapshot) -> DrainReport:
        """What there is now; nothing is done."""
        slots = await self._held_slots(snapshot, act=False)
        return DrainReport(snapshot.taken_at, (*self._jobs(snapshot, release=False), *slots))

    # -- the parts -----------------------------------------------------------------------------------------------------

    async def _guarded(self, number: int, work: Awaitable[list[Decision]]) -> list[Decision]:
        try:
            return await work
        except StoreError:
            raise
        except PenstockError as e:
            _log.info("a workflow is handed back later", workflow=number, why=str(e))
        except Exception:
            # One bad subject must not keep the others from being handed back.
            _log.exception("a workflow could not be handed back", workflow=number)
        return []

    async def _handed_back(self, number: int, snapshot: Snapshot, *, release: bool) -> list[Decision]:
        await self._workflows.carrier.settle(number)
        steps = self._steps(self._workflows.runs[number], snapshot, release=release)
        return await self._workflows.carrier.carry_out(number, steps, snapshot)

    def _steps(self, run: WorkflowRun, snapshot: Snapshot, *, release: bool) -> tuple[Instruction, ...]:
        """What is to be done yet to the jobs of a workflow."""
        if run.owned:
            return released(run, snapshot, accrues=self._accrues) if release else ()
        return own_jobs(run, snapshot)

    async def _held_slots(self, snapshot: Snapshot, *, act: bool, drop: bool = False) -> list[OffItem]:
        return [item for part in self._parts() for item in await part.hand_back(snapshot, act=act, drop=drop)]

    def _strays_are_due(self, report: DrainReport, snapshot: Snapshot) -> bool:
        """When nothing else is left to do: once, and again while one is to go."""
        strays = {id(item) for item in self._strays.items}
        if any(item.pending and id(item) not in strays for item in report.items):
            return False
        if self._strays.at == -math.inf:
            return True
        pending = any(item.pending for item in self._strays.items)
        return pending and snapshot.taken_at >= self._strays.at + _SLOTS_EVERY

    async def _look_for_strays(self, snapshot: Snapshot) -> None:
        """Resizers and companions are known by their jobs' states. To be sure, all that have such a name are looked for
        by it; those of the agent's own user are cancelled."""
        me, owners = self._backend.whoami(), {state.uid for state in self._malleable.jobs.values()}
        mine = {n: j for n, j in snapshot.jobs.items() if not j.state.ended and (j.user == me or j.uid in owners)}
        known = {c.job for state in self._malleable.jobs.values() for c in state.companions}
        texts = await self._backend.texts(list(mine)) if mine else {}
        found: list[OffItem] = []
        for number, job in mine.items():
            name = texts[number].name if number in texts else ""
            item = stray(job, name, known, ours=job.user == me)
            if item is None:
                continue
            found.append(item)
            if item.pending:
                try:
                    concern = Concern.of("malleable", job, ends=True)
                    await self._executor.cancel(KnownJob.of(job), f"job {number}/clean", concern)
                except StoreError:
                    raise
                except PenstockError as e:
                    _log.info("a job that holds nodes is cancelled later", job=number, why=str(e))
        self._strays = _Aside(snapshot.taken_at, found)

    def _items(self, snapshot: Snapshot) -> Iterable[OffItem]:
        off = self._executor.pause_control.off
        yield from self._jobs(snapshot, release=off is not None and off.release)
        yield from self._slots.items
        alive = {n for n, job in snapshot.jobs.items() if not job.state.ended}
        yield from (item for item in self._strays.items if alive & set(item.jobs))

    def _jobs(self, snapshot: Snapshot, *, release: bool) -> Iterable[OffItem]:
        malleable = self._malleable
        for state in malleable.jobs.values():
            yield from of_malleable(state, snapshot, malleable.leaver.staying(state.job))
        me = os.geteuid()
        for run in self._workflows.runs.values():
            steps = self._steps(run, snapshot, release=release)
            open_ = {job for step in steps if isinstance(job := getattr(step, "job", None), int)}
            yield from of_owned(run, snapshot, open_) if run.owned else of_own(run, me, snapshot, open_)
        for number, _at, uid, op, payload in self._store.inbox.waiting():
            yield of_left(number, uid, op, payload, snapshot)
