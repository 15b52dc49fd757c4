"""A wait in the queue: what was predicted of it, and what was seen of it afterwards. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

__all__ = ["Estimate", "Known", "Observation"]

_NOTHING: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted wait of `seconds`. `index` says which alternative it is, -1 where it is none.

    `said` is what else was said of the wait (s, by name): by each of the learner's experts, and as its
    bound. The whole estimate comes back with the observation.
    """

    index: int
    seconds: float
    said: Mapping[str, float] = field(default_factory=lambda: _NOTHING)


class Known(IntEnum):
    """What is known of a wait. The numbers are kept in the store."""

    EXACT = 0
    """It was so long."""
    AT_MOST = 1
    """Left-censored: the nodes were ready as soon as the stage before had ended, when they could have been had earlier
    is hidden."""
    MORE_THAN = 2
    """Right-censored: the job still waits after so long, or was cancelled then."""
    NOTHING = 3
    """There was no wait, or it says nothing about the queue (a hold, a maintenance, a licence): learn nothing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a wait: so many seconds, known to be that exactly, at most or at least (`Known`).

    Raises ValueError for a wait that is negative or not finite.
    """

    seconds: float
    known: Known = Known.EXACT

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds) or self.seconds < 0:
            raise ValueError(f"a wait is a finite number of seconds >= 0, not {self.seconds!r}")

    @classmethod
    def at_most(cls, seconds: float) -> Observation:
        """The wait was hidden behind the stage before: at most this long."""
        return cls(seconds, Known.AT_MOST)

    @classmethod
    def more_than(cls, seconds: float) -> Observation:
        """Still waiting after this long, or cancelled then."""
        return cls(seconds, Known.MORE_THAN)

    @classmethod
    def nothing(cls) -> Observation:
        """Nothing to be learned from."""
        return cls(0.0, Known.NOTHING)
