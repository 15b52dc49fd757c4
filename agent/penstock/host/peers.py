"""Who is at the other end of a Unix socket, as the kernel says."""

from __future__ import annotations

import socket
import struct

__all__ = ["peer_uid", "user_of"]


def peer_uid(connection: socket.socket) -> int:
    """The uid of the process at the other end: of the one that connected, or that listens there."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", raw)
    return int(uid)


def user_of(connection: socket.socket) -> str:
    """That uid as the peer that connections are counted by (`owners.peer_of`). Raises OSError where it has gone."""
    return f"uid {peer_uid(connection)}"
