"""Which connections of one door stay when there are too many: those that have proven whose they are. Pure.

A connection is anonymous until its first request has proven that. When there is no room for one more, an anonymous one
makes room: the oldest of the peer that has the most of them, so that one host does not push out the first steps of
another. One that has proven itself never does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["ConnectionBounds", "ConnectionEntry", "Gate"]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Most connections, and most of one peer; of these most that are anonymous, and most of one peer."""

    most: int
    of_peer: int
    anonymous: int
    anonymous_of_peer: int


@dataclass(frozen=True, slots=True)
class ConnectionEntry(Generic[K]):
    """Whether somebody may come in, and who has to leave for that."""

    welcome: bool
    leaves: K | None = None


class Gate(Generic[K]):
    """The connections of one door, in the order in which they came."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.bounds = bounds
        self._peers: dict[K, str] = {}
        self._anonymous: dict[K, str] = {}
        self._of_peer: Counter[str] = Counter()
        self._anonymous_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def anonymous(self) -> int:
        """How many have proven nothing."""
        return len(self._anonymous)

    def enter(self, key: K, peer: str) -> ConnectionEntry[K]:
        """Somebody is at the door. Who has to leave is out already for the gate; at most one is."""
        bounds = self.bounds
        leaves: K | None = None
        if self._of_peer[peer] >= bounds.of_peer or self._anonymous_of[peer] >= bounds.anonymous_of_peer:
            leaves = self._oldest(peer)
            if leaves is None:
                return ConnectionEntry(False)
        elif len(self._peers) >= bounds.most or len(self._anonymous) >= bounds.anonymous:
            leaves = self.yields()
            if leaves is None:
                return ConnectionEntry(False)
        if leaves is not None:
            self.leave(leaves)
        self._peers[key] = self._anonymous[key] = peer
        self._of_peer[peer] += 1
        self._anonymous_of[peer] += 1
        return ConnectionEntry(True, leaves)

    def yields(self) -> K | None:
        """Who has to leave first; None: nobody."""
        if not self._anonymous:
            return None
        most = max(self._anonymous_of.values())
        return next(key for key, peer in self._anonymous.items() if self._anonymous_of[peer] == most)

    def _oldest(self, peer: str) -> K | None:
        return next((key for key, other in self._anonymous.items() if other == peer), None)

    def prove(self, key: K) -> None:
        """It has proven whose it is."""
        if (peer := self._anonymous.pop(key, None)) is not None:
            _less(self._anonymous_of, peer)

    def leave(self, key: K) -> None:
        """It is gone, or is about to."""
        self.prove(key)
        if (peer := self._peers.pop(key, None)) is not None:
            _less(self._of_peer, peer)


def _less(counts: Counter[str], peer: str) -> None:
    counts[peer] -= 1
    if not counts[peer]:
        del counts[peer]
