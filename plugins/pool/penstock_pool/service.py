"""What a member does for one scheduler: a Dask worker carries the messages, `HeldTasks` has the tasks.

Tasks of Dask's own clients run in that worker, one a thread, on the cores that no task of the pool holds.

It leaves in good order when its allocation nears its end, when it is told to (SIGTERM), when it has been idle for as
long as its user allows, or when the pool asks it to.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path
from typing import Any, Final

from distributed import Status, Worker
from distributed.worker_state_machine import UnpauseEvent

from penstock.errors import UserError
from penstock.host.logs import get_logger
from penstock_pool import link
from penstock_pool.executor import Ended
from penstock_pool.folder import PoolFolder
from penstock_pool.holding import HeldTasks, Terms
from penstock_pool.model import AttemptOutcome
from penstock_pool.signals import Whom
from penstock_pool.taskjson import task_from_dict

__all__ = ["CONNECT", "Service"]

_log = get_logger(__name__)
CONNECT: Final = 15.0
"""Seconds in which a scheduler that is there must have answered."""
_LAST_TASKS: Final = 20.0  # seconds that tasks are given to end by themselves after SIGTERM
_MEASURE: Final = 2.0  # seconds between measurements
_LOOK: Final = 0.2
_CLOSE: Final = 5.0  # seconds for what is still to be told at the end


class Service:
    """`ends`: the instant (monotonic) by which the allocation must be empty of tasks; `stop` is set on SIGTERM."""

    def __init__(
        self,
        folder: PoolFolder,
        terms: Terms,
        node: str,
        tasks: HeldTasks,
        ends: float | None,
        stop: asyncio.Event,
    ) -> None:
        self._folder = folder
        self._terms = terms
        self._node = node
        self._tasks = tasks
        self._ends = ends
        self._stop = stop
        self._told_to_leave = False
        self._leaves = False
        self._busy_at = time.monotonic()
        self.joined = False

    async def serve(self, url: str, host: str, scratch: Path) -> str:
        """Why it left; empty: the scheduler is gone. `host`: the address of ours that reaches it."""
        self._worker = Worker(
            url,
            host=host,
            nthreads=self._terms.capacity.threads(),
            security=link.security(self._folder),
            memory_limit=0,
            local_directory=str(scratch),
            dashboard=False,
            dashboard_address=link.NO_DOOR,
            startup_information={link.JOIN: self._introduce},
            death_timeout=CONNECT,
        )
        self._worker.stream_handlers.update(
            {
                link.RUN: self._run,
                link.KILL: self._kill,
                link.SIGNAL: self._signal,
                link.LEAVE: self._leave,
                link.KNOWN: self._known,
            }
        )
        try:
            await self._worker
            self.joined = True
            self._share()
            self._tasks.tell(self._report)
            why = await self._until_left()
            if why:
                # At once: while this member is not known to be gone nobody else runs these.
                await self._tasks.close("its member leaves")
            return why
        finally:
            self._tasks.tell(None)
            await self._worker.close(timeout=_CLOSE)

    async def _until_left(self) -> str:
        measured = time.monotonic()
        while str(self._worker.status.name) in ("running", "paused"):
            if self._busy:
                self._busy_at = time.monotonic()
            if why := self._why_leave():
                await self._drain()
                return why
            if time.monotonic() - measured > _MEASURE and self._tasks.running:
                used = await asyncio.to_thread(self._tasks.executor.measure)
                measured = time.monotonic()
                self._worker.batched_send({"op": link.MEASURED, "cores": list(used.items())})
            await asyncio.sleep(_LOOK)
        return ""

    @property
    def _runs(self) -> bool:
        """Whether anything runs: tasks of the pool, or of a client who talks to Dask itself."""
        dask = self._worker.state
        return bool(self._tasks.running or dask.executing or dask.long_running)

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

    def _share(self) -> None:
        """Let Dask's own tasks have as many threads as cores are left; with none it is told that we take no more."""
        worker = self._worker
        if self._leaves or worker.status not in (Status.running, Status.paused):
            return
        threads = self._terms.capacity.threads(self._tasks.executor.cores)
        more = threads > worker.state.nthreads
        worker.state.nthreads = max(threads, 1)
        if (worker.status is Status.running) != (threads > 0):
            worker.status = Status.running if threads else Status.paused
        elif more:
            worker.handle_stimulus(UnpauseEvent(stimulus_id="penstock-share"))  # it looks for what can start

    async def _drain(self) -> None:
        """Take no more; give what runs a chance to end: to the allocation's end, or some seconds after SIGTERM."""
        self._worker.batched_send({"op": link.DRAIN})
        self._leaves = True
        self._worker.status = Status.paused  # nor of clients who talk to Dask itself
        asked = math.inf
        while self._runs:
            if self._stop.is_set():
                asked = min(asked, time.monotonic())
            if time.monotonic() > min(asked + _LAST_TASKS, math.inf if self._ends is None else self._ends):
                return
            await asyncio.sleep(_LOOK)

    def _introduce(self, _worker: Worker) -> dict[str, Any]:
        capacity = self._terms.capacity
        left = None if self._ends is None else self._ends - time.monotonic()
        return {
            "node": self._node,
            "job": self._terms.job,
            "cores": capacity.cores,
            "memory": capacity.memory,
            "gpus": capacity.gpus,
            "left": left,
            "gives_back": self._terms.gives_back,
            "has": self._tasks.attempts,
        }

    def _run(self, *, task: int, attempt: int, what: str) -> None:
        self._busy_at = time.monotonic()
        try:
            made = task_from_dict(json.loads(what), "task", "/")
        except UserError as e:  # of a scheduler of another version: one task less, and not this member
            self._tasks.refuse(task, attempt, str(e))
            return
        self._tasks.start(task, attempt, made)
        self._share()

    def _kill(self, *, task: int, attempt: int) -> None:
        self._tasks.executor.kill(task, attempt, AttemptOutcome.CANCELLED, "cancelled")

    def _signal(self, *, task: int, attempt: int, signal: int, whom: str) -> None:
        self._tasks.executor.send(task, attempt, signal, Whom(whom))

    def _known(self, *, attempts: list[tuple[int, int]]) -> None:
        self._tasks.known(attempts)

    def _leave(self) -> None:
        self._told_to_leave = True

    def _report(self, end: Ended) -> None:
        self._share()
        try:
            if self._stop.is_set():
                self._worker.batched_send({"op": link.DRAIN})  # first, or it is sent another task
            self._worker.batched_send(
                link.ended_message(end.task, end.attempt, end.outcome, end.code, end.why, end.use)
            )
        except OSError as e:
            # The stream is broken. Another scheduler is told, this one counts the task as lost.
            _log.warning("the end of a task could not be told", task=end.task, why=str(e))
