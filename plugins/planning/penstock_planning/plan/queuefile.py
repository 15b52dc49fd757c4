"""A queue as a JSON file, to plan on without a cluster. Every complaint is one line that names the field.

    {"procs": 5, "now": 0, "policy": "conservative", "horizon": 8, "c": 1, "jobs": [
        {"id": "A", "procs": 1, "duration": 2, "state": "running", "start": 0, "on": [0]},
        {"id": "R", "procs": 1, "duration": 3, "state": "reserved", "start": 4, "on": [2]},
        {"id": "C", "procs": 2, "duration": 4, "state": "pending"}]}

Any one unit of time. `now` is 0, `policy` conservative (or aggressive), `horizon` the last finish and `c`, the price of
a processor per unit of time, 1 if left out. Pending jobs stand in the order in which they will be served; `start` is
the earliest start of a pending job (default: any), of a running one by default now. `on` are the processors of a
running or reserved job, counted from 0; without it, it gets the first that are free. Decimals are kept exactly.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from penstock.errors import UserError
from penstock.future.bits import BitProfile, lowest
from penstock.future.plan import Claim, ClusterQueue, PendingJob, Policy
from penstock.values.documents import show
from penstock.values.models import Entry, kind, read_as, whole
from penstock_planning.plan.pricing import PaperPricing
from penstock_planning.plan.situation import Situation

__all__ = ["parse_number", "parse_queue"]

_MAX_PROCS: Final = 1_000_000
_MAX_TIME: Final = 10**12
_MAX_DECIMALS: Final = 9
Number = int | Decimal


def _number(value: object) -> Number | None:
    good = isinstance(value, int | Decimal) and not isinstance(value, bool) and -_MAX_TIME <= value <= _MAX_TIME
    return value if good else None  # type: ignore[return-value]


def _id(value: object) -> str | None:
    good = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return str(value) if good else None


def _processors(value: object) -> list[int] | None:
    good = isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) for n in value)
    return value if good else None  # type: ignore[return-value]


_Processors = Annotated[int, whole(1, _MAX_PROCS)]
_Time = Annotated[Number, kind(_number, f"a number from -{_MAX_TIME:.0e} to {_MAX_TIME:.0e}")]


class _Job(Entry):
    id: Annotated[str, kind(_id, "a text or a whole number")]
    procs: _Processors
    duration: _Time
    state: Literal["running", "reserved", "pending"]
    start: _Time | None = None
    on: Annotated[list[int], kind(_processors, "a list of processors, counted from 0")] | None = None


class _File(Entry):
    procs: _Processors
    now: _Time = 0
    policy: Policy = "conservative"
    horizon: _Time | None = None
    c: _Time = 1
    jobs: list[_Job] = Field(default_factory=list)


def parse_queue(text: str, source: str = "queue.json", extra_decimals: int = 0) -> Situation:
    """The queue in `text`; `source` is its name for messages, `extra_decimals` what other times will be given with.

    Raises UserError, and nothing else, if it is wrong.
    """
    try:
        return _Reader(read_as(_File, _json(text)), extra_decimals).situation()
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def parse_number(text: str, name: str) -> Decimal:
    """A time or duration on the command line, in the file's unit. Raises UserError naming the option."""
    try:
        value = Decimal(text)
    except ArithmeticError:
        value = Decimal("nan")
    if not value.is_finite() or abs(value) > _MAX_TIME:
        raise UserError(f"{name} must be a number in the file's unit of time, not {text[:40]!r}")
    if decimals(value) > _MAX_DECIMALS:
        raise UserError(f"{name} must have at most {_MAX_DECIMALS} decimals, not {text[:40]!r}")
    return value


