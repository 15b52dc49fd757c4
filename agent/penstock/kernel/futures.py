"""A replay of the queue in the compiled kernel: `futures.c`, as Python calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import AbstractContextManager
from ctypes import POINTER, byref, c_double, c_int, c_int64, c_void_p
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.kernel.library import KERNEL

__all__ = ["BREATH", "DONE", "WANTS_ARRIVALS", "Futures"]

DONE, BREATH, WANTS_ARRIVALS = 0, 1, 2
"""What `Futures.go` says: it is over, so much work is done, or who comes next is to be told."""
_NO_MEMORY: Final = -1


class _World(ctypes.Structure):
    """`futures_world` of kernel.h."""

    _fields_ = (
        *((name, c_int64) for name in ("areas", "cells")),
        *((name, c_double) for name in ("now", "last", "protect")),
        *((name, c_int64) for name in ("depth", "by_submission")),
        *((name, c_void_p) for name in ("within", "beside", "free")),
        ("running", c_int64),
        *((name, c_void_p) for name in ("running_cells", "running_limit", "running_end", "ends")),
        ("waiting", c_int64),
        *((name, c_void_p) for name in ("waiting_nodes", "waiting_area", "waiting_limit", "waiting_after", "runs")),
        ("own", c_int64),
        *((name, c_void_p) for name in ("own_nodes", "own_limit", "own_run", "own_missing")),
        *((name, c_void_p) for name in ("children_begin", "children")),
        ("shut", c_int64),
        *((name, c_void_p) for name in ("shut_when", "shut_sign", "shut_cells")),
        ("follow", c_int64),
        ("followed", c_void_p),
    )


class _Arrivals(ctypes.Structure):
    """`futures_arrivals` of kernel.h."""

    _fields_ = (("count", c_int64), *((name, c_void_p) for name in ("submit", "limit", "run", "nodes", "area")))


if KERNEL is not None:
    KERNEL.futures_begin.restype = c_void_p
    KERNEL.futures_begin.argtypes = [POINTER(_World)]
    KERNEL.futures_come.restype = c_int
    KERNEL.futures_come.argtypes = [c_void_p, POINTER(_Arrivals)]
    KERNEL.futures_go.restype = c_int
    KERNEL.futures_go.argtypes = [c_void_p, c_int64, POINTER(c_int64)]
    KERNEL.futures_spans.restype = None
    KERNEL.futures_spans.argtypes = [c_void_p, c_void_p, c_void_p]
    KERNEL.futures_end.restype = None
    KERNEL.futures_end.argtypes = [c_void_p]


class Futures(AbstractContextManager["Futures"]):
    """One replay. `world` has the fields of `futures_world` by their names: numbers, and arrays of float64 or int64
    that lie in one piece and are as long as kernel.h says. That is not checked again: the caller vouches for it. Raises
    MemoryError, as the methods do."""

    def __init__(self, world: Mapping[str, Any]) -> None:
        assert KERNEL is not None
        self._kernel, self._world = KERNEL, dict(world)  # the arrays live as long as this
        place = {name: getattr(value, "ctypes", None) for name, value in world.items()}
        fields = {name: world[name] if at is None else at.data for name, at in place.items()}
        self._futures = self._kernel.futures_begin(byref(_World(**fields)))
        if not self._futures:
            raise MemoryError("a replay of the queue")

    def __exit__(self, *_error: object) -> None:
        self._kernel.futures_end(self._futures)
        self._futures = None

    def tell(self, arrivals: Mapping[str, Any] | None) -> None:
        """More who come, in order of submission: arrays of one length; None: nobody more."""
        more = None
        if arrivals is not None:
            fields = {name: value.ctypes.data for name, value in arrivals.items()}
            more = byref(_Arrivals(count=len(arrivals["submit"]), **fields))
        if self._kernel.futures_come(self._futures, more) == _NO_MEMORY:
            raise MemoryError("a replay of the queue")

    def go(self, part: int) -> tuple[int, int]:
        """Until at least so many units of work are done. What comes next, and the units done since that was last
        said."""
        done = c_int64()
        said = self._kernel.futures_go(self._futures, part, byref(done))
        if said == _NO_MEMORY:
            raise MemoryError("a replay of the queue")
        return said, done.value

    def spans(self, starts: NDArray[np.float64], ends: NDArray[np.float64]) -> None:
        """When each of those that are followed starts and ends (s), into these arrays."""
        self._kernel.futures_spans(self._futures, starts.ctypes.data, ends.ctypes.data)
