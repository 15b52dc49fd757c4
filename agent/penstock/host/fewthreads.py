"""For servers of the standard library: a thread per connection, but only so many, and none for long.

The service may have a limited number of threads and processes, and needs some for Slurm's commands: connections must
not be able to take them all, and those of one account must not keep out another's (`gate`).
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final

from penstock.host.gate import Gate, bounds_for
from penstock.host.owners import peer_of

__all__ = ["FewThreads", "PromptHandler"]

_HAND_OVER: Final = 1.0  # seconds until the thread of a connection that had to leave has ended

if TYPE_CHECKING:
    _Base = BaseServer
else:
    _Base = object


class FewThreads(ThreadingMixIn, _Base):
    """`ThreadingMixIn` for at most `most` connections at a time, of one peer a quarter: one more closes another, of
    which no request is answered, or is closed unread. A request has `patience` seconds to come in, and its
    answer as many to be read, however slowly that goes on. The handler's class is a `PromptHandler`.

    `first`: peers (`owners.peer_of`) that come first. `turned_away` counts connections that were one too many.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    most = 64
    patience = 10.0

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 (those of the server's class)
        self.gate: Gate[socket.socket] = Gate(bounds_for(self.most), {"uid 0"})
        self.turned_away = 0
        self._until: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(2 * self.most)  # those of connections that have to leave, too
        super().__init__(*args, **options)

    @property
    def first(self) -> Collection[str]:
        """The peers that come first."""
        return self.gate.first

    @first.setter
    def first(self, peers: Collection[str]) -> None:
        self.gate.first = peers

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 (the base class's)
        """In a thread of its own, if there are not too many."""
        if not self._enter(request):
            self.shutdown_request(request)
            return
        if not self._places.acquire(timeout=_HAND_OVER):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread left
            self._places.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """One connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def _enter(self, request: socket.socket) -> bool:
        try:
            peer = peer_of(request)
        except OSError:  # gone already
            return False
        with self._lock:
            entry = self.gate.enter(request, peer)
            if entry.welcome:
                self._until[request] = time.monotonic() + self.patience
            self.turned_away += entry.leaves is not None or not entry.welcome
            if entry.leaves is not None:
                self._end(entry.leaves)
        return entry.welcome

    def busy(self, request: socket.socket) -> None:
        """Its request has come in, and is answered now."""
        with self._lock:
            if request in self._until:
                self.gate.prove(request)
                self._until[request] = time.monotonic() + self.patience

    def rests(self, request: socket.socket, seconds: float) -> None:
        """It has its answer, and so much time to begin another request."""
        with self._lock:
            if request in self._until:
                self.gate.rest(request)
                self._until[request] = time.monotonic() + seconds

    def service_actions(self) -> None:
        """Twice a second, and after each connection: ends those that are too slow, which a socket's own time limit
        does not, as it begins anew with each byte."""
        super().service_actions()
        now = time.monotonic()
        with self._lock:
            for request in [one for one, until in self._until.items() if until < now]:
                self._end(request)

    def _end(self, request: socket.socket) -> None:
        """Its thread finds it at its end. Under the lock, under which it is closed: its number is still its own."""
        del self._until[request]
        self.gate.leave(request)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 (the base class's)
        """Close it."""
        with self._lock:
            self.gate.leave(request)
            self._until.pop(request, None)
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """A connection that breaks is nothing to tell of."""


class PromptHandler(BaseHTTPRequestHandler):
    """Tells a `FewThreads` when a request has come in, and when its answer has gone out."""

    server: FewThreads

    def parse_request(self) -> bool:
        """See the base class; the request is read to the end of its head after it."""
        read = super().parse_request()
        if read:
            self.server.busy(self.connection)
        return read

    def handle_one_request(self) -> None:
        """See the base class."""
        super().handle_one_request()
        self.server.rests(self.connection, self.timeout or self.server.patience)

    def handle(self) -> None:
        """All requests of a connection. One that had to leave meanwhile is at its end."""
        with contextlib.suppress(OSError, ValueError):
            super().handle()
