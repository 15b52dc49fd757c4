"""The door of the service: a Unix socket that every user of the host may connect to, and is known at by the kernel.

One request a connection. It reads a short line, answers, and closes; a peer that is slow at either is left. A user has
so many connections, and so many requests a minute, that no user can take it from the others (`host.gate`).
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from penstock.errors import NotNow, NotPermitted, PenstockError
from penstock.host import descriptors
from penstock.host.gate import bounds_for
from penstock.host.guests import Guests, streams
from penstock.host.listener import Listener
from penstock.host.logins import login
from penstock.host.logs import get_logger
from penstock.host.peers import peer_uid, user_of
from penstock.host.unixdoor import UnixDoor
from penstock.ipc.limits import RateLimit
from penstock.site.look import wire
from penstock.slurm.privacy import Viewer
from penstock_site_view.looks import Looks

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
_DRAIN: Final = 20.0  # for a piece
_ANSWER: Final = 60.0  # for all of an answer, which keeps its look in memory
_PIECE: Final = 256 * 1024  # bytes that wait for one asker to read on


class ViewService:
    """Answers by `looks`. `answers` counts requests by `OUTCOMES`, `users` how many have asked since the start, `sent`
    bytes of looks. `first`: peers that come first (`host.gate`)."""

    def __init__(self, looks: Looks, first: Collection[str] = ()) -> None:
        self._looks = looks
        self.answers: Counter[str] = Counter()
        self.sent = 0
        self._uids: set[int] = set()
        self._limit = RateLimit(_BURST, _PER_SECOND)
        self._told = RateLimit(10, 0.2)
        self._guests = Guests(user_of, self._serve, self._may_tell)
        self._guests.gate.first = first
        self._listener: Listener | None = None
        self._door: UnixDoor | None = None

    @property
    def users(self) -> int:
        """How many users have asked."""
        return len(self._uids)

    @property
    def turned_away(self) -> int:
        """Connections that were one too many."""
        return self._guests.turned_away

    def listen(self, path: Path) -> None:
        """Listen at `path`. Raises ConfigError, StoreError or NotNow where that cannot be, and where another service
        listens already."""
        self._door = UnixDoor(path, _BACKLOG, _taken)
        self._guests.gate.bounds = bounds_for(min(_MOST, descriptors.for_doors(descriptors.room())), _MOST_OF_USER)
        self._listener = Listener(
            "view", self._door.socket, self._guests.admit, descriptors.room, self._may_tell, self._guests.make_room
        )

    async def close(self) -> None:
        """Stop listening, end all connections, remove the socket."""
        if self._listener is not None:
            self._listener.close()
        await self._guests.close()
        if self._door is not None:
            self._door.remove()

    def _may_tell(self, _of: str = "") -> bool:
        return self._told.allows("", asyncio.get_running_loop().time())

    async def _serve(self, connection: socket.socket, peer: str) -> None:
        """One request. However it ends, nothing else does."""
        now = asyncio.get_running_loop().time
        try:
            uid = peer_uid(connection)
            async with streams(connection, wire.LONGEST_REQUEST) as (reader, writer):
                line = await asyncio.wait_for(reader.readline(), _FIRST_LINE)
                self._guests.prove(connection)
                parts = await self._answer(uid, line)
                self._guests.rest(connection)  # whether it reads on is its own affair
                last = now() + _ANSWER
                async with asyncio.timeout(_DRAIN) as left:
                    for piece in parts:
                        for start in range(0, len(piece), _PIECE):
                            left.reschedule(min(now() + _DRAIN, last))
                            writer.write(memoryview(piece)[start : start + _PIECE])
                            await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (OSError, ValueError, TimeoutError) as e:
            _log.debug("connection ended", peer=peer, why=repr(e))

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


def _taken(path: Path) -> PenstockError:
    return NotNow(f"another service already listens at {path}")
