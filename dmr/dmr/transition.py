"""How the processes of an application come and go: what joins the old and the new ones while their data moves.

    old side:  problem = preflight(comm); then, once the agent has confirmed, depart(facts, comm, reply)
    new side:  arrive(comm) at the start of the program

Either gives a `Transition`. Its `bridge` is for moving data; `complete` ends it and returns the communicator of the new
size, or None in a process that leaves and must end. All functions and methods here are collective.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dmr import spawn
from dmr.bridge import Bridge

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.wire import CheckReply

__all__ = ["Facts", "Passport", "Transition", "arrive", "depart", "preflight"]


class Facts(Protocol):
    """What must be known of the job; `dmr.session.Session` knows it. Rank 0's counts."""

    job: int


@dataclass(frozen=True)
class Passport:
    """What the new ranks must know of the job; `spawn_seconds` is a duration, because clocks of nodes differ."""

    job: int
    epoch: int
    nodes: tuple[str, ...]
    per_node: int
    old_size: int
    spawn_seconds: float
    method: str = "replace"


@dataclass(frozen=True, slots=True)
class Transition:
    """One process's side of a resize under way."""

    bridge: Bridge
    passport: Passport
    _complete: Callable[[], MPI.Intracomm | None]

    def complete(self) -> MPI.Intracomm | None:
        """Lets go of the processes that leave; call it once, when all data has been moved.

        Returns the communicator of the new size, or None: this process leaves, and must end.
        """
        return self._complete()


def preflight(comm: MPI.Intracomm) -> str | None:
    """Why starting new processes would fail, the same on all ranks, or None. To be asked before the agent is told."""
    return next((problem for problem in comm.allgather(spawn.preflight()) if problem), None)


def depart(facts: Facts, comm: MPI.Intracomm, reply: CheckReply) -> Transition | str:
    """Starts what the agent granted with `reply`; a text, the same on all ranks, says why it could not be done.

    `comm` is then as it was, and the application goes on with it.
    """
    began = time.monotonic()
    try:
        children = spawn.spawn(comm, reply.size, reply.nodes, reply.per_node)
    except spawn.SpawnError as error:
        return str(error)
    seconds = time.monotonic() - began
    passport = Passport(facts.job, reply.epoch, reply.nodes, reply.per_node, comm.size, seconds)
    _tell(children, comm, passport)
    bridge = Bridge(children, tuple(range(comm.size)), tuple(range(reply.size)), comm.rank, None)

    def complete() -> None:
        children.Disconnect()

    return Transition(bridge, passport, complete)


def arrive(comm: MPI.Intracomm) -> Transition | None:
    """The new side, in a process that a resize started; None for a normal start. `comm` holds all such processes."""
    from mpi4py import MPI

    parent = MPI.Comm.Get_parent()
    if parent == MPI.COMM_NULL:
        return None
    passport: Passport = parent.bcast(None, root=0)
    bridge = Bridge(parent, tuple(range(parent.remote_size)), tuple(range(comm.size)), None, comm.rank)

    def complete() -> MPI.Intracomm:
        parent.Disconnect()
        return comm

    return Transition(bridge, passport, complete)


def _tell(intercomm: MPI.Intercomm, comm: MPI.Intracomm, value: object) -> None:
    """The old side's part of a broadcast from old rank 0 to all new ones."""
    from mpi4py import MPI

    # In a broadcast between groups the root names itself ROOT and its own side looks on.
    intercomm.bcast(value, root=MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL)
