"""Joins the running processes with new ones: by MPI ports through the launcher, or by MPI_Comm_spawn without one.

With a launcher (`dmr.launch`) new processes are an mpiexec of their own. They can fail in any way before they have
joined, and nobody else notices; with MPI_Comm_spawn, MPICH then waits for ever or ends everybody [run, MPICH 5.0.2].
The new side opens the port and accepts, because connecting takes a time limit in MPICH and accepting does not.
"""

from __future__ import annotations

import array
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dmr import line, spawn
from dmr.spawn import SpawnError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Greeting", "Start", "Step", "accept", "by_port", "join", "obstacle", "open_one", "settle", "start", "wait"]

_CONNECT_LIMIT: Final = 20
_GRACE: Final = 15.0
_POLL: Final = 0.001
# A connection was begun that nobody answered. The next one then ended a rank with SIGSEGV [run, MPICH 5.0.2].
_half_open = False


@dataclass(frozen=True)
class Step:
    """One world to join: the port it has opened, or the nodes to spawn it on."""

    world: str
    nodes: tuple[str, ...]
    per_node: int
    port: str = ""


@dataclass(frozen=True)
class Greeting:
    """The first words that a new world hears: its name, whether it joins the others, and who joins after it.

    `passport` is the transition's; it concerns only those who are not joined by anybody else.
    """

    world: str
    merge: bool
    rest: tuple[Step, ...]
    passport: Any


class Start:
    """Rank 0: worlds that the launcher starts while the application goes on; its answer is waited for by a thread,
    which makes no MPI call.

    Attributes:
        done: whether they are up, or will not be; then `problem` says why not, or `worlds` are their tickets and ports.
        seconds: how long it took.
    """

    def __init__(self, starts: Sequence[tuple[str, ...]], per_node: int, epoch: int, jobs: Mapping[str, int]) -> None:
        self.worlds: list[list[str]] = []
        self.problem = ""
        self.done = False
        self.seconds = 0.0
        self._batch = str(epoch)
        self._began = time.monotonic()
        wanted = [{"nodes": nodes, "job": jobs.get(nodes[0], 0)} for nodes in starts]
        threading.Thread(target=self._ask, args=(wanted, per_node), name="dmr-start", daemon=True).start()

    def _ask(self, wanted: list[dict[str, object]], per_node: int) -> None:
        limit = line.start_limit(os.environ)
        told = {"worlds": wanted, "per_node": per_node, "limit": limit, "batch": self._batch}
        try:
            self.worlds = line.ask(limit + _GRACE, op="start", **told)["worlds"]
        except line.LineError as error:
            self.problem = str(error)
        self.seconds = time.monotonic() - self._began
        self.done = True

    def go(self) -> str | None:
        """Has them wake up to be met; why they cannot."""
        try:
            line.ask(_GRACE, op="go", tickets=[ticket for ticket, _ in self.worlds])
        except line.LineError as error:
            return str(error)
        return None

    def withdraw(self) -> None:
        """They are not wanted any more."""
        with contextlib.suppress(line.LineError):  # a launcher that is gone has taken them with it
            line.ask(_GRACE, op="withdraw", batch=self._batch)


def obstacle() -> str | None:
    """Why nothing is joined any more, the same on all ranks that were there."""
    return (
        "a connection to new processes broke off, after which MPICH may crash in the next one" if _half_open else None
    )


def by_port() -> bool:
    """Whether this process has a launcher that starts new ones for it."""
    return line.there(os.environ)


def start(
    comm: MPI.Intracomm,
    starts: Sequence[tuple[str, ...]],
    per_node: int,
    epoch: int,
    jobs: Mapping[str, int],
    started: Sequence[Sequence[str]] | None = None,
) -> list[Step]:
    """The steps to join worlds on the nodes of `starts`; with a launcher, they have been started then. Collective.

    `jobs`: who holds a node, where it is not the application's own job. `started`: tickets and ports of those worlds,
    where they were started ahead.

    Raises:
        SpawnError: on all ranks, and nothing new runs.
    """
    if not starts:
        return []
    if started is not None:
        return [Step(ticket, nodes, per_node, port) for (ticket, port), nodes in zip(started, starts, strict=True)]
    problem, steps = None, [Step(f"{epoch}.{i}", nodes, per_node) for i, nodes in enumerate(starts)]
    if comm.rank == 0 and by_port() and steps:
        limit = line.start_limit(os.environ)
        wanted = [{"nodes": nodes, "job": jobs.get(nodes[0], 0)} for nodes in starts]
        try:
            answer = line.ask(limit + _GRACE, op="start", worlds=wanted, per_node=per_node, limit=limit)
            found = zip(answer["worlds"], starts, strict=True)
            steps = [Step(ticket, nodes, per_node, port) for (ticket, port), nodes in found]
        except line.LineError as error:
            problem = str(error)
    wait(comm)
    agreed: tuple[str | None, list[Step]] = comm.bcast((problem, steps))
    problem, steps = agreed
    if problem:
        raise SpawnError(problem)
    return steps


