"""Stands in for a GPU library: arrays that numpy cannot look into, in memory that MPI in truth can read."""

from __future__ import annotations

from typing import Any

import numpy as np


class Array:
    def __init__(self, hidden: np.ndarray) -> None:
        self._hidden = hidden

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described = self._hidden.__array_interface__
        return {key: described[key] for key in ("shape", "typestr", "descr", "strides", "data", "version")}

    def get(self) -> np.ndarray:
        COPIES.append(self._hidden.shape)
        return self._hidden.copy()


COPIES: list[tuple[int, ...]] = []


def asarray(array: np.ndarray) -> Array:
    return Array(array.copy())


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return Array(np.zeros(shape, dtype))
