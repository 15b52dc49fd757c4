"""A member of a pool: one process on one node of one allocation, which runs the tasks that a scheduler sends it.

It goes from scheduler to scheduler. When one was killed, its tasks go on, and the next one is told of them. When one
lives but has given this member up, or cannot be reached any more, others run its tasks, so they end here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Final

from penstock.errors import AgentUnavailable
from penstock.state.pools import SchedulerAddress
from penstock_pool import link
from penstock_pool.allocation import scratch_prefix
from penstock_pool.folder import PoolFolder
from penstock_pool.holding import HeldTasks, Terms
from penstock_pool.service import CONNECT, Service

__all__ = ["Terms", "work"]

_RESERVE: Final = 15.0  # seconds before its end by which the allocation must be empty of tasks
_SEEK: Final = 0.5  # seconds between looks for a scheduler


async def work(folder: PoolFolder, terms: Terms) -> str:
    """Serve until it is time to leave; why it left. Raises AgentUnavailable if no scheduler was there for too long."""
    link.prepare()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    prefix = scratch_prefix(terms.job)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as scratch:
        member = _Member(folder, terms, Path(scratch), stop)
        try:
            return await member.serve()
        finally:
            await member.tasks.close("its member leaves")


class _Member:
    def __init__(self, folder: PoolFolder, terms: Terms, scratch: Path, stop: asyncio.Event) -> None:
        self._folder = folder
        self._terms = terms
        self._scratch = scratch
        self._stop = stop
        # Slurm's name for it, which need not be the host's.
        self._node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self._ends = None if terms.left is None else time.monotonic() + terms.left - _RESERVE
        self._served: SchedulerAddress | None = None
        self.tasks = self._no_tasks()

    async def serve(self) -> str:
        """See `work`."""
        seen = time.monotonic()
        while not self._stop.is_set():
            address = self._folder.address()
            if address is None and self._served is not None:
                return "the pool was stopped"
            if address is not None:
                service = Service(self._folder, self._terms, self._node, self.tasks, self._ends, self._stop)
                if why := await self._of(address, service):
                    return why
                if service.joined:
                    self._served, seen = address, time.monotonic()
            if self.tasks.running:
                await asyncio.to_thread(self.tasks.executor.measure)  # keeps them to their memory
                seen = time.monotonic()
                if self._ends is not None and seen > self._ends:
                    return "its allocation nears its end"
            elif time.monotonic() - seen > self._terms.patience:
                raise AgentUnavailable(
                    f"no scheduler of pool {self._folder.name!r} was there for {self._terms.patience:g} s"
                )
            await asyncio.sleep(_SEEK)
        return "asked to"

    async def _of(self, address: SchedulerAddress, service: Service) -> str:
        """Why it left; empty: the scheduler is not there, or not any more."""
        try:
            # Dask would look for the way to the internet, which a compute node need not have.
            host = await link.knock(address.url, CONNECT)
        except ConnectionError:  # it was killed, so nobody else has what runs here
            return ""
        except (OSError, TimeoutError):
            await self._lose_tasks()
            return ""
        if address == self._served:
            await self._lose_tasks()
        with contextlib.suppress(OSError, TimeoutError):
            return await service.serve(address.url, host, self._scratch)
        return ""

    async def _lose_tasks(self) -> None:
        if self.tasks.attempts:
            await self.tasks.close("its scheduler has given this member up")
            self.tasks = self._no_tasks()

    def _no_tasks(self) -> HeldTasks:
        return HeldTasks(self._folder, self._terms, self._node, self._scratch, self._stop.is_set)
