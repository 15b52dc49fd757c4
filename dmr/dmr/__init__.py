"""Malleable MPI applications: programs whose number of processes follows the queue of their cluster.

The two-line way (`dmr.App`; `dmr.examples.heat` is a complete program to copy from):

    app = dmr.App(minimum=2, maximum=32, factor=2)
    app.register("field", lambda: first_block(app.comm), dmr.Block(axis=0))     # the state that moves
    for step in app.steps(10_000):                                              # a resize may come between two steps
        app["field"] = advance(app.comm, app["field"])

For programs that move their data themselves (`dmr.examples.jacobi`, and `dmr.examples.listing` for whole tasks):

    parent = dmr.inherited()                      # at the start: not None in processes that replace others
    if parent:
        arrays, values = parent.receive()
    ...
    action, size, handler = dmr.dmr_check_status(comm, minimum=2, maximum=32, factor=2)     # between two steps
    if action:
        handler.send({"field": block}, step=step)
        handler.finish()
        return

Importing this package needs neither mpi4py nor numpy, and loads what is used when it is used first: commands that only
speak its wire import it, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dmr.api import Action, Status, announce, dmr_check_status, dmr_icheck_status, inherited, world
    from dmr.app import App, Replaced
    from dmr.distributions import Block, Block2D, BlockCyclic, BlockCyclic2D, Cyclic, Explicit, Keyed, Replicated
    from dmr.handover import Arrival, Departure
    from dmr.plan import block_bounds
    from dmr.transition import Lost

__all__ = [
    "Action",
    "App",
    "Arrival",
    "Block",
    "Block2D",
    "BlockCyclic",
    "BlockCyclic2D",
    "Cyclic",
    "Departure",
    "Explicit",
    "Keyed",
    "Lost",
    "Replaced",
    "Replicated",
    "Status",
    "announce",
    "block_bounds",
    "dmr_check_status",
    "dmr_icheck_status",
    "inherited",
    "world",
]

_HOMES: Final = {
    "api": ("Action", "Status", "announce", "dmr_check_status", "dmr_icheck_status", "inherited", "world"),
    "app": ("App", "Replaced"),
    "distributions": (
        "Block", "Block2D", "BlockCyclic", "BlockCyclic2D", "Cyclic", "Explicit", "Keyed", "Replicated"
    ),
    "handover": ("Arrival", "Departure"),
    "plan": ("block_bounds",),
    "transition": ("Lost",),
}  # fmt: skip
"""In which module each name is."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever it is)
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"dmr.{home}"), name)
            return found
    raise AttributeError(f"module 'dmr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
