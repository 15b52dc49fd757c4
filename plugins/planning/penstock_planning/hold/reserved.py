"""Workflows in slots, for the commands that show and cancel workflows of every kind."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from penstock.config import Config
from penstock.errors import NotFound
from penstock.slurm.base import Reader
from penstock.state.ownership import ledger_path
from penstock.workflow.documents import run_to_dict
from penstock_planning.hold.ledger import Ledger

if TYPE_CHECKING:
    from penstock.core.executor import Executor

__all__ = ["give_up_run", "reserved_runs"]

_PATIENCE: Final = 60.0


def reserved_runs(config: Config, *, final: bool) -> list[dict[str, Any]]:
    """Those of the ledger that are not over (`final`: all), each with its holds as `slots` by stage."""
    with closing(Ledger.copy_of(ledger_path(config))) as ledger:
        return [
            {**run_to_dict(run), "slots": {s.name: ledger.hold(s.held.hold).to_dict() for s in run.stages}}
            for run in ledger.runs(final)
        ]


async def give_up_run(config: Config, reader: Reader, executor: Executor, name: str) -> None:
    """Cancel the jobs of a workflow in slots, and give the slots back. Raises NotFound."""
    from penstock_planning.hold.reservations import Reservations  # slow to load

    with closing(Reservations(config, reader, executor)) as reservations:
        async with reservations.alone(_PATIENCE):
            run = reservations.ledger.run(name)
            if run is None:
                raise NotFound(f"there is no workflow {name}")
            await reservations.runs.abandon(run)
