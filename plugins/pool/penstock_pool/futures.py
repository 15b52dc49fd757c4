"""A pool as an executor of Python's standard library.

    with PoolExecutor(task={"cores": 2, "time": "5m"}) as pool:
        results = list(pool.map(simulate, range(100)))

Each call runs in a process of its own on a member. One connection serves all of them: what is submitted meanwhile goes
in one request, and ends are told as they come.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from functools import partial
from itertools import islice
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet, ref

from penstock.config import load
from penstock.errors import AgentUnavailable, PenstockError, UserError
from penstock_pool.callfiles import PoolCall
from penstock_pool.client import FINAL, PoolLine
from penstock_pool.folder import pool_folder
from penstock_pool.link import prepare
from penstock_pool.model import task_to_dict
from penstock_pool.taskjson import task_from_dict

__all__ = ["PoolExecutor"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_BATCH: Final = 1000  # calls in one request
_GATHER: Final = 0.005  # seconds in which calls are gathered: each request costs what many calls do
_LOOK: Final = 10.0  # seconds that the scheduler is asked to wait for an end


class _Open:
    """A call whose future has no result yet; `number` once it is a task."""

    def __init__(self, call: PoolCall) -> None:
        self.call = call
        self.future: Future[Any] = Future()
        self.number: int | None = None

    def fail(self, error: BaseException) -> None:
        """It has come to no end of its own."""
        self.call.forget()
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def end(self, phase: str, why: str) -> None:
        """Its task has ended."""
        assert self.number is not None
        if not self.future.set_running_or_notify_cancel():
            self.call.forget()
            return
        try:
            value = self.call.result(self.number, phase, why)
        except BaseException as e:  # whatever the function has raised
            # Where in here it was raised is nobody's business, and would keep all of this as long as the error is kept.
            self.future.set_exception(e.with_traceback(None))
        else:
            self.future.set_result(value)


_executors: WeakSet[PoolExecutor] = WeakSet()


def _finish() -> None:
    """A program that ends waits for its calls, as it does for those of Python's own executors."""
    for one in list(_executors):
        one.shutdown()


# Before Python gives up its threads, where it has a way to say so: later, none can be started any more. Dask, which is
# imported above, has its own hooks there, and they have to come after.
getattr(threading, "_register_atexit", atexit.register)(_finish)


def _check_nameless(task: Mapping[str, Any]) -> None:
    if "name" in task:
        raise UserError("task: name: each call has one of its own, or they would all be one task")


def _each(fn: Callable[..., _T], calls: Sequence[tuple[Any, ...]]) -> list[_T]:
    return [fn(*arguments) for arguments in calls]


def _one_by_one(chunks: Iterable[list[_T]]) -> Iterator[_T]:
    """What the chunks hold; nothing that was yielded is kept."""
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()


