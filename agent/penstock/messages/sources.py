"""Joins the parts of the agent that know something to the messenger that tells it."""

from __future__ import annotations

import os

from penstock.core.executor import Executor
from penstock.errors import StoreError
from penstock.host.clock import Clock
from penstock.host.logins import login
from penstock.host.logs import get_logger
from penstock.messages.events import failed_stages, paused
from penstock.messages.messenger import Messenger
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.state import WorkflowRun

__all__ = ["join"]

_log = get_logger(__name__)


def join(messenger: Messenger, executor: Executor, workflows: WorkflowController, clock: Clock) -> None:
    """From now on the messenger hears of automatic pauses and of stages that fail; first of those that had failed when
    the agent before this one ended."""
    me, own = os.geteuid(), login(os.geteuid())

    def of_run(before: WorkflowRun | None, after: WorkflowRun) -> None:
        known = before.stages if before else ()
        uid, user = (after.uid, after.user) if after.owned else (me, own)
        for event in failed_stages(after.id, after.name, after.stages, known, uid=uid, user=user, now=clock.now()):
            messenger.tell(event)

    def of_pause(until: float, why: str, count: int) -> None:
        try:
            messenger.tell(paused(until, why, count, now=clock.now()))
        except StoreError as error:  # the pause matters more than the word about it
            _log.warning("the message about the agent's pause cannot be stored", why=str(error))

    workflows.book.on_change, executor.on_pause = of_run, of_pause
    for run in workflows.runs.values():
        of_run(None, run)
