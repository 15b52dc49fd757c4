"""Long questions at the door, as `try` is one: whose turn it is. They take seconds of the agent's processor, so each
user has one at a time, and a measure for all of them that is apart from that of short questions. Pure.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import NotNow
from penstock.ipc.limits import RateLimit

__all__ = ["LongQuestions", "QuestionTurn"]


@dataclass(frozen=True, slots=True, eq=False)
class QuestionTurn:
    """One question of a user, which came at `since` (s). `call` is called when those before it have ended."""

    uid: int
    since: float
    call: Callable[[], None]


class LongQuestions:
    """Of all users. One has `burst` seconds of processor time at once, and then that `share` of a processor; so many of
    one user's are `waiting` besides the one that is answered, none for longer than `patience` (s)."""

    def __init__(self, burst: float = 60.0, share: float = 0.25, waiting: int = 8, patience: float = 60.0) -> None:
        self._time = RateLimit(burst, share)
        self._most, self._patience = waiting, patience
        self.waiting: dict[int, deque[QuestionTurn]] = {}

    def enter(self, uid: int, now: float, call: Callable[[], None]) -> QuestionTurn:
        """A place behind the user's others. To be left in any case. Raises NotNow where too many wait."""
        mine = self.waiting.get(uid, ())
        if len(mine) > self._most:
            raise NotNow(
                f"too many long questions: one of yours is answered at a time, and {self._most} may wait; ask again "
                "when one of them has been answered"
            )
        turn = QuestionTurn(uid, now, call)
        self.waiting.setdefault(uid, deque()).append(turn)
        return turn

    def begins_in(self, turn: QuestionTurn, now: float) -> float:
        """Seconds until it may begin, 0 for now, where nobody calls before. Raises NotNow where it would wait for too
        long."""
        left = turn.since + self._patience - now
        if self.waiting[turn.uid][0] is not turn:
            if left <= 0:
                raise NotNow(
                    f"a long question waited {self._patience:g} s for the one before it, as one of yours is answered "
                    "at a time; ask again later"
                )
            return left
        rest = self._time.delay(turn.uid, now)
        if rest > left:
            raise NotNow(
                f"your long questions have had their part of the agent's processor time: {self._time.burst:g} s at "
                f"once, and then {self._time.rate:.0%} of a processor; ask again in {math.ceil(rest)} s",
                again_in=rest,
            )
        return rest

    def leave(self, turn: QuestionTurn, used: float, now: float) -> None:
        """It has ended, or waits no more, and has used so much processor time (s); the next one is called."""
        mine = self.waiting[turn.uid]
        first = mine[0] is turn
        mine.remove(turn)
        if used > 0:
            self._time.charge(turn.uid, used, now)
        if not mine:
            del self.waiting[turn.uid]
        elif first:
            mine[0].call()
