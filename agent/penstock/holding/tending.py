"""The agent's share in holding slots: a pass over the ledger every minute, where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from penstock.config import Config
from penstock.errors import NotNow, PenstockError
from penstock.executor import Executor
from penstock.holding.office import Office, ledger_path
from penstock.ownership import is_readable
from penstock.slurm.base import Reader
from penstock.workflow.state import WorkflowRun

__all__ = ["Told", "tend", "tend_once"]

_log = structlog.get_logger(__name__)
_INTERVAL: Final = 60.0


Told = Callable[[list[WorkflowRun]], None]
"""Is shown the reserved workflows, as the ledger has them, that were looked after."""


async def tend(config: Config, backend: Reader, executor: Executor, told: Told, not_yet: Callable[[], bool]) -> None:
    """Until it is cancelled. `not_yet`: something else has to be done before."""
    while True:
        if not not_yet():
            await tend_once(config, backend, executor, told)
        await asyncio.sleep(_INTERVAL)


async def tend_once(config: Config, backend: Reader, executor: Executor, told: Told = lambda _runs: None) -> None:
    """One pass, if anything was ever held. What goes wrong is logged, and tried again at the next."""
    try:
        if not is_readable(ledger_path(config)):
            return
        office = Office(config, backend, executor)
        try:
            async with office.alone(0.0):
                before = [run.name for run in office.ledger.runs()]
                _, changes = await office.tick()
                told([run for name in before if (run := office.ledger.run(name)) is not None])
        finally:
            office.close()
    except NotNow:
        return  # somebody is at it
    except PenstockError as error:
        _log.warning("slots are not looked after", why=str(error))
        return
    for line in changes:
        _log.info("reserved workflow", what=line)
