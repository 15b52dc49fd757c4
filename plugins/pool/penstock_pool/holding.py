"""What a member runs and has run, whichever scheduler it serves: it outlives the scheduler that sent it.

The end of an attempt is kept until a scheduler says that the task log has it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock_pool.executor import Ended, TaskExecutor
from penstock_pool.folder import PoolFolder
from penstock_pool.jobfiles import JobFiles
from penstock_pool.jobstart import JobStarter
from penstock_pool.model import AttemptOutcome, Capacity, PoolTask

__all__ = ["HeldTasks", "Terms"]

_VERDICT: Final = 1.0  # seconds in which we learn that the signal which ended a task was meant for us, too
_SIGNALLED: Final = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a worker serves. `left`: seconds until the allocation's limit; `idle`: seconds without a task after which it
    leaves; None: no end. `patience`: seconds that it waits for a scheduler. `flood`: see `TaskExecutor`. `gives_back`:
    see `PoolMember`."""

    capacity: Capacity
    job: str
    left: float | None
    idle: float | None
    patience: float
    flood: int
    gives_back: bool = False


class HeldTasks:
    """To be used in its event loop alone. `stopped` says whether this member's allocation is being ended."""

    def __init__(self, folder: PoolFolder, terms: Terms, node: str, scratch: Path, stopped: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = stopped
        self._has: dict[tuple[int, int], Ended | None] = {}
        self._tell: Callable[[Ended], None] | None = None
        jobs = JobStarter(JobFiles(folder), node, os.environ.get("SLURM_CLUSTER_NAME", ""), scratch)
        self.executor = TaskExecutor(terms.capacity, folder.output, terms.flood, self._from_thread, jobs)

    @property
    def running(self) -> bool:
        """Whether any task runs."""
        return self.executor.running > 0

    @property
    def attempts(self) -> list[tuple[int, int]]:
        """The attempts (task, attempt) that run, or whose end may not be known."""
        return list(self._has)

    def start(self, task: int, attempt: int, what: PoolTask) -> None:
        """Run it."""
        self._has[task, attempt] = None
        self.executor.start(task, attempt, what)

    def refuse(self, task: int, attempt: int, why: str) -> None:
        """It cannot be run."""
        self._settle(Ended(task, attempt, AttemptOutcome.FAILED, None, why))

    def tell(self, teller: Callable[[Ended], None] | None) -> None:
        """Whom to tell of ends from now on; also those that may not be known yet."""
        self._tell = teller
        for end in self._has.values():
            if teller is not None and end is not None:
                teller(end)

    def known(self, attempts: list[tuple[int, int]]) -> None:
        """The log has these ends."""
        for task, attempt in attempts:
            self._has.pop((task, attempt), None)

    async def close(self, why: str) -> None:
        """End what runs, as lost. Nothing is started after."""
        await asyncio.to_thread(self.executor.close, why)
        await asyncio.sleep(0)  # their ends were told to the loop

    def _from_thread(self, end: Ended) -> None:
        self._loop.call_soon_threadsafe(self._ended, end)

    def _ended(self, end: Ended) -> None:
        """Slurm signals every process of a job that it ends, tasks before us perhaps: that is no failure of theirs."""
        if end.outcome is AttemptOutcome.FAILED and end.code in _SIGNALLED and not self._stopped():
            self._loop.call_later(_VERDICT, self._settle, end)
        else:
            self._settle(end)

    def _settle(self, end: Ended) -> None:
        if end.outcome is AttemptOutcome.FAILED and self._stopped():
            end = replace(end, outcome=AttemptOutcome.LOST, why=f"its allocation was being ended: {end.why}")
        self._has[end.task, end.attempt] = end
        if self._tell is not None:
            self._tell(end)
