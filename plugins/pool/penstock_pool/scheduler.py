"""The scheduler process of a pool: Dask's Scheduler carries the members, `Machine` decides, the task log remembers.

Tasks are not Dask tasks. They go to the worker that was chosen for them as messages on Dask's own stream to it, which
breaks when either side dies, and then Dask removes the worker. So a message to a member is lost only with that member,
and then its tasks are lost as well and run again. One from a member is lost only with this process: so members keep
what has ended until they hear that the log has it, and tell the next scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from distributed.diagnostics.plugin import SchedulerPlugin

from penstock.errors import PenstockError, StoreError, UserError
from penstock.host.files import replace
from penstock.host.logs import get_logger
from penstock.state.pools import SchedulerAddress
from penstock_pool import link, report
from penstock_pool.dasktasks import DaskScheduler
from penstock_pool.demand import Announcements, Demand, batch_of_dict
from penstock_pool.folder import PoolFolder
from penstock_pool.journal import Journal
from penstock_pool.machine import Kill, Machine, SignalAttempt, StartAttempt
from penstock_pool.model import AttemptOutcome, Capacity, PoolMember, PoolTask, TaskPhase, task_to_dict
from penstock_pool.placement import PoolPlacement
from penstock_pool.taskjson import task_from_dict
from penstock_pool.upkeep import PoolRetention, Upkeep

__all__ = ["PoolDoor", "PoolScheduler"]

_log = get_logger(__name__)
_SOON = 0.005  # seconds in which events are gathered before a pass
_GLANCE = 0.1  # seconds between looks for one who waits
_REGULAR = 1.0  # seconds between passes without any
_AGAIN = 5.0  # seconds until a log that could not be written is tried again
_MANY = 5000  # ends in one answer
_SOON_ENOUGH = 300.0  # seconds; `--idle` ends a wait for what was announced earlier
_STILL = 10.0  # seconds after which a demand of nothing is told again
_SOURCE = 200  # characters of a client's name
_WAITED = 120.0  # seconds for which tasks that a client has waited for are kept, so that it can ask how they ended
_TTL = 30.0  # seconds; a member that is not heard of for so long is lost


class PoolDoor(Protocol):
    """Another way to a pool than by its clients: it is open while the pool is."""

    async def open(self, pool: PoolScheduler) -> None:
        """Let in from now on."""
        ...

    async def close(self) -> None:
        """Let nobody in any more."""
        ...


class PoolScheduler(SchedulerPlugin):
    """One pool, while it runs. Its log is taken at once: raises StoreError if another scheduler has it."""

    def __init__(
        self,
        folder: PoolFolder,
        placement: PoolPlacement,
        share: float,
        host: str | None = None,
        doors: Sequence[PoolDoor] = (),
        retention: PoolRetention | None = None,
    ) -> None:
        self._doors = doors
        self.folder = folder
        self.machine = Machine(placement, share)
        self._host = host
        self._journal = Journal(folder.journal)
        self._from = (time.time(), time.monotonic())
        self._stop = asyncio.Event()
        self._pass_due = False
        self._held_until = 0.0
        self._life = secrets.token_hex(8)
        self._draining = False
        self._unsent: list[StartAttempt] = []
        self.problem = ""
        self._changed = False
        self._clients = 0  # that talk to Dask itself
        self._heard: dict[str, list[tuple[int, int]]] = {}  # by member: what has ended, to be logged
        self._others = {"running": 0, "waiting": 0}
        self._foreseen = Announcements()
        self._told = Demand(0.0)
        self._upkeep = Upkeep(folder, self.machine, self._journal, retention or PoolRetention())
        self._awaited: dict[int, float] = {}  # by task: until when somebody may ask for its end
        running = self._recall()
        if self.machine.entries:
            _log.info("tasks from the log", tasks=len(self.machine.entries), running=running)

    def now(self) -> float:
        """Seconds of the clock as it was at the start, and steady since."""
        wall, steady = self._from
        return wall + time.monotonic() - steady

    async def serve(self) -> None:
        """Run until `stop`; the address is in the folder meanwhile."""
        link.prepare()
        self._upkeep.sweep()
        self._scheduler = DaskScheduler(
            protocol="tls",
            host=self._host,
            port=0,
            security=link.security(self.folder),
            dashboard=False,
            dashboard_address=link.NO_DOOR,
            worker_ttl=_TTL,
        )
        self._scheduler.handlers["penstock"] = self._asked
        self._scheduler.stream_handlers.update(
            {link.ENDED: self._on_ended, link.MEASURED: self._on_measured, link.DRAIN: self._on_drain}
        )
        self._scheduler.add_plugin(self)
        await self._scheduler
        self.folder.publish(SchedulerAddress(self._scheduler.address, socket.gethostname(), os.getpid(), time.time()))
        _log.info("the pool is open", pool=self.folder.name, address=self._scheduler.address)
        regular = [asyncio.create_task(one()) for one in (self._regularly, self._keep_up)]
        try:
            for door in self._doors:
                await door.open(self)
            await self._stop.wait()
        finally:
            for task in regular:
                task.cancel()
            for door in self._doors:
                await door.close()
            await self._scheduler.close()
            self._flush()
            # Before the log is given up: the next one must not lose its address to us.
            self.folder.withdraw()
            self._journal.close()

    def stop(self) -> None:
        """End it; tasks that run are lost and run again when it is started again."""
        self._stop.set()

    # Dask tells.

    def add_worker(self, scheduler: Any, worker: str) -> None:  # noqa: ANN401
        """A member has registered."""
        told = scheduler.workers[worker].extra.get(link.JOIN)
        if told is None:
            _log.warning("a worker that is none of a pool was turned away", address=worker)
            scheduler.worker_send(worker, {"op": "close", "reason": "not a member of the pool"})
            return
        left = told["left"]
        capacity = Capacity(told["cores"], told["memory"], told["gpus"])
        ends = None if left is None else self.now() + left
        has = [(int(task), int(attempt)) for task, attempt in told["has"]]
        _log.info("joined", node=told["node"], job=told["job"], has=str(capacity), left=left, tasks=len(has))
        member = PoolMember(worker, told["node"], told["job"], capacity, ends, bool(told.get("gives_back")))
        self.carry_out(self.machine.join(member, self.now(), has))

    def remove_worker(self, scheduler: Any, worker: str, **_more: Any) -> None:  # noqa: ANN401
        """A member is gone, however."""
        station = self.machine.stations.get(worker)
        if station is not None:
            _log.info("left", node=station.member.node, job=station.member.job, lost=len(station.running))
        self._heard.pop(worker, None)
        self.machine.leave(worker, self.now())
        self._soon()

    def add_client(self, scheduler: Any, client: str) -> None:  # noqa: ANN401
        """Somebody who talks to Dask itself has come."""
        self._clients += 1
        self._soon()

    def remove_client(self, scheduler: Any, client: str) -> None:  # noqa: ANN401
        """And has gone."""
        self._clients -= 1

    def transition(self, key: Any, start: str, finish: str, *_more: Any, **_others: Any) -> None:  # noqa: ANN401
        """A task of a client who talks to Dask itself has become something else."""
        self._changed = True
        self._soon()

    def _on_ended(
        self, *, worker: str, task: int, attempt: int, outcome: str, code: int | None, why: str, use: list[float]
    ) -> None:
        self.machine.ended(worker, task, attempt, AttemptOutcome(outcome), code, why, link.use_of(use), self.now())
        self._heard.setdefault(worker, []).append((task, attempt))
        self._soon()

    def _on_measured(self, *, worker: str, cores: list[tuple[int, float]]) -> None:
        self.machine.measured(worker, dict(cores))
        self._soon()

    def _on_drain(self, *, worker: str) -> None:
        self.machine.drain(worker)

    # What it does.

    def _soon(self) -> None:
        if not self._pass_due:
            self._pass_due = True
            asyncio.get_running_loop().call_later(_SOON, self._pass)

    def _pass(self) -> None:
        self._pass_due = False
        if self._stop.is_set() or time.monotonic() < self._held_until:
            return
        if self._changed or self._clients:
            self._look_at_others()
        # What has been learned first: nothing is started that could not be remembered.
        if self._flush():
            self._begin()
            self._unsent = self.machine.place(self.now())
            if self._unsent and self._clients:
                self._look_at_others()
            if self._flush():
                self._begin()
            for address in self.machine.spare(self.now(), more=self._more_is_expected()):
                self._leave(address)
        if self._draining and not any(self._others.values()) and not self.machine.open:
            self.stop()

    def _look_at_others(self) -> None:
        """Note what clients who talk to Dask itself have running where, and how many of their tasks run and wait; and
        let Dask know how many threads each member has for them."""
        self._changed, running, left = False, 0, 0
        for address, worker in list(self._scheduler.workers.items()):
            station = self.machine.stations.get(address)
            if station is None:
                continue
            threads = station.member.capacity.threads(self.machine.held_cores(station))
            here = min(len(worker.processing), threads)
            running, left = running + here, left + len(worker.processing) - here
            station.others = float(here)
            self._lend(worker, max(threads, 1))
        waiting = left + len(self._scheduler.queued) + len(self._scheduler.unrunnable)
        self._others = {"running": running, "waiting": waiting}

    def _lend(self, worker: Any, threads: int) -> None:  # noqa: ANN401
        """What Dask counts on there; not 0, which it cannot count with: a member that has none says it is paused."""
        if worker.nthreads == threads:
            return
        self._scheduler.total_nthreads += threads - worker.nthreads
        worker.nthreads = threads
        self._scheduler.check_idle_saturated(worker)
        self._scheduler.stimulus_queue_slots_maybe_opened(stimulus_id="penstock-lend")

    def _begin(self) -> None:
        """Send the starts that the log has by now, also those of a pass in which it could not be written."""
        unsent, self._unsent = self._unsent, []
        for start in unsent:
            if self.machine.due(start, self.now()):
                self._send(start)

    def _send(self, order: StartAttempt | Kill | SignalAttempt) -> None:
        message: dict[str, Any] = {"op": link.KILL, "task": order.id, "attempt": order.attempt}
        if isinstance(order, StartAttempt):
            # As a text: on the wire lists would become tuples.
            message |= {"op": link.RUN, "what": json.dumps(task_to_dict(order.task))}
        elif isinstance(order, SignalAttempt):
            message |= {"op": link.SIGNAL, "signal": order.signal, "whom": order.whom}
        self._scheduler.worker_send(order.address, message)

    def _flush(self) -> bool:
        """Write what is due to the log; False: it could not be, and nothing may be started."""
        try:
            self._journal.append(self.machine.journal)
        except StoreError as e:
            if not self.problem:
                _log.error("no task is started", why=str(e))
            self.problem, self._held_until = str(e), time.monotonic() + _AGAIN
            return False
        self.machine.journal.clear()
        self.problem = ""
        heard, self._heard = self._heard, {}
        for worker, attempts in heard.items():
            self._scheduler.worker_send(worker, {"op": link.KNOWN, "attempts": attempts})
        return True

    async def _regularly(self) -> None:
        while True:
            await asyncio.sleep(_REGULAR)
            self._soon()
            try:
                await asyncio.to_thread(self._journal.sync)
            except OSError as e:
                _log.error("the task log is not safe on disk", why=str(e))
            if self.folder.wanted.exists():
                with contextlib.suppress(OSError, ValueError):  # it is tried again in a second
                    await self._tell_demand()
                    self._let_leave()

    async def _tell_demand(self) -> None:
        """Write it down for whoever gets the pool its allocations; while nothing happens, now and then."""
        demand, told = self.demand(), self._told
        still = demand.idle and told.idle and demand.jobs == told.jobs
        if not still or demand.at - told.at >= _STILL:
            await asyncio.to_thread(replace, self.folder.demand, json.dumps(demand.to_dict()))
            self._told = demand

    async def _keep_up(self) -> None:
        """Beside the passes, which a slow disk must not hold up."""
        while True:
            await asyncio.sleep(_REGULAR)
            if self._upkeep.due() and self._flush():
                await self._upkeep.run(self.now(), self._still_awaited())

    def _still_awaited(self) -> set[int]:
        now = time.monotonic()
        self._awaited = {number: until for number, until in self._awaited.items() if until > now}
        return set(self._awaited)

    def _recall(self) -> int:
        lines = self._journal.recall()
        try:
            return self.machine.recall(lines, time.time())
        except (KeyError, ValueError, TypeError, UserError) as e:
            raise StoreError(f"{self.folder.journal}: is no task log of this version: {e!r}") from e

    # Clients ask.

    async def _asked(self, what: str, body: str) -> str:
        doors: dict[str, Callable[[dict[str, Any]], Any]] = {
            "submit": self._submit,
            "status": lambda _b: report.status(
                self.machine, self.folder.name, self.now(), time.process_time(), self.problem, self._others
            ),
            "tasks": lambda b: report.tasks(self.machine, b),
            "cancel": self._cancel,
            "drain": self._drain,
            "stop": self._stop_when,
            "wait": self._wait,
            "ends": self._ends,
            "foresee": self._foresee,
            "demand": lambda _b: self.demand().to_dict(),
            "forgotten": lambda b: [n for n in b["ids"] if self.machine.forgotten(n)],
        }
        try:
            answer = doors[what](json.loads(body))
            return json.dumps({"ok": await answer if asyncio.iscoroutine(answer) else answer})
        except PenstockError as e:
            return json.dumps({"error": str(e), "kind": type(e).__name__})

    def _submit(self, body: dict[str, Any]) -> list[int]:
        tasks = [task_from_dict(one, f"task {i}", "/") for i, one in enumerate(body["tasks"], 1)]
        return self.take_in(tasks, larger=bool(body.get("larger")), again=bool(body.get("again")))

    def take_in(self, tasks: list[PoolTask], *, larger: bool, again: bool) -> list[int]:
        """Take tasks in, and write them down; their numbers. Raises UserError, StoreError."""
        if self._draining:
            raise UserError("the pool is being stopped and takes no more tasks")
        if not self._flush():
            raise StoreError(self.problem)
        numbers = self.machine.submit(tasks, self.now(), larger=larger, again=again)
        if not self._flush():
            raise StoreError(f"{self.problem}; the tasks are known, but a scheduler that is killed now forgets them")
        self._soon()
        return numbers

    def carry_out(self, orders: Iterable[Kill | SignalAttempt]) -> None:
        """Send what is to be done; what was decided is written down soon."""
        for order in orders:
            self._send(order)
        self._soon()

    def _cancel(self, body: dict[str, Any]) -> int:
        numbers = [report.number_of(self.machine, one) for one in body["tasks"]]
        known = [n for n in numbers if not self.machine.entries[n].phase.final]
        self.carry_out(self.machine.cancel(known, self.now()))
        return len(known)

    def _drain(self, body: dict[str, Any]) -> int:
        members = self.machine.drain_job(str(body["job"]))
        for address in members:
            self._leave(address)
        return len(members)

    def _leave(self, address: str) -> None:
        """It takes no more tasks, and leaves when what runs there has ended."""
        self.machine.drain(address)
        self._scheduler.worker_send(address, {"op": link.LEAVE})

    def _foresee(self, body: dict[str, Any]) -> None:
        """What a client expects to submit; its latest word counts, for so many seconds."""
        batches = [batch_of_dict(one, f"tasks[{i}]") for i, one in enumerate(body["tasks"])]
        self._foreseen.announce(str(body["source"])[:_SOURCE], batches, self.now(), float(body["seconds"]))

    def _let_leave(self) -> None:
        """Members of jobs that whoever gets the pool its allocations wants to end."""
        with contextlib.suppress(FileNotFoundError):
            leaving = set(json.loads(self.folder.leaving.read_text(encoding="utf-8")))
            for address, station in self.machine.stations.items():
                if station.member.job in leaving and not station.draining:
                    self._leave(address)

    def _more_is_expected(self) -> bool:
        """Whether tasks were announced for about as soon as new nodes could be had, or are with Dask."""
        soon = any(batch.after < _SOON_ENOUGH for batch in self._foreseen.batches(self.now()))
        return soon or self._others["waiting"] > 0

    def demand(self) -> Demand:
        """What the pool is going to need."""
        now = self.now()
        return self.machine.demand(now, self._others["waiting"], self._foreseen.batches(now))

    async def _wait(self, body: dict[str, Any]) -> bool:
        """Whether all of these tasks have ended within some seconds."""
        left = [report.number_of(self.machine, one) for one in body["ids"]]
        deadline = time.monotonic() + body["seconds"]
        self._awaited.update(dict.fromkeys(left, deadline + _WAITED))
        while True:
            while left and self.machine.entries[left[-1]].phase.final:
                left.pop()
            if not left or time.monotonic() > deadline or self._stop.is_set():
                return not left
            await asyncio.sleep(_GLANCE)

    async def _ends(self, body: dict[str, Any]) -> dict[str, Any]:
        """The tasks that have ended since the place `from` in the order of all ends (None: from now on), waited for
        some seconds, and the place after them. A scheduler that was started anew (another `life`) counts from 0.
        `missed`: some that are not kept any more may have been among them."""
        machine = self.machine
        place = machine.endings.count if body["from"] is None else int(body["from"])
        missed = False
        if body["life"] not in ("", self._life):
            place, missed = 0, bool(machine.entries.forgotten)
        deadline = time.monotonic() + body["seconds"]
        while machine.endings.count <= place and not self._stop.is_set():
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_GLANCE)
        missed = missed or place < machine.endings.gone
        first = max(place - machine.endings.gone, 0)
        numbers = machine.endings.order[first : first + _MANY]
        next_place = machine.endings.gone + first + len(numbers)
        return {"life": self._life, "next": next_place, "missed": missed, "tasks": report.ended(machine, numbers)}

    def _stop_when(self, body: dict[str, Any]) -> dict[str, int]:
        left = self.machine.open
        running = self.machine.counts()[TaskPhase.RUNNING]
        if body.get("drain") and left:
            self._draining = True
        else:
            asyncio.get_running_loop().call_later(0.1, self.stop)  # once this answer is out
        return {"left": left, "running": running}
