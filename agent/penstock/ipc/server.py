"""JSON lines over a socket: one request a line, one reply a line. Knows sockets and limits, not what is asked.

A line longer than the protocol allows, a peer that stalls, or too many connections end that connection and nothing
else. A peer that has not proven whose it is has a few seconds at a time, and may not stay for long; where there are too
many, one of those makes room, or one at rest (`host.gate`). Some descriptors are never given to connections
(`host.descriptors`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from dmr.wire import MAX_LINE
from penstock.errors import PenstockError
from penstock.host import descriptors
from penstock.host.gate import bounds_for
from penstock.host.guests import Guests, streams
from penstock.host.listener import Listener
from penstock.host.logs import get_logger
from penstock.host.owners import host_of, peer_of
from penstock.host.peers import peer_uid, user_of
from penstock.host.unixdoor import UnixDoor
from penstock.ipc import proof
from penstock.ipc.audited import PEER
from penstock.ipc.far import FarDoor, refusal
from penstock.ipc.limits import ByteBudget, Holding, RateLimit

__all__ = ["Server"]

_log = get_logger(__name__)
# Per door, so that strangers on the network cannot keep the command line out, and per account or address, so that one
# cannot keep out the others.
_MAX_CONNECTIONS = 4096
_MAX_PER_ADDRESS = 512
_MAX_PER_USER = 64
# Of these without proof of who they are. What descriptors there are is divided among the doors.
_MAX_ANONYMOUS = 1024
_SHARES = {"local": 1, "far": 1, "remote": 2}
_BACKLOG = 128
_FIRST_LINE = 10.0
_IDLE = 3600.0
_UNPROVEN = 60.0
_DRAIN = 30.0
# A workflow file may be long; an application's request is short.
_LOCAL_LINE = 4 * 1024 * 1024
# asyncio's own buffer of a connection; longer lines are put together here, where they are counted.
_CHUNK = 64 * 1024
_MOST_HELD = 4 * _LOCAL_LINE

UnixHandler = Callable[[int, bytes], Awaitable[bytes]]
TcpHandler = Callable[[bytes], Awaitable[tuple[bytes, int | None]]]
"""The reply, and the uid that the request proved to be from, if it did."""


class Server:
    """The doors of the agent: a Unix socket (peer known by the kernel) and TCP (peer known by its credential), for
    programs and, where other hosts see the state, for their commands. `first`: peers that come first at all of them."""

    def __init__(self, on_local: UnixHandler, on_remote: TcpHandler, first: Collection[str] = ()) -> None:
        self._on_local = on_local
        self._on_remote = on_remote
        self._first = first
        self._listeners: list[Listener] = []
        self._doors: dict[str, Guests] = {}
        self._unix: UnixDoor | None = None
        self._far: FarDoor | None = None
        self._held = ByteBudget(_MOST_HELD)
        self._told = RateLimit(10, 0.2)

    @property
    def turned_away(self) -> Counter[str]:
        """Connections that were one too many, by door ("local", "remote"), whichever of them had to go."""
        counts: Counter[str] = Counter()
        for name, guests in self._doors.items():
            counts["local" if name == "local" else "remote"] += guests.turned_away
        return counts

    def put_first(self, peers: Collection[str]) -> None:
        """These come first from now on."""
        self._first = peers
        for guests in self._doors.values():
            guests.gate.first = peers

    async def listen_unix(self, path: Path) -> None:
        """Listen at `path`. Raises `PenstockError` when a living agent already does."""
        self._unix = UnixDoor(path, _BACKLOG, _taken, "`agent.socket`: ")
        self._open("local", [self._unix.socket])

    async def listen_far(self, host: str, port: int, door: FarDoor) -> int:
        """Listen on TCP for commands of other hosts; the port. Raises OSError."""
        self._far = door
        return await self._listen("far", host, port)

    async def listen_tcp(self, host: str, port: int) -> int:
        """Listen on TCP; the port (as given, or picked by the system for 0)."""
        return await self._listen("remote", host, port)

    async def _listen(self, name: str, host: str, port: int) -> int:
        # asyncio finds the addresses; it does not take the connections.
        made = await asyncio.start_server(_nobody, host, port, reuse_address=True, start_serving=False)
        sockets = [socket.socket(fileno=os.dup(one.fileno())) for one in made.sockets]
        made.close()
        for listening in sockets:
            listening.listen(_BACKLOG)
        return self._open(name, sockets)[0].port

    def _open(self, name: str, sockets: Sequence[socket.socket]) -> Sequence[Listener]:
        def tells() -> bool:
            return self._may_tell(name)

        peer = user_of if name == "local" else peer_of
        self._doors[name] = guests = Guests(peer, partial(self._serve, name), self._may_tell)
        guests.gate.first = self._first
        self._divide()
        opened = [
            Listener(name, listening, guests.admit, descriptors.room, tells, self._make_room) for listening in sockets
        ]
        self._listeners += opened
        return opened

    def _may_tell(self, of: str) -> bool:
        return self._told.allows(of, asyncio.get_running_loop().time())

    def _divide(self) -> None:
        """Descriptors among the doors: none of them can take those of another, nor those of the agent itself."""
        there = descriptors.for_doors(descriptors.room() + sum(map(len, self._doors.values())))
        parts = sum(_SHARES[name] for name in self._doors)
        for name, guests in self._doors.items():
            most = max(1, min(_MAX_CONNECTIONS, there * _SHARES[name] // parts))
            guests.gate.bounds = bounds_for(
                most, _MAX_PER_USER if name == "local" else _MAX_PER_ADDRESS, _MAX_ANONYMOUS
            )

    def _make_room(self) -> bool:
        """At one of the doors."""
        return any(guests.make_room() for guests in self._doors.values())

    async def close(self) -> None:
        """Stop listening, end all connections, remove the socket."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for guests in self._doors.values():
            await guests.close()
        if self._unix is not None:
            self._unix.remove()

    async def _serve(self, name: str, connection: socket.socket, peer: str) -> None:
        """One connection, to its end. However it ends, nothing else does."""
        guests = self._doors[name]
        try:
            PEER.set(peer if name == "local" else host_of(connection))  # of this connection's task alone
            async with streams(connection, MAX_LINE if name == "remote" else _CHUNK) as (reader, writer):
                if name == "far":
                    await self._from_afar(reader, writer, (connection, peer), guests)
                else:
                    uid = peer_uid(connection) if name == "local" else None
                    await self._talk(reader, writer, (connection, peer, uid), guests)
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), _DRAIN)
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as e:
            _log.debug("connection ended", peer=peer, why=repr(e))

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        of: tuple[socket.socket, str, int | None],
        guests: Guests,
    ) -> None:
        """Request after request, as long as they are known to be of an account: `of` is the connection, its peer, and
        the uid where the kernel tells it."""
        connection, peer, uid = of
        proven = False
        leave = asyncio.get_running_loop().time() + _UNPROVEN
        longest = MAX_LINE if uid is None else _LOCAL_LINE
        while proven or asyncio.get_running_loop().time() < leave:
            with self._held.holding(peer) as held:
                line = await asyncio.wait_for(_line(reader, longest, held), _IDLE if proven else _FIRST_LINE)
                if not line:
                    break
                if proven or uid is not None:
                    guests.prove(connection)
                if uid is None:
                    reply, whose = await self._on_remote(line)
                else:
                    reply, whose = await self._on_local(uid, line), uid
            if whose is not None and not proven:
                proven = True
                guests.prove(connection, f"uid {whose}")
            writer.write(reply)
            guests.rest(connection)  # whether it reads on is its own affair
            await asyncio.wait_for(writer.drain(), _DRAIN)

    async def _from_afar(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        of: tuple[socket.socket, str],
        guests: Guests,
    ) -> None:
        """One request of a command on another host (`penstock.ipc.proof`). A long one only from an account that has
        proven itself. `of` is the connection and its peer."""
        assert self._far is not None
        connection, peer = of
        number = proof.nonce()
        writer.write(proof.greeting(number))
        with self._held.holding(peer) as held:
            head = await asyncio.wait_for(_line(reader, proof.MAX_HEAD, held), _FIRST_LINE)
            try:
                who = await self._far.prove(number, head)
                guests.prove(connection, f"uid {who.uid}")
                guests.rest(connection)
                line = await asyncio.wait_for(_line(reader, _LOCAL_LINE, held), _UNPROVEN)
                guests.prove(connection)
                reply = await self._far.answer(who, line)
            except PenstockError as e:
                if self._told.allows(peer, asyncio.get_running_loop().time()):
                    _log.warning("refused a command from another host", peer=peer, why=str(e))
                reply = refusal(e)
        writer.write(reply)
        guests.rest(connection)
        await asyncio.wait_for(writer.drain(), _DRAIN)


async def _nobody(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Is never called."""


def _taken(path: Path) -> PenstockError:
    return PenstockError(f"another agent already listens at {path}")


async def _line(reader: asyncio.StreamReader, longest: int, held: Holding) -> bytes:
    """The next line; what comes before the end of the stream; nothing at that. Raises ValueError when it is longer."""
    parts: list[bytes] = []
    while True:
        try:
            part, ends = await reader.readuntil(b"\n"), True
        except asyncio.IncompleteReadError as e:
            part, ends = e.partial, True
        except asyncio.LimitOverrunError as e:
            part, ends = await reader.readexactly(e.consumed), False
        held.add(len(part))
        if held.size > longest:
            raise ValueError(f"the line is longer than {longest} bytes")
        parts.append(part)
        if ends:
            return b"".join(parts)
