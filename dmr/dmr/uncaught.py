"""An exception that one rank does not catch ends the program, where all others would wait for that rank for ever."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["ends_all"]

_installed = False


def ends_all() -> None:
    """From now on an exception that leaves the program ends all its ranks when this one exits, as `python -m mpi4py`
    does; the launcher then ends those that are worlds of their own. `sys.exit` is no exception in this sense."""
    global _installed
    if _installed:
        return
    _installed = True
    said = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        said(kind, error, where)
        from mpi4py.run import set_abort_status

        set_abort_status(error if isinstance(error, KeyboardInterrupt) else 1)

    sys.excepthook = hook