def open_one(comm: MPI.Intracomm, step: Step, greeting: Greeting) -> MPI.Intercomm:
    """Joins one world and greets it; collective over `comm`.

    Raises:
        SpawnError: on all ranks of `comm`.
    """
    from mpi4py import MPI

    if not step.port:
        inter = spawn.spawn(comm, len(step.nodes) * step.per_node, step.nodes, step.per_node)
    else:
        inter = _connect(comm, step.port)
    inter.bcast(greeting, root=MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL)
    return inter


def _connect(comm: MPI.Intracomm, port: str) -> MPI.Intercomm:
    from mpi4py import MPI

    info = MPI.Info.Create()
    info.Set("timeout", str(_CONNECT_LIMIT))
    handler = comm.Get_errhandler()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    inter, problem = None, None
    try:
        inter = comm.Connect(port, info)
    except MPI.Exception as error:
        problem = f"MPI_Comm_connect: {error}"
    finally:
        comm.Set_errhandler(handler)
        handler.Free()
        info.Free()
    # A sign of life from everybody, with a time limit: what comes next has none.
    if inter is not None and not _done(inter.Ibarrier(), _CONNECT_LIMIT):
        problem = "the new processes do not answer"
    problem = next((p for p in comm.allgather(problem) if p), None)
    if problem is None and inter is not None:
        return inter
    # What is left of the connection stays: to disconnect would wait for the dead.
    global _half_open
    _half_open = True
    raise SpawnError(problem)


def join(comm: MPI.Intracomm, steps: Sequence[Step], passport: Any, *, own: bool = False) -> MPI.Intracomm:  # noqa: ANN401
    """Joins all the worlds to one communicator, those of `comm` first; collective over it and those joined meanwhile.

    `own`: `comm` was made on the way and is not needed again.

    Raises:
        SpawnError: on all ranks; those of worlds already joined must leave.
    """
    whole = comm
    for i, step in enumerate(steps):
        greeting = Greeting(step.world, True, tuple(steps[i + 1 :]), passport)
        try:
            inter = open_one(whole, step, greeting)
        except SpawnError:
            if whole is not comm or own:
                whole.Disconnect()
            raise
        merged = inter.Merge(False)
        inter.Disconnect()
        if whole is not comm or own:
            whole.Disconnect()
        whole = merged
    return whole


def accept(comm: MPI.Intracomm) -> tuple[MPI.Intercomm, Greeting] | None:
    """The new side: the first connection to those who were there before; None for a normal start. Collective.

    It ends the processes where nobody comes.
    """
    from mpi4py import MPI

    inter = MPI.Comm.Get_parent()
    if inter == MPI.COMM_NULL:
        ticket = os.environ.get(line.TICKET, "")
        if not ticket:
            return None
        port = MPI.Open_port() if comm.rank == 0 else ""
        wait(comm)  # all of us are up
        if not _met(comm, ticket, port):
            sys.exit()
        inter = _accept(comm, port)
        if comm.rank == 0:
            MPI.Close_port(port)
    greeting: Greeting = inter.bcast(None, root=0)
    return inter, greeting


def _met(comm: MPI.Intracomm, ticket: str, port: str) -> bool:
    """Whether those who were there before come now. Until that is known we sleep: they may be computing beside us."""
    from mpi4py import MPI

    met = array.array("b", [0])
    if comm.rank == 0:
        # A step of theirs may take its time; and when the launcher ends, so do we.
        with contextlib.suppress(line.LineError):
            met[0] = bool(line.ask(line.DAY, op="ready", ticket=ticket, port=port).get("met", True))
    request = comm.Ibcast([met, MPI.BYTE])
    while not request.Test():
        time.sleep(_POLL)
    return bool(met[0])


def _accept(comm: MPI.Intracomm, port: str) -> MPI.Intercomm:
    inter = comm.Accept(port)
    inter.Ibarrier().Wait()  # the sign of life that the other side waits for
    return inter


def settle(steps: Sequence[Step], *, joined: bool, leaving: bool = False) -> str | None:
    """Rank 0 tells the launcher whether the started worlds belong to the application now, or must end.

    `leaving`: they know it, and are given the time to end by themselves.

    Returns why they cannot belong to it: one has ended.
    """
    tickets = [step.world for step in steps if step.port]
    if tickets:
        wanted = {"op": "joined"} if joined else {"op": "abandon", "leaving": leaving}
        try:
            line.ask(30.0, **wanted, tickets=tickets)
        except line.LineError as error:
            return str(error)
    return None


def wait(comm: MPI.Comm) -> None:
    """A barrier that does not keep the processors busy: the new processes may be starting on them."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(_POLL)


def _done(request: MPI.Request, limit: float, clock: Callable[[], float] = time.monotonic) -> bool:
    until = clock() + limit
    while not request.Test():
        if clock() > until:
            return False
        time.sleep(_POLL)
    return True
