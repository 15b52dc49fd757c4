"""How much of the machine jobs had at the same time: the least that it must have been. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["busiest"]

_CHUNK: Final = 1 << 18


def busiest(begun: NDArray[Any], ended: NDArray[Any], held: NDArray[Any]) -> int:
    """The most that was held at one time, of runs that began and ended (s) and held so much. In the same second ends
    come first. 0 of none."""
    if not len(held):
        return 0
    order = np.argsort(begun, kind="stable")
    begins = begun[order]
    taken = np.cumsum(held[order], dtype=np.int64)
    order = np.argsort(ended, kind="stable")
    ends = ended[order]
    freed = np.concatenate(([0], np.cumsum(held[order], dtype=np.int64)))
    del order
    most = 0
    for at in range(0, len(begins), _CHUNK):
        part = slice(at, at + _CHUNK)
        most = max(most, int((taken[part] - freed[np.searchsorted(ends, begins[part], "right")]).max()))
    return most
