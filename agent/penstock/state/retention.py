"""Takes what is old out of the state file, once a day: so much with each pass until nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.api import Decision, Snapshot
from penstock.host.clock import Clock
from penstock.host.logs import get_logger
from penstock.state.store import AT_ONCE, Store

__all__ = ["Retention"]

_log = get_logger(__name__)
_OFTEN: Final = 86400.0
_PRUNED: Final = "pruned.at"


class Retention:
    """A controller of the loop. `keep` says how long (s) what is over is kept; 0: for ever."""

    def __init__(self, store: Store, clock: Clock, keep: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._last: float | None = None

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Nothing of Slurm's concern, so no decision."""
        now, keep = self._clock.now(), self._keep()
        if self._last is None:
            self._last = self._store.facts.instant(_PRUNED)
        if keep > 0 and not 0 <= now - self._last < _OFTEN:
            gone = self._store.prune(now - keep)
            if all(rows < AT_ONCE for rows in gone.values()):  # else there is more, for the next pass
                self._last = now
                self._store.facts.remember(_PRUNED, str(now))
            if gone:
                _log.info("forgot what was over", older_than=keep, **gone)
        return []

    def next_wake(self, now: float) -> float | None:
        """It comes along with other passes."""
        return None
