"""Children that end when their parent does, even if that is killed. On Linux; elsewhere they outlive it."""

from __future__ import annotations

import ctypes
import signal
from typing import Final

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG: Final = 1
_TERM: Final = int(signal.SIGTERM)
_prctl: Final = getattr(ctypes.CDLL(None), "prctl", None)


def end_with_parent() -> None:
    """In the child, before it becomes another program (`preexec_fn`): SIGTERM when the thread that made it is gone."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, _TERM)
