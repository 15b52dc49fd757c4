"""Takes connections from a listening socket, as long as there is room for them.

asyncio's own loop goes on taking when there are no descriptors left, and logs a traceback for each try: megabytes in a
minute. Here nothing is taken then until there is room again, and the log has one line at the beginning and one at the
end.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from penstock.host.logs import get_logger

__all__ = ["Listener"]

_log = get_logger(__name__)
_AT_ONCE = 16  # taken in one turn: who has come must have a chance to speak before others come
_PAUSE = 0.5  # seconds until it is tried again where nothing says that there is room
_SOON = 0.02  # where a connection was ended for it


class Listener:
    """`admit` is given each connection, and closes it where it is not welcome; `room` is how many more can be taken at
    all; `tells` says whether a line may be written to the log. `make_room` ends a connection where there is no room, if
    one may be ended, and says whether it did."""

    def __init__(
        self,
        name: str,
        listening: socket.socket,
        admit: Callable[[socket.socket], None],
        room: Callable[[], int],
        tells: Callable[[], bool],
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        self._name = name
        self._socket = listening
        self._admit = admit
        self._room = room
        self._tells = tells
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._full = self._told = False
        listening.setblocking(False)
        self._loop.add_reader(listening, self._ready)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _ready(self) -> None:
        room = self._room()
        if room < 1 and self._make_room():
            self._pause(_SOON)
            return
        if room < 1:
            self._rest("no file descriptors are left but the agent's own reserve")
            return
        for _ in range(min(room, _AT_ONCE)):
            try:
                connection, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:  # no descriptors, no memory
                self._rest(e.strerror or str(e))
                return
            self._went_on()
            connection.setblocking(False)
            self._admit(connection)

    def _rest(self, why: str) -> None:
        if not self._full and self._tells():
            _log.warning("no new connections are accepted for now", door=self._name, why=why)
            self._told = True
        self._full = True
        self._pause(_PAUSE)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._again = self._loop.call_later(seconds, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._loop.add_reader(self._socket, self._ready)

    def _went_on(self) -> None:
        if self._told:
            _log.info("new connections are accepted again", door=self._name)
        self._full = self._told = False
