"""Asks the agent, at its Unix socket. The kernel tells the agent who asks; nothing is asked of Slurm."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["AgentRefusal", "AgentSilent", "ask", "expect", "find_socket"]

SITE_SOCKET = "/run/penstock/agent.sock"
"""Where the agent of a whole site listens."""
PATIENCE = 1.0
"""Seconds that an answer may take: a page is better shown without waits than late."""
_LONGEST = 8 * 1024 * 1024


class AgentSilent(Exception):
    """No agent answers, or not in time."""


class AgentRefusal(Exception):
    """The agent will not answer this; `kind` is the name of its error, such as NotPermitted or UserError."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def find_socket(environ: Mapping[str, str]) -> str:
    """The agent's socket: as the environment names it, else that of the user's own agent if there is one, else the
    site's."""
    named, state = environ.get("PENSTOCK_AGENT__SOCKET", ""), environ.get("PENSTOCK_AGENT__STATE_DIR", "")
    if named or state:
        return named or str(Path(state) / "agent.sock")
    given = environ.get("XDG_STATE_HOME", "")
    home = Path(given) if given.startswith("/") else Path(environ.get("HOME", "/nowhere"), ".local", "state")
    own = home / "penstock" / "agent.sock"
    return str(own) if own.exists() else SITE_SOCKET


def expect(
    path: str, jobs: Sequence[Mapping[str, Any]], *, sooner: bool = False, patience: float = PATIENCE
) -> dict[str, Any]:
    """What each of these jobs would wait, as the agent tells it (`expect`). Raises AgentSilent, AgentRefusal."""
    return ask(path, {"op": "expect", "jobs": list(jobs), "sooner": sooner}, patience)


def ask(path: str, request: Mapping[str, Any], patience: float = PATIENCE) -> dict[str, Any]:
    """The agent's answer to one request, within `patience` seconds. Raises AgentSilent, AgentRefusal."""
    until = time.monotonic() + patience
    parts: list[bytes] = []
    size = 0
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # Where many are at the door, a socket with Python's own time limit is refused at once, instead of waiting.
            whole, part = divmod(int(patience * 1e6), 1_000_000)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, part))
            connection.connect(path)
            connection.settimeout(max(until - time.monotonic(), 0.001))
            connection.sendall(json.dumps(request).encode() + b"\n")
            while not (parts and parts[-1].endswith(b"\n")):
                connection.settimeout(max(until - time.monotonic(), 0.001))
                parts.append(connection.recv(1 << 16))
                size += len(parts[-1])
                if not parts[-1] or size > _LONGEST:
                    raise AgentSilent(f"the agent at {path} broke off its answer")
        reply = json.loads(b"".join(parts))
    except (OSError, ValueError) as e:
        raise AgentSilent(f"no agent answers at {path} ({getattr(e, 'strerror', None) or e})") from e
    if not isinstance(reply, dict):
        raise AgentSilent(f"what answers at {path} is no agent")
    if not reply.get("ok"):
        raise AgentRefusal(str(reply.get("error")), str(reply.get("message")))
    result = reply.get("result")
    if not isinstance(result, dict):
        raise AgentSilent(f"what answers at {path} is no agent of this release")
    return result
