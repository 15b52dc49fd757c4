"""Tell systemd that the agent is ready, alive, reloading or stopping (sd_notify(3)); a no-op without systemd."""

from __future__ import annotations

import os
import socket

__all__ = ["notify"]


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
