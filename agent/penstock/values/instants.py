"""Instants as people write them: now+2h, 14:30, 2026-03-29T08:00."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

from penstock.errors import UserError
from penstock.values.durations import parse_duration

__all__ = ["INSTANT_FORMS", "parse_instant"]

INSTANT_FORMS: Final = "now, now+2h, 14:30 (the next one), 2026-03-29T08:00, with an offset (…+01:00), or @ and seconds"

_LAST: Final = 1e11
"""Seconds since the epoch beyond which calendars give up before long (the year 5138)."""


def parse_instant(text: str, now: float, name: str) -> float:
    """Seconds since the epoch. Raises UserError, naming the option, for anything else and for local times that clocks
    skip or show twice."""
    word = text.strip()
    if word == "now":
        return now
    if word.startswith(("now+", "+")):
        seconds = parse_duration(word.split("+", 1)[1])
        if seconds is not None:
            return now + seconds
    if word.startswith("@"):
        try:
            seconds = float(word[1:])
        except ValueError:
            seconds = math.nan
        if 0 <= seconds <= _LAST:
            return seconds
    try:
        return _read(word, now, name)
    except (ValueError, OverflowError, OSError):
        raise UserError(f"{name} must be {INSTANT_FORMS}; not {text[:40]!r}") from None


def _read(word: str, now: float, name: str) -> float:
    if len(word) <= 8 and ":" in word:
        clock = datetime.strptime(word, "%H:%M:%S" if word.count(":") == 2 else "%H:%M").time()
        today = datetime.fromtimestamp(now).replace(
            hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0
        )
        at = _local(today, name)
        return at if at >= now else _local(today + timedelta(days=1), name)
    value = datetime.fromisoformat(word)
    return value.timestamp() if value.tzinfo is not None else _local(value, name)


def _local(value: datetime, name: str) -> float:
    """A time of the local clock, if there is exactly one."""
    first, second = value.replace(fold=0).timestamp(), value.replace(fold=1).timestamp()
    if datetime.fromtimestamp(first) != value.replace(fold=0):
        raise UserError(f"{name}: the clocks skip {value:%Y-%m-%d %H:%M} here; give it with an offset, such as +01:00")
    if first != second:
        raise UserError(
            f"{name}: the clocks show {value:%Y-%m-%d %H:%M} twice here; give it with an offset, such as +01:00"
        )
    return first
