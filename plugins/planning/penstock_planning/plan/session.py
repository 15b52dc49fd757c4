"""What a site says to one who plans over several: its clock, limits and slots at once, then prices on request.

One JSON object a line; the first is the site's own, then every question has one answer:

    {"session": 1, "live": true, "now": 1767225600, "partition": "batch", "names": ["n1", "n2"], "within": "3",
     "max_procs": 2, "max_duration": 86400, "ends": [1767229200],
     "slots": [{"start", "procs", "duration", "c", "f", "divisible", "extensible", "penalty", "nodes": "3"}]}
    {"quote": {"procs": 2, "duration": 3600, "after": 1767230000}}  ->  {"quotes": [{"start", "c", "f", "nodes"}]}
    {"take": {"name": "slot of a", "start": 1767230000, "duration": 3600, "nodes": "3"}}  ->  {"taken": 1}
    {"forget": true}  ->  {"taken": 0}

Times are as the site counts (seconds since the epoch, or a queue file's own), `ends` are when those will have ended who
run or wait now, sets of nodes hexadecimal numbers whose bit i is `names[i]`. What is taken is reserved for this session
alone, in thought; `forget` undoes it. What cannot be answered is answered with {"error": "why"}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import PenstockError, UserError
from penstock.future.plan import QueueSchedule, make_plan
from penstock_planning.plan.greedy import offers, with_claim
from penstock_planning.plan.situation import Situation

__all__ = ["VERSION", "Session", "number_in", "set_in"]

VERSION: Final = 1
_FURTHEST: Final = 1e15


class Session:
    """One session with a site. `most` and `longest` are what one job may have there, None: as much as there is."""

    def __init__(
        self,
        situation: Situation,
        live: bool,
        partition: str | None = None,
        most: int | None = None,
        longest: float | None = None,
    ) -> None:
        self._situation, self._live, self._partition = situation, live, partition
        fitting = (situation.within & situation.queue.everything).bit_count()
        self._most = min(fitting, most or fitting)
        self._longest = longest
        self._queue, self._taken = situation.queue, 0
        self._plan: QueueSchedule = situation.plan()

    def hello(self) -> dict[str, Any]:
        """What the site says first."""
        situation, plan, out = self._situation, self._plan, self._situation.outside
        queue = situation.queue
        ends = [c.end for c in queue.claims if c.start <= queue.now]
        ends += [start + job.duration for start, job in zip(plan.starts, queue.waiting, strict=True)]
        return {
            "session": VERSION,
            "live": self._live,
            "now": out(queue.now),
            "partition": self._partition,
            "names": list(situation.names),
            "within": f"{situation.within & queue.everything:x}",
            "max_procs": self._most,
            "max_duration": self._longest,
            "ends": sorted(out(end) for end in ends if end < math.inf),
            "slots": [
                {**situation.slot_row(s), "penalty": s.penalty, "nodes": f"{s.nodes:x}"}
                for s in situation.slots(plan, beyond=1)
            ],
        }

    def answer(self, question: object) -> dict[str, Any]:
        """The answer to one question; never raises for what is asked."""
        try:
            match question:
                case {"quote": dict(asked)}:
                    return {"quotes": self._quotes(asked)}
                case {"take": dict(taken)}:
                    self._take(taken)
                case {"forget": True}:
                    self._queue, self._plan, self._taken = self._situation.queue, self._situation.plan(), 0
                case _:
                    raise UserError('must be an object with "quote", "take" or "forget"')
        except PenstockError as error:
            return {"error": str(error)}
        return {"taken": self._taken}

    def _quotes(self, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        situation, out = self._situation, self._situation.outside
        procs = int(number_in(asked, "procs", least=1))
        if procs > self._most:
            return []
        duration, after = self._inside(asked, "duration"), self._inside(asked, "after")
        if duration <= 0:
            raise UserError("duration: must be above 0")
        found = offers(self._plan, procs, duration, situation.pricing, max(after, self._queue.now), situation.within)
        return [{"start": out(q.start), "c": q.c, "f": out(q.f), "nodes": f"{q.nodes:x}"} for q in found if q.feasible]

    def _take(self, taken: Mapping[str, Any]) -> None:
        start, duration = self._inside(taken, "start"), self._inside(taken, "duration")
        nodes = set_in(taken, "nodes")
        if not nodes or nodes & ~self._queue.everything:
            raise UserError("nodes: must be some of those that there are")
        self._queue = with_claim(self._queue, str(taken.get("name", ""))[:80], nodes, start, start + duration)
        self._plan = make_plan(self._queue)
        self._taken += 1

    def _inside(self, values: Mapping[str, Any], key: str) -> float:
        """A time as the plan counts; a file's decimals are whole numbers there."""
        value = number_in(values, key) * self._situation.scale
        near = round(value)
        return near if abs(value - near) < 1e-6 else value


def number_in(values: Mapping[str, Any], key: str, least: float = -_FURTHEST) -> float:
    """A finite number of what came in. UserError names the key."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _FURTHEST:
        raise UserError(f"{key}: must be a number{'' if least < 0 else f' of at least {least:g}'}, not {value!r:.40}")
    return value


def set_in(values: Mapping[str, Any], key: str) -> int:
    """A set of nodes of what came in. UserError names the key."""
    text = values.get(key)
    try:
        nodes = int(text, 16) if isinstance(text, str) and len(text) < 300_000 else -1
    except ValueError:
        nodes = -1
    if nodes < 0:
        raise UserError(f"{key}: must be a set of nodes as a hexadecimal number")
    return nodes
