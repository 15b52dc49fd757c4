"""Processes by their session: a task and all it has started, unless that asks for a session of its own."""

from __future__ import annotations

import contextlib
import os

import psutil

from penstock_pool.signals import Whom

__all__ = ["signal_session"]

_STEP = "/task/srun"  # the path of the srun that a job finds ends so


def signal_session(session: int, number: int, whom: Whom = Whom.ALL) -> None:
    """To the processes of a session, those that left its process group included."""
    if whom is Whom.BATCH:
        with contextlib.suppress(OSError):
            os.kill(session, number)
        return
    for process in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(process) == session and (whom is Whom.ALL or _is_step(process)):
                os.kill(process, number)


def _is_step(process: int) -> bool:
    """Whether it is an srun, which hands signals on."""
    try:
        return any(word.endswith(_STEP) for word in psutil.Process(process).cmdline()[:3])
    except psutil.Error:
        return False
