"""The rules of the lease, without any I/O: who holds it, when it may be taken, and in which order that is done.

`take` is a generator: it yields what is to be done (`Step`) and is sent what came of it, so that tests can stop, crash
and interleave holders between any two steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

__all__ = [
    "Card",
    "Create",
    "Fence",
    "HeldByOther",
    "Moment",
    "Names",
    "Now",
    "PidScope",
    "Read",
    "Remove",
    "Step",
    "Taken",
    "Watch",
    "beat_every",
    "parse",
    "sure_for",
    "take",
]

_SIZE: Final = 1024
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class PidScope:
    """Where process numbers mean the same: one boot of one kernel, and a pid namespace in it. Empty: not known."""

    boot: str = ""
    space: str = ""

    @property
    def known(self) -> bool:
        """Whether processes of the same place can be looked up."""
        return bool(self.boot and self.space)


@dataclass(frozen=True, slots=True)
class Card:
    """What a lease says of its holder: the process `pid` that began at `ticks` (since boot), as `role` (agent, tick,
    command), for a user. `address` is where commands from other hosts are answered, "" for nowhere. `beat` goes up
    while the holder lives; `since` and `at` (epoch s, by the holder's clock) are for people alone."""

    host: str
    pid: int
    ticks: int
    boot: str
    space: str
    uid: int
    role: str
    since: float
    address: str = ""
    beat: int = 0
    at: float = 0.0
    released: bool = False
    number: int = 0

    @property
    def place(self) -> PidScope:
        """Where it runs."""
        return PidScope(self.boot, self.space)

    def text(self) -> bytes:
        """One line of JSON, always as long, so that it can be written over in one piece."""
        line = json.dumps(asdict(self), separators=(",", ":"))
        return line.ljust(_SIZE - 1).encode("ascii") + b"\n"

    def __str__(self) -> str:
        return f"{'an' if self.role == 'agent' else 'a'} {self.role} on {self.host} (pid {self.pid})"


def parse(text: bytes) -> Card | None:
    """What a lease says; None when it says nothing yet, or nothing that is understood."""
    try:
        said = json.loads(text)
        card = Card(**{f.name: said[f.name] for f in fields(Card)})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    kinds: dict[str, type | tuple[type, ...]] = {
        **dict.fromkeys(("pid", "ticks", "uid", "beat", "number"), int),
        **dict.fromkeys(("host", "boot", "space", "role", "address"), str),
        **dict.fromkeys(("since", "at"), (int, float)),
        "released": bool,
    }
    return card if all(isinstance(getattr(card, name), kind) for name, kind in kinds.items()) else None


# -- steps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Now:
    """-> seconds by this host's clock, which goes on while it is suspended."""


@dataclass(frozen=True, slots=True)
class Names:
    """-> set of int: the numbers of all leases in the folder."""


@dataclass(frozen=True, slots=True)
class Read:
    """-> bytes of that lease, None when it is not there."""

    number: int


@dataclass(frozen=True, slots=True)
class Create:
    """-> bool: whether it was made; false when there is one of that number already."""

    number: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """-> None. One that is not there is no error."""

    number: int


@dataclass(frozen=True, slots=True)
class Fence:
    """-> int: the number that was found in the database. A lower one was raised to this one in the same transaction,
    any other was left. None: the database cannot be had, as somebody is writing."""

    number: int


Step = Now | Names | Read | Create | Remove | Fence


@dataclass(frozen=True, slots=True)
class Taken:
    """The lease is ours, under this number."""

    number: int


@dataclass(frozen=True, slots=True)
class HeldByOther:
    """Somebody else has it, or was quicker; `by` whom, where that is known."""

    by: Card | None


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by two clocks of one host (s): the one since boot, which goes on while the host is suspended but may stand
    still with a virtual machine, and the time of day, which does not but may be set."""

    boot: float
    wall: float

    def since(self, earlier: Moment) -> float:
        """Seconds that may have passed: in doubt more than less."""
        return max(self.boot - earlier.boot, self.wall - earlier.wall)


# -- rules -----------------------------------------------------------------------------------------------------------


class Watch:
    """Whether the holders of other leases live, as far as one host can tell.

    `notes` maps a lease to what it said and since when (by this host's clock) it has said nothing else; it can be kept
    beyond the process. `runs(pid, ticks)` looks for a process of the same place.
    """

    def __init__(
        self,
        place: PidScope,
        patience: float,
        runs: Callable[[int, int], bool],
        notes: Mapping[int, tuple[str, float]] | None = None,
    ) -> None:
        self._place = place
        self._patience = patience
        self._runs = runs
        self.notes = dict(notes or {})

    def lives(self, number: int, text: bytes, before: float, after: float) -> bool:
        """Whether the holder must be taken to live, given what its lease said when it was read between `before` and
        `after`: silence counts from the end of the first look to the beginning of the last, never longer."""
        card = parse(text)
        if card is not None and card.released:
            return False
        if card is not None and self._place.known and card.place == self._place:
            return self._runs(card.pid, card.ticks)
        said = hashlib.sha256(text).hexdigest()
        known = self.notes.get(number)
        if known is None or known[0] != said or known[1] > before:
            self.notes[number] = (said, after)
            return True
        return before - known[1] < self._patience


def sure_for(patience: float) -> float:
    """How long a holder may act on after its last beat: well before others may take its lease for abandoned."""
    return patience / 3


def beat_every(patience: float) -> float:
    """Seconds between beats: several may be lost before the holder is not sure any more."""
    return patience / 12


def take(me: Card, watch: Watch) -> Generator[Step, Any, Taken | HeldByOther]:
    """Try to become the holder, once."""
    lowest = 1
    for _ in range(_TRIES):
        seen: dict[int, bytes] = {}
        living: Card | None = None
        held = False
        for number in sorted((yield Names())):
            before = yield Now()
            text = yield Read(number)
            if text is None:
                continue  # its successor has just cleared it away
            seen[number] = text
            if watch.lives(number, text, before, (yield Now())):
                held, living = True, parse(text) or living
        if held:
            return HeldByOther(living)
        mine = max([lowest - 1, *seen]) + 1
        if not (yield Create(mine, replace(me, number=mine).text())):
            return HeldByOther(parse((yield Read(mine)) or b""))
        # Nobody else can have this number. But what was seen may be old by now: by a pause of this process, or by what
        # the file system had cached. Having written to the folder, one sees it as it is.
        rival: Card | None = None
        moved = False
        for number in sorted((yield Names())):
            if number == mine:
                continue
            text = yield Read(number)
            if text is not None and text != seen.get(number):
                moved, rival = True, parse(text) or rival
        if moved:
            yield Remove(mine)
            return HeldByOther(rival)
        found = yield Fence(mine)
        if found is not None and found < mine:
            for number in seen:
                yield Remove(number)
            return Taken(mine)
        yield Remove(mine)
        if found is None:
            return HeldByOther(parse(seen[max(seen)]) if seen else None)
        lowest = found + 1  # the leases were removed by hand, or a newer holder's came and went
    return HeldByOther(None)
