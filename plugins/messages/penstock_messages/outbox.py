"""Which message goes out next, and what becomes of one that could not be delivered. Pure: no clock, no thread.

One message at a time by each channel, so that one that hangs keeps nobody but its own channel waiting. To each
recipient at most `per_hour` in any hour; what is more waits its turn. What waits too long, or is one too many, is
dropped: it would tell of a world that is no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.events import Event
from penstock.values.messages import MessageState

__all__ = ["LADDER", "MOST", "OLDEST", "Letter", "Outbox"]

LADDER: Final = (30.0, 120.0, 600.0, 3600.0)
"""Seconds until a message that failed is tried again; one more failure is final."""
MOST: Final = 1000
"""Messages that wait at most."""
OLDEST: Final = 86400.0
"""Seconds after which a message is not worth sending any more."""
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Letter:
    """An event on its way by one channel; `id` is its row, `due` when it may be tried (again)."""

    id: int
    channel: str
    event: Event
    tries: int = 0
    due: float = 0.0

    @property
    def recipient(self) -> tuple[str, int | None]:
        """To whom it goes: by mail to the user, by the others to whoever set them up."""
        return (self.channel, self.event.uid if self.channel == "mail" else None)


class Outbox:
    """The messages that wait, oldest first."""

    def __init__(self, per_hour: int) -> None:
        self.per_hour = per_hour
        self._waiting: dict[int, Letter] = {}
        self._under_way: dict[str, Letter] = {}
        self._sent: dict[tuple[str, int | None], deque[float]] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def under_way(self) -> Mapping[str, Letter]:
        """What is being delivered, by channel."""
        return self._under_way

    def add(self, letter: Letter) -> bool:
        """Whether there was room."""
        if len(self._waiting) >= MOST:
            return False
        self._waiting[letter.id] = letter
        return True

    def old(self, now: float) -> list[Letter]:
        """Those that have waited too long; they wait no more."""
        found = [letter for letter in self._waiting.values() if now - letter.event.at > OLDEST]
        for letter in found:
            del self._waiting[letter.id]
        return found

    def take(self, channels: Iterable[str], now: float) -> Letter | None:
        """What is to be delivered next: at most one at a time is on its way by each of these channels."""
        free = set(channels) - self._under_way.keys()
        for letter in self._waiting.values():
            if letter.channel in free and self._at(letter, now) <= now:
                del self._waiting[letter.id]
                self._under_way[letter.channel] = letter
                self._sent.setdefault(letter.recipient, deque()).append(now)
                return letter
        return None

    def give_back(self, letter: Letter) -> None:
        """It was taken, and could not be begun with."""
        self.forget(letter)
        self._waiting[letter.id] = letter

    def forget(self, letter: Letter) -> None:
        """It was taken, and is not to be delivered at all."""
        del self._under_way[letter.channel]
        self._sent[letter.recipient].pop()

    def settle(self, letter: Letter, why: str | None, final: bool, now: float) -> tuple[MessageState, Letter]:
        """It was delivered (`why` None), or was not: what that makes of it."""
        self._under_way.pop(letter.channel, None)
        tried = replace(letter, tries=letter.tries + 1)
        if why is None:
            return MessageState.SENT, tried
        if final or tried.tries > len(LADDER):
            return MessageState.FAILED, tried
        tried = replace(tried, due=now + LADDER[letter.tries])
        self._waiting[letter.id] = tried
        return MessageState.OPEN, tried

    def remember(self, letter: Letter, at: float) -> None:
        """It was sent then, by an earlier agent: it counts against the hour."""
        self._sent.setdefault(letter.recipient, deque()).append(at)

    def next_at(self, channels: Iterable[str], now: float) -> float | None:
        """When there is something to deliver; None: not before something changes."""
        free = set(channels) - self._under_way.keys()
        return min((self._at(letter, now) for letter in self._waiting.values() if letter.channel in free), default=None)

    def _at(self, letter: Letter, now: float) -> float:
        """When it may be delivered."""
        sent = self._sent.get(letter.recipient, deque())
        # What is of the future was sent before the clock was set back: when it was is not known.
        while sent and not now - _HOUR < sent[0] <= now:
            sent.popleft()
        # Of a lowered limit, too: the one that leaves the window so that there is room.
        room = 0.0 if len(sent) < self.per_hour else sent[-self.per_hour] + _HOUR
        return max(letter.due if letter.due <= now + LADDER[-1] else now, room)
