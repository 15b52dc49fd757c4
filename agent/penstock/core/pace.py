"""Long work in small parts: the agent does one thing at a time, and somebody may be at the door meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

__all__ = ["BEHIND", "Pace", "Timed", "at_once"]

T = TypeVar("T")

BEHIND: Final[ContextVar[Callable[[], Awaitable[None]] | None]] = ContextVar("behind", default=None)
"""What this task waits for besides, whenever it gives way, which is more often: that work before its own is done."""

# Parts of work between two breaths: some milliseconds. It is counted, not timed, so that it is the same in each run.
_PART = 1000
_PART_BEHIND = 400
# Turns of the event loop, so that who has asked just now has the whole answer: it is accepted, read, answered, sent.
_TURNS = 8


class Pace:
    """Lets others have the event loop from time to time."""

    def __init__(self, part: int = _PART) -> None:
        self._part = part if BEHIND.get() is None else min(part, _PART_BEHIND)
        self._done = 0

    async def after(self, work: int) -> None:
        """So much has been done: give way when it is time."""
        self._done += work
        if self._done >= self._part:
            await self.give_way()

    async def give_way(self) -> None:
        """Let others have the event loop now."""
        self._done = 0
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if (others := BEHIND.get()) is not None:
            await others()

    async def walk(self, parts: Generator[int, None, T]) -> T:
        """What the generator returns; each value it yields is how much it has done since the one before."""
        while True:
            try:
                work = next(parts)
            except StopIteration as end:
                found: T = end.value
                return found
            await self.after(work)


def at_once(parts: Generator[int, None, T]) -> T:
    """What the generator returns, for those who do not mind how long it takes."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: T = end.value
            return found


class Timed(Generic[T]):
    """A coroutine to be awaited, and the processor time (s) that it took itself, without what others did meanwhile.
    `at_work`: it has more to do at once, and waits for nothing but its turn."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self.seconds = 0.0
        self.at_work = True

    def __await__(self) -> Generator[Any, Any, T]:
        return _Turns(self, self._work)


class _Turns(Generator[Any, Any, T]):
    """The turns that a coroutine has."""

    def __init__(self, timed: Timed[T], work: Coroutine[Any, Any, T]) -> None:
        self._timed, self._work = timed, work

    def send(self, value: Any) -> Any:  # noqa: ANN401
        began = time.thread_time()
        try:
            awaited = self._work.send(value)
            self._timed.at_work = awaited is None
            return awaited
        finally:
            self._timed.seconds += time.thread_time() - began

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:  # noqa: ANN401
        began = time.thread_time()
        try:
            return self._work.throw(kind, value, trace)
        finally:
            self._timed.seconds += time.thread_time() - began

    def close(self) -> None:
        self._work.close()
