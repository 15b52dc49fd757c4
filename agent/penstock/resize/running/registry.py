"""All malleable jobs that the agent knows, as the store has them, and what their resizes have taught."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from statistics import median

from penstock.host.clock import Clock
from penstock.host.logs import get_logger
from penstock.resize.running.caps import WINDOW, NodeMove
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.words import ResizePhase
from penstock.state.sizes import FinishedResize
from penstock.state.store import Store
from penstock.values.tally import Tally

__all__ = ["Registry"]

_log = get_logger(__name__)
_REMEMBERED = 50
_COMPLETED = "completed"
_CLOCK_STEP = 60.0  # seconds; by less a clock that was set back is waited for
_DURATIONS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Registry:
    """The one place where a job's state changes. `want_look` is called when a newer picture of Slurm is needed.

    For the metrics, since the start: `resizes` by kind ("expand", "shrink") and outcome ("completed", "abandoned"),
    `moved` the nodes of completed ones by kind, `durations` (s) of completed ones.
    """

    def __init__(self, store: Store, clock: Clock, want_look: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._want_look = want_look
        self.jobs: dict[int, MalleableJob] = {}
        self._unsaved: set[int] = set()
        self.resizes: Counter[tuple[str, str]] = Counter()
        self.moved: Counter[str] = Counter()
        self.durations = Tally(_DURATIONS)
        self._given_back: dict[str, float] = {}
        self._acted_at = -math.inf
        for state in store.malleable.live():
            me = MalleableJob.from_dict(state)
            self.jobs[me.job] = me
        # What the agent before this one has moved counts, too.
        since = clock.now() - WINDOW
        self._moves: deque[NodeMove] = deque(NodeMove(*row) for row in store.resizes.moves(since))
        past = [r["marks"] for r in store.resizes.latest(limit=_REMEMBERED) if r["outcome"] == _COMPLETED]
        self._costs = deque((c for m in past if (c := _cost(m)) is not None), maxlen=_REMEMBERED)

    def cost(self, default: float) -> float:
        """The median of what past resizes took (s), from the grant, or the word that
        it leaves nodes, to the end; the default without any."""
        return median(self._costs) if self._costs else default

    def put(self, after: MalleableJob) -> bool:
        """The one way a job's state changes: stored, logged, finished resizes kept with their instants.

        Whether anything changed that lasts; how far an application has got is new at every check, and not stored.
        """
        before = self.jobs.get(after.job)
        if before is after:
            return False
        self.jobs[after.job] = after
        if before is not None and _lasting(before) == _lasting(after):
            return False
        if before is None or replace(before, offer=after.offer, nodes=after.nodes, program=after.program) == after:
            self._unsaved.add(after.job)
        else:
            self._save(after)
        if before is not None and before.phase is not after.phase:
            _log.info("resize", job=after.job, epoch=after.epoch, was=before.phase.value, now=after.phase.value)
            if after.phase is ResizePhase.IDLE:
                self._finished(before, after)
        return True

    def flush(self) -> None:
        """Store what need not be durable at once: what applications say of themselves, which they say again, and what
        Slurm can be asked again."""
        if not self._unsaved:
            return
        with self._store.together():  # one wait for the disk for a thousand jobs that start at once
            for number in self._unsaved:
                self._store.malleable.save(number, self.jobs[number].to_dict())
        self._unsaved.clear()

    def _save(self, me: MalleableJob) -> None:
        # What cannot be stored now is stored before anything else is done in the next pass (`flush`).
        self._unsaved.add(me.job)
        self._store.malleable.save(me.job, me.to_dict())
        self._unsaved.discard(me.job)

    def _finished(self, before: MalleableJob, after: MalleableJob) -> None:
        grew = before.resizer_name != ""
        completed = "done" in after.marks and before.phase in (ResizePhase.RESIZING, ResizePhase.RELEASING)
        outcome = _COMPLETED if completed else after.note or "withdrawn"
        if completed and (cost := _cost(after.marks)) is not None:
            self._costs.append(cost)
            self.durations.add(cost)
        kind, sizes = "expand" if grew else "shrink", (before.origin, before.target)
        self.resizes[kind, _COMPLETED if completed else "abandoned"] += 1
        if completed:
            self.moved[kind] += abs(before.target - before.origin) // before.offer.per_node
        now, per_node = self._clock.now(), before.offer.per_node
        # What was granted has moved, also if it was given back unused.
        nodes = abs(before.target - before.origin) // per_node if completed or "granted" in after.marks else 0
        self._moves.append(NodeMove(now, after.uid, nodes))
        while self._moves[0].at <= now - WINDOW:
            self._moves.popleft()
        resize = FinishedResize(after.job, after.epoch, kind, sizes, outcome, after.marks, after.uid, nodes)
        self._store.resizes.add(resize, now)

    def moves(self) -> list[NodeMove]:
        """The nodes moved within the last hour, with those of the resizes that are under way."""
        now = self._clock.now()
        under_way = [
            NodeMove(now, me.uid, abs(me.target - me.origin) // me.offer.per_node)
            for me in list(self.jobs.values())
            if me.phase is not ResizePhase.IDLE
        ]
        return [*(move for move in list(self._moves) if move.at > now - WINDOW), *under_way]

    def drop(self, number: int) -> None:
        """The job is over. What it was given or has left by then has moved, though nobody finishes that resize."""
        me = self.jobs[number]
        with self._store.together():
            if me.phase is not ResizePhase.IDLE and me.marks.keys() & {"granted", "done"}:
                self._finished(me, replace(me, note="the job ended"))
            self._store.malleable.save(number, me.to_dict(), ended=self._clock.now())
        del self.jobs[number]
        self._unsaved.discard(number)

    def changed(self, given_back: Collection[str] = ()) -> None:
        """Slurm was asked to move nodes, and these were given back: what was seen before is old."""
        self._acted_at = now = self._clock.now()
        self._given_back.update(dict.fromkeys(given_back, now))
        self._want_look()

    def outdates(self, taken_at: float) -> bool:
        """Whether a picture begun at that instant does not show what was changed since: nothing is decided on it. After
        a clock was set back by more than a pass takes, it does."""
        now = self._clock.now()
        set_back = taken_at <= now < self._acted_at - _CLOCK_STEP
        return taken_at <= self._acted_at and not set_back

    def fresh(self, nodes: Collection[str], within: float) -> list[str]:
        """Those of the nodes that were given back within so many seconds."""
        now = self._clock.now()
        self._given_back = {n: at for n, at in self._given_back.items() if now - within < at <= now}
        return sorted(self._given_back.keys() & set(nodes))


def _cost(marks: Mapping[str, float]) -> float | None:
    # Nodes may be waited for as long as it takes; from then on the job has to live.
    begin, end = marks.get("granted", marks.get("accepted")), marks.get("done")
    return None if begin is None or end is None else max(0.0, end - begin)


def _lasting(me: MalleableJob) -> MalleableJob:
    return replace(me, offer=replace(me.offer, steps_left=None, step_seconds=None))