class PoolExecutor(Executor):
    """Calls in the pool of that name. `task` says what each of them needs, with the keys of a line of
    `pool submit --file`; a call that raises is not tried again unless it says `retries`. A scheduler may be away for
    `patience` seconds.

    A future can be cancelled until it is done: a call that runs is ended. Raises AgentUnavailable where the pool has no
    scheduler, and UserError for a wrong `task`.
    """

    def __init__(self, pool: str = "main", *, task: Mapping[str, Any] | None = None, patience: float = 60.0) -> None:
        self._folder = pool_folder(load(), pool)
        if self._folder.address() is None:
            raise AgentUnavailable(f"pool {pool!r} has no scheduler; {self._folder.start} starts one")
        self._needs = {"retries": 0, **(task or {})}
        task_from_dict({**self._needs, "command": ["true"]}, "task", "/")  # said now, and not with each call
        _check_nameless(self._needs)
        self._patience = patience
        self._door = threading.Lock()
        self._closed = False
        self._over = False  # the thread has heard that no more calls come
        self._open: set[_Open] = set()
        self._running: dict[int, _Open] = {}
        self._handed: list[_Open | None] = []  # what the thread has not seen yet; None: there comes no more
        prepare()
        begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(begun)), name="pool", daemon=True)
        self._thread.start()
        begun.wait()
        _executors.add(self)

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run `fn(*args, **kwargs)` in the pool. Raises what cloudpickle raises for what cannot be written, and
        RuntimeError after `shutdown`."""
        return self.submit_as({}, fn, *args, **kwargs)

    def submit_as(
        self, task: Mapping[str, Any], fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Future[_T]:
        """The same for a call that needs something else: `task` counts before the executor's. Raises UserError for a
        wrong one."""
        _check_nameless(task)
        one = _Open(PoolCall.write(self._folder, fn, args, kwargs, {**self._needs, **task}))
        with self._door:
            if self._closed:
                one.call.forget()
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._open.add(one)
            self._hand(one)
        kept = ref(one)  # by the executor, while it is open: a future holds nothing that holds it
        one.future.add_done_callback(lambda future: self._cancelled(kept()) if future.cancelled() else None)
        return one.future

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,  # noqa: ANN401
    ) -> Iterator[_T]:
        """As of Python's executors. `chunksize` calls are one task, with one process: for calls that are shorter than
        the start of one. Raises ValueError for one below 1; `more` is what later releases of Python have."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **more)
        calls = zip(*iterables, strict=False)
        chunks = iter(lambda: list(islice(calls, chunksize)), [])
        return _one_by_one(super().map(partial(_each, fn), chunks, timeout=timeout, **more))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. `wait`: until all have ended; `cancel_futures`: end them instead."""
        with self._door:
            if not self._closed:
                self._closed = True
                self._hand(None)
            left = [one.future for one in self._open]
        if cancel_futures:
            for future in left:
                future.cancel()
        if wait:
            wait_for(left)
            self._thread.join()

    def _cancelled(self, one: _Open | None) -> None:
        with self._door:
            if one is not None and one in self._open:  # else it has just ended
                self._hand(one)

    def _hand(self, one: _Open | None) -> None:
        """To the thread, by who holds the door. It is woken once for all that comes within a moment."""
        self._handed.append(one)
        if len(self._handed) == 1:
            self._loop.call_soon_threadsafe(self._loop.call_later, _GATHER, self._receive)

    # In the thread.

    def _receive(self) -> None:
        with self._door:
            handed, self._handed = self._handed, []
        for one in handed:
            self._queue.put_nowait(one)

    async def _serve(self, begun: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[_Open | None] = asyncio.Queue()
        self._order = asyncio.Lock()  # an end is not looked at while its task's number is on its way
        begun.set()
        async with PoolLine(self._folder, self._patience) as line:
            watching: asyncio.Task[None] | None = None
            try:
                while not self._over or self._open:
                    # None of what comes is held here while more is waited for: a result belongs to who asked for it.
                    batch = await self._next()
                    if watching is None and self._open:
                        place = await line.ask("ends", {"from": None, "life": "", "seconds": 0})
                        watching = asyncio.create_task(self._watch(line, place))
                    await self._pass_on(line, batch)
                    del batch
            except Exception as e:  # whatever it is, nobody must wait for ever
                self._give_up(e)
            finally:
                if watching is not None:
                    watching.cancel()

    async def _next(self) -> list[_Open]:
        """What has come, once there is something."""
        batch = [await self._queue.get()]
        while not self._queue.empty() and len(batch) < _BATCH:
            batch.append(self._queue.get_nowait())
        self._over = self._over or None in batch
        return [one for one in batch if one is not None]

    async def _pass_on(self, line: PoolLine, batch: list[_Open]) -> None:
        """Submit what is new, and end what was cancelled."""
        async with self._order:
            new = [one for one in batch if one.number is None and not one.future.cancelled()]
            try:
                await self._submit(line, new)
            except UserError:
                for one in new:  # whichever it is
                    try:
                        await self._submit(line, [one])
                    except UserError as e:
                        one.fail(e)
                        self._forget(one)
        cancelled = [one for one in dict.fromkeys(batch) if one.future.cancelled() and one in self._open]
        if numbers := [one.number for one in cancelled if one.number is not None]:
            await line.ask("cancel", {"tasks": numbers})
        for one in cancelled:
            if one.number is None:
                one.fail(PenstockError("cancelled"))
                self._forget(one)

    async def _submit(self, line: PoolLine, new: list[_Open]) -> None:
        if not new:
            return
        # Their names are their own, so that asked twice is submitted once.
        numbers = await line.ask("submit", {"tasks": [task_to_dict(one.call.task) for one in new]})
        for one, number in zip(new, numbers, strict=True):
            one.number = number
            self._running[number] = one
            if one.future.cancelled():
                self._queue.put_nowait(one)

    async def _watch(self, line: PoolLine, place: Mapping[str, Any]) -> None:
        try:
            while True:
                place = await line.ask("ends", {"from": place["next"], "life": place["life"], "seconds": _LOOK})
                async with self._order:
                    self._take_in(place["tasks"])
                    if place.get("missed"):
                        gone = await line.ask("forgotten", {"ids": list(self._running)})
                        why = "its end is not kept any more"
                        self._take_in([{"id": number, "phase": "ended", "why": why} for number in gone])
        except Exception as e:  # as above
            self._give_up(e)

    def _take_in(self, ended: Iterable[Mapping[str, Any]]) -> None:
        for task in ended:
            if task["phase"] in (*FINAL, "ended") and task["id"] in self._running:
                one = self._running.pop(task["id"])
                self._forget(one)
                one.end(task["phase"], task["why"])

    def _give_up(self, error: Exception) -> None:
        """The pool cannot be asked any more."""
        with self._door:
            self._closed = True
            left, self._open = list(self._open), set()
        self._queue.put_nowait(None)
        for one in left:
            one.fail(error)

    def _forget(self, one: _Open) -> None:
        with self._door:
            self._open.discard(one)
            if self._closed and not self._open:
                self._queue.put_nowait(None)
