"""Waiting in tests for what other processes do, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

_REST = 2.0  # as many times as long as a look took
_LONGEST = 2.0

T = TypeVar("T")


def until(probe: Callable[[], T], what: Callable[[], str] | str, seconds: float = 90.0, every: float = 0.1) -> T:
    """What `probe` gives once that is true; fails naming `what` after so many seconds.

    A look takes the processors from what is waited for, a command of ours half a second of one: the longer it took, the
    longer it is until the next.
    """
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := probe():
            return found
        now = time.monotonic()
        assert now < end, f"waited {seconds:g} s in vain for {what if isinstance(what, str) else what()}"
        time.sleep(max(every, min(_REST * (now - began), _LONGEST)))
