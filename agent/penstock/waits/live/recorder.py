"""Keeps what became of the cluster's jobs, for forecasts: every picture of Slurm is shown to it, and accounting is read
once. What it knows is in the state file, so that commands have it, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.api import AccountingRecord, Decision, Snapshot
from penstock.errors import StoreError
from penstock.future.past import ENOUGH, PastRecorder, QueuePast, used_in
from penstock.host.clock import Clock
from penstock.state.store import Store

__all__ = ["Recorder", "keep_past", "keep_used", "kept_used", "past_in"]

_USED: Final = "used of limits"
_SAVE_AFTER: Final = 3600.0


class Recorder:
    """A controller of the loop that decides nothing. `say` is told what of the state cannot be used, and why."""

    def __init__(self, store: Store, clock: Clock, say: Callable[[str, str], None] = lambda key, why: None) -> None:
        self._store = store
        self._clock = clock
        self._say = say
        self._key = ""
        self._past = PastRecorder()
        self._seen_at = float("-inf")
        self._saved_at = clock.now()

    def start(self, cluster: str) -> None:
        """Take up what was seen of this cluster."""
        self._key = _key(cluster)
        try:
            if (state := self._store.learning.learned(self._key)) is not None:
                self._past.restore(state)
        except ValueError as error:
            self._store.learning.set_aside(self._key, self._clock.now())
            self._say(self._key, str(error))

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Take in the picture. Decides nothing."""
        if snapshot.taken_at == self._seen_at:
            return []
        self._seen_at = snapshot.taken_at
        few = self._past.shares() < ENOUGH
        self._past.see(snapshot)
        # Commands have it from the file: at once when it first is enough to conclude from.
        if (few and self._past.shares() >= ENOUGH) or not 0 <= self._clock.now() - self._saved_at < _SAVE_AFTER:
            self._save()
        return []

    def next_wake(self, now: float) -> float | None:
        """None: it takes what pictures there are."""
        return None

    def knows(self) -> bool:
        """Whether the past is known well enough to draw from: less work than `past`."""
        shares = self._past.shares()
        return shares >= ENOUGH or shares + len(_used(self._store)) >= ENOUGH

    def past(self, snapshot: Snapshot) -> QueuePast:
        """What is known by now, with the jobs of this look."""
        return self._past.past(snapshot, _used(self._store))

    def close(self) -> None:
        """Save what can be saved."""
        if self._key and self._seen_at > float("-inf"):
            with suppress(StoreError):
                self._save()

    def _save(self) -> None:
        self._saved_at = self._clock.now()
        self._store.learning.save_learned(self._key, self._past.to_state(), self._saved_at)


def keep_used(store: Store, records: Sequence[AccountingRecord], now: float) -> None:
    """Keep how much of their limits the jobs of accounting have run."""
    store.learning.save_learned(_USED, {"version": 1, "used": [round(share, 4) for share in used_in(records)]}, now)


def keep_past(store: Store, cluster: str, past: PastRecorder, now: float) -> None:
    """Keep what was seen of a cluster, as the agent would that had watched it."""
    store.learning.save_learned(_key(cluster), past.to_state(), now)


def past_in(store: Store, cluster: str, snapshot: Snapshot) -> QueuePast:
    """What a state file knows of a cluster, with the jobs of this look. What cannot be read counts as not there."""
    recorder = PastRecorder()
    try:
        if (state := store.learning.learned(_key(cluster))) is not None:
            recorder.restore(state)
    except ValueError:
        recorder = PastRecorder()
    return recorder.past(snapshot, _used(store))


def kept_used(store: Store) -> bool:
    """Whether that was kept, which releases before did not."""
    try:
        return store.learning.learned(_USED) is not None
    except ValueError:
        return False


def _key(cluster: str) -> str:
    return f"queue-past {cluster}"


def _used(store: Store) -> tuple[float, ...]:
    try:
        state = store.learning.learned(_USED)
        if state is None or state["version"] != 1:
            return ()
        return tuple(share for share in map(float, state["used"]) if 0 < share <= 1)
    except (ValueError, KeyError, TypeError):
        return ()
