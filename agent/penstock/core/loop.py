"""The reconcile loop: wake, observe, plan, act, record.

Level-triggered: each pass looks at the whole state now, so a missed event costs time, never truth. Over an incomplete
picture the verdict is *hold*. `run` drives it in real time; a simulation calls `one_pass` and moves its own clock.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from penstock.api import Decision, Reason, Snapshot, Verb
from penstock.core.metrics import Metrics
from penstock.core.observe import Observer
from penstock.core.pace import Pace
from penstock.core.parts import Controller
from penstock.errors import StoreError
from penstock.host import sdnotify
from penstock.host.clock import Clock, Rest
from penstock.host.logs import get_logger
from penstock.state.store import Store

__all__ = ["Loop"]

_log = get_logger(__name__)

# Wakes that come in a burst (every rank 0 of a large array starting at once) share one pass.
_GATHER = 0.025
_AFTER_FAILURE = 5.0
_TOGETHER = 200  # decisions
_ROOM = " " * 65536  # a line or two may fit onto a disk that is full


class Loop:
    """Runs the controllers over one shared picture. `interval`/`idle_interval` are seconds between passes.

    `longest_rest` (s): a pass comes after that at the latest, because somebody watches that passes do come. `why_not`
    says why nothing may be done for now, whatever there is to do. `trouble` is what keeps passes from being written
    down (say, a full disk); empty when nothing does.
    """

    def __init__(
        self,
        observer: Observer,
        controllers: Sequence[Controller],
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        interval: float,
        idle_interval: float,
        why_not: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._observer = observer
        self._controllers = controllers
        self._store = store
        self._clock = clock
        self._metrics = metrics
        for controller in controllers:
            metrics.knows(type(controller).__name__)
        self.interval = interval
        self.idle_interval = idle_interval
        self.longest_rest = math.inf
        self._why_not = why_not
        self.trouble = self._met = ""
        self._rest_after_failure = Rest()
        self._signal = asyncio.Event()
        self._pass_wanted = False
        self._stopping = False
        self.passes = 0

    def wake(self, why: str) -> None:
        """Ask for a pass soon."""
        _log.debug("woken", why=why)
        self._pass_wanted = True
        self._signal.set()

    def want_look(self) -> None:
        """Ask for a newer picture as soon as Slurm may be asked again; cheap, however often it is called."""
        self._observer.want()
        self._signal.set()

    def stop(self) -> None:
        """End `run` after the current pass."""
        self._stopping = True
        self._signal.set()

    @property
    def woken(self) -> bool:
        """Whether a pass was asked for since the last one began."""
        return self._pass_wanted

    async def run(self) -> None:
        """Pass after pass until `stop`."""
        while not self._stopping:
            try:
                await self.one_pass()
                sdnotify.notify("WATCHDOG=1")
            except Exception as e:
                # Say, a full disk: hold, say so, and try again; the watchdog is not fed meanwhile.
                self._metrics.failed()
                self._tell("a pass failed", e)
                await asyncio.sleep(_AFTER_FAILURE)
            if not self._stopping:
                await self._rest()

    async def one_pass(self) -> None:
        """Observe, then let every controller take its step. A controller's failure never ends the loop."""
        self._pass_wanted = False
        started = time.perf_counter()
        snapshot = await self._observer.look()
        said, self._met, self._rest_after_failure = self.trouble, "", Rest()
        if (why := self._why_not()) is not None:
            self._record(Decision(Verb.HOLD, "agent", (Reason("lease", why),)))
        elif not snapshot.usable:
            self._record(
                Decision(Verb.HOLD, "agent", tuple(Reason("incomplete-picture", p) for p in snapshot.problems))
            )
        else:
            seen = Reason("complete-picture", "the last look at Slurm is complete")
            self._record(Decision(Verb.NOTHING, "agent", (seen,)))
            for controller in self._controllers:
                await self._let(controller, snapshot)
        if said and not self._met:
            self._try_to_write()
            _log.info("the state can be written again", after=said)
        self.trouble = self._met
        self._metrics.passed(snapshot, time.perf_counter() - started, self._clock.now())
        self.passes += 1

    def _try_to_write(self) -> None:
        """A pass in which there was nothing to write says nothing of the disk. Raises StoreError."""
        for text in (_ROOM, ""):
            self._store.facts.remember("room", text)

    async def _let(self, controller: Controller, snapshot: Snapshot) -> None:
        try:
            decisions = await controller.reconcile(snapshot)
            for first in range(0, len(decisions), _TOGETHER):
                if first:
                    await Pace().give_way()
                with self._store.together():  # one wait for the disk, for many jobs
                    for decision in decisions[first : first + _TOGETHER]:
                        self._record(decision)
        except Exception as e:
            # One bad subject must not keep the others from being served; the next pass sees the same state again.
            now = self._clock.now()
            self._rest_after_failure = Rest(now, now + _AFTER_FAILURE)
            self._metrics.broke(type(controller).__name__)
            self._tell("a controller failed", e, controller=type(controller).__name__)

    def _tell(self, what: str, error: Exception, **more: str) -> None:
        if isinstance(error, StoreError):
            # No fault of the program, and it may last for hours.
            self.trouble = self._met = str(error)
            _log.error(what, why=str(error), **more)
        else:
            _log.error(what, exc_info=error, **more)

    def _record(self, decision: Decision) -> None:
        if self._store.decisions.record(decision, self._clock.now()):
            self._metrics.decided(decision)
            level = _log.debug if decision.verb is Verb.NOTHING else _log.info
            level(decision.verb.value, subject=decision.subject, why="; ".join(r.text for r in decision.reasons))

    def next_pass(self) -> float:
        """When the next pass is due if nothing wakes the loop."""
        now = self._clock.now()
        look = self._observer.next_look()
        last = self._observer.last
        if last is not None and not last.usable and look is not None:
            # Nothing can be done before Slurm may be asked again.
            return min(look, now + self.longest_rest)
        due = [t for c in self._controllers if (t := c.next_wake(now)) is not None]
        usual = now + min(self.interval if due else self.idle_interval, self.longest_rest)
        # What a controller has failed at is due at once, and would fail again: say, while the disk is full.
        return max(min([usual, *due] if look is None else [usual, *due, look]), self._rest_after_failure.end(now))

    async def _rest(self) -> None:
        """Until a pass is wanted or due. Whatever the controllers say, there are at most 20 passes a second."""
        await asyncio.sleep(_GATHER)
        while not self._stopping and not self._pass_wanted:
            self._signal.clear()
            delay = self.next_pass() - self._clock.now()
            if delay <= 0:
                return
            try:
                await asyncio.wait_for(self._signal.wait(), delay)
            except TimeoutError:
                return
        await asyncio.sleep(_GATHER)
