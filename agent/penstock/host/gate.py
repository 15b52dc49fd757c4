"""Which connections of one door stay when there are too many. Pure.

A connection belongs to a peer: an account, where the kernel or a credential tells, else an address. It is anonymous
until its first request has proven whose it is, then busy while a request is answered, and at rest between requests. One
peer has its share of the door and no more. When there is no room for one more, one makes room that the door waits for:

- an anonymous one, the oldest of the peer that has the most of them (of several such, of that with the most
  connections), so that one peer does not push out the first steps of another;
- where there is none, one at rest: of the peer with the most connections that which has rested longest;
- one of the newcomer's own, where that peer has as many connections as the one that would have to give way.

A busy one does not, but for peers that come first: these have a place whenever another peer has one, and no share
bounds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["SHARE", "ConnectionBounds", "ConnectionEntry", "Gate", "bounds_for"]

SHARE: Final = 4
"""One peer has at most one part of so many of a door."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Most connections, and most of one peer; of these most that are anonymous, and most of one peer."""

    most: int
    of_peer: int
    anonymous: int
    anonymous_of_peer: int


def bounds_for(most: int, of_peer: int | None = None, anonymous: int | None = None) -> ConnectionBounds:
    """Bounds of a door for so many connections: of one peer a quarter at most, or less where that is said."""
    share = max(1, most // SHARE)
    of_peer = share if of_peer is None else min(of_peer, share)
    return ConnectionBounds(most, of_peer, most if anonymous is None else min(anonymous, most), of_peer)


@dataclass(frozen=True, slots=True)
class ConnectionEntry(Generic[K]):
    """Whether a connection may come in, and which one has to leave for that."""

    welcome: bool
    leaves: K | None = None


class Gate(Generic[K]):
    """The connections of one door, in the order in which they came. `first`: the peers that come first."""

    def __init__(self, bounds: ConnectionBounds, first: Collection[str] = ()) -> None:
        self.bounds = bounds
        self.first = first
        self._peers: dict[K, str] = {}
        self._anonymous: dict[K, str] = {}
        self._resting: dict[K, str] = {}
        self._of_peer: Counter[str] = Counter()
        self._anonymous_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def anonymous(self) -> int:
        """How many have proven nothing."""
        return len(self._anonymous)

    def enter(self, key: K, peer: str) -> ConnectionEntry[K]:
        """A connection is at the door. Which one has to leave is out already for the gate; at most one is."""
        bounds = self.bounds
        leaves: K | None = None
        if peer not in self.first and (
            self._of_peer[peer] >= bounds.of_peer or self._anonymous_of[peer] >= bounds.anonymous_of_peer
        ):
            leaves = self._of(peer)
            if leaves is None:
                return ConnectionEntry(False)
        elif len(self._peers) >= bounds.most or len(self._anonymous) >= bounds.anonymous:
            leaves = self.yields(resting=len(self._peers) >= bounds.most)
            if peer in self.first:
                leaves = self._for_first() if leaves is None else leaves
            elif leaves is not None and self._of_peer[peer] >= self._of_peer[self._peers[leaves]]:
                leaves = self._of(peer)  # a peer does not push out one that has no more than it
            if leaves is None:
                return ConnectionEntry(False)
        if leaves is not None:
            self.leave(leaves)
        self._peers[key] = self._anonymous[key] = peer
        self._of_peer[peer] += 1
        self._anonymous_of[peer] += 1
        return ConnectionEntry(True, leaves)

    def yields(self, *, resting: bool = False) -> K | None:
        """Which one has to leave first; of those at rest only where that is said. None: there is none."""
        found = self._oldest(self._anonymous, self._anonymous_of)
        return self._oldest(self._resting, self._of_peer) if found is None and resting else found

    def spares(self) -> K | None:
        """Which one has to leave where there is no room for anything: as `yields`, of those at rest where the door is
        full; else of the peers that come first one that has proven nothing."""
        found = self.yields(resting=len(self._peers) >= self.bounds.most)
        return next(iter(self._anonymous), None) if found is None else found

    def _for_first(self) -> K | None:
        """A peer that comes first takes the place of one that is answered; of its own kind only of those at rest."""
        found = self._oldest(self._peers, self._of_peer)
        return next(iter((*self._anonymous, *self._resting)), None) if found is None else found

    def _oldest(self, among: Mapping[K, str], counts: Mapping[str, int]) -> K | None:
        """Of the peer that has the most of these, the first one; of peers that come first, none."""
        given = (peer for peer in dict.fromkeys(among.values()) if peer not in self.first)
        most = max(given, key=lambda peer: (counts[peer], self._of_peer[peer]), default=None)
        return None if most is None else next(key for key, peer in among.items() if peer == most)

    def _of(self, peer: str) -> K | None:
        def its(among: Mapping[K, str]) -> Iterable[K]:
            return (key for key, other in among.items() if other == peer)

        return next(iter(its(self._anonymous)), next(iter(its(self._resting)), None))

    def prove(self, key: K, peer: str | None = None) -> K | None:
        """It has proven whose it is, and is busy. It counts for `peer` from now on, if that is said; what is one
        too many of that peer's has to leave for it, and is out already for the gate: one at rest, or this one."""
        if (before := self._peers.get(key)) is None:
            return None
        if self._anonymous.pop(key, None) is not None:
            _less(self._anonymous_of, before)
        self._resting.pop(key, None)
        if peer is None or peer == before:
            return None
        _less(self._of_peer, before)
        self._peers[key] = peer
        self._of_peer[peer] += 1
        if peer in self.first or self._of_peer[peer] <= self.bounds.of_peer:
            return None
        leaves = next((one for one, other in self._resting.items() if other == peer), key)
        self.leave(leaves)
        return leaves

    def rest(self, key: K) -> None:
        """What it asked for is answered; the door waits for its next request."""
        if key in self._peers and key not in self._anonymous:
            self._resting[key] = self._peers[key]

    def leave(self, key: K) -> None:
        """It is gone, or is about to."""
        if (peer := self._peers.pop(key, None)) is not None:
            _less(self._of_peer, peer)
            self._resting.pop(key, None)
            if self._anonymous.pop(key, None) is not None:
                _less(self._anonymous_of, peer)


def _less(counts: Counter[str], peer: str) -> None:
    counts[peer] -= 1
    if not counts[peer]:
        del counts[peer]
