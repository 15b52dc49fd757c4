"""Becomes another program, or runs one to its end: without `subprocess`, which loads as long as all the rest."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

__all__ = ["become", "first_environment"]

_INHERITED = "/proc/self/environ"


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


def become(program: str, words: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Run a program in the place of this one, as if it had been called itself. Raises OSError."""
    _as_found()
    os.execve(program, [os.path.basename(program), *words], environ)


def _as_found() -> None:
    """Python ignores these signals, and who ignores one hands that on."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
