"""Becomes another program, or runs one to its end: without `subprocess`, which loads as long as all the rest."""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import NoReturn
else:
    import _signal as signal  # without what makes enumerations of its constants

__all__ = ["BY_FRONT", "Child", "become", "end_as", "first_environment", "heard", "say", "signal"]

BY_FRONT = "penstock_front"
"""An option of Python (-X) by which a command knows that a front program became it; a variable would reach the job."""
_INHERITED = "/proc/self/environ"
_PIECE = 1 << 16
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and who ignores a signal hands that on."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def first_environment() -> dict[str, str]:
    """The environment as this process got it. Python adds LC_CTYPE in the C locale, which a job should not see."""
    found = dict(os.environ)
    if "LC_CTYPE" in found:
        try:
            with open(_INHERITED, "rb") as file:
                there = b"\0LC_CTYPE=" in b"\0" + file.read()
        except OSError:
            there = True
        if not there:
            del found["LC_CTYPE"]
    return found


def become(program: str, words: Sequence[str], environ: Mapping[str, str], called: str | None = None) -> NoReturn:
    """Run a program in the place of this one, as if it had been called itself, by this name (by default the last part
    of its path). Raises OSError."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, [called or os.path.basename(program), *words], environ)


def end_as(code: int) -> NoReturn:
    """End as a program did that ended with this code, or by this signal if negative."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        code = 128 - code  # of a signal that ends nothing
    os._exit(code)


def say(stream: int, text: bytes) -> None:
    """Write all of it to a descriptor. Raises OSError where nobody reads it."""
    left = memoryview(text)
    while left:
        left = left[os.write(stream, left) :]


def heard(stream: int) -> bool:
    """Whether somebody may still read what is written to a descriptor: not where it is a pipe, socket or terminal whose
    other end is closed."""
    poll = select.poll()
    poll.register(stream, 0)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class Child:
    """A program that runs, whose standard output and errors are read here. Signals to this process are passed on to it.

    `terminal`: it writes its output as it would to a terminal, at once and not at its end; what is read is not changed
    by that. `stdin`: the descriptor that it reads from; `workdir`: the folder that it runs in. Raises OSError.
    """

    def __init__(
        self,
        program: str,
        words: Sequence[str],
        environ: Mapping[str, str],
        *,
        terminal: bool = False,
        stdin: int | None = None,
        workdir: str | None = None,
    ) -> None:
        self.code: int | None = None
        self.signalled = 0
        ours, theirs = _terminal() if terminal else os.pipe()
        errors, their_errors = os.pipe()
        actions: list[tuple[int, int, int]] = [(os.POSIX_SPAWN_DUP2, theirs, 1), (os.POSIX_SPAWN_DUP2, their_errors, 2)]
        if stdin is not None:
            actions.append((os.POSIX_SPAWN_DUP2, stdin, 0))
        here = os.open(".", os.O_RDONLY | os.O_CLOEXEC) if workdir is not None else -1
        try:
            if workdir is not None:
                os.chdir(workdir)
            name = os.path.basename(program)
            self._pid = os.posix_spawn(program, [name, *words], environ, file_actions=actions, setsigdef=_IGNORED)
        except BaseException:
            os.close(ours)
            os.close(errors)
            raise
        finally:
            os.close(theirs)
            os.close(their_errors)
            if here >= 0:
                os.fchdir(here)
                os.close(here)
        self._open = {ours: 1, errors: 2}
        self._poll = select.poll()
        for stream in self._open:
            self._poll.register(stream, select.POLLIN)
        self._before = {number: signal.signal(number, self._pass_on) for number in _PASSED_ON if _handled(number)}

    def read(self, limit: float | None = None) -> list[tuple[int, bytes]]:
        """What came next, each with the stream (1 or 2) that it came from; nothing at its end, or after `limit` (s)."""
        found: list[tuple[int, bytes]] = []
        while self._open and not found:
            ready = self._poll.poll(None if limit is None else max(limit, 0) * 1000)
            if not ready:
                return []
            for stream, _event in ready:
                try:
                    text = os.read(stream, _PIECE)
                except OSError:  # a terminal whose other end is closed
                    text = b""
                if text:
                    found.append((self._open[stream], text))
                else:
                    self._poll.unregister(stream)
                    del self._open[stream]
                    os.close(stream)
        return found

    @property
    def running(self) -> bool:
        """Whether it may say more."""
        return bool(self._open)

    def end(self) -> int:
        """Wait for its end; its exit code, of a signal negative. What it still says is lost."""
        if self.code is None:
            for stream in tuple(self._open):
                del self._open[stream]
                os.close(stream)
            _pid, status = os.waitpid(self._pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
            for number, handler in self._before.items():
                signal.signal(number, handler)
        return self.code

    def whole(self, limit: float | None = None) -> tuple[int, bytes, bytes]:
        """Its exit code and all that it says; it is killed after `limit` (s)."""
        until = None if limit is None else time.monotonic() + limit
        said: dict[int, list[bytes]] = {1: [], 2: []}
        while pieces := self.read(None if until is None else until - time.monotonic()):
            for stream, text in pieces:
                said[stream].append(text)
        if self._open:
            os.kill(self._pid, signal.SIGKILL)
        return self.end(), b"".join(said[1]), b"".join(said[2])

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self.signalled = number
        if self.code is None:
            os.kill(self._pid, number)


def _handled(number: int) -> bool:
    """Whether a signal is neither ignored nor somebody else's to see to."""
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


def _terminal() -> tuple[int, int]:
    """Two ends of a terminal that changes nothing of what is written to it; of a pipe where there is none left."""
    try:
        ours, theirs = os.openpty()
    except OSError:
        return os.pipe()
    import termios

    raw = termios.tcgetattr(theirs)
    raw[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, raw)
    return ours, theirs
