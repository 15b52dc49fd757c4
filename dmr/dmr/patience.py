"""Waiting for processes that may have died: collective calls on one communicator that end when somebody says so.

An MPI library waits for ever for a process that is gone, or does not know. While data moves, the new processes are not
part of the application yet (`dmr.joining`), and their death shall harm nobody: so the old ones wait in calls that come
back, and look after the others now and then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Pace", "Patient"]

_LOOK_AFTER: Final = 1.0
# Who has looked at the library for so many times in vain sleeps before the next time: a yield alone does not let others
# work, because who yields is as much entitled to the core as who computes.
_EAGER: Final = 20
_NAP: Final = 5e-5
_COME_BACK: Final = {"Allreduce": "Iallreduce", "Bcast": "Ibcast"}
# Of Python objects there are no calls that come back; but they are small, and all who take part are there and alive.
_OF_OBJECTS: Final = ("allgather", "alltoall", "bcast", "gather")
# Requests that nobody waits for any more, and all they were begun with, as long as this process lives: MPI may still
# write to their buffers, whose memory must not become that of something else. What is gone cannot be asked to stop.
_given_up: Final[list[object]] = []


class Patient:
    """A communicator of all old and new ranks as the old ones use it; what is not here is the communicator's own.

    Args:
        comm: the communicator.
        look: raises what is to be raised when the others are gone; called about once a second while waiting.
    """

    def __init__(self, comm: MPI.Comm, look: Callable[[], None]) -> None:
        self.comm: Any = comm
        self._look = look

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name in _COME_BACK:
            begin = getattr(self.comm, _COME_BACK[name])
            return lambda *arguments, **named: self._wait(begin(*arguments, **named), arguments, named)
        call = getattr(self.comm, name)
        return self._together(call) if name in _OF_OBJECTS else call

    def _together(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def after_all_have_met(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            self.meet()
            return call(*arguments, **named)

        return after_all_have_met

    def meet(self) -> None:
        """Waits until everybody is here."""
        self.wait(self.comm.Ibarrier())

    def wait(self, request: MPI.Request) -> None:
        """Waits for one request."""
        self._wait(request)

    def pace(self, *under_way: object) -> Pace:
        """For those who wait in a loop of their own; `under_way` is what MPI may still read or write meanwhile."""
        return Pace(self._look, under_way)

    def _wait(self, request: MPI.Request, *begun_with: object) -> None:
        pace = self.pace(request, begun_with)
        while not request.Test():  # it is these calls in which the library moves the data
            pace.rest()


class Pace:
    """How often somebody who waits looks whether there is something to do, and after the others."""

    def __init__(self, look: Callable[[], None], under_way: object) -> None:
        self._look = look
        self._under_way = under_way
        self._next = time.monotonic() + _LOOK_AFTER
        self._idle = 0

    def worked(self) -> None:
        """There was something to do."""
        self._idle = 0

    def rest(self) -> None:
        """There was nothing; raises what `look` raises, and keeps what is under way then."""
        self._idle += 1
        if self._idle < _EAGER:
            os.sched_yield()
        else:
            time.sleep(_NAP)
        if time.monotonic() > self._next:
            try:
                self._look()
            except BaseException:
                _given_up.append(self._under_way)
                raise
            self._next = time.monotonic() + _LOOK_AFTER
