"""The calls of a malleable application: `inherited` at its start, `dmr_check_status` between its steps.

Follows the DMR API of the DMR paper, section 5.1. Environment, read on rank 0:

    DMR_AGENT=host:port       where the agent listens; unset: never any action, at no cost
    DMR_AGENT_OTHERS          host:port,host:port: where it may be when it is not there
    DMR_TIMEOUT               seconds for one request to it (2)
    DMR_INHIBITOR_SECONDS     ignore calls for about that long after each real one (0): the "checking inhibitor"
    DMR_INHIBITOR_STEPS       let only every so many-th call through (1); of the two, the one that ignores more counts
    DMR_SIZES                 minimum:maximum[:preferred[:factor]] instead of the program's own
    DMR_RANKS_PER_NODE        ranks on each node, where neither SLURM_NTASKS_PER_NODE nor the ranks' places say so
    DMR_KEY_FILE, DMR_MUNGE_SOCKET   see dmr.credential
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dmr import limits, transition, uncaught
from dmr.check import check
from dmr.handover import Arrival, Departure
from dmr.session import Session

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Action", "Status", "announce", "dmr_check_status", "dmr_icheck_status", "inherited", "the_session", "world"]


class Action(StrEnum):
    """What `dmr_check_status` did; only NONE is false."""

    NONE = "none"
    EXPAND = "expand"
    SHRINK = "shrink"
    MIGRATE = "migrate"

    def __bool__(self) -> bool:
        return self is not Action.NONE


class Status(NamedTuple):
    """The answer of a check: the action, the number of processes from now on, and the handler of the action."""

    action: Action
    size: int
    handler: Departure | None


_session: Session | None = None
_idle = Status(Action.NONE, 0, None)  # what the last real check would have said, had nothing been to be done


def the_session() -> Session:
    """What this process knows of its job; made at the first call."""
    global _session
    if _session is None:
        uncaught.ends_all()
        _session = Session()
    return _session


def dmr_check_status(
    comm: MPI.Intracomm, minimum: int, maximum: int, factor: int = 1, preferred: int | None = None
) -> Status:
    """Asks whether to grow or shrink, and if so starts the new processes (DMR paper, section 5.1).

    Collective over `comm`, which must hold all processes of the program. On an action the caller hands its data to
    `handler`, calls `handler.finish()` and ends; the new processes, started as this program was, find it with
    `inherited`. Every kind of trouble with the agent means `Action.NONE`. A minimum above the present size asks for
    growth, a maximum below it for a shrink, which the cluster may or may not grant (section 4.1). `Action.MIGRATE`
    keeps the size and changes the nodes (listings 1 and 2); the data is handed on in the same way.

    Args:
        comm: `dmr.world()`, MPI.COMM_WORLD, or a duplicate of it.
        minimum: smallest number of processes the program can use.
        maximum: largest number that makes sense for it.
        factor: reachable sizes are current * factor**k and current / factor**k; 1 means any. Nodes are filled, always.
        preferred: the size it would like best for what comes next; if that cannot be reached, the next one below.

    Raises:
        ValueError: on all ranks, for arguments that contradict each other or differ between the ranks.
    """
    session = _session
    if session is not None and session.skip:
        session.skip -= 1
        return _idle
    return _check(comm, (minimum, maximum, factor, preferred), later=False)


def dmr_icheck_status(
    comm: MPI.Intracomm, minimum: int, maximum: int, factor: int = 1, preferred: int | None = None
) -> Status:
    """The same without waiting: one call asks, a later one takes the answer (DMR paper, section 5.1).

    The question goes out in the background while the application computes. The call that finds the answer there checks
    that it still fits its own arguments, and has the agent confirm that it still stands; nothing else is ever waited
    for. Use this or `dmr_check_status`, on all ranks alike.

    Raises:
        ValueError: as above.
    """
    session = _session
    if session is not None and session.skip:
        session.skip -= 1
        return _idle
    return _check(comm, (minimum, maximum, factor, preferred), later=True)


def _check(comm: MPI.Intracomm, arguments: tuple[object, ...], *, later: bool) -> Status:
    global _idle
    session = the_session()
    begun = check(session, comm, arguments, companion=session.knows_world, later=later)
    _idle = Status(Action.NONE, comm.size, None)
    if begun is None:
        return _idle
    reply, moving = begun
    return Status(Action(reply.action), reply.size, Departure(moving, comm, partial(session.refuse, reply.epoch)))


def announce(size: int, in_seconds: float, comm: MPI.Intracomm | None = None) -> None:
    """Tells the agent that `size` processes will be wanted in `in_seconds` seconds, for a phase that is known to come.

    The agent may ask for the nodes that much ahead, less the wait that it expects. Only rank 0 of `comm` (default that
    of the last check, at first MPI.COMM_WORLD) does something, in the background; whether it is heard makes no
    difference to the application. The call at the beginning of the phase then asks for growth: `dmr_check_status` with
    a minimum above the present size.

    Raises:
        ValueError: size below 1, or not a number of seconds from now.
    """
    from mpi4py import MPI

    wanted = limits.whole(size)
    if wanted is None or not 1 <= wanted <= limits.LARGEST:
        raise ValueError(f"size must be an integer from 1 to {limits.LARGEST}, not {size!r}")
    seconds = float(in_seconds)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"in_seconds must be a number of seconds from now, not {in_seconds!r}")
    session = the_session()
    rank = session.rank if comm is None else comm.rank
    if (MPI.COMM_WORLD.rank if rank is None else rank) == 0:
        session.announce(wanted, seconds)


def inherited(comm: MPI.Intracomm | None = None) -> Arrival | None:
    """The handler that holds the state of the processes this program replaces, or None for a normal start.

    Call it once, at the start; collective over `comm` (default MPI.COMM_WORLD).
    """
    from mpi4py import MPI

    uncaught.ends_all()
    begun = transition.arrive(MPI.COMM_WORLD if comm is None else comm)
    if begun is None:
        return None
    the_session().arriving = True
    return Arrival(begun, the_session().resized)


def world() -> MPI.Intracomm:
    """All processes of the program: in general MPI.COMM_WORLD, but not where its nodes are those of more than one job.

    A program that moves its data itself and uses this in place of MPI.COMM_WORLD may be given such nodes, which is how
    growing works where Slurm cannot add nodes to a job; one that does not call this is not. In processes that replace
    others, call it after `Arrival.receive` or in what `Arrival.run` calls.

    Raises:
        RuntimeError: the old processes still wait.
    """
    from mpi4py import MPI

    session = the_session()
    if session.arriving:
        raise RuntimeError("call receive() or run() of what dmr.inherited() gave before dmr.world()")
    session.knows_world = True
    return MPI.COMM_WORLD if session.comm is None else session.comm
