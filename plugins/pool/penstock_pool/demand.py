"""What a pool is going to need: its tasks in batches of like ones, and how long those that run still take. Pure.

The scheduler writes it into the pool's folder (`PoolFolder.demand`) for whoever gets the pool its allocations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.errors import UserError
from penstock.values.documents import brief, show

__all__ = ["Announcements", "Demand", "MemberLoad", "TaskBatch", "TaskRunTimes", "batch_of_dict", "demand_from_dict"]

_GUESS: Final = 60.0
"""Seconds that a task takes of which nobody has said or seen anything."""
_ENOUGH: Final = 5
"""Tasks that must have ended before what they took counts for more than what was said of them."""
_SHAPES: Final = 2000
"""Shapes of tasks that are remembered, the latest ones."""
_MOST_BATCHES: Final = 200
_LEAST: Final = 0.001


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """`count` tasks that need so many `cores`, `memory` (bytes), `gpus` and `seconds` each; `longest` is what they may
    take (s; as was said of them, which is what a member's end is compared with). Not to be had before `after` seconds
    from now."""

    cores: float
    memory: int
    gpus: int
    seconds: float
    count: int
    longest: float = 0.0
    after: float = 0.0

    @property
    def work(self) -> float:
        """Core-seconds."""
        return self.cores * self.seconds * self.count


@dataclass(frozen=True, slots=True)
class MemberLoad:
    """A member: whose job it is of, what it has (`memory` in bytes, None: any), seconds `left` to its end (None: no
    end), core-seconds of `work` that run there still take, and seconds until the last of it has ended (`busy`)."""

    job: str
    node: str
    cores: float
    memory: int | None
    gpus: int
    left: float | None
    work: float
    busy: float
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """As it was `at` that time (s since the epoch). `waiting` can run now, `foreseen` was announced."""

    at: float
    waiting: tuple[TaskBatch, ...] = ()
    foreseen: tuple[TaskBatch, ...] = ()
    members: tuple[MemberLoad, ...] = ()

    @property
    def idle(self) -> bool:
        """Nothing waits, runs or is foreseen."""
        return not self.waiting and not self.foreseen and not any(member.work for member in self.members)

    @property
    def jobs(self) -> frozenset[str]:
        """Those whose nodes are members."""
        return frozenset(member.job for member in self.members)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"version": 1, **asdict(self)}


def demand_from_dict(told: Mapping[str, Any]) -> Demand:
    """What `to_dict` gave. Raises ValueError for what is none."""
    try:
        if told["version"] != 1:
            raise ValueError(f"version {show(told['version'])}")
        return Demand(
            float(told["at"]),
            tuple(TaskBatch(**each) for each in told["waiting"]),
            tuple(TaskBatch(**each) for each in told["foreseen"]),
            tuple(MemberLoad(**each) for each in told["members"]),
        )
    except (KeyError, TypeError) as e:
        raise ValueError(f"is not a pool's demand: {brief(e)}") from e


def batch_of_dict(told: object, where: str) -> TaskBatch:
    """A batch that somebody announces: cores, count, and where known memory (bytes), gpus, seconds, and seconds from
    now (`after`). Raises UserError."""
    known = {"cores": 1.0, "memory": 0, "gpus": 0, "seconds": None, "count": 1, "after": 0.0}
    if not isinstance(told, Mapping) or not set(told) <= set(known):
        raise UserError(f"{where}: must be an object with some of {', '.join(known)}")
    values = {**known, **told}
    for name, value in values.items():
        optional = name in ("seconds", "memory") and value is None
        if not optional and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15 or value != value
        ):
            raise UserError(f"{where}: {name} must be a number of at least 0, not {show(value)}")
    seconds = _GUESS if values["seconds"] is None else float(values["seconds"])
    return TaskBatch(
        float(values["cores"]),
        int(values["memory"] or 0),
        int(values["gpus"]),
        seconds,
        int(values["count"]),
        seconds,
        float(values["after"]),
    )


class TaskRunTimes:
    """What tasks of each kind took: the mean of those that have completed, the latest counting for more."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], tuple[int, float]] = {}

    def saw(self, kind: tuple[Any, ...], seconds: float) -> None:
        """One has completed in so many seconds."""
        count, mean = self._seen.pop(kind, (0, 0.0))
        count = min(count + 1, 100)
        self._seen[kind] = (count, mean + (seconds - mean) / count)
        if len(self._seen) > _SHAPES:
            del self._seen[next(iter(self._seen))]

    def expected(self, kind: tuple[Any, ...], said: float | None) -> float:
        """Seconds that one of this kind takes, of which so much was said."""
        count, mean = self._seen.get(kind, (0, 0.0))
        if said is None:
            return mean if count else _GUESS
        return min(mean, said) if count >= _ENOUGH else said


class Announcements:
    """What clients have announced: each source's latest word counts, until it is too old."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[float, float, tuple[TaskBatch, ...]]] = {}

    def announce(self, source: str, batches: Iterable[TaskBatch], now: float, good_for: float) -> None:
        """This source expects these tasks from now on, and its word is good for so many seconds."""
        told = tuple(batches)
        if told:
            self._of[source] = (now, now + good_for, told)
        else:
            self._of.pop(source, None)

    def batches(self, now: float) -> tuple[TaskBatch, ...]:
        """What is announced now; what is due already is no longer foreseen, but would wait if it had come."""
        found: list[TaskBatch] = []
        for source, (at, until, told) in list(self._of.items()):
            if now >= until:
                del self._of[source]
                continue
            for each in told:
                after = each.after - (now - at)
                if after > 0 and each.count:
                    found.append(
                        TaskBatch(each.cores, each.memory, each.gpus, each.seconds, each.count, each.longest, after)
                    )
        return coalesced(found)


def coalesced(batches: Iterable[TaskBatch]) -> tuple[TaskBatch, ...]:
    """Like ones together, run times to two digits, the most work first."""
    found: dict[tuple[float, ...], TaskBatch] = {}
    for each in batches:
        key = (each.cores, each.memory, each.gpus, _rounded(each.seconds), _rounded(each.longest), _rounded(each.after))
        if (other := found.get(key)) is None:
            found[key] = each
        else:
            count = other.count + each.count
            seconds = (other.seconds * other.count + each.seconds * each.count) / count
            longest, after = max(other.longest, each.longest), min(other.after, each.after)
            found[key] = TaskBatch(each.cores, each.memory, each.gpus, seconds, count, longest, after)
    return tuple(sorted(found.values(), key=lambda b: -b.work)[:_MOST_BATCHES])


def _rounded(seconds: float) -> float:
    if seconds < _LEAST:
        return 0.0
    unit: float = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return round(seconds / unit) * unit
