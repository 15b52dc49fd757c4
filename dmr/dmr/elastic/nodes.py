"""For programs that start their own workers: nodes come and go by calls of functions of theirs, without MPI.

    from dmr.elastic import Nodes

    def added(hosts):                       # start something there; an exception gives the nodes back
        for host in hosts:
            workers[host] = subprocess.Popen(nodes.command(host, ["./worker"]))

    def leaving(hosts, deadline):           # stop it; after `deadline` (time.monotonic()) the nodes are gone
        for host in hosts:
            workers.pop(host).terminate()

    nodes = Nodes(1, 8, on_nodes_added=added, on_nodes_leaving=leaving)
    with nodes:
        ...                                 # the program, on the job's own nodes

Where there is no agent, or this is no Slurm job, nothing is ever called. The functions are called in a thread of their
own, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self

from dmr import launch
from dmr.client import Client
from dmr.elastic import lines, plans
from dmr.elastic.group import Group
from dmr.elastic.supervisor import ElasticSupervisor
from dmr.elastic.words import (
    PROGRAM,
    ElasticNode,
    ElasticPlan,
    Event,
    HasEnded,
    Instruction,
    Join,
    KillNodes,
    Leave,
    Left,
    Ready,
    Signal,
    Wanted,
)

__all__ = ["Nodes"]

logger = logging.getLogger("dmr")

_CALLED: Final = "(a function)"
_END: Final = 5.0

Added = Callable[[Sequence[str]], object]
Leaving = Callable[[Sequence[str], float], object]


class _Calls:
    """Hands that call functions."""

    def __init__(self, added: Added, leaving: Leaving) -> None:
        self._added = added
        self._leaving = leaving
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="dmr-elastic-calls", daemon=True).start()

    def put(self, event: Event) -> None:
        """Something has happened."""
        self._events.put(event)

    def do(self, instructions: Sequence[Instruction]) -> None:
        """See `Hands`."""
        new = [one.member for one in instructions if isinstance(one, Join)]
        if new:
            self._calls.put(lambda: self._join(new))
        for one in instructions:
            match one:
                case Leave(members=members, seconds=seconds):
                    deadline = time.monotonic() + seconds
                    self._calls.put(lambda members=members, deadline=deadline: self._leave(members, deadline))  # type: ignore[misc]
                case KillNodes(members=members):
                    for member in members:
                        self._events.put(HasEnded(member.host, 1))
                case Signal(members=members) if any(m.host == PROGRAM for m in members):  # the program has ended
                    for member in members:
                        self._events.put(HasEnded(member.host, 0))

    def _join(self, members: Sequence[ElasticNode]) -> None:
        hosts = [m.host for m in members]
        try:
            self._added(hosts)
        except Exception:
            logger.exception("on_nodes_added failed; the nodes go back: %s", ", ".join(hosts))
            for host in hosts:
                self._events.put(HasEnded(host, 1))
        else:
            for host in hosts:
                self._events.put(Ready(host))

    def _leave(self, members: Sequence[ElasticNode], deadline: float) -> None:
        try:
            self._leaving([m.host for m in members], deadline)
        except Exception:
            logger.exception("on_nodes_leaving failed; the nodes go all the same")
        for member in members:
            self._events.put(HasEnded(member.host, 0))
        self._events.put(Left())

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def look(self) -> list[Event]:
        """See `Hands`."""
        found: list[Event] = []
        while True:
            try:
                found.append(self._events.get_nowait())
            except Empty:
                return found

    def close(self) -> None:
        """See `Hands`."""
        self._calls.put(None)


class Nodes:
    """The nodes of this job, as they come and go. Sizes are nodes, times seconds.

    Args:
        minimum, maximum: without them those of `#PENSTOCK elastic=min:max[:preferred]`.
        on_nodes_added: called with hosts that are there; they belong to the job when it returns.
        on_nodes_leaving: called with hosts that are to go and the instant (of `time.monotonic()`) when they will be
            gone; they are given back when it returns.
        preferred: down to this, others may have the nodes; without it, down to the minimum.
        factor: sizes are multiples of each other by it; 1: any.
        grace: how long nodes may take to leave.
        ready_timeout: how long they may take to join.
        interval: between two questions to the agent.
        loans: nodes that are free for a while only are of use, too; `on_nodes_leaving` is called before that is over.

    Raises:
        ValueError: naming the argument that is wrong.
    """

    def __init__(
        self,
        minimum: int | None = None,
        maximum: int | None = None,
        *,
        on_nodes_added: Added,
        on_nodes_leaving: Leaving,
        preferred: int | None = None,
        factor: int = 1,
        grace: float = 30.0,
        ready_timeout: float = 120.0,
        interval: float = 5.0,
        loans: bool = True,
    ) -> None:
        if (text := os.environ.get("PENSTOCK_ELASTIC")) and (minimum is None or maximum is None):
            least, most, rather = plans.sizes(text)
            minimum = least if minimum is None else minimum
            maximum = most if maximum is None else maximum
            preferred = rather if preferred is None else preferred
        said = {
            "minimum": minimum if minimum is not None else 1,
            "maximum": maximum,
            "preferred": preferred,
            "factor": factor,
            "start": _CALLED,
            "join": _CALLED,
            "leave": _CALLED,
            "base_joins": False,
            "grace": grace,
            "ready_timeout": ready_timeout,
            "interval": interval,
            "loans": loans,
        }
        self._plan: ElasticPlan = plans.of_mapping(said)
        self._added, self._leaving = on_nodes_added, on_nodes_leaving
        self._machine: Group | None = None
        self._calls: _Calls | None = None
        self._supervisor: ElasticSupervisor | None = None
        self._thread: threading.Thread | None = None

    # -- the job -----------------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> tuple[str, ...]:
        """The job's nodes now, its own first; empty outside of a job."""
        return tuple(m.host for m in self._machine.members) if self._machine is not None else ()

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """What starts a program on one of the nodes, for `subprocess`; with `environment` as its environment.

        Raises:
            ValueError: the host is none of this job's, nor one that is being added.
        """
        found = () if self._machine is None else (*self._machine.members, *self._machine.moving)
        member = next((m for m in found if m.host == host), None)
        if member is None:
            raise ValueError(f"{host!r} is no node of this job")
        return lines.srun(member, "exec " + shlex.join(argv))

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment without what Slurm says about this job: steps elsewhere must not inherit it."""
        return lines.cleaned(os.environ)

    def want(self, nodes: int) -> None:
        """The program has use for so many nodes, from now on."""
        if self._calls is not None:
            self._calls.put(Wanted(nodes))

    def lost(self, host: str) -> None:
        """What ran on this host has died: the companion that holds it goes back, with a call for its other nodes."""
        if self._calls is not None:
            self._calls.put(HasEnded(host, 1))

    # -- start and end -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Follow the agent from now on, in a thread; where there is none, or no job, nothing happens."""
        client, number = Client.from_environment(), os.environ.get("SLURM_JOB_ID", "")
        if client is None or not number.isdigit() or self._thread is not None:
            return
        try:
            base = launch.nodes(os.environ)
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            logger.warning("this job keeps its size: its nodes are not known: %s", error)
            return
        job = int(number)
        self._machine = Group(self._plan, base, job)
        self._calls = _Calls(self._added, self._leaving)
        self._supervisor = ElasticSupervisor(
            self._machine, self._calls, client, job, os.environ, lambda text: logger.info("%s", text)
        )
        supervisor = self._supervisor
        self._thread = threading.Thread(target=lambda: asyncio.run(supervisor.run()), name="dmr-elastic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Follow it no longer; what was lent goes back."""
        if self._supervisor is not None and self._thread is not None:
            self._supervisor.stop(int(signal.SIGTERM))
            self._thread.join(_END)
            self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
