"""A pool as the executor sees it: tasks go in, their ends come out. One connection, in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from penstock.errors import AgentUnavailable, NotFound, PenstockError, UserError
from penstock_pool.client import FINAL, PoolLine
from penstock_pool.folder import PoolFolder
from snakemake_executor_plugin_penstock.needs import unreachable_text

__all__ = ["PoolTasks"]

_LOOK: Final = 10.0  # seconds that the scheduler is asked to wait for an end
_BATCH: Final = 1000  # tasks in one request
_ANSWER: Final = 15.0  # seconds to wait for an answer that one can do without


class PoolTasks:
    """Tasks of one run of Snakemake. A scheduler may be away for `patience` seconds.

    `ends` has the names of tasks that have ended, each once; `broken` is why nothing can be learned any more, "" else.
    """

    def __init__(self, folder: PoolFolder, patience: float) -> None:
        self._folder = folder
        self._patience = patience
        self.ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.broken = ""
        self._numbers: dict[int, str] = {}  # of those that have not ended
        self._names: dict[str, int] = {}
        self._phases: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pool", daemon=True)
        self._thread.start()
        self._line = PoolLine(folder, patience)
        try:
            place = self._ask("ends", {"from": None, "life": "", "seconds": 0})
        except PenstockError:
            self.close()
            raise
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(place), self._loop)

    # Asked from other threads; all raise PenstockError.

    def submit(self, tasks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Submit tasks, which have names of their own; why some were refused, by name."""
        refused: dict[str, str] = {}
        for first in range(0, len(tasks), _BATCH):
            batch = tasks[first : first + _BATCH]
            try:
                self._call(self._submit(batch))
            except UserError:
                for one in batch:  # whichever it is
                    try:
                        self._call(self._submit([one]))
                    except UserError as e:
                        refused[one["name"]] = str(e)
        return refused

    def adopt(self, name: str) -> str | None:
        """The phase of a task of an earlier run of Snakemake; its end is told if it has not ended. None: unknown."""
        found = self._call(self._adopt(name))
        return None if found is None else str(found["phase"])

    def phase(self, name: str) -> str:
        """How a task has ended."""
        return self._phases.get(name, "")

    def told(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """What the pool has of these tasks, in their order."""
        numbers = [self._names[name] for name in names]
        found: list[dict[str, Any]] = self._ask("tasks", {"ids": numbers}) if numbers else []
        return found

    def cancel(self, names: Sequence[str]) -> None:
        """Have tasks end."""
        numbers = [self._names[name] for name in names if name in self._names]
        if numbers:
            self._ask("cancel", {"tasks": numbers})

    def cancel_all(self, seconds: float) -> bool:
        """Have all end, and wait so many seconds; whether they have."""
        return bool(self._call(self._cancel_all(seconds), seconds + _ANSWER))

    def hindrance(self) -> str:
        """Why tasks that wait may do so for long; "": nothing that is known."""
        told = self._call(self._line.ask("status", {}), _ANSWER)
        if not told["members"]:
            return "it has no members: jobs wait until an allocation runs `penstock pool join`"
        return "; ".join(map(unreachable_text, told["unreachable"]))

    def foresee(self, source: str, tasks: Sequence[Mapping[str, Any]], seconds: float) -> bool:
        """Tell what is to come; False: the scheduler did not take it."""
        try:
            self._call(self._line.ask("foresee", {"source": source, "tasks": list(tasks), "seconds": seconds}), _ANSWER)
        except (PenstockError, KeyError):  # what is ready runs all the same
            return False
        return True

    def close(self) -> None:
        """Hang up."""

        async def end() -> None:
            with suppress(Exception):
                await self._line.__aexit__()
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(5)

    def _ask(self, what: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401
        return self._call(self._line.ask(what, body))

    def _call(self, coroutine: Any, seconds: float | None = None) -> Any:  # noqa: ANN401
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise AgentUnavailable(f"the scheduler of pool {self._folder.name!r} does not answer") from None

    # In the thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._order = asyncio.Lock()  # an end is not looked at while its task's number is on its way
        self._loop.run_forever()

    async def _submit(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        async with self._order:
            # Their names are their own, so that asked twice is submitted once.
            numbers = await self._line.ask("submit", {"tasks": list(tasks)})
            for task, number in zip(tasks, numbers, strict=True):
                self._know(number, task["name"])

    async def _adopt(self, name: str) -> dict[str, Any] | None:
        async with self._order:
            try:
                (found,) = await self._line.ask("tasks", {"ids": [name]})
            except NotFound:
                return None
            self._names[name] = found["id"]
            if found["phase"] not in FINAL:
                self._know(found["id"], name)
            else:
                self._phases[name] = found["phase"]
            return dict(found)

    async def _cancel_all(self, seconds: float) -> bool:
        async with self._order:
            numbers = list(self._numbers)
            if numbers:
                await self._line.ask("cancel", {"tasks": numbers})
        until = self._loop.time() + seconds
        while self._numbers and self._loop.time() < until and not self.broken:
            await asyncio.sleep(0.05)
        return not self._numbers

    def _know(self, number: int, name: str) -> None:
        self._numbers[number], self._names[name] = name, number

    async def _watch(self, place: Mapping[str, Any]) -> None:
        try:
            while True:
                place = await self._line.ask("ends", {"from": place["next"], "life": place["life"], "seconds": _LOOK})
                async with self._order:
                    for task in place["tasks"]:
                        if task["phase"] in FINAL and task["id"] in self._numbers:
                            name = self._numbers.pop(task["id"])
                            self._phases[name] = task["phase"]
                            self.ends.put(name)
        except Exception as e:  # whatever it is, nobody must wait for ever
            self.broken = str(e) or type(e).__name__
