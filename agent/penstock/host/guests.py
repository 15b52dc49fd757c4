"""The connections of one door of an asyncio program: let in by its gate, each served by a task of its own, and ended
where others come first (`gate`)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from penstock.host.gate import ConnectionBounds, Gate
from penstock.host.logs import get_logger

__all__ = ["Guests", "streams"]

_log = get_logger(__name__)

Serve = Callable[[socket.socket, str], Awaitable[None]]


class Guests:
    """`peer_of` says whose a connection is (OSError: gone), `serve(connection, peer)` speaks with it to its end,
    `tells(peer)` says whether a line may be written to the log. `turned_away` counts connections that were one too
    many, whichever of them had to go."""

    def __init__(self, peer_of: Callable[[socket.socket], str], serve: Serve, tells: Callable[[str], bool]) -> None:
        self._peer_of = peer_of
        self._serve = serve
        self._tells = tells
        self.gate: Gate[socket.socket] = Gate(ConnectionBounds(1, 1, 1, 1))
        self.turned_away = 0
        self._tasks: dict[socket.socket, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def admit(self, connection: socket.socket) -> None:
        """Let it in, if it is not one too many, or another makes room."""
        try:
            peer = self._peer_of(connection)
        except OSError:  # gone already
            connection.close()
            return
        entry = self.gate.enter(connection, peer)
        if entry.leaves is not None or not entry.welcome:
            self._one_too_many(peer)
        if entry.leaves is not None:
            self.turn_out(entry.leaves)
        if not entry.welcome:
            connection.close()
            return

        async def serve() -> None:
            await self._serve(connection, peer)

        def gone(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (fault := task.exception()) is not None:
                _log.error("a connection could not be served", exc_info=fault)
            self.gate.leave(connection)
            self._tasks.pop(connection, None)
            connection.close()  # also of one that had to go before it had its turn

        self._tasks[connection] = task = asyncio.get_running_loop().create_task(serve())
        task.add_done_callback(gone)

    def prove(self, connection: socket.socket, peer: str | None = None) -> None:
        """It is busy, and has proven whose it is: of this peer, if that is said. May turn out one at rest, or this."""
        if (leaves := self.gate.prove(connection, peer)) is not None:
            self._one_too_many(peer or "")
            self.turn_out(leaves)

    def rest(self, connection: socket.socket) -> None:
        """It has its answer, and may make room for others."""
        self.gate.rest(connection)

    def turn_out(self, connection: socket.socket) -> None:
        """End it."""
        self.gate.leave(connection)
        if (task := self._tasks.pop(connection, None)) is not None:
            task.cancel()

    def make_room(self) -> bool:
        """End one that the door waits for, where there are no descriptors; one that has proven whose it is only where
        the door is full. Whether there was one."""
        if (leaves := self.gate.spares()) is not None:
            self.turn_out(leaves)
        return leaves is not None

    async def close(self) -> None:
        """End all."""
        ending = list(self._tasks.values())
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    def _one_too_many(self, peer: str) -> None:
        self.turned_away += 1
        # Not once for each: who can knock must not be able to fill the disk with it.
        if self._tells(peer):
            _log.warning("a connection was refused or closed: too many are open", peer=peer)


@asynccontextmanager
async def streams(
    connection: socket.socket, limit: int, *, tls: ssl.SSLContext | None = None, handshake: float | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A reader whose lines are at most `limit` bytes long and a writer for an accepted connection, which is closed at
    the end, read or not: a descriptor must not wait for its peer. Raises OSError where it cannot be (with `tls`: where
    the peer does not prove itself, or not within `handshake` seconds)."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=handshake
        )
    except BaseException:
        connection.close()
        raise
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        yield reader, writer
    finally:
        # In Python 3.11 a TLS transport that was closed twice has lost what it would abort.
        with suppress(AttributeError):
            transport.abort()
