"""How a command reaches what the agent knows and does: by the agent's doors, else by the user's own state file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from penstock.config import Config
from penstock.errors import AgentUnavailable, PenstockError
from penstock.ipc.client import ask_agent
from penstock.state.ownership import state_path

__all__ = [
    "ask_or_leave",
    "ask_or_read",
    "ask_or_say_why",
    "left_environment",
    "plan_stages",
    "read_by_tool",
    "why_silent",
]

_HINT: Final = (
    "no agent runs here. Let `penstock tick` do its work from your crontab, for example by\n"
    "  (crontab -l; echo '* * * * * penstock tick') | crontab -"
)


def why_silent(config: Config, unavailable: AgentUnavailable) -> PenstockError:
    """What to say where no agent answers: that all is off, if the caller's own state says so, else that none does."""
    if not _has_state(config):
        return unavailable
    from penstock.console import alone

    return alone.why(config, unavailable)


def _has_state(config: Config) -> bool:
    """Whether there is a state file that the caller can read."""
    return os.access(state_path(config), os.R_OK, effective_ids=True)


def read_by_tool() -> bool:
    """Whether a front program has run this for a tool, which takes any word on standard error for an error."""
    from penstock.fronts.programs.process import BY_FRONT  # slow to load

    return BY_FRONT in sys._xoptions and not os.isatty(2)


def ask_or_say_why(config: Config, op: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The agent's answer. Where there is none, the error says whether all is off."""
    try:
        return ask_agent(config, op, arguments)
    except AgentUnavailable as error:
        raise why_silent(config, error) from error


def ask_or_leave(
    config: Config, op: str, arguments: Mapping[str, Any], *, timeout: float = 60.0, hint: str = _HINT
) -> Any:  # noqa: ANN401
    """The agent's answer, which may take so long (s); None when the request was left for the next tick instead. Where
    there seems to be none, `hint` is said now and then."""
    try:
        return ask_agent(config, op, arguments, timeout)
    except AgentUnavailable as e:
        from penstock.console import alone

        alone.leave(config, e, op, arguments, "" if read_by_tool() else hint)
        return None


@contextmanager
def left_environment(config: Config) -> Iterator[dict[str, str]]:
    """What a request says of the caller's environment, which is left in the state folder for it: it may hold secrets,
    so it is no part of the request, which is written down where others look. Nothing, where the folder is another's.
    """
    from penstock.console import alone

    with alone.kept_environment(config) as said:
        yield said


def plan_stages(config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
    """What registering these stages would mean; see `Registrations.plan`. Raises what is wrong with them."""
    try:
        answer: dict[str, Any] = ask_agent(config, "plan", request)
        return answer
    except AgentUnavailable as e:
        from penstock.console import alone, stand_in

        alone.must_be_own(config, e)
        # While Slurm does not answer, sbatch waits for it: which strategies its settings permit is known later.
        found: dict[str, Any] = stand_in.answered(config, "plan", request, without_slurm=True)
        return found


def ask_or_read(
    config: Config, op: str, arguments: Mapping[str, Any] | None = None, *, last_known: bool = False
) -> Any:  # noqa: ANN401
    """The agent's answer to `status` or `explain`; where `penstock tick` does the work, what the caller's state file
    says; with `last_known` also where an agent did, and is gone."""
    try:
        return ask_agent(config, op, arguments)
    except AgentUnavailable as e:
        if not _has_state(config):
            raise
        from penstock.console import alone

        return alone.read(config, e, op, arguments or {}, last_known)
