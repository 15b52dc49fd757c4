"""Times and numbers as the compiled kernel reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Counts", "Floats", "counts", "floats", "node_counts"]

_MOST_NODES: Final = 2**40
"""More nodes than there are: sums of them are exact."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def floats(values: Iterable[float]) -> Floats:
    """As the kernel reads times."""
    return np.fromiter(values, dtype=np.float64)


def counts(values: Iterable[Any] | Counts) -> Counts:
    """As the kernel reads numbers, or rows of them."""
    return np.ascontiguousarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.int64)


def node_counts(values: Iterable[int] | Counts) -> Counts:
    """The same of nodes that somebody asks for."""
    return np.minimum(counts(values), _MOST_NODES)
