"""Reading back what a learner saved: whatever is wrong with it becomes a ValueError that says what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["array", "expect", "numbers", "reading"]


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Inside, every complaint about the state becomes "<what> state is damaged: ..."."""
    try:
        yield
    except _DoesNotFit as error:
        raise ValueError(f"{what} state {error}") from None
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ValueError(f"{what} state is damaged: {error!r}") from error


class _DoesNotFit(Exception):
    """Sound, but of another version or learned about something else."""


def expect(state: Mapping[str, Any], key: str, wanted: object) -> None:
    """A state of another version, or learned over other alternatives, means nothing here."""
    if state.get(key) != wanted:
        shown = state.get(key) if isinstance(state.get(key), (int, str)) else "another one"
        raise _DoesNotFit(f"has {key} {shown!r}, this learner reads its own only")


def array(value: object, *shape: int, low: float = -math.inf, high: float = math.inf) -> NDArray[np.float64]:
    """An array of finite numbers of this shape, each within [low, high]."""
    result = np.array(value, dtype=np.float64)
    if result.shape != shape or not np.isfinite(result).all():
        raise ValueError(f"not {shape} finite numbers")
    if result.size and (result.min() < low or result.max() > high):
        raise ValueError(f"numbers outside of [{low}, {high}]")
    return result


def numbers(value: object, most: int, low: float = 0.0) -> list[float]:
    """A list of at most `most` finite numbers, each at least `low`."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"not a list of at most {most} numbers")
    return [float(x) for x in array(value, len(value), low=low)]
