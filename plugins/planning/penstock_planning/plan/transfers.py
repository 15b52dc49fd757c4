"""How long data take from one site to another: what the site file says, corrected by what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["REMEMBERED", "Measured", "NetworkLink", "between", "correction"]

REMEMBERED: Final = 10
"""Transfers of a link, the latest ones, that correct it."""


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """`bandwidth` in bytes a second, `latency` in seconds: what passes before the first byte comes."""

    bandwidth: float
    latency: float = 0.0

    def time(self, size: float) -> float:
        """Seconds for `size` bytes; nothing to move takes no time."""
        return self.latency + size / self.bandwidth if size else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A transfer that took `seconds` where the site file alone predicts `predicted`."""

    predicted: float
    seconds: float


def correction(measured: Sequence[Measured]) -> float:
    """What predictions for a link are multiplied with: the median of measured over predicted of its latest transfers.

    `measured` in the order of time. The median, because one transfer in a storm says little about the next one.
    1 while nothing was measured.
    """
    ratios = [m.seconds / m.predicted for m in measured if m.predicted > 0 and m.seconds > 0]
    return statistics.median(ratios[-REMEMBERED:]) if ratios else 1.0


def between(
    names: Sequence[str],
    links: Mapping[tuple[str, str], NetworkLink],
    corrections: Mapping[tuple[str, str], float],
    size: float,
) -> tuple[tuple[float, ...], ...]:
    """Seconds for `size` bytes from each of the named sites to each, as `Edge.times` has them. KeyError if there are
    bytes and no link."""
    return tuple(
        tuple(0.0 if a == b or not size else links[a, b].time(size) * corrections.get((a, b), 1.0) for b in names)
        for a in names
    )