def decimals(value: Number) -> int:
    """How many decimals a number has that are not 0."""
    if isinstance(value, int):
        return 0
    exponent = value.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _json(text: str) -> object:
    def constant(name: str) -> Any:  # noqa: ANN401
        raise UserError(f"{name} is not a number that can be planned with")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in items:
            if key in out:
                raise UserError(f"the key {show(key)} is there twice")
            out[key] = value
        return out

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=constant, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise UserError(f"line {error.lineno}: not JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise UserError("not JSON that can be read: nested too deeply, or a number too long") from None


class _Reader:
    """Counts all times in the smallest decimal that occurs, and checks what depends on several keys."""

    def __init__(self, data: _File, extra_decimals: int) -> None:
        self._data, self._procs, self._jobs = data, data.procs, data.jobs
        times = [data.now, data.horizon, *(time for job in data.jobs for time in (job.start, job.duration))]
        most = max([extra_decimals, *(decimals(t) for t in times if t is not None)])
        if most > _MAX_DECIMALS:
            raise UserError(f"times must have at most {_MAX_DECIMALS} decimals, one has {most}")
        self._scale = 10**most

    def situation(self) -> Situation:
        now, horizon, price = self._time(self._data.now), self._time_or_none(self._data.horizon), self._data.c
        if horizon is not None and horizon <= now:
            raise UserError(f"horizon: must be later than now ({self._out(now)}), not {self._out(horizon)}")
        if price < 0:
            raise UserError(f"c: must not be negative, not {price}")
        claims, waiting = self._read_jobs(now)
        queue = ClusterQueue(self._procs, now, tuple(claims), tuple(waiting), self._data.policy)
        names = tuple(str(i) for i in range(self._procs))
        pricing = PaperPricing(price if isinstance(price, int) else float(price))
        return Situation(queue, names, pricing, self._scale, horizon)

    def _read_jobs(self, now: int) -> tuple[list[Claim], list[PendingJob]]:
        everything = (1 << self._procs) - 1
        profile = BitProfile(everything, now)
        claims: list[Claim] = []
        waiting: list[PendingJob] = []
        unpinned: list[tuple[int, str, int, int, int]] = []
        seen: dict[str, int] = {}
        for i, job in enumerate(self._jobs):
            where = f"jobs[{i}]"
            name, procs, duration, start = job.id, job.procs, self._time(job.duration), self._time_or_none(job.start)
            if name in seen:
                raise UserError(f"{where}.id: {show(name)} is the id of jobs[{seen[name]}] already")
            seen[name] = i
            if procs > self._procs:
                raise UserError(f"{where}.procs: must be a whole number from 1 to {self._procs}, not {procs}")
            if duration <= 0:
                raise UserError(f"{where}.duration: must be longer than 0, not {self._out(duration)}")
            if job.state == "pending":
                if job.on is not None:
                    raise UserError(f"{where}.on: a pending job has no processors yet; leave it out")
                after = -math.inf if start is None else start
                waiting.append(PendingJob(name, procs, duration, everything, float(procs), after))
                continue
            begin = self._begin(where, job.state, start, duration, now)
            if job.on is None:
                unpinned.append((i, name, procs, begin, begin + duration))
                continue
            nodes = self._on(job.on, procs, where)
            free = profile.common(begin, begin + duration, nodes)
            if free != nodes:
                taken = (nodes & ~free & -(nodes & ~free)).bit_length() - 1
                other = next(
                    c.id for c in claims if c.nodes >> taken & 1 and c.start < begin + duration and c.end > begin
                )
                raise UserError(f"{where}.on: processor {taken} is taken by {show(other)} at that time")
            profile.block(nodes, begin, begin + duration)
            claims.append(Claim(name, nodes, begin, begin + duration))
        for i, name, procs, begin, end in unpinned:
            free = profile.common(begin, end, everything)
            if free.bit_count() < procs:
                raise UserError(
                    f"jobs[{i}].procs: only {free.bit_count()} processors are free from {self._out(max(begin, now))} "
                    f"to {self._out(end)}, not {procs}"
                )
            nodes = lowest(free, procs)
            profile.block(nodes, begin, end)
            claims.append(Claim(name, nodes, begin, end))
        return claims, waiting

    def _begin(self, where: str, state: str, start: int | None, duration: int, now: int) -> int:
        if state == "running":
            begin = now if start is None else start
            if begin > now:
                raise UserError(
                    f"{where}.start: a running job began at now ({self._out(now)}) or before, not {self._out(begin)}"
                )
        elif start is None:
            raise UserError(f"{where}.start: is missing: when does the reservation begin?")
        else:
            begin = start
        if begin + duration <= now:
            raise UserError(
                f"{where}.duration: ends at {self._out(begin + duration)}, which is not after now ({self._out(now)})"
            )
        return begin

    def _on(self, value: list[int], procs: int, where: str) -> int:
        mask = 0
        for n in value:
            if not 0 <= n < self._procs:
                raise UserError(f"{where}.on: must be processors from 0 to {self._procs - 1}, not {n}")
            if mask >> n & 1:
                raise UserError(f"{where}.on: names processor {n} twice")
            mask |= 1 << n
        if len(value) != procs:
            raise UserError(f"{where}.on: names {len(value)} processors, but procs is {procs}")
        return mask

    def _time(self, value: Number) -> int:
        return int(value * self._scale)

    def _time_or_none(self, value: Number | None) -> int | None:
        return None if value is None else self._time(value)

    def _out(self, value: float) -> str:
        return f"{Decimal(int(value)) / self._scale:f}"
