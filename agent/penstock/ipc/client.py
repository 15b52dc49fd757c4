"""The command line's side of the Unix socket. Blocking: a command asks once and prints the answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock import errors

__all__ = ["ask"]

_LONGEST_REPLY = 64 * 1024 * 1024


def ask(path: Path, op: str, arguments: Mapping[str, Any] | None = None, timeout: float = 60.0) -> Any:  # noqa: ANN401
    """The agent's answer to one request.

    Raises `AgentUnavailable` when none answers, else the error that the agent raised.
    """
    request = json.dumps({"op": op, **(arguments or {})}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(request)
            with connection.makefile("rb") as stream:
                line = stream.readline(_LONGEST_REPLY)
        reply = json.loads(line)
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else e
        raise errors.AgentUnavailable(
            f"no agent answers at {path} ({why}). Start one with `penstock agent`, or as a service with "
            "`systemctl --user start penstock-user`."
        ) from e
    if reply.get("ok"):
        return reply.get("result")
    kind = getattr(errors, str(reply.get("error")), errors.PenstockError)
    if not (isinstance(kind, type) and issubclass(kind, errors.PenstockError)):
        kind = errors.PenstockError
    raise kind(str(reply.get("message")))
