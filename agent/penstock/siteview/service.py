"""The door of the service: a Unix socket that every user of the host may connect to, and is known at by the kernel.

One request a connection. It reads a short line, answers, and closes; who is slow at either is left. A user has so many
connections, and so many requests a minute, that nobody can take it from the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError, NotNow, NotPermitted, PenstockError
from penstock.host.filesystems import unusable
from penstock.host.logins import login
from penstock.host.logs import get_logger
from penstock.host.peers import peer_uid
from penstock.ipc import descriptors
from penstock.ipc.gate import ConnectionBounds, Gate
from penstock.ipc.limits import RateLimit
from penstock.ipc.listener import Listener
from penstock.sharedlook import wire
from penstock.siteview.looks import Looks
from penstock.slurm.privacy import Viewer

__all__ = ["OUTCOMES", "ViewService"]

_log = get_logger(__name__)

OUTCOMES: Final = ("answered", "slurm", "private", "busy", "request", "failed")
"""How requests went: answered with a look; refused, by the words of `wire.LookRefusal`; or a fault of the service."""
_MOST: Final = 2048
_MOST_OF_USER: Final = 16
_BACKLOG: Final = 512
_BURST: Final = 60.0
_PER_SECOND: Final = 1.0
_FIRST_LINE: Final = 20.0  # an asker on a busy host may be slow; nobody has many connections
_DRAIN: Final = 20.0
_PIECE: Final = 256 * 1024  # bytes that wait for one asker to read on
_PROBE: Final = 1.0


class ViewService:
    """Answers by `looks`. `answers` counts requests by `OUTCOMES`, `users` how many have asked since the start,
    `sent` bytes of looks, `turned_away` connections that were one too many."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self.answers: Counter[str] = Counter()
        self.turned_away = 0
        self.sent = 0
        self._uids: set[int] = set()
        self._limit = RateLimit(_BURST, _PER_SECOND)
        self._told = RateLimit(10, 0.2)
        self._gate: Gate[socket.socket] = Gate(ConnectionBounds(1, 1, 1, 1))
        self._tasks: dict[socket.socket, asyncio.Task[None]] = {}
        self._listener: Listener | None = None
        self._made: tuple[Path, int, int] | None = None

    @property
    def users(self) -> int:
        """How many users have asked."""
        return len(self._uids)

    def listen(self, path: Path) -> None:
        """Listen at `path`. Raises ConfigError or NotNow where that cannot be, and where one listens already."""
        if path.exists():
            if not path.is_socket():
                raise ConfigError(f"{path} is there already and is no socket")
            if _answers(path):
                raise NotNow(f"another service already listens at {path}")
            path.unlink()
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(str(path))
            path.chmod(0o666)  # everybody may connect: what they are shown depends on who they are
            listening.listen(_BACKLOG)
        except OSError as e:
            listening.close()
            raise unusable(e)(f"cannot listen at {path}: {e.strerror or e}") from e
        made = path.stat()
        self._made = path, made.st_dev, made.st_ino
        most = max(1, min(_MOST, descriptors.room()))
        self._gate.bounds = ConnectionBounds(most, _MOST_OF_USER, most, _MOST_OF_USER)
        self._listener = Listener("view", listening, self._admit, descriptors.room, self._may_tell)

    async def close(self) -> None:
        """Stop listening, end all connections, remove the socket."""
        if self._listener is not None:
            self._listener.close()
        ending = list(self._tasks.values())
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._made is not None:
            path, device, inode = self._made
            with contextlib.suppress(OSError):
                there = path.lstat()
                if (there.st_dev, there.st_ino) == (device, inode):
                    path.unlink()

    def _may_tell(self) -> bool:
        return self._told.allows("", asyncio.get_running_loop().time())

    def _admit(self, connection: socket.socket) -> None:
        try:
            uid = peer_uid(connection)
        except OSError:  # gone already
            connection.close()
            return
        entry = self._gate.enter(connection, f"uid {uid}")
        if entry.leaves is not None or not entry.welcome:
            self.turned_away += 1
            if self._may_tell():
                _log.warning("a connection was refused or closed: too many are open", uid=uid)
        if entry.leaves is not None and (task := self._tasks.pop(entry.leaves, None)) is not None:
            task.cancel()
        if not entry.welcome:
            connection.close()
            return
        self._tasks[connection] = task = asyncio.get_running_loop().create_task(self._serve(connection, uid))

        def gone(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (fault := task.exception()) is not None:
                _log.error("a connection could not be served", exc_info=fault)
            self._gate.leave(connection)
            self._tasks.pop(connection, None)
            connection.close()

        task.add_done_callback(gone)

    async def _serve(self, connection: socket.socket, uid: int) -> None:
        """One request. However it ends, nothing else does."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=wire.LONGEST_REQUEST)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            line = await asyncio.wait_for(reader.readline(), _FIRST_LINE)
            async with asyncio.timeout(_DRAIN) as left:
                for piece in await self._answer(uid, line):
                    for start in range(0, len(piece), _PIECE):
                        left.reschedule(loop.time() + _DRAIN)
                        writer.write(memoryview(piece)[start : start + _PIECE])
                        await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, ValueError, TimeoutError) as e:
            _log.debug("connection ended", uid=uid, why=repr(e))
        finally:
            transport.abort()

    async def _answer(self, uid: int, line: bytes) -> Iterable[bytes]:
        self._uids.add(uid)
        try:
            self._limit.take(uid, asyncio.get_running_loop().time())
        except NotNow as e:
            return self._refused("busy", str(e), e.again_in or 0.0)
        try:
            have = wire.decode_request(line)
            # A name is asked for only where it matters, and not by this thread: a site's directory may be slow.
            user = await asyncio.to_thread(login, uid) if (await self._looks.rule()).hides else ""
            head, parts = await self._looks.for_viewer(Viewer(uid, user), have)
        except wire.WireError as e:
            return self._refused("request", str(e))
        except NotPermitted as e:
            return self._refused("private", str(e))
        except PenstockError as e:
            return self._refused("slurm", str(e), (e.again_in if isinstance(e, NotNow) else None) or 0.0)
        except Exception:
            self.answers["failed"] += 1
            _log.exception("a request failed")
            return (wire.LookRefusal("failed", "a fault of the service: see its log").encode(),)
        self.answers["answered"] += 1
        self.sent += sum(map(len, parts))
        return (head.encode(), *parts)

    def _refused(self, error: str, message: str, again_in: float = 0.0) -> Iterable[bytes]:
        self.answers[error] += 1
        return (wire.LookRefusal(error, message, again_in).encode(),)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
