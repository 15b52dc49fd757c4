"""The parent of all processes of a resizable application: starts worlds, watches them, and ends them together.

A world is one mpiexec (or srun). The first is the application as its user started it. Rank 0 can ask over `dmr.line`:

    start     worlds on these nodes, to be joined by MPI ports; answered when all of them are ready, or none is left.
              With a `batch` they are started ahead, while the application goes on: they wait, asleep, for
    go        the application comes to meet these worlds
    withdraw  it will not: that batch is not wanted any more, wherever its start stands
    alive     whether these worlds still run
    joined    these worlds belong to the application now: what happens to one happens to all
    abandon   they do not: end them; those that are "leaving" know it, and end by themselves if they can
    restart   when all ranks have ended, start the application again on these nodes; "loaded" confirms that it runs
    stay      they go on instead, because the answer to `restart` did not arrive
    ready     (from rank 0 of a started world) my port is open; answered when somebody comes to it, or nobody will
    node-request  ask Slurm for a job that holds nodes, which the agent, another user, cannot (`dmr.node_requests`)

A world that dies before it has joined harms nobody. Not an MPI process itself, so it may start others safely.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dmr import line, offspring
from dmr.command import Command, allocation
from dmr.line import RESTART_FAILED, RESTARTED, LineError, Message
from dmr.mortal import end_with_parent
from dmr.node_requests import NodeRequests
from dmr.wire import NodeRequest, WireError

__all__ = ["Supervisor"]

logger = logging.getLogger("dmr.launch")

_GRACE: Final = 5.0
_LOOK: Final = 0.5  # between two looks at whether what starts can still come up
_BEGINS: Final = 10.0  # within that time hydra has called srun
_LEAVE: Final = 10.0  # for processes that have yet to come up to hear that nobody comes
# What a terminal sends to all processes in its foreground when a key is pressed.
_KEYS: Final = (signal.SIGINT, signal.SIGQUIT)


@dataclass
class _World:
    ticket: str
    nodes: tuple[str, ...]
    process: asyncio.subprocess.Process
    ready: asyncio.Future[str]
    joined: bool = False
    grouped: bool = True  # in a process group of its own
    begun: bool = False  # mpiexec has been seen to have a srun
    called: asyncio.Future[bool] | None = None  # started ahead: whether it is met, once that is known


@dataclass(frozen=True)
class _Layout:
    """Where the application runs: in Slurm's variables and in the command line."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass
