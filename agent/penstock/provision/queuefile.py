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
from typing import Any, Final

from penstock.errors import UserError
from penstock.future.bits import BitProfile, lowest
from penstock.future.plan import Claim, Policy, Queue, Waiting
from penstock.provision.pricing import PaperPricing
from penstock.provision.situation import Situation

__all__ = ["parse_number", "parse_queue"]

_MAX_PROCS: Final = 1_000_000
_MAX_TIME: Final = 10**12
_MAX_DECIMALS: Final = 9
_TOP: Final = ("procs", "now", "policy", "horizon", "c", "jobs")
_JOB: Final = ("id", "procs", "duration", "state", "start", "on")
_STATES: Final = ("running", "reserved", "pending")
_POLICIES: Final[tuple[Policy, ...]] = ("conservative", "aggressive")

Number = int | Decimal


def parse_queue(text: str, source: str = "queue.json", extra_decimals: int = 0) -> Situation:
    """The queue in `text`; `source` is its name for messages, `extra_decimals` what other times will be given with.

    Raises UserError, and nothing else, if it is wrong.
    """
    try:
        return _Reader(_json(text), extra_decimals).situation()
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


def _json(text: str) -> dict[str, Any]:
    def constant(name: str) -> Any:  # noqa: ANN401
        raise UserError(f"{name} is not a number that can be planned with")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in items:
            if key in out:
                raise UserError(f"the key {key!r} is there twice")
            out[key] = value
        return out

    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=constant, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise UserError(f"line {error.lineno}: not JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise UserError("not JSON that can be read: nested too deeply, or a number too long") from None
    if not isinstance(value, dict):
        raise UserError('must be an object such as {"procs": 5, "jobs": []}')
    return value


def _keys(value: dict[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in value:
        if key not in allowed:
            raise UserError(f"{where}{key[:40]!r} is not a key here (keys: {', '.join(allowed)})")


class _Reader:
    """Checks field by field, then counts all times in the smallest decimal that occurs."""

    def __init__(self, data: dict[str, Any], extra_decimals: int) -> None:
        _keys(data, _TOP, "")
        self._data = data
        self._procs = self._whole(data, "procs", "", _MAX_PROCS)
        jobs = data.get("jobs", [])
        if not isinstance(jobs, list):
            raise UserError('jobs: must be a list of objects such as {"id": "A", "procs": 1, "duration": 2, …}')
        self._jobs: list[dict[str, Any]] = jobs
        for i, job in enumerate(jobs):
            if not isinstance(job, dict):
                raise UserError(f"jobs[{i}]: must be an object, not {_show(job)}")
            _keys(job, _JOB, f"jobs[{i}]: ")
        times = [self._number(data, key, "") for key in ("now", "horizon")]
        times += [self._number(job, key, f"jobs[{i}].") for i, job in enumerate(jobs) for key in ("start", "duration")]
        most = max([extra_decimals, *(decimals(t) for t in times if t is not None)])
        if most > _MAX_DECIMALS:
            raise UserError(f"times must have at most {_MAX_DECIMALS} decimals, one has {most}")
        self._scale = 10**most

    def situation(self) -> Situation:
        now = self._time(self._data, "now", "") or 0
        policy = self._data.get("policy", "conservative")
        if policy not in _POLICIES:
            raise UserError(f"policy: must be {' or '.join(_POLICIES)}, not {_show(policy)}")
        horizon = self._time(self._data, "horizon", "")
        if horizon is not None and horizon <= now:
            raise UserError(f"horizon: must be later than now ({self._out(now)}), not {self._out(horizon)}")
        price = self._number(self._data, "c", "")
        if price is not None and price < 0:
            raise UserError(f"c: must not be negative, not {price}")
        claims, waiting = self._read_jobs(now)
        queue = Queue(self._procs, now, tuple(claims), tuple(waiting), policy)
        names = tuple(str(i) for i in range(self._procs))
        pricing = PaperPricing(1 if price is None else _plain(price))
        return Situation(queue, names, pricing, self._scale, horizon)

    def _read_jobs(self, now: int) -> tuple[list[Claim], list[Waiting]]:
        everything = (1 << self._procs) - 1
        profile = BitProfile(everything, now)
        claims: list[Claim] = []
        waiting: list[Waiting] = []
        unpinned: list[tuple[int, str, int, int, int]] = []
        seen: dict[str, int] = {}
        for i, job in enumerate(self._jobs):
            where = f"jobs[{i}]"
            name = self._name(job, i)
            if name in seen:
                raise UserError(f"{where}.id: {name!r} is the id of jobs[{seen[name]}] already")
            seen[name] = i
            procs = self._whole(job, "procs", f"{where}.", self._procs)
            duration = self._time(job, "duration", f"{where}.")
            if duration is None:
                raise UserError(f"{where}.duration: is missing")
            if duration <= 0:
                raise UserError(f"{where}.duration: must be longer than 0, not {self._out(duration)}")
            state = job.get("state")
            if state not in _STATES:
                raise UserError(f"{where}.state: must be one of {', '.join(_STATES)}, not {_show(state)}")
            start = self._time(job, "start", f"{where}.")
            if state == "pending":
                if job.get("on") is not None:
                    raise UserError(f"{where}.on: a pending job has no processors yet; leave it out")
                after = -math.inf if start is None else start
                waiting.append(Waiting(name, procs, duration, everything, float(procs), after))
                continue
            begin = self._begin(where, state, start, duration, now)
            if job.get("on") is None:
                unpinned.append((i, name, procs, begin, begin + duration))
                continue
            nodes = self._on(job["on"], procs, where)
            free = profile.common(begin, begin + duration, nodes)
            if free != nodes:
                taken = (nodes & ~free & -(nodes & ~free)).bit_length() - 1
                other = next(
                    c.id for c in claims if c.nodes >> taken & 1 and c.start < begin + duration and c.end > begin
                )
                raise UserError(f"{where}.on: processor {taken} is taken by {other!r} at that time")
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

    def _name(self, job: dict[str, Any], i: int) -> str:
        name = job.get("id")
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise UserError(f"jobs[{i}].id: must be a text or a whole number, not {_show(name)}")
        return str(name)

    def _on(self, value: Any, procs: int, where: str) -> int:  # noqa: ANN401
        if not isinstance(value, list) or not all(isinstance(n, int) and not isinstance(n, bool) for n in value):
            raise UserError(f"{where}.on: must be a list of processors, counted from 0, not {_show(value)}")
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

    def _whole(self, data: dict[str, Any], key: str, where: str, most: int) -> int:
        value = data.get(key)
        if value is None:
            raise UserError(f"{where}{key}: is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise UserError(f"{where}{key}: must be a whole number from 1 to {most}, not {_show(value)}")
        return value

    def _number(self, data: dict[str, Any], key: str, where: str) -> Number | None:
        value = data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal) or not -_MAX_TIME <= value <= _MAX_TIME:
            raise UserError(
                f"{where}{key}: must be a number from -{_MAX_TIME:.0e} to {_MAX_TIME:.0e}, not {_show(value)}"
            )
        return value

    def _time(self, data: dict[str, Any], key: str, where: str) -> int | None:
        value = self._number(data, key, where)
        return None if value is None else int(value * self._scale)

    def _out(self, value: float) -> str:
        return f"{Decimal(int(value)) / self._scale:f}"


def _plain(value: Number) -> float:
    return value if isinstance(value, int) else float(value)


def _show(value: Any) -> str:  # noqa: ANN401
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return "nothing" if value is None else text if len(text) <= 40 else text[:40] + "…"
