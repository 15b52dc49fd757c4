"""Ends the tasks of a worker that was killed: nobody else could, and they will run again elsewhere.

    python -m penstock_pool.guardian

A process beside the worker, in a session of its own. It is told on its standard input which sessions run (`+PID`) and
have ended (`-PID`), a line each; at the end of the input it kills those that are left, and ends.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading

from penstock_pool.sessions import signal_session

__all__ = ["Guardian"]


class Guardian:
    """The worker's side of it. Calls may come from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock_pool.guardian"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def began(self, session: int) -> None:
        """A task runs in this session."""
        self._tell(f"+{session}\n")

    def ended(self, session: int) -> None:
        """It does not any more."""
        self._tell(f"-{session}\n")

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        # Killed by somebody, it is missed only if the worker is killed, too.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def main() -> None:
    """See the module's text."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it goes after the worker
    sessions: set[int] = set()
    for line in sys.stdin:
        if line[1:].strip().isdecimal():
            (sessions.add if line[0] == "+" else sessions.discard)(int(line[1:]))
    for session in sessions:
        signal_session(session, signal.SIGKILL)


if __name__ == "__main__":
    main()
