"""JSON lines over a socket: one request a line, one reply a line. Knows sockets and limits, not what is asked.

A line longer than the protocol allows, a peer that stalls, or too many connections end that connection and nothing
else. Who has not proven to be somebody has a few seconds at a time, and may not stay for long; where there are too
many, one of those makes room (`gate`). Some descriptors are never given to connections (`descriptors`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from dmr.wire import MAX_LINE
from penstock.errors import ConfigError, PenstockError
from penstock.host.filesystems import unusable
from penstock.host.logs import get_logger
from penstock.host.peers import peer_uid
from penstock.ipc import descriptors, proof
from penstock.ipc.audited import PEER
from penstock.ipc.far import FarDoor, refusal
from penstock.ipc.gate import ConnectionBounds, Gate
from penstock.ipc.limits import ByteBudget, Holding, RateLimit
from penstock.ipc.listener import Listener

__all__ = ["Server"]

_log = get_logger(__name__)
# Per door, so that strangers on the network cannot keep the command line out, and per address, so that one host cannot
# keep out the others.
_MAX_CONNECTIONS = 4096
_MAX_PER_ADDRESS = 512
_MAX_PER_USER = 64
# Of these without proof of who they are. What descriptors there are is divided among the doors.
_MAX_ANONYMOUS = 1024
_SHARES = {"local": 1, "far": 1, "remote": 2}
_BACKLOG = 128
_OF_A_HOST = 64  # leading bits of an IPv6 address that one host cannot choose
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
TcpHandler = Callable[[bytes], Awaitable[tuple[bytes, bool]]]
"""The reply, and whether the request proved who asks."""


class Server:
    """The doors of the agent: a Unix socket (peer known by the kernel) and TCP (peer known by its credential), for
    programs and, where other hosts see the state, for their commands.

    `turned_away` counts connections that were one too many, by door ("local", "remote"), whichever of them had to go.
    """

    def __init__(self, on_local: UnixHandler, on_remote: TcpHandler) -> None:
        self._on_local = on_local
        self._on_remote = on_remote
        self._listeners: list[Listener] = []
        self._gates: dict[str, Gate[socket.socket]] = {}
        self._tasks: dict[socket.socket, asyncio.Task[None]] = {}
        self._unix: tuple[Path, int, int] | None = None
        self._far: FarDoor | None = None
        self.turned_away: Counter[str] = Counter()
        self._held = ByteBudget(_MOST_HELD)
        self._told = RateLimit(10, 0.2)

    async def listen_unix(self, path: Path) -> None:
        """Listen at `path`. Raises `PenstockError` when a living agent already does."""
        if path.exists():
            if not path.is_socket():
                raise ConfigError(f"`agent.socket`: {path} is there already and is no socket")
            if _answers(path):
                raise PenstockError(f"another agent already listens at {path}")
            path.unlink()
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(path))
            # Open to connect: every request is authorised by the peer's uid.
            path.chmod(0o666)
            listening.listen(_BACKLOG)
        except OSError as e:
            listening.close()
            raise unusable(e)(f"`agent.socket`: cannot listen at {path}: {e.strerror or e}") from e
        made = path.stat()
        self._unix = (path, made.st_dev, made.st_ino)
        self._open("local", [listening])

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
        def admit(connection: socket.socket) -> None:
            self._admit(name, connection)

        def tells() -> bool:
            return self._told.allows(name, asyncio.get_running_loop().time())

        self._gates[name] = Gate(ConnectionBounds(1, 1, 1, 1))
        self._divide()
        opened = [Listener(name, listening, admit, self._room, tells) for listening in sockets]
        self._listeners += opened
        return opened

    def _divide(self) -> None:
        """Descriptors among the doors: none of them can take those of another, nor those of the agent itself."""
        there = max(descriptors.room() + sum(map(len, self._gates.values())), len(self._gates))
        parts = sum(_SHARES[name] for name in self._gates)
        for name, gate in self._gates.items():
            most = max(1, min(_MAX_CONNECTIONS, there * _SHARES[name] // parts))
            of_peer = _MAX_PER_USER if name == "local" else _MAX_PER_ADDRESS
            gate.bounds = ConnectionBounds(most, of_peer, min(_MAX_ANONYMOUS, most), min(of_peer, max(1, most // 2)))

    def _room(self) -> int:
        """How many more can be taken. Where there is no room, who has proven nothing makes some."""
        room = descriptors.room()
        if room < 1:
            for gate in self._gates.values():
                if (leaves := gate.yields()) is not None:
                    self._turn_out(leaves)
        return room

    def _admit(self, name: str, connection: socket.socket) -> None:
        """Let it in, if it is not one too many, or another makes room."""
        try:
            peer = f"uid {peer_uid(connection)}" if name == "local" else _peer(connection)
        except OSError:  # gone already
            connection.close()
            return
        gate = self._gates[name]
        entry = gate.enter(connection, peer)
        if entry.leaves is not None or not entry.welcome:
            self.turned_away["local" if name == "local" else "remote"] += 1
            # Not once for each: who can knock must not be able to fill the disk with it.
            if self._told.allows(peer, asyncio.get_running_loop().time()):
                _log.warning("a connection was refused or closed: too many are open", peer=peer)
        if entry.leaves is not None:
            self._turn_out(entry.leaves)
        if not entry.welcome:
            connection.close()
            return
        begun = False

        async def serve() -> None:
            nonlocal begun
            begun = True
            await self._serve(name, connection, peer)

        def gone(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (fault := task.exception()) is not None:
                _log.error("a connection could not be served", exc_info=fault)
            gate.leave(connection)
            self._tasks.pop(connection, None)
            if not begun:  # it had to go before it had its turn
                connection.close()

        self._tasks[connection] = task = asyncio.get_running_loop().create_task(serve())
        task.add_done_callback(gone)

    def _turn_out(self, connection: socket.socket) -> None:
        for gate in self._gates.values():
            gate.leave(connection)
        if (task := self._tasks.pop(connection, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop listening, end all connections, remove the socket."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        ending = list(self._tasks.values())
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._unix is not None:
            path, device, inode = self._unix
            with contextlib.suppress(OSError):
                there = path.lstat()
                # In a folder that several hosts see, it may be another agent's by now.
                if (there.st_dev, there.st_ino) == (device, inode):
                    path.unlink()

    async def _serve(self, name: str, connection: socket.socket, peer: str) -> None:
        """One connection, to its end. However it ends, nothing else does."""
        PEER.set(peer)  # of this connection's task alone
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_LINE if name == "remote" else _CHUNK)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:
            connection.close()
            return
        except BaseException:
            connection.close()
            raise
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:

            def proven() -> None:
                self._gates[name].prove(connection)

            if name == "far":
                await self._from_afar(reader, writer, peer, proven)
            else:
                await self._talk(reader, writer, peer, proven)
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), _DRAIN)
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as e:
            _log.debug("connection ended", peer=peer, why=repr(e))
        finally:
            transport.abort()  # whatever it has not read: a descriptor must not wait for it

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, tell: Callable[[], None]
    ) -> None:
        """Request after request, as long as somebody is known to make them."""
        uid = int(peer.removeprefix("uid ")) if peer.startswith("uid ") else None
        proven = False
        leave = asyncio.get_running_loop().time() + _UNPROVEN
        longest = MAX_LINE if uid is None else _LOCAL_LINE
        while proven or asyncio.get_running_loop().time() < leave:
            with self._held.holding(peer) as held:
                line = await asyncio.wait_for(_line(reader, longest, held), _IDLE if proven else _FIRST_LINE)
                if not line:
                    break
                if uid is None:
                    reply, proves = await self._on_remote(line)
                else:
                    tell()
                    reply, proves = await self._on_local(uid, line), True
            if proves and not proven:
                proven = True
                tell()
            writer.write(reply)
            await asyncio.wait_for(writer.drain(), _DRAIN)

    async def _from_afar(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, tell: Callable[[], None]
    ) -> None:
        """One request of a command on another host (`penstock.ipc.proof`). Long ones only from who has proven to be
        somebody."""
        assert self._far is not None
        number = proof.nonce()
        writer.write(proof.greeting(number))
        with self._held.holding(peer) as held:
            head = await asyncio.wait_for(_line(reader, proof.MAX_HEAD, held), _FIRST_LINE)
            try:
                who = await self._far.prove(number, head)
                tell()
                line = await asyncio.wait_for(_line(reader, _LOCAL_LINE, held), _UNPROVEN)
                reply = await self._far.answer(who, line)
            except PenstockError as e:
                if self._told.allows(peer, asyncio.get_running_loop().time()):
                    _log.warning("refused a command from another host", peer=peer, why=str(e))
                reply = refusal(e)
        writer.write(reply)
        await asyncio.wait_for(writer.drain(), _DRAIN)


async def _nobody(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Is never called."""


def _peer(connection: socket.socket) -> str:
    """Who is at the other end, as far as one can tell: a host has all of loopback, and of IPv6 a network of its own.
    Raises OSError where nobody is any more."""
    address = ipaddress.ip_address(str(connection.getpeername()[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return "this host"
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, _OF_A_HOST), strict=False))


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


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
