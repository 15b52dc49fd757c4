"""The agent's share in holding slots: a pass over the ledger every minute, where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.api import Decision, Snapshot
from penstock.config import Config
from penstock.core.executor import Executor
from penstock.core.parts import Site
from penstock.errors import NotNow, PenstockError
from penstock.host.clock import Rest
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.state.ownership import is_readable, ledger_path
from penstock.workflow.state import WorkflowRun
from penstock_planning.hold.reservations import Reservations

__all__ = ["Slots", "Told", "run_pass"]

_log = get_logger(__name__)
_INTERVAL: Final = 60.0


Told = Callable[[list[WorkflowRun]], None]
"""Is shown the reserved workflows, as the ledger has them, that were looked after."""


class Slots:
    """A controller of the loop: what is held, and the workflows in slots. What it does is written down by the executor
    as it happens; `told` is called with what it has looked after."""

    def __init__(self, site: Site, told: Told) -> None:
        self._config, self._backend, self._executor = site.config(), site.reader, site.executor
        self._clock, self._told = site.clock, told
        self._rest = Rest()

    async def reconcile(self, snapshot: Snapshot) -> list[Decision]:
        """One pass over the ledger, if the last one was a minute ago."""
        now = self._clock.now()
        if not self._rest.lasts(now):
            self._rest = Rest(now, now + _INTERVAL)
            await run_pass(self._config, self._backend, self._executor, self._told)
        return []

    def next_wake(self, now: float) -> float | None:
        """When the next one is due; None where nothing was ever held."""
        return self._rest.end(now) if is_readable(ledger_path(self._config)) else None


async def run_pass(config: Config, backend: Reader, executor: Executor, told: Told = lambda _runs: None) -> None:
    """One pass, if anything was ever held. What goes wrong is logged, and tried again at the next."""
    try:
        if not is_readable(ledger_path(config)):
            return
        reservations = Reservations(config, backend, executor)
        try:
            async with reservations.alone(0.0):
                before = [run.name for run in reservations.ledger.runs()]
                _, changes = await reservations.tick()
                told([run for name in before if (run := reservations.ledger.run(name)) is not None])
        finally:
            reservations.close()
    except NotNow:
        return  # somebody is at it
    except PenstockError as error:
        _log.warning("held slots could not be checked", why=str(error))
        return
    for line in changes:
        _log.info("reserved workflow", what=line)
