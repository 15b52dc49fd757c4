"""sbatch's `--begin`: the forms of a time that Slurm understands (parse_time.c), but for dates as in the USA."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from penstock.errors import Infeasible

__all__ = ["begin_time"]

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}
_FROM_NOW = re.compile(rf"now(?:\+([0-9]+(?:\.[0-9]+)?)(?:({'|'.join(_SECONDS)})s?)?)?", re.ASCII)
_EPOCH = re.compile(r"uts([0-9]{1,18}(?:\.[0-9]+)?)", re.ASCII)
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
_NAMED = {"midnight": time(0), "elevenses": time(11), "noon": time(12), "fika": time(15), "teatime": time(16)}


def begin_time(text: str, now: float) -> float:
    """`now`, `now+30`, `now+1hour`, `now+2weeks`; `16:00`, `16:00:30`, `noon` and the like, the next such time;
    `today` and `tomorrow`, as of midnight; `uts1700000000` (seconds since the epoch); a local `2026-11-30T12:00:00`.

    `Infeasible` for anything else.
    """
    try:
        if match := _FROM_NOW.fullmatch(text):
            return now + float(match[1] or 0) * _SECONDS[match[2] or "second"]
        if match := _EPOCH.fullmatch(text):
            return float(match[1])
        if match := _CLOCK.fullmatch(text):
            return _next(time(int(match[1]), int(match[2]), int(match[3] or 0)), now)
        if text in _NAMED:
            return _next(_NAMED[text], now)
        if text in ("today", "tomorrow"):
            return _at(time(0), now, days=int(text == "tomorrow"))
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise Infeasible(f"Invalid time specification: {text!r}") from None


def _next(clock: time, now: float) -> float:
    """When it is so late next, today or tomorrow."""
    today = _at(clock, now)
    return today if today >= now else _at(clock, now, days=1)


def _at(clock: time, now: float, days: int = 0) -> float:
    """This time of the day so many days from now."""
    return datetime.combine(datetime.fromtimestamp(now).date() + timedelta(days), clock).timestamp()
