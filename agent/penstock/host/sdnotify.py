"""Tell systemd that the agent is ready, alive, reloading or stopping (sd_notify(3)); a no-op without systemd."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping

__all__ = ["notify", "reloading", "watchdog"]


def notify(state: str) -> None:
    """Send e.g. "READY=1" to the socket that systemd named, if any. Never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            sender.send(state.encode())
    except OSError:
        pass


def reloading() -> None:
    """The configuration is read again, from now on until the next "READY=1" (the instant is for Type=notify-reload)."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog(environ: Mapping[str, str] = os.environ) -> float:
    """After how many seconds without "WATCHDOG=1" systemd ends this process; infinity where it does not."""
    period, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not period.isdecimal() or int(period) == 0 or pid not in ("", str(os.getpid())):
        return math.inf
    return int(period) / 1e6
