"""The two calls of a malleable application: `inherited` at its start, `dmr_check_status` between its steps.

Follows the DMR API of paper 003, section 5.1; the asynchronous form is not offered. Environment, read on rank 0:

    DMR_AGENT=host:port       where the agent listens; unset: never any action, at no cost
    DMR_TIMEOUT               seconds for one request to it (2)
    DMR_INHIBITOR_SECONDS     ignore calls for that long after each real one (0), the paper's "checking inhibitor"
    DMR_SIZES                 minimum:maximum[:preferred[:factor]] instead of the program's own
    DMR_RANKS_PER_NODE        ranks on each node, where SLURM_NTASKS_PER_NODE does not say so (1)
    DMR_KEY_FILE, DMR_MUNGE_SOCKET   see dmr.credential
"""

from __future__ import annotations

import logging
import os
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dmr import quirks, transition, wire
from dmr.handover import Arrival, Departure
from dmr.session import Session, node_list

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Action", "Status", "dmr_check_status", "inherited"]

logger = logging.getLogger("dmr")


class Action(StrEnum):
    """What `dmr_check_status` did; only NONE is false."""

    NONE = "none"
    EXPAND = "expand"
    SHRINK = "shrink"

    def __bool__(self) -> bool:
        return self is not Action.NONE


class Status(NamedTuple):
    """The answer of a check: the action, the number of processes from now on, and the handler of the action."""

    action: Action
    size: int
    handler: Departure | None


_session: Session | None = None


def _get_session() -> Session:
    global _session
    if _session is None:
        _session = Session()
    return _session


def dmr_check_status(
    comm: MPI.Intracomm, minimum: int, maximum: int, factor: int = 1, preferred: int | None = None
) -> Status:
    """Asks whether to grow or shrink, and if so starts the new processes (paper 003, section 5.1).

    Collective over `comm`, which must hold all processes of the program; rank 0's arguments count. On an action the
    caller hands its data to `handler`, calls `handler.finish()` and ends; the new processes, started as this program
    was, find it with `inherited`. Every kind of trouble with the agent means `Action.NONE`.

    Args:
        comm: MPI.COMM_WORLD or a duplicate of it.
        minimum: smallest number of processes the program can use.
        maximum: largest number that makes sense for it.
        factor: reachable sizes are current * factor**k and current / factor**k; 1 means any.
        preferred: the size it would like best for what comes next.

    Raises:
        ValueError: on all ranks, for arguments that contradict each other.
    """
    session = _get_session()
    if session.skip:
        session.skip -= 1
        return Status(Action.NONE, comm.size, None)
    if session.nodes is None:
        names = comm.allgather(quirks.node_name(os.environ))
        session.nodes = node_list(names, session.per_node)
    verdict = session.decide(comm.size, minimum, maximum, factor, preferred) if comm.rank == 0 else None
    verdict = comm.bcast(verdict)
    if verdict.error:
        raise ValueError(verdict.error)
    session.skip = verdict.skip
    handler = _depart(session, comm, verdict.reply) if verdict.reply else None
    if handler is None:
        return Status(Action.NONE, comm.size, None)
    return Status(Action(verdict.reply.action), verdict.reply.size, handler)


def inherited(comm: MPI.Intracomm | None = None) -> Arrival | None:
    """The handler that holds the state of the processes this program replaces, or None for a normal start.

    Call it once, at the start; collective over `comm` (default MPI.COMM_WORLD).
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD if comm is None else comm
    begun = transition.arrive(comm)
    if begun is None:
        return None
    session, passport, size = _get_session(), begun.passport, comm.size
    session.job, session.epoch = passport.job, passport.epoch
    session.nodes, session.per_node = passport.nodes, passport.per_node
    return Arrival(begun, comm, lambda timings: session.finished(size, timings))


def _depart(session: Session, comm: MPI.Intracomm, reply: wire.CheckReply) -> Departure | None:
    """Collective: accept, start; on any failure refuse, and the application goes on."""
    problem = transition.preflight(comm)
    if problem is None:
        if not comm.bcast(session.accept(reply.epoch) if comm.rank == 0 else None):
            return None
        begun = transition.depart(session, comm, reply)
        if not isinstance(begun, str):
            return Departure(begun, comm)
        problem = begun
    if comm.rank == 0:
        logger.warning("cannot start the new processes, going on as is: %s", problem)
        session.refuse(reply.epoch, problem)
    return None
