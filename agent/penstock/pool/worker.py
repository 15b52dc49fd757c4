"""A member of a pool: one process on one node of one allocation, which runs the tasks that the scheduler sends it.

It leaves in good order when its allocation nears its end, when it is told to (SIGTERM), when it has been idle for as
long as its user allows, or when the pool is stopped. When the scheduler is gone its tasks end, because another one
would run them again; then it waits for another one for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from distributed import Status, Worker

from penstock.errors import AgentUnavailable, UserError
from penstock.pool import link
from penstock.pool.allocation import scratch_prefix
from penstock.pool.executor import Ended, TaskExecutor
from penstock.pool.folder import PoolFolder
from penstock.pool.jobfiles import JobFiles
from penstock.pool.jobstart import JobStarter
from penstock.pool.model import AttemptOutcome, Capacity, Use, task_from_dict
from penstock.pool.signals import Whom

__all__ = ["Terms", "work"]

_log = structlog.get_logger(__name__)
_RESERVE = 15.0  # seconds before its end by which the allocation must be empty of tasks
_LAST_TASKS = 20.0  # seconds that tasks are given to end by themselves after SIGTERM
_MEASURE = 2.0  # seconds between measurements
_LOOK = 0.2
_SEEK = 0.5  # seconds between looks for a scheduler
_CONNECT = 15.0  # seconds in which one that is there must have answered
_VERDICT = 1.0  # seconds in which we learn that the signal which ended a task was meant for us, too
_SIGNALLED = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
_CLOSE = 5.0  # seconds for what is still to be told at the end


@dataclass(frozen=True, slots=True)
class Terms:
    """How a worker serves. `left`: seconds until the allocation's limit; `idle`: seconds without a task after which it
    leaves; None: no end. `patience`: seconds that it waits for a scheduler. `flood`: see `TaskExecutor`."""

    capacity: Capacity
    job: str
    left: float | None
    idle: float | None
    patience: float
    flood: int


async def work(folder: PoolFolder, terms: Terms) -> str:
    """Serve until it is time to leave; why it left. Raises AgentUnavailable if no scheduler was there for too long."""
    link.prepare()
    began = time.monotonic()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    served = False
    seen = time.monotonic()
    while not stop.is_set():
        address = folder.address()
        if address is None and served:
            return "the pool was stopped"
        if address is not None:
            left = None if terms.left is None else terms.left - (time.monotonic() - began)
            service = _Service(folder, terms, address.url, left, stop)
            with contextlib.suppress(OSError, TimeoutError):  # it is not there, or not any more
                # Dask would look for the way to the internet, which a compute node need not have.
                host = await link.knock(address.url, _CONNECT)
                if why := await service.serve(host):
                    return why
            served = served or service.joined
            seen = time.monotonic() if service.joined else seen
        if time.monotonic() - seen > terms.patience:
            raise AgentUnavailable(f"no scheduler of pool {folder.name!r} was there for {terms.patience:g} s")
        await asyncio.sleep(_SEEK)
    return "asked to"


class _Service:
    """What a worker does for one scheduler."""

    def __init__(self, folder: PoolFolder, terms: Terms, url: str, left: float | None, stop: asyncio.Event) -> None:
        self._folder = folder
        self._terms = terms
        self._url = url
        self._ends = None if left is None else time.monotonic() + left - _RESERVE
        self._stop = stop
        self._told_to_leave = False
        self.joined = False
        self._busy_at = time.monotonic()
        # Slurm's name for it, which need not be the host's.
        self._node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()

    async def serve(self, host: str) -> str:
        """Why it left; empty: the scheduler is gone. `host`: the address of ours that reaches it."""
        loop = asyncio.get_running_loop()
        prefix = scratch_prefix(self._terms.job)
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as scratch:
            self._worker = Worker(
                self._url,
                host=host,
                nthreads=1,
                security=link.security(self._folder),
                memory_limit=0,
                local_directory=scratch,
                dashboard=False,
                dashboard_address=link.NO_DOOR,
                startup_information={link.JOIN: self._tell},
                death_timeout=_CONNECT,
            )
            self._worker.stream_handlers.update(
                {link.RUN: self._run, link.KILL: self._kill, link.SIGNAL: self._signal, link.LEAVE: self._leave}
            )

            def ended(end: Ended) -> None:
                loop.call_soon_threadsafe(self._ended, end)

            jobs = JobStarter(
                JobFiles(self._folder), self._node, os.environ.get("SLURM_CLUSTER_NAME", ""), Path(scratch)
            )
            self._executor = TaskExecutor(self._terms.capacity, self._folder.output, self._terms.flood, ended, jobs)
            try:
                await self._worker
                self.joined = True
                return await self._until_left()
            finally:
                # At once: while this member is not known to be gone nobody else runs these.
                await asyncio.to_thread(self._executor.close, "its member leaves")
                await asyncio.sleep(0)  # their ends were told to the loop
                await self._worker.close(timeout=_CLOSE)

    async def _until_left(self) -> str:
        measured = time.monotonic()
        while str(self._worker.status.name) in ("running", "paused"):
            if self._busy:
                self._busy_at = time.monotonic()
            if why := self._why_leave():
                await self._drain()
                return why
            if time.monotonic() - measured > _MEASURE and self._executor.running:
                used = await asyncio.to_thread(self._executor.measure)
                measured = time.monotonic()
                self._worker.batched_send({"op": link.MEASURED, "cores": list(used.items())})
            await asyncio.sleep(_LOOK)
        return ""

    @property
    def _runs(self) -> bool:
        """Whether anything runs: tasks of the pool, or of a client who talks to Dask itself."""
        dask = self._worker.state
        return bool(self._executor.running or dask.executing or dask.long_running)

    @property
    def _busy(self) -> bool:
        """Whether anything runs, or will here."""
        return self._runs or bool(self._worker.state.ready or self._worker.state.constrained)

    def _why_leave(self) -> str:
        now = time.monotonic()
        if self._stop.is_set():
            return "asked to"
        if self._told_to_leave:
            return "the pool asked it to"
        if self._ends is not None and now > self._ends - _LAST_TASKS:
            return "its allocation nears its end"
        if self._terms.idle is not None and now - self._busy_at > self._terms.idle:
            return "nothing to do"
        return ""

    async def _drain(self) -> None:
        """Take no more; give what runs a chance to end: to the allocation's end, or some seconds after SIGTERM."""
        self._worker.batched_send({"op": link.DRAIN})
        self._worker.status = Status.paused  # nor of clients who talk to Dask itself
        asked = math.inf
        while self._runs:
            if self._stop.is_set():
                asked = min(asked, time.monotonic())
            if time.monotonic() > min(asked + _LAST_TASKS, math.inf if self._ends is None else self._ends):
                return
            await asyncio.sleep(_LOOK)

    def _tell(self, _worker: Worker) -> dict[str, Any]:
        capacity = self._terms.capacity
        left = None if self._ends is None else self._ends - time.monotonic()
        return {
            "node": self._node,
            "job": self._terms.job,
            "cores": capacity.cores,
            "memory": capacity.memory,
            "gpus": capacity.gpus,
            "left": left,
        }

    def _run(self, *, task: int, attempt: int, what: str) -> None:
        self._busy_at = time.monotonic()
        try:
            made = task_from_dict(json.loads(what), "task", "/")
        except UserError as e:  # of a scheduler of another version: one task less, and not this member
            self._report(Ended(task, attempt, AttemptOutcome.FAILED, None, str(e), Use()))
            return
        self._executor.start(task, attempt, made)

    def _kill(self, *, task: int, attempt: int) -> None:
        self._executor.kill(task, attempt, AttemptOutcome.CANCELLED, "cancelled")

    def _signal(self, *, task: int, attempt: int, signal: int, whom: str) -> None:
        self._executor.send(task, attempt, signal, Whom(whom))

    def _leave(self) -> None:
        self._told_to_leave = True

    def _ended(self, end: Ended) -> None:
        """Slurm signals every process of a job that it ends, tasks before us perhaps: that is no failure of theirs."""
        if end.outcome is AttemptOutcome.FAILED and end.code in _SIGNALLED and not self._stop.is_set():
            asyncio.get_running_loop().call_later(_VERDICT, self._report, end)
        else:
            self._report(end)

    def _report(self, end: Ended) -> None:
        if end.outcome is AttemptOutcome.FAILED and self._stop.is_set():
            end = replace(end, outcome=AttemptOutcome.LOST, why=f"its allocation was being ended: {end.why}")
        try:
            if self._stop.is_set():
                self._worker.batched_send({"op": link.DRAIN})  # first, or it is sent another task
            self._worker.batched_send(
                link.ended_message(end.task, end.attempt, end.outcome, end.code, end.why, end.use)
            )
        except OSError as e:
            # The stream is broken, so the scheduler counts the task as lost.
            _log.warning("the end of a task could not be told", task=end.task, why=str(e))
