"""Faults on order: what is to go wrong with the next calls of a method, in virtual time as on the server.

server                answers the calls of its clients with the faults that were ordered from it
FaultyBackend         does the same to a backend in this process, in whose virtual time hanging and lateness pass
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.errors import OutcomeUnknown, PenstockError, SlurmUnavailable
from penstock_lab.mock.backend import MockBackend
from penstock_lab.mock.codec import CALLS, CHANGING

__all__ = ["Fault", "FaultKind", "Faults", "FaultyBackend"]


class FaultKind(StrEnum):
    """`error`: refused with SlurmUnavailable (or the fault's own error), nothing done. `hang`: nothing done, no answer
    ever. `lost-answer`: done, and the connection is closed without an answer. `late`: done, and answered after `delay`
    seconds. `repeat`: done twice, as after a retransmission, and answered as the second time."""

    ERROR = "error"
    HANG = "hang"
    LOST_ANSWER = "lost-answer"
    LATE = "late"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class Fault:
    """One call that goes wrong; `delay` in seconds is for `late`, `error` for `error` alone."""

    kind: FaultKind
    delay: float = 0.0
    error: PenstockError | None = None


class Faults:
    """Orders per method, first come first served. The method `*` stands for any call without an order of its own."""

    def __init__(self) -> None:
        self._orders: dict[str, deque[Fault]] = defaultdict(deque)
        self._away_until = -math.inf

    def order(self, method: str, kind: str, count: int = 1, delay: float = 0.0) -> None:
        """The next `count` calls of `method` go wrong; 0 takes its orders back. ValueError: unknown kind or method."""
        if method != "*" and method not in CALLS:
            raise ValueError(f"no such call: {method}")
        if count == 0:
            self._orders.pop(method, None)
        self._orders[method].extend([Fault(FaultKind(kind), delay)] * count)

    def away(self, until: float) -> None:
        """The controller is down up to this time: every call fails, and jobs go on running."""
        self._away_until = until

    def take(self, method: str, now: float) -> Fault | None:
        """What goes wrong with this call, if anything. Calls while the controller is away use no orders up."""
        if now < self._away_until:
            return Fault(
                FaultKind.ERROR, error=SlurmUnavailable("Unable to contact slurm controller (connect failure)")
            )
        for name in (method, "*"):
            if self._orders[name]:
                return self._orders[name].popleft()
        return None


class FaultyBackend:
    """A `Backend` around one in virtual time. Its calls go wrong as `choose` says, by default as `faults` are ordered.

    A call that hangs takes `time_limit` seconds of virtual time.
    """

    def __init__(
        self,
        inner: MockBackend,
        choose: Callable[[str], Fault | None] | None = None,
        *,
        time_limit: float = 10.0,
    ) -> None:
        self.inner = inner
        self.faults = Faults()
        self._choose = choose or (lambda method: self.faults.take(method, inner.now()))
        self._time_limit = time_limit

    def away(self, seconds: float) -> None:
        """The controller is down for so long, from now on."""
        self.faults.away(self.inner.now() + seconds)

    def on(self, cluster: str) -> FaultyBackend:
        """Another cluster of the site, with the same faults to come."""
        return self._around(self.inner.on(cluster))

    def as_user(self, user: str) -> FaultyBackend:
        """Another user's view, with the same faults to come."""
        return self._around(self.inner.as_user(user))

    def _around(self, inner: MockBackend) -> FaultyBackend:
        twin = FaultyBackend(inner, self._choose, time_limit=self._time_limit)
        twin.faults = self.faults
        return twin

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the backend has there)
        found = getattr(self.inner, name)
        if name not in CALLS:
            return found

        async def call(*args: object, **more: object) -> object:
            return await self.call(name, *args, **more)

        return call

    async def call(self, method: str, *args: object, **more: object) -> object:
        """One call, with whatever goes wrong with it."""
        fault = self._choose(method)
        silent = OutcomeUnknown if method in CHANGING else SlurmUnavailable
        if fault is not None and fault.kind is FaultKind.ERROR:
            raise fault.error or SlurmUnavailable(f"{method}: a fault was ordered")
        if fault is not None and fault.kind is FaultKind.HANG:
            await self.inner.driver.pause(self._time_limit)
            raise silent(f"{method}: no answer within {self._time_limit:g} s")
        answer: object = await getattr(self.inner, method)(*args, **more)
        if fault is not None and fault.kind is FaultKind.REPEAT:
            answer = await getattr(self.inner, method)(*args, **more)
        if fault is not None and fault.kind is FaultKind.LOST_ANSWER:
            raise silent(f"{method}: the answer was lost")
        if fault is not None and fault.kind is FaultKind.LATE:
            await self.inner.driver.pause(fault.delay)
        return answer
