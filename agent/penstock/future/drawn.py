"""What a replay of the queue is given, a future of others and jobs of ours, and what it finds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrivals", "Drawn", "OwnJob", "Span", "children_of"]


class OwnJob(NamedTuple):
    """A job of ours in the partition: nodes, time limit and run time (s), and the places of those it comes after."""

    nodes: int
    limit: float
    run: float
    after: tuple[int, ...] = ()


def children_of(jobs: Sequence[OwnJob]) -> list[list[int]]:
    """The places of those that come after each of these jobs."""
    children: list[list[int]] = [[] for _ in jobs]
    for place, job in enumerate(jobs):
        for parent in job.after:
            children[parent].append(place)
    return children


class Arrivals(NamedTuple):
    """Jobs of others in the order in which they come, an array each: when they are submitted (s), how many nodes of
    which area they take, for at most `limit` seconds, and for how many they run."""

    submit: NDArray[np.float64]
    nodes: NDArray[np.int64]
    area: NDArray[np.int64]
    limit: NDArray[np.float64]
    run: NDArray[np.float64]


class Drawn(Protocol):
    """One drawn future of the others: the same for every cut that is tried in it."""

    ends: NDArray[np.float64]
    """When each of `Present.running` ends (s)."""
    runs: NDArray[np.float64]
    """How long each of `Present.waiting` will run (s)."""

    def arrivals(self, part: int) -> Arrivals | None:
        """Who comes, in parts, counted from 0, as they are drawn; None: nobody comes any more."""
        ...


class Span(NamedTuple):
    """When a job started and ended (s); both infinite if it never did."""

    start: float
    end: float
