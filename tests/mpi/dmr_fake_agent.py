"""An agent that follows a script: it speaks dmr.wire, checks credentials, records everything, and decides nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dmr import credential, wire


@dataclass
class FakeAgent:
    """Resizes the application to each of `sizes` in turn, once it has made `patience` checks at its present size.

    `veto` may answer any request instead of the script; returning None from it lets the script answer, and raising
    ConnectionError drops the connection.
    """

    key: credential.Key
    sizes: Sequence[int] = ()
    per_node: int = 1
    patience: int = 2
    veto: Callable[[wire.Request], wire.Reply | None] = lambda request: None
    requests: list[wire.Request] = field(default_factory=list)
    seen: list[tuple[float, wire.Request]] = field(default_factory=list)
    epoch: int = 0
    checks: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FakeAgent:
        return self

    def __exit__(self, *exc: object) -> None:
        self.die()

    def die(self) -> None:
        # shutdown(), because close() does not wake a thread that waits in accept() or readline().
        for s in [self._listener, *self._connections]:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def of(self, kind: type[wire.Request]) -> list[wire.Request]:
        return [r for r in self.requests if isinstance(r, kind)]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    request, digest = wire.decode_request(line)
                    credential.verify_key(request.auth, digest, self.key)
                    with self._lock:
                        self.requests.append(request)
                        self.seen.append((time.monotonic(), request))
                        reply = self.veto(request) or self._answer(request)
                    connection.sendall(wire.encode(reply))
        except (ConnectionError, ValueError, OSError):
            return

    def _answer(self, request: wire.Request) -> wire.Reply:
        if isinstance(request, wire.Finished):
            assert request.epoch == self.epoch + 1 and request.size == self.sizes[self.epoch]
            self.epoch, self.checks = request.epoch, 0
        if not isinstance(request, wire.Check):
            return wire.Done()
        self.checks += 1
        if self.checks <= self.patience or self.epoch >= len(self.sizes):
            return wire.CheckReply(action="none", size=request.size, epoch=self.epoch)
        size = self.sizes[self.epoch]
        assert size % self.per_node == 0
        return wire.CheckReply(
            action="expand" if size > request.size else "shrink",
            size=size,
            epoch=self.epoch + 1,
            nodes=tuple(f"n{i + 1}" for i in range(size // self.per_node)),
            per_node=self.per_node,
            reason="the script says so",
        )
