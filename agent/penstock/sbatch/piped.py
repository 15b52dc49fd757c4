"""Scripts that come through a pipe, which can be read once: they are read, and put back for sbatch to read.

`cat s.sh | sbatch`, `... | sbatch /dev/stdin`, `sbatch <(cat s.sh)`, which names /dev/fd/63, and a pipe with a name.
"""

from __future__ import annotations

import os
import re
import signal
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.sbatch.submission import script_path

__all__ = ["PipedScript", "take_in"]

_OWN: Final = re.compile(r"/dev/(?P<stdin>stdin)|(?:/dev|/proc/self)/fd/(?P<number>[0-9]{1,9})", re.ASCII)
_PATIENCE: Final = 60  # s until who puts a named pipe's text back gives up: sbatch has not opened it


@dataclass(frozen=True, slots=True)
class PipedScript:
    """What came, and the `descriptor` of this process that has it now; None: a pipe with a name of its own."""

    content: bytes
    descriptor: int | None

    @property
    def lines(self) -> list[str]:
        """Its lines, as far as they are text."""
        return self.content.decode(errors="replace").splitlines()

    @property
    def passed_on(self) -> tuple[int, ...]:
        """The descriptors that sbatch has to find."""
        return () if self.descriptor is None else (self.descriptor,)


def take_in(script: str | None, folder: str | None = None) -> PipedScript | None:
    """Read the script that sbatch is given by this name (None: standard input), so that sbatch can read it still.

    None where it is no pipe: a file can be read as often as one likes; and where it cannot be read, which sbatch will
    say better.
    """
    try:
        if script is None:
            return _own(0)
        named = _OWN.fullmatch(script)
        path = Path(script) if named else script_path(script, folder)
        mode = path.stat().st_mode
        if named is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return _own(int(named["number"] or 0))
        if named is None and stat.S_ISFIFO(mode):
            content = path.read_bytes()
            _feed(path, content)
            return PipedScript(content, None)
    except OSError:
        pass
    return None


def _own(descriptor: int) -> PipedScript:
    """Read a descriptor of this process to its end, and put a file of the same content in its place."""
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        content = stream.read()
    memory = os.memfd_create("script")
    with os.fdopen(memory, "wb", closefd=True) as file:
        file.write(content)
        file.flush()
        os.lseek(memory, 0, os.SEEK_SET)
        os.dup2(memory, descriptor, inheritable=True)
    return PipedScript(content, descriptor)


def _feed(path: Path, content: bytes) -> None:
    """Have a process of its own write this into a named pipe as soon as somebody reads it."""
    if os.fork() > 0:
        return
    try:
        signal.alarm(_PATIENCE)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # who waits for the end of our output does not wait for this
            os.dup2(nothing, stream)
        path.write_bytes(content)
    finally:
        os._exit(0)
