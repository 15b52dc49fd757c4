"""Faults on order: what a test wants to go wrong with the next calls of a method."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Fault", "FaultKind", "Faults"]


class FaultKind(StrEnum):
    """`error`: refused with SlurmUnavailable, nothing done. `hang`: nothing done, no answer ever. `lost-answer`: done,
    and the connection is closed without an answer. `late`: done, and answered after `delay` seconds."""

    ERROR = "error"
    HANG = "hang"
    LOST_ANSWER = "lost-answer"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Fault:
    """One call that goes wrong; `delay` in seconds is for `late` alone."""

    kind: FaultKind
    delay: float = 0.0


class Faults:
    """Orders per method, first come first served. The method `*` stands for any call without an order of its own."""

    def __init__(self) -> None:
        self._orders: dict[str, deque[Fault]] = defaultdict(deque)

    def order(self, method: str, kind: str, count: int = 1, delay: float = 0.0) -> None:
        """The next `count` calls of `method` go wrong; 0 takes its orders back. ValueError: unknown kind."""
        if count == 0:
            self._orders.pop(method, None)
        self._orders[method].extend([Fault(FaultKind(kind), delay)] * count)

    def take(self, method: str) -> Fault | None:
        """What goes wrong with this call, if anything."""
        for name in (method, "*"):
            if self._orders[name]:
                return self._orders[name].popleft()
        return None
