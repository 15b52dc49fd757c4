"""Starts the application a second time, with another number of processes, on the nodes that the agent names."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dmr import line, quirks

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["SpawnError", "preflight", "spawn", "too_long"]

logger = logging.getLogger("dmr")

# The program starts anew, so relative paths must mean what they meant at its start, wherever it has gone since.
_START_DIRECTORY: Final = os.getcwd()
_SLOW_SPAWN: Final = 60.0


class SpawnError(Exception):
    """No new processes; raised on all ranks alike, and the old ones can go on."""


def preflight() -> str | None:
    """Why starting the program again would fail on this node, or None.

    hydra reports no error when a program cannot be started: MPI_Comm_spawn then never returns, or the whole application
    is ended. So what can be seen beforehand is looked at beforehand.
    """
    if not sys.executable or not os.access(sys.executable, os.X_OK):
        return f"cannot execute {sys.executable or 'this Python'}"
    if not os.path.isdir(_START_DIRECTORY):
        return f"the directory {_START_DIRECTORY} is gone"
    # MPICH 5 passes arguments to its process manager line by line. The launcher has them as mpiexec had them.
    if not line.there(os.environ) and any("\n" in argument or not argument for argument in sys.orig_argv[1:]):
        return "an argument of the program is empty or holds a newline"
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None:
        return "the program is not a file or module that can be started again"
    if not os.path.isfile(os.path.join(_START_DIRECTORY, script)):
        return f"the program {script} is gone"
    return None


def too_long(nodes: Sequence[str], per_node: int) -> str | None:
    """Why MPI_Comm_spawn cannot be told of these nodes, or of the directory, or None.

    MPI limits the values of an info object. hydra could read the nodes from a file, but on the host of mpiexec, and it
    ends the whole application where it cannot.
    """
    from mpi4py import MPI

    for what, value in _told(nodes, per_node).values():
        length = len(os.fsencode(value))
        if length >= MPI.MAX_INFO_VAL:  # one more for the end
            return f"{what} has {length} characters, and MPI_Comm_spawn takes less than {MPI.MAX_INFO_VAL}"
    return None


def _told(nodes: Sequence[str], per_node: int) -> dict[str, tuple[str, str]]:
    """What MPI_Comm_spawn is told by an info object: by key, what it is and the value."""
    hosts = quirks.hosts_value(nodes, per_node)
    return {"wdir": ("the name of the start directory", _START_DIRECTORY), "hosts": ("the list of new nodes", hosts)}


def spawn(comm: MPI.Intracomm, size: int, nodes: Sequence[str], per_node: int) -> MPI.Intercomm:
    """Starts `size` processes, `per_node` on each of `nodes` in order; collective over `comm`, returns on all ranks.

    They get this program's Python flags, script or `-m module`, arguments and start directory, and mpiexec's
    environment.

    Raises:
        SpawnError: on all ranks, if any rank saw it fail.
    """
    from mpi4py import MPI

    problem = next((p for p in comm.allgather(too_long(nodes, per_node)) if p), None)
    if problem is not None:
        raise SpawnError(problem)
    info = MPI.Info.Create()
    for key, (_, value) in _told(nodes, per_node).items():
        info.Set(key, value)
    alarm = threading.Timer(_SLOW_SPAWN, _complain, (size, nodes))
    alarm.daemon = True
    if comm.rank == 0:
        alarm.start()
    handler = comm.Get_errhandler()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    children = None
    try:
        # orig_argv keeps `-m module` and the interpreter's flags, which sys.argv does not.
        children = comm.Spawn(sys.executable, sys.orig_argv[1:], maxprocs=size, info=info)
    except MPI.Exception as error:
        problem = f"MPI_Comm_spawn: {error}"
    finally:
        alarm.cancel()
        comm.Set_errhandler(handler)
        handler.Free()
        info.Free()
    problem = next((p for p in comm.allgather(problem) if p), None)
    if problem is None and children is not None:
        return children
    if children is not None:
        children.Disconnect()
    raise SpawnError(problem)


def _complain(size: int, nodes: Sequence[str]) -> None:
    logger.warning(
        "starting %d processes on %s takes more than %g s; is a node unreachable, or SLURM_OVERLAP=1 missing?",
        size,
        ",".join(nodes),
        _SLOW_SPAWN,
    )
