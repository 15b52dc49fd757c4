"""JSON lines over a socket: one request a line, one reply a line. Knows sockets and limits, not what is asked.

A line longer than the protocol allows, a peer that stalls, or too many connections end that connection and nothing
else.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from dmr.wire import MAX_LINE
from penstock.errors import ConfigError, PenstockError
from penstock.ipc.auth import peer_uid

__all__ = ["Server"]

_log = structlog.get_logger(__name__)
# Per door, so that strangers on the network cannot keep the command line out, and per address, so that one host cannot
# keep out the others.
_MAX_CONNECTIONS = 4096
_MAX_PER_ADDRESS = 512
_FIRST_LINE = 10.0
_IDLE = 3600.0
_DRAIN = 30.0
# A workflow file may be long; an application's request is short.
_LOCAL_LINE = 4 * 1024 * 1024

UnixHandler = Callable[[int, bytes], Awaitable[bytes]]
TcpHandler = Callable[[bytes], Awaitable[bytes]]


class Server:
    """Both doors of the agent: a Unix socket (peer known by the kernel) and TCP (peer known by its credential).

    `turned_away` counts connections that were one too many, by door ("local", "remote").
    """

    def __init__(self, on_local: UnixHandler, on_remote: TcpHandler) -> None:
        self._on_local = on_local
        self._on_remote = on_remote
        self._servers: list[asyncio.AbstractServer] = []
        self._writers: dict[asyncio.StreamWriter, str] = {}
        self._unix: Path | None = None
        self.turned_away: Counter[str] = Counter()

    async def listen_unix(self, path: Path) -> None:
        """Listen at `path`. Raises `PenstockError` when a living agent already does."""
        if path.exists():
            if not path.is_socket():
                raise ConfigError(f"`agent.socket`: {path} is there already and is no socket")
            if _answers(path):
                raise PenstockError(f"another agent already listens at {path}")
            path.unlink()
        try:
            server = await asyncio.start_unix_server(self._local, path, limit=_LOCAL_LINE)
        except OSError as e:
            raise ConfigError(f"`agent.socket`: cannot listen at {path}: {e.strerror or e}") from e
        # Open to connect: every request is authorised by the peer's uid.
        path.chmod(0o666)
        self._servers.append(server)
        self._unix = path

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
            self._unix.unlink(missing_ok=True)

    async def _local(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        await self._serve(reader, writer, f"uid {uid}", lambda line: self._on_local(uid, line))

    async def _remote(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, str(writer.get_extra_info("peername")[0]), self._on_remote)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, answer: TcpHandler
    ) -> None:
        local = peer.startswith("uid ")
        beside = [p for p in self._writers.values() if p.startswith("uid ") == local]
        if len(beside) >= _MAX_CONNECTIONS or beside.count(peer) >= _MAX_PER_ADDRESS:
            self.turned_away["local" if local else "remote"] += 1
            _log.warning("too many connections", peer=peer)
            writer.close()
            return
        self._writers[writer] = peer
        patience = _FIRST_LINE
        try:
            while line := await asyncio.wait_for(reader.readline(), patience):
                writer.write(await answer(line))
                await asyncio.wait_for(writer.drain(), _DRAIN)
                patience = _IDLE
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as e:
            _log.debug("connection ended", peer=peer, why=repr(e))
        finally:
            self._writers.pop(writer, None)
            writer.close()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
