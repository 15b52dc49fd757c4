"""Handing a workflow to whoever runs it: the user's own agent, a site's, or the next tick."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.config import Config
from penstock.console.door import ask_or_leave, ask_or_say_why, left_environment
from penstock.errors import AgentUnavailable
from penstock.ipc.client import ask_agent
from penstock.workflow.model import Workflow, submitted_from, workflow_to_dict

__all__ = ["hand_over"]


class Submitting(Protocol):
    """Who submits the stages of a workflow."""

    def submit(self, workflow: Workflow, strategy: str) -> int | None:
        """Hand it over; its number, None: the next `penstock tick` takes it on. Raises PenstockError, and then nothing
        of it is left in the queue."""
        ...


@dataclass(frozen=True, slots=True)
class ByAgent:
    """The caller's own agent, each when its time has come. Where none runs, it is left for the next tick, if a `tick`
    is meant; else AgentUnavailable is raised."""

    config: Config
    tick: bool

    def submit(self, workflow: Workflow, strategy: str) -> int | None:
        """See `Submitting`."""
        ask = ask_or_leave if self.tick else ask_or_say_why
        with left_environment(self.config) as given:
            request: dict[str, object] = {"workflow": workflow_to_dict(workflow), "strategy": strategy, **given}
            answer = ask(self.config, "submit", request)
        return None if answer is None else int(answer["run"])


def hand_over(config: Config, parsed: Workflow, strategy: str, *, held: bool = False, tick: bool = False) -> int | None:
    """The number of the workflow, None: the next `penstock tick` takes it on. `held`: all its jobs are submitted now,
    kept back, as they are where the agent is another user's. Raises AgentUnavailable where there is none and no `tick`
    is meant."""
    # Relative commands mean the folder the user stands in, not the agent's.
    placed = submitted_from(parsed, str(Path.cwd()), _umask())
    return _who_submits(config, held, tick).submit(placed, strategy)


def _who_submits(config: Config, held: bool, tick: bool) -> Submitting:
    if not held and not _is_anothers(config):
        return ByAgent(config, tick)
    from penstock.workflow.commands.held import HeldStages  # slow to load

    return HeldStages(config)


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
