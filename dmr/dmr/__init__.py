"""Malleable MPI applications: programs whose number of processes follows the queue of their cluster.

    parent = dmr.inherited()                      # at the start: not None in processes that replace others
    if parent:
        arrays, values = parent.receive()
    ...
    action, size, handler = dmr.dmr_check_status(comm, minimum=2, maximum=32, factor=2)     # between two steps
    if action:
        handler.send({"field": block}, step=step)
        handler.finish()
        return

`dmr.examples.jacobi` is a complete program to copy from. Importing this package needs neither mpi4py nor numpy.
"""

from __future__ import annotations

from dmr.api import Action, Status, announce, dmr_check_status, dmr_icheck_status, inherited
from dmr.handover import Arrival, Departure
from dmr.plan import block_bounds

__all__ = [
    "Action",
    "Arrival",
    "Departure",
    "Status",
    "announce",
    "block_bounds",
    "dmr_check_status",
    "dmr_icheck_status",
    "inherited",
]