class _Restart:
    """A restart that was asked for; `former` is what ran before, and runs again if it fails."""

    layout: _Layout
    former: _Layout
    epoch: str
    asked: float  # loop's seconds
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Runs one application from its start to its end.

    Args:
        command: how it was started.
        environ: the environment of the start; the ranks get it.
        job: its Slurm job, 0 outside Slurm.
        limit: seconds within which restarted ranks must be up.
    """

    def __init__(self, command: Command, environ: Mapping[str, str], job: int, limit: float) -> None:
        self._command = command
        self._environ = dict(environ)
        self._job = job
        self._limit = limit
        self._by_slurm = bool(job) and environ.get("HYDRA_LAUNCHER", "slurm") == "slurm"
        self._secret = secrets.token_hex(32)
        self._worlds: dict[str, _World] = {}
        self._count = 0
        self._code = 0
        self._ending = False
        self._watchers: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._layout = _Layout((), {})
        self._node_requests = NodeRequests(environ)
        self._asked: _Restart | None = None  # all ranks are about to end
        self._tried: _Restart | None = None  # the new ones have not yet loaded their data
        self._batches: dict[str, asyncio.Task[list[_World]]] = {}  # started ahead

    async def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Starts the application and returns its exit code when all is over; a signal is 128 and its number."""
        server = await line.serve(self._secret, self._answer)
        port = server.sockets[0].getsockname()[1]
        # Compute nodes know this host by name; where nobody does, all ranks are here.
        address = f"{socket.gethostname()}:{port},127.0.0.1:{port}"
        self._environ |= {line.ADDRESS: address, line.SECRET: self._secret}
        loop = asyncio.get_running_loop()
        for number in (*_KEYS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            loop.add_signal_handler(number, self._signalled, number)
        self._layout = _Layout(tuple(arguments), {**environment, line.ADDRESS: address, line.SECRET: self._secret})
        try:
            while True:
                world = await self._launch((), self._layout.arguments, self._layout.environment, alone=False)
                world.joined = True
                await self._empty.wait()
                if not self._goes_on():
                    return self._code
        finally:
            server.close()
            for task in (*self._watchers, *self._batches.values()):
                task.cancel()
            await self._node_requests.close()

    def _goes_on(self) -> bool:
        """Now that all have ended: whether there is something to start, what was asked for or the former size."""
        asked, tried = self._asked, self._tried
        self._asked = self._tried = None
        if self._ending:
            return False
        if asked is not None:
            self._tried, self._layout = asked, asked.layout
            self._soon(self._expect(asked))
        elif tried is not None and self._code:
            logger.warning("the restart failed with code %d; going back to the former size", self._code)
            failed = {RESTARTED: tried.epoch, RESTART_FAILED: f"the new processes ended with code {self._code}"}
            failed["SLURM_OPEN_MODE"] = "append"  # or srun would empty the files of its first start
            self._layout = _Layout(tried.former.arguments, {**tried.former.environment, **failed})
        else:
            return False
        self._code = 0
        return True

    async def _expect(self, restart: _Restart) -> None:
        """Ends restarted ranks that have not come up in time."""
        try:
            await asyncio.wait_for(restart.arrived.wait(), self._limit)
        except TimeoutError:
            if self._tried is restart:
                logger.warning("the restarted processes did not come up within %g s", self._limit)
                self._code = 1
                for world in list(self._worlds.values()):
                    self._soon(self._end(world))

    async def _launch(
        self,
        nodes: tuple[str, ...],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        alone: bool,
        ahead: bool = False,
    ) -> _World:
        ticket = f"w{self._count}"
        self._count += 1
        # Only the terminal's foreground may read from it. Else a group of its own: a signal to ours then reaches it by
        # us alone, and hydra ends everybody at once when it hears a second SIGINT.
        grouped = alone or not os.isatty(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                env={**environment, line.TICKET: ticket} if alone else dict(environment),
                stdin=asyncio.subprocess.DEVNULL if alone else None,
                process_group=0 if grouped else None,
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            raise LineError(f"cannot start {arguments[0]}: {error}") from error
        loop = asyncio.get_running_loop()
        world = _World(ticket, nodes, process, loop.create_future(), grouped=grouped)
        if ahead:
            world.called = loop.create_future()
        self._worlds[ticket] = world
        self._empty.clear()
        self._soon(self._watch(world))
        return world

    async def _watch(self, world: _World) -> None:
        code = await world.process.wait()
        if not world.ready.done():
            world.ready.set_exception(LineError(f"the processes on {','.join(world.nodes)} ended with code {code}"))
            world.ready.exception()  # seen: whoever waited may have left
        if world.called is not None and not world.called.done():
            world.called.set_result(False)
        if world.joined and code != 0 and self._asked is None:
            self._code = self._code or (code if code > 0 else 128 - code)
            for other in list(self._worlds.values()):
                if other is not world:
                    self._soon(self._end(other))
        del self._worlds[world.ticket]
        if not any(other.joined for other in self._worlds.values()):  # whom the others would have joined is gone
            for other in self._worlds.values():
                self._soon(self._dismiss(other))
        if not self._worlds:
            self._empty.set()

    async def _dismiss(self, world: _World) -> None:
        """Ends a world that nobody has met. One that was started ahead hears of it and leaves by itself: ended while
        its processes come up, mpiexec would write of a crash into the program's output."""
        if world.called is not None:
            if not world.called.done():
                world.called.set_result(False)
            await _ended(world, _LEAVE)
        await self._end(world)

    async def _end(self, world: _World) -> None:
        """SIGTERM, which mpiexec passes on, then SIGKILL for it and all it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if world.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    if world.grouped and number == signal.SIGKILL:
                        os.killpg(world.process.pid, number)
                    else:
                        world.process.send_signal(number)
                await _ended(world)

    def _signalled(self, number: signal.Signals) -> None:
        if number in (*_KEYS, signal.SIGTERM):
            self._ending = True
            self._code = self._code or 128 + number
        pressed = number in _KEYS and _in_foreground()
        for world in self._worlds.values():
            if pressed and not world.grouped:
                continue  # mpiexec has heard it from the terminal
            with contextlib.suppress(ProcessLookupError):
                world.process.send_signal(number)

    def _soon(self, work: Any) -> None:  # noqa: ANN401 - a coroutine of nothing
        task = asyncio.ensure_future(work)
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _answer(self, request: Message) -> Message:
        match request.get("op"):
            case "start":
                return await self._start(request)
            case "go":
                self._check_alive(request["tickets"])
                for ticket in request["tickets"]:
                    called = self._worlds[ticket].called
                    if called is not None and not called.done():
                        called.set_result(True)
            case "withdraw":
                await self._withdraw(str(request["batch"]))
            case "ready":
                world = self._worlds.get(str(request["ticket"]))
                if world is not None and not world.ready.done():
                    world.ready.set_result(str(request["port"]))
                    return {"met": world.called is None or await world.called}
            case "joined":
                self._check_alive(request["tickets"])
                for ticket in request["tickets"]:
                    self._worlds[ticket].joined = True
            case "alive":
                self._check_alive(request["tickets"])
            case "abandon":
                await self._abandon(request["tickets"], leaving=bool(request.get("leaving")))
            case "restart":
                nodes, per_node = [str(node) for node in request["nodes"]], int(request["per_node"])
                environment = self._on(self._job, nodes, per_node) | {RESTARTED: str(request["epoch"])}
                layout = _Layout(tuple(self._command.on(nodes, per_node, slurm=self._by_slurm)), environment)
                self._asked = _Restart(layout, self._layout, str(request["epoch"]), _now())
            case "stay":
                if self._asked is not None and self._asked.epoch == str(request["epoch"]):
                    self._asked = None
            case "arrived":
                if self._tried is not None:
                    self._tried.arrived.set()
                    return {"seconds": _now() - self._tried.asked}
            case "node-request":
                self._run(request["node_request"])
            case "loaded":
                self._tried = None
            case op:
                raise LineError(f"the launcher does not know {op!r}")
        return {}

    async def _start(self, request: Message) -> Message:
        batch = str(request.get("batch", ""))
        starting = asyncio.ensure_future(self._started(request, ahead=bool(batch)))
        if batch:
            self._batches[batch] = starting
        try:
            worlds = await starting
        except asyncio.CancelledError:
            raise LineError("they are not wanted any more") from None
        return {"worlds": [[world.ticket, world.ready.result()] for world in worlds]}

    async def _withdraw(self, batch: str) -> None:
        starting = self._batches.pop(batch, None)
        if starting is None or starting.cancel():  # its worlds are sent away by itself
            return
        if not starting.cancelled() and starting.exception() is None:
            for world in starting.result():
                self._soon(self._dismiss(world))

    async def _started(self, request: Message, *, ahead: bool) -> list[_World]:
        per_node, limit = int(request["per_node"]), float(request["limit"])
        worlds: list[_World] = []
        try:
            for wanted in request["worlds"]:
                nodes = [str(node) for node in wanted["nodes"]]
                environment = self._on(int(wanted["job"]) or self._job, nodes, per_node)
                arguments = self._command.on(nodes, per_node, slurm=self._by_slurm)
                worlds.append(await self._launch(tuple(nodes), arguments, environment, alone=True, ahead=ahead))
            await asyncio.wait_for(self._until_ready(worlds), limit)
        except asyncio.CancelledError:
            for world in worlds:
                self._soon(self._dismiss(world))
            raise
        except (LineError, TimeoutError) as error:
            await self._abandon([world.ticket for world in worlds])
            raise LineError(str(error) or f"no new processes within {limit:g} s") from None
        return worlds

    async def _until_ready(self, worlds: Sequence[_World]) -> None:
        """LineError when one has ended, or will not come up: hydra waits for ever where its srun has failed."""
        began, late = _now(), {world.ready for world in worlds}
        by_srun = self._by_slurm and self._command.kind == "hydra"
        while late:
            done, late = await asyncio.wait(late, timeout=_LOOK, return_when=asyncio.FIRST_EXCEPTION)
            for each in done:
                each.result()
            for world in (world for world in worlds if by_srun and not world.ready.done()):
                running = offspring.running(world.process.pid)
                if running is False and (world.begun or _now() > began + _BEGINS):
                    raise LineError(f"srun could not start the processes on {','.join(world.nodes)}")
                world.begun = world.begun or running is True

    def _run(self, wanted: Message) -> None:
        try:
            wanted_nodes = NodeRequest(**wanted)
        except (TypeError, WireError) as error:
            raise LineError(f"no request for nodes: {error}") from None
        if wanted_nodes.job != self._job:
            raise LineError(f"a request for job {wanted_nodes.job}, but this is job {self._job}")
        self._node_requests.run(wanted_nodes)

    def _check_alive(self, tickets: Sequence[str]) -> None:
        if any(ticket not in self._worlds for ticket in tickets):
            raise LineError("some of the new processes have ended")

    async def _abandon(self, tickets: Sequence[str], *, leaving: bool = False) -> None:
        worlds = [self._worlds[ticket] for ticket in tickets if ticket in self._worlds]
        if leaving:
            await asyncio.gather(*(_ended(world) for world in worlds))
        await asyncio.gather(*(self._end(world) for world in worlds))

    def _on(self, job: int, nodes: Sequence[str], per_node: int) -> dict[str, str]:
        """For ranks that are started later, on nodes that `job` holds."""
        if not job:
            return dict(self._environ)
        # On 22.05 srun waits for ever for a node on which a step runs, unless told to overlap.
        return allocation(self._environ, job, nodes, per_node) | {"SLURM_OVERLAP": "1"}


async def _ended(world: _World, limit: float = _GRACE) -> None:
    """Waits a short while for its end."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(world.process.wait(), limit)


def _in_foreground() -> bool:
    """Whether a key that is pressed at the terminal concerns our process group."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _now() -> float:
    return asyncio.get_running_loop().time()
