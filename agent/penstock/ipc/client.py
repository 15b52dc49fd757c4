"""The command line's side of the agent's doors. Blocking: a command asks once and prints the answer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock import errors
from penstock.config import Config
from penstock.host.unixdoor import connected
from penstock.ipc.asking import LONGEST_REPLY, ONCE, reason, request_line, result_of, unanswered
from penstock.state.ownership import LEASE

__all__ = ["ask", "ask_agent"]

_START: Final = "Start one with `penstock agent`, or as a service with `systemctl --user start penstock-user`."
_SITE: Final = (
    "It is the agent of the whole site: run `systemctl status penstock` on its host, or ask its administrators."
)


def ask_agent(config: Config, op: str, arguments: Mapping[str, Any] | None = None, timeout: float = 60.0) -> Any:  # noqa: ANN401
    """The agent's answer to one request: by its socket on this host, else where its lease says.

    Raises `AgentUnavailable` when none answers, `OutcomeUnknown` when one has been told to do something that must not
    be done twice and its answer is lost, else the error that the agent raised.
    """
    try:
        return ask(config.socket_path, op, arguments, timeout, _advice(config))
    except errors.AgentUnavailable:
        if not os.access(config.agent.state_dir / LEASE, os.F_OK):
            raise
        from penstock.ipc.remote import ask_far, elsewhere  # slow to load

        if (holder := elsewhere(config)) is None:
            raise
        return ask_far(config, holder, op, arguments, timeout)


def _advice(config: Config) -> str:
    """What to do where no agent answers: a site's is not for users to start, nor is another user's."""
    try:
        mine = config.agent.state_dir.stat().st_uid == os.geteuid()
    except OSError:
        mine = True  # as it will be made
    return _START if mine and config.agent.serve == "own" else _SITE


def ask(
    path: Path,
    op: str,
    arguments: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    advice: str = _START,
) -> Any:  # noqa: ANN401
    """The answer of the agent at this socket to one request; `advice` is given where there is none.

    Raises as `ask_agent` does.
    """
    sent = False
    try:
        with connected(path, timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(request_line(op, arguments))
            sent = True
            with connection.makefile("rb") as stream:
                line = stream.readline(LONGEST_REPLY)
        reply = json.loads(line)
    except (OSError, ValueError) as e:
        if sent and op in ONCE:
            raise unanswered(f"the agent at {path}", e) from e
        raise errors.AgentUnavailable(f"no agent answers at {path} ({reason(e)}). {advice}") from e
    return result_of(reply)
