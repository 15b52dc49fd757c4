"""Processes by their session: a task and all it has started, unless that asks for a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

__all__ = ["signal_session"]


def signal_session(session: int, number: signal.Signals) -> None:
    """To every process of a session, those that left its process group included."""
    for process in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(process) == session:
                os.kill(process, number)
