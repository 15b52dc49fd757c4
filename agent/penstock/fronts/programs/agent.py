"""Asks the agent, at its Unix socket: a few lines instead of `penstock.ipc.client`, which takes as long as sbatch."""

from __future__ import annotations

import _socket as socket
import os
import struct
import time

from penstock.fronts.programs.memory import cluster_name
from penstock.fronts.programs.plainjson import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["NoAnswer", "about", "ask", "tell_touched"]

_LONGEST = 64 * 1024 * 1024
_TOUCHED = 2.0  # seconds: what is told is told in passing
_KEPT = ("SLURM_", "SQUEUE_", "SACCT_", "SCONTROL_", "TZ")


class NoAnswer(Exception):
    """No agent answers, or not to this; `absent`: there is none."""

    def __init__(self, *, absent: bool) -> None:
        super().__init__()
        self.absent = absent


def ask(settings: Mapping[str, str], environ: Mapping[str, str], request: Mapping[str, Any], limit: float) -> Any:  # noqa: ANN401
    """The agent's answer within `limit` (s). Raises NoAnswer, also where this shell's Slurm is not the agent's."""
    if not _same_cluster(settings, environ):
        raise NoAnswer(absent=False)
    until = time.monotonic() + limit
    reply = b""
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Where many are at the door, a socket with Python's own time limit is refused at once, instead of waiting.
            whole, part = divmod(int(limit * 1e6), 1_000_000)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, part))
            connection.connect(settings["socket"])
            connection.settimeout(limit)
            left = memoryview(dumps(request).encode() + b"\n")
            while left:
                left = left[connection.send(left, socket.MSG_NOSIGNAL) :]
            parts = []
            while not reply.endswith(b"\n"):
                connection.settimeout(max(until - time.monotonic(), 0.001))
                reply = connection.recv(1 << 20)
                parts.append(reply)
                if not reply or sum(map(len, parts)) > _LONGEST:
                    raise NoAnswer(absent=False)
            found = loads(b"".join(parts).decode())
        finally:
            connection.close()
    except (FileNotFoundError, ConnectionRefusedError) as e:
        raise NoAnswer(absent=True) from e
    except (OSError, ValueError, KeyError) as e:
        raise NoAnswer(absent=False) from e
    if not isinstance(found, dict) or not found.get("ok"):
        raise NoAnswer(absent=False)  # an older agent, or one that will not
    return found.get("result")


def about(environ: Mapping[str, str]) -> dict[str, str]:
    """What of an environment says how Slurm's commands answer."""
    return {name: value for name, value in environ.items() if name.startswith(_KEPT)}


def tell_touched(settings: Mapping[str, str], environ: Mapping[str, str], jobs: list[int]) -> None:
    """Say that these jobs (none: some) are not any more as the agent has seen them. Where none hears it, nothing is to
    be done."""
    try:
        # 0 is no job, and makes what was seen of all jobs old.
        ask(settings, environ, {"op": "touched", "jobs": jobs or [0]}, _TOUCHED)
    except NoAnswer:
        return


def _same_cluster(settings: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether this shell's commands speak to the Slurm that they spoke to when the front programs were made."""
    if environ.get("SLURM_CONF", "") == settings.get("slurm_conf", ""):
        return True
    here = cluster_name(environ)
    return bool(here) and here == settings.get("cluster") and os.path.exists(settings["socket"])
