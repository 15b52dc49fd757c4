"""A trace replayed under a policy in the compiled kernel: `schedules.c`, as Python calls it."""

from __future__ import annotations

import ctypes
from array import array
from ctypes import POINTER, byref, c_int, c_int64, c_void_p
from typing import Final

from penstock.kernel.library import KERNEL

__all__ = ["starts_of"]

_DONE: Final = 0
_NO_MEMORY: Final = -1
_AT_ONCE: Final = 2000
"""Instants of a trace between two looks at signals."""


class _Trace(ctypes.Structure):
    """`schedule_trace` of kernel.h."""

    _fields_ = (
        *((name, c_int64) for name in ("jobs", "procs", "replan", "batch")),
        *((name, c_void_p) for name in ("submit", "run", "width", "estimate", "start")),
    )


if KERNEL is not None:
    KERNEL.schedule_begin.restype = c_void_p
    KERNEL.schedule_begin.argtypes = [POINTER(_Trace)]
    KERNEL.schedule_go.restype = c_int
    KERNEL.schedule_go.argtypes = [c_void_p, c_int64]
    KERNEL.schedule_end.restype = None
    KERNEL.schedule_end.argtypes = [c_void_p]


def starts_of(columns: tuple[array[int], ...], procs: int, *, replan: bool, batch: bool) -> array[int]:
    """When each job starts (s). `columns` are submission, run time, processors and estimate of each, 64 bits wide, of a
    trace that the laboratory has checked: the kernel does not look at them again. Raises MemoryError."""
    assert KERNEL is not None
    submit, run, width, estimate = columns
    starts = array("q", bytes(8 * len(submit)))
    places = [column.buffer_info()[0] for column in (submit, run, width, estimate, starts)]
    trace = _Trace(len(submit), procs, replan, batch, *places)
    schedule = KERNEL.schedule_begin(byref(trace))
    if not schedule:
        raise MemoryError("a replay of a trace")
    try:
        while (said := KERNEL.schedule_go(schedule, _AT_ONCE)) != _DONE:
            if said == _NO_MEMORY:
                raise MemoryError("a replay of a trace")
    finally:
        KERNEL.schedule_end(schedule)
    return starts
