"""The paper's "checking inhibitor" (section 5.1): how many of the next calls are ignored after a real one.

The ranks' clocks disagree, so only rank 0 has one: it measures how long a step takes and turns the time into a number
of calls, which all ranks then count.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["Inhibitor"]

_QUICKEST: Final = 1e-6
# A few quick steps at the start of a program must not silence it for hours, should the later ones be slow.
_GROWTH: Final = 16


class Inhibitor:
    """Rank 0's part of it. Instants are monotonic seconds.

    Args:
        seconds: ignore calls for about that long after each real one; 0: none.
        steps: let at most every so many-th call through.
    """

    def __init__(self, seconds: float = 0.0, steps: int = 1) -> None:
        self._seconds = seconds
        self._steps = max(1, steps)
        self._left: float | None = None
        self._ignored = 0
        self._bound = _GROWTH  # one more than may be ignored next
        self.step_seconds: float | None = None  # between the last two real calls

    def enter(self, now: float) -> None:
        """A real call begins."""
        if self._left is not None:
            self.step_seconds = max(0.0, now - self._left) / (self._ignored + 1)

    def passed(self) -> None:
        """A call that is no real one, though it was let through."""
        self._ignored += 1

    def leave(self, now: float, *, soon: bool = False) -> int:
        """The real call ends; returns how many of the next to ignore: none if `soon`, because an answer is due."""
        ignored = 0
        if not soon:
            ignored = self._steps - 1
            if self._seconds > 0 and self.step_seconds is not None:
                wanted = math.ceil(self._seconds / max(self.step_seconds, _QUICKEST)) - 1
                ignored = max(ignored, min(wanted, self._bound - 1))
                self._bound = _GROWTH * (ignored + 1)
        self._left, self._ignored = now, ignored
        return ignored
