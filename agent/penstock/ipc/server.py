"""JSON lines over a socket: one request a line, one reply a line. Knows sockets and limits, not what is asked.

A line longer than the protocol allows, a peer that stalls, or too many connections end that connection and nothing
else. Who has not proven to be somebody has a few seconds at a time, and may not stay for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import structlog

from dmr.wire import MAX_LINE
from penstock.errors import ConfigError, PenstockError
from penstock.filesystems import unusable
from penstock.ipc import proof
from penstock.ipc.audited import PEER
from penstock.ipc.auth import peer_uid
from penstock.ipc.far import FarDoor, refusal
from penstock.ipc.limits import ByteBudget, Holding, RateLimit

__all__ = ["Server"]

_log = structlog.get_logger(__name__)
# Per door, so that strangers on the network cannot keep the command line out, and per address, so that one host cannot
# keep out the others.
_MAX_CONNECTIONS = 4096
_MAX_PER_ADDRESS = 512
_MAX_PER_USER = 64
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

    `turned_away` counts connections that were one too many, by door ("local", "remote").
    """

    def __init__(self, on_local: UnixHandler, on_remote: TcpHandler) -> None:
        self._on_local = on_local
        self._on_remote = on_remote
        self._servers: list[asyncio.AbstractServer] = []
        self._writers: dict[asyncio.StreamWriter, str] = {}
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
        try:
            server = await asyncio.start_unix_server(self._local, path, limit=_CHUNK)
        except OSError as e:
            raise unusable(e)(f"`agent.socket`: cannot listen at {path}: {e.strerror or e}") from e
        # Open to connect: every request is authorised by the peer's uid.
        path.chmod(0o666)
        self._servers.append(server)
        made = path.stat()
        self._unix = (path, made.st_dev, made.st_ino)

    async def listen_far(self, host: str, port: int, door: FarDoor) -> int:
        """Listen on TCP for commands of other hosts; the port. Raises OSError."""
        self._far = door
        server = await asyncio.start_server(self._from_afar, host, port, limit=_CHUNK, reuse_address=True)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def listen_tcp(self, host: str, port: int) -> int:
        """Listen on TCP; the port (as given, or picked by the system for 0)."""
        server = await asyncio.start_server(self._remote, host, port, limit=MAX_LINE, reuse_address=True)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, end all connections, remove the socket."""
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.close()
        if self._unix is not None:
            path, device, inode = self._unix
            with contextlib.suppress(OSError):
                there = path.lstat()
                # In a folder that several hosts see, it may be another agent's by now.
                if (there.st_dev, there.st_ino) == (device, inode):
                    path.unlink()

    async def _local(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))

        async def answer(line: bytes) -> tuple[bytes, bool]:
            return await self._on_local(uid, line), True

        await self._serve(reader, writer, f"uid {uid}", answer)

    async def _remote(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, _peer(writer), self._on_remote)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, answer: TcpHandler
    ) -> None:
        local = peer.startswith("uid ")
        proven = False
        leave = asyncio.get_running_loop().time() + _UNPROVEN
        longest = _LOCAL_LINE if local else MAX_LINE
        async with self._connected(writer, peer) as welcome:
            while welcome and (proven or asyncio.get_running_loop().time() < leave):
                with self._held.holding(peer) as held:
                    reading = _line(reader, longest, held)
                    line = await asyncio.wait_for(reading, _IDLE if proven else _FIRST_LINE)
                    if not line:
                        break
                    reply, proves = await answer(line)
                proven = proven or proves
                writer.write(reply)
                await asyncio.wait_for(writer.drain(), _DRAIN)

    async def _from_afar(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a command on another host (`penstock.ipc.proof`). Long ones only from who has proven to be
        somebody."""
        assert self._far is not None
        peer = _peer(writer)
        async with self._connected(writer, peer) as welcome:
            if not welcome:
                return
            number = proof.nonce()
            writer.write(proof.greeting(number))
            with self._held.holding(peer) as held:
                head = await asyncio.wait_for(_line(reader, proof.MAX_HEAD, held), _FIRST_LINE)
                try:
                    who = await self._far.prove(number, head)
                    line = await asyncio.wait_for(_line(reader, _LOCAL_LINE, held), _UNPROVEN)
                    reply = await self._far.answer(who, line)
                except PenstockError as e:
                    if self._told.allows(peer, asyncio.get_running_loop().time()):
                        _log.warning("refused a command from another host", peer=peer, why=str(e))
                    reply = refusal(e)
            writer.write(reply)
            await asyncio.wait_for(writer.drain(), _DRAIN)

    @contextlib.asynccontextmanager
    async def _connected(self, writer: asyncio.StreamWriter, peer: str) -> AsyncIterator[bool]:
        """Whether this connection is not one too many. However it ends, nothing else does."""
        local = peer.startswith("uid ")
        beside = [p for p in self._writers.values() if p.startswith("uid ") == local]
        if len(beside) >= _MAX_CONNECTIONS or beside.count(peer) >= (_MAX_PER_USER if local else _MAX_PER_ADDRESS):
            self.turned_away["local" if local else "remote"] += 1
            # Not once for each: who can knock must not be able to fill the disk with it.
            if self._told.allows(peer, asyncio.get_running_loop().time()):
                _log.warning("too many connections", peer=peer)
            writer.close()
            yield False
            return
        self._writers[writer] = peer
        PEER.set(peer)  # of this connection's task alone
        try:
            yield True
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as e:
            _log.debug("connection ended", peer=peer, why=repr(e))
        finally:
            self._writers.pop(writer, None)
            writer.close()


def _peer(writer: asyncio.StreamWriter) -> str:
    """Who is at the other end, as far as one can tell: a host has all of loopback, and of IPv6 a network of its own."""
    name = writer.get_extra_info("peername")
    if not name:  # gone already
        return "nobody"
    address = ipaddress.ip_address(str(name[0]).partition("%")[0])
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
            raise ValueError(f"a line of more than {longest} bytes")
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
