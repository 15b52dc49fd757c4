"""What others than a geometry's own history expect of a job that is submitted now: the live queue, and Slurm itself.

A controller of the loop: every picture of Slurm goes to the `QueueWatch`, beside the event loop where it is long; what
that learns is saved in the store. Slurm is asked (`sbatch --test-only`) when an estimate is due, and not for the same
class of geometries again within a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.api import Decision, Geometry, JobSpec, Snapshot
from penstock.errors import Infeasible, PenstockError
from penstock.host.clock import Clock, Rest
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.state.store import Store
from penstock.waits.learners.base import LIMITS, PLANNED, Hints
from penstock.waits.learners.geometry import key_of
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.queue_watch import QueueWatch

__all__ = ["Forecast"]

_log = get_logger(__name__)

_LONG: Final = 300
"""Jobs in a queue from which on it is looked through in another thread."""
_SAVE_AFTER: Final = 900.0
_WORTH_SAVING: Final = 20
_GOOD_FOR: Final = 60.0
_NOT_AGAIN_FOR: Final = 600.0
_ASK_AT_ONCE: Final = 4
"""Classes that Slurm is asked about for one step of a workflow; a wide one may have hundreds of stages due at once."""


@dataclass(frozen=True, slots=True)
class _Said:
    """Slurm's estimate (s), None where it has none, and how long it counts."""

    seconds: float | None
    good: Rest


class Forecast:
    """`watch` None: the queue is not watched; `ask_slurm` false: Slurm is not asked."""

    def __init__(
        self,
        backend: Reader,
        store: Store,
        clock: Clock,
        *,
        watch: QueueWatch | None,
        ask_slurm: bool,
        say: Callable[[str, str], None] = lambda key, why: None,
    ) -> None:
        self._backend = backend
        self._store = store
        self._clock = clock
        self._watch = watch
        self._ask_slurm = ask_slurm
        self._say = say
        self._key = ""
        self._task: asyncio.Task[None] | None = None
        self._seen_at = float("-inf")
        self._saved_at = clock.now()
        self._saved = 0
        self._said: dict[str, _Said] = {}

    def start(self, cluster: str) -> None:
        """Take up what was learned of this cluster."""
        self._key = f"queue-watch {cluster}"
        if self._watch is None:
            return
        try:
            state = self._store.learning.learned(self._key)
            if state is not None:
                self._watch.restore(state)
        except ValueError as error:
            self._store.learning.set_aside(self._key, self._clock.now())
            self._say(self._key, str(error))

    def hints(self, geometry: Geometry) -> Hints:
        """What is known without asking anybody; see `prepare`."""
        hints: dict[str, float] = {}
        if self._watch is not None:
            expected, by_limits = self._watch.expect_and_plan(geometry, geometry.user or self._backend.whoami())
            if by_limits is not None:
                hints[LIMITS] = by_limits
            if expected is not None:
                hints["queue"] = expected
                most = self._watch.bound(expected)
                if most is not None:
                    hints[PLANNED] = most
        said = self._said.get(key_of(geometry))
        if said is not None and said.seconds is not None and said.good.lasts(self._clock.now()):
            hints["slurm"] = said.seconds
        return hints

    @property
    def judged(self) -> Judged | None:
        """What was said of all jobs of the queue that have started; None: the queue is not watched."""
        return None if self._watch is None else self._watch.judged

    def times_and_waits(self) -> list[tuple[float, float]]:
        """When in the day (s, UTC) jobs of the queue were submitted, and how long they waited (s)."""
        return [] if self._watch is None else self._watch.learner.times_and_waits()

    async def prepare(self, geometries: Mapping[str, Geometry]) -> bool:
        """Ask Slurm about these (by the key of their class), unless it was asked a moment ago; whether it said anything
        new. Raises nothing."""
        if not self._ask_slurm:
            return False
        now = self._clock.now()
        self._said = {key: said for key, said in self._said.items() if said.good.lasts(now)}
        wanted = {key: geometry for key, geometry in geometries.items() if key not in self._said}
        for key, geometry in list(wanted.items())[:_ASK_AT_ONCE]:
            self._said[key] = await self._ask(geometry)
        return any(self._said[key].seconds is not None for key in wanted if key in self._said)

    async def _ask(self, geometry: Geometry) -> _Said:
        spec = JobSpec(
            name="penstock.estimate",
            script="#!/bin/sh\ntrue\n",
            nodes=geometry.nodes,
            time_limit=geometry.time_limit,
            partition=geometry.partition or None,
            account=geometry.account or None,
            qos=geometry.qos or None,
        )
        try:
            estimate = await self._backend.estimate(spec)
        except PenstockError as e:
            _log.debug("Slurm has no estimate", nodes=geometry.nodes, why=str(e))
            now, pause = self._clock.now(), _NOT_AGAIN_FOR if isinstance(e, Infeasible) else _GOOD_FOR
            return _Said(None, Rest(now, now + pause))
        now = self._clock.now()
        return _Said(max(estimate.start - now, 0.0), Rest(now, now + _GOOD_FOR))

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Show the picture to the watch. Decides nothing."""
        if self._watch is None or snapshot.taken_at == self._seen_at:  # an earlier one: the clock was set back
            return []
        if self._task is not None and not self._task.done():
            return []  # still busy with an earlier one; jobs are missed by that, but none is misread
        self._seen_at = snapshot.taken_at
        if len(snapshot.jobs) < _LONG:
            self._watch.see(snapshot)
            if not self._watch.learner.due and not self._save_due():
                return []
            snapshot_left = None
        else:
            snapshot_left = snapshot
        self._task = asyncio.ensure_future(self._learn(self._watch, snapshot_left))
        return []

    def next_wake(self, now: float) -> float | None:
        """None: the watch takes what pictures there are."""
        return None

    def _save_due(self) -> bool:
        assert self._watch is not None
        new = self._watch.examples - self._saved
        return new >= _WORTH_SAVING and not 0 <= self._clock.now() - self._saved_at < _SAVE_AFTER

    async def _learn(self, watch: QueueWatch, snapshot: Snapshot | None) -> None:
        try:
            if snapshot is not None:
                await asyncio.to_thread(watch.see, snapshot)
            refit = watch.learner.due
            if refit:
                await asyncio.to_thread(watch.learner.refit)
                _log.info("the queue's learner was fitted anew", examples=len(watch.learner))
            if refit or self._save_due():
                self._save()
        except Exception:
            # Without the queue's expectation there are still all the others.
            _log.exception("the queue could not be learned from")

    def _save(self) -> None:
        assert self._watch is not None
        self._saved, self._saved_at = self._watch.examples, self._clock.now()
        self._store.learning.save_learned(self._key, self._watch.to_state(), self._saved_at)

    async def close(self) -> None:
        """Finish what is under way and save."""
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._watch is not None and self._watch.examples > self._saved:
            self._save()
