"""Handing a workflow to whoever runs it: the user's own agent, a site's, or the next tick."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from penstock.config import Config
from penstock.console.door import ask_or_leave, left_environment, why_silent
from penstock.errors import AgentUnavailable
from penstock.ipc.client import ask_agent
from penstock.workflow.model import Workflow, submitted_from, workflow_to_dict

__all__ = ["hand_over"]


def hand_over(config: Config, parsed: Workflow, strategy: str, *, held: bool = False, tick: bool = False) -> int | None:
    """The number of the workflow, None: the next `penstock tick` takes it on. `held`: all its jobs are submitted now,
    kept back, as they are where the agent is another user's. Raises AgentUnavailable where there is none and no `tick`
    is meant."""
    # Relative commands mean the folder the user stands in, not the agent's.
    placed = submitted_from(parsed, str(Path.cwd()), _umask())
    if held or _is_anothers(config):
        from penstock.workflow.commands.held import submit_held

        return submit_held(config, placed, strategy)
    with left_environment(config) as given:
        request: dict[str, object] = {"workflow": workflow_to_dict(placed), "strategy": strategy, **given}
        return _ask(config, request, tick)


def _is_anothers(config: Config) -> bool:
    """Whether the agent that answers runs as another user."""
    if os.geteuid() == 0:
        return False
    with contextlib.suppress(AgentUnavailable):
        return bool(ask_agent(config, "ping")["uid"] != os.geteuid())
    return False


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _ask(config: Config, request: Mapping[str, object], tick: bool) -> int | None:
    try:
        return int(ask_agent(config, "submit", request)["run"])
    except AgentUnavailable as error:
        if not tick:
            raise why_silent(config, error) from error
    answer = ask_or_leave(config, "submit", request)
    return None if answer is None else int(answer["run"])
