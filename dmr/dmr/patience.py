"""Waiting for processes that may have died: collective calls on one communicator that end when somebody says so.

An MPI library waits for ever for a process that is gone, or does not know. While data moves, the new processes are not
part of the application yet (`dmr.joining`), and their death shall harm nobody: so the old ones wait in calls that come
back, and look after the others now and then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Patient"]

_LOOK_AFTER: Final = 1.0
_COME_BACK: Final = {"Allreduce": "Iallreduce", "Alltoallv": "Ialltoallv", "Bcast": "Ibcast"}
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

    def waitall(self, requests: Sequence[MPI.Request]) -> None:
        """Waits for several requests."""
        from mpi4py import MPI

        self._until(lambda: MPI.Request.Testall(requests), requests)

    def _wait(self, request: MPI.Request, *begun_with: object) -> None:
        self._until(request.Test, request, begun_with)

    def _until(self, done: Callable[[], bool], *under_way: object) -> None:
        look = time.monotonic() + _LOOK_AFTER
        while not done():  # without a pause: it is these calls in which the library moves the data
            os.sched_yield()  # but who waits must not keep a core from who has something to do
            if time.monotonic() > look:
                try:
                    self._look()
                except BaseException:
                    _given_up.append(under_way)
                    raise
                look = time.monotonic() + _LOOK_AFTER
