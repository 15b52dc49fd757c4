"""A job as accounting and logs tell it, and the reasons for which one is left out of a history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final, NamedTuple

from penstock.api import JobState

__all__ = ["NEVER", "NONE", "Flag", "Left", "Reason", "Report", "Row"]

NEVER: Final = -1
"""A time that did not come: a job that never started."""
NONE: Final = 0
"""A time limit that is not known, or has no end."""


class Flag(IntFlag):
    """What else is known of a job. `CUT`: its run did not end by itself (requeue, preemption, failed node).

    `EARLY` is in no history: a record starts before it is submitted, as only a later size of a resized job does.
    """

    ARRAY = 1
    HETEROGENEOUS = 2
    RESIZED = 4
    CUT = 8
    EARLY = 16


class Row(NamedTuple):
    """One run of a job. Times are seconds since the epoch, `end` is when it left the queue if it never started.

    `limit` is seconds, `memory` MB asked for in all, `part_of` the first job of a heterogeneous one (0: none).
    """

    id: int
    submit: int
    eligible: int
    start: int
    end: int
    limit: int
    nodes: int
    cpus: int
    memory: int
    user: str
    account: str
    partition: str
    qos: str
    name: str
    state: JobState
    flags: int
    part_of: int = 0


class Reason:
    """Why a record is not a job of the history."""

    STEP: Final = "a step, not a job"
    NOT_ENDED: Final = "has not ended yet"
    NOT_WRITTEN: Final = "accounting has not written all of it yet"
    NO_SUBMIT: Final = "no time of submission"
    NO_START: Final = "ran, but without a time of its start"
    NO_END: Final = "ended, but without a time of its end"
    NO_WAIT: Final = "no wait"
    DISORDER: Final = "times out of order"
    NO_SIZE: Final = "neither nodes nor processors"
    TOO_FAR: Final = "times or sizes beyond what a history holds"
    HALF_RESIZED: Final = "an earlier size of a job whose last one is missing"
    ELSEWHERE: Final = "of another cluster"
    TWICE: Final = "the same run was there before"
    UNREADABLE: Final = "unreadable"


@dataclass(slots=True)
class Left:
    """How many records were left out for a reason, and where the first of them stands."""

    count: int
    first: str


@dataclass(slots=True)
class Report:
    """What became of the records that were read: kept as jobs, joined with another record of the same job, left out.

    Places are numbers, which `where` says in words.
    """

    where: Callable[[int], str]
    read: int = 0
    kept: int = 0
    never_ran: int = 0
    joined: dict[str, int] = field(default_factory=dict)
    left: dict[str, Left] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave(self, reason: str, place: int | str, count: int = 1) -> None:
        """So many records are left out; the first of them stands at `place`."""
        known = self.left.get(reason)
        if known is None:
            self.left[reason] = Left(count, place if isinstance(place, str) else self.where(place))
        else:
            known.count += count

    def join(self, what: str) -> None:
        """A record became part of a job that is kept."""
        self.joined[what] = self.joined.get(what, 0) + 1

    def told(self) -> dict[str, Any]:
        """As JSON; the reasons with the most records first."""
        left = sorted(self.left.items(), key=lambda item: -item[1].count)
        return {
            "read": self.read,
            "kept": self.kept,
            "never_ran": self.never_ran,
            "joined": [{"what": what, "records": count} for what, count in self.joined.items()],
            "left_out": [{"reason": why, "records": each.count, "first": each.first} for why, each in left],
            "notes": self.notes,
        }
