"""Signals by their names, as sbatch and scancel take them, with Linux's numbers; and for whom of a job one is. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["KILL", "TERM", "Whom", "signal_number"]

KILL: Final = 9
TERM: Final = 15
_LAST: Final = 64
_NAMES: Final = (
    "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG "
    "XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"
)
_NUMBERS: Final = {name: number for number, name in enumerate(_NAMES.split(), start=1)}


class Whom(StrEnum):
    """Which processes of a job a signal is for: all, its batch shell, or its steps and not that."""

    ALL = "all"
    BATCH = "batch"
    STEPS = "steps"


def signal_number(text: str) -> int | None:
    """The number of `USR1`, `SIGUSR1` or `10`; None for what is none."""
    if text.isdecimal():
        return int(text) if 0 < int(text) <= _LAST else None
    return _NUMBERS.get(text.upper().removeprefix("SIG"))
