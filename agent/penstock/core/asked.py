"""How often Slurm was asked, by hour, for which feature and for whom: kept for `penstock report`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.api import Decision, Snapshot
from penstock.host.clock import Clock, Rest
from penstock.slurm.meter import Meter, Purpose
from penstock.state.store import Store

__all__ = ["AskedCounter", "asked_in"]

_HOUR: Final = 3600.0
_OFTEN: Final = 120.0
_KEEP: Final = 35 * 24
"""Hours that are kept."""
_MOST: Final = 1000
"""Purposes of one hour that are told apart; what more users there are count together."""


def _key(hour: int) -> str:
    return f"asked.{max(0, hour):010d}"


class AskedCounter:
    """A controller of the loop: what the meter has counted goes into the state, some minutes late."""

    def __init__(self, store: Store, clock: Clock, meter: Meter) -> None:
        self._store, self._clock, self._meter = store, clock, meter
        self._told: Counter[Purpose] = Counter()
        self._rest = Rest()

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """Nothing of Slurm's concern, so no decision. Raises StoreError."""
        now = self._clock.now()
        if not self._rest.lasts(now):
            self._rest = Rest(now, now + _OFTEN)
            new = self._meter.purposes - self._told
            if new:
                self._add(int(now // _HOUR), new)
            self._told += new
        return []

    def next_wake(self, now: float) -> float | None:
        """It comes along with other passes."""
        return None

    def _add(self, hour: int, new: Counter[Purpose]) -> None:
        counts = Counter(dict(_read(self._store.facts.get(_key(hour)) or "{}")))
        for purpose, count in new.items():
            known = purpose in counts or len(counts) < _MOST
            counts[purpose if known else Purpose(purpose.feature)] += count
        features: dict[str, dict[str, int]] = {}
        for (feature, owner), count in counts.items():
            features.setdefault(feature, {})["" if owner is None else str(owner)] = count
        self._store.facts.remember(_key(hour), json.dumps(features))
        self._store.facts.forget(_key(0), _key(hour - _KEEP))


def asked_in(store: Store, since: float, until: float) -> tuple[int, Counter[Purpose]]:
    """How many hours between these instants (epoch s) have counts, and these, of whole hours."""
    hours = store.facts.between(_key(int(since // _HOUR)), _key(int(until // _HOUR)))
    counts: Counter[Purpose] = Counter()
    for text in hours.values():
        for purpose, count in _read(text):
            counts[purpose] += count
    return len(hours), counts


def _read(text: str) -> Iterator[tuple[Purpose, int]]:
    """What one hour has; what cannot be read counts as nothing, for it is for people alone."""
    try:
        for feature, owners in json.loads(text).items():
            for owner, count in owners.items():
                yield Purpose(str(feature), int(owner) if owner else None), int(count)
    except (ValueError, TypeError, AttributeError):
        return
