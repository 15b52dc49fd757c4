"""Moments as people give them to Slurm's commands (`--begin`, `-S`, `-E`): now-2days, teatime, 16:00, 01/31. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from penstock.slurm.hostlist import ParseError

__all__ = ["parse_moment"]

_NOW: Final = re.compile(
    r"now[ \t]*(?:([+-])([0-9\s]*[0-9])\s*(second|minute|hour|day|week)?s?)?[ \t]*", re.I | re.ASCII
)
_UNITS: Final = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_DAY: Final = re.compile(r"(today|tomorrow)", re.I | re.ASCII)
_HOUR: Final = re.compile(r"(midnight|noon|elevenses|fika|teatime)", re.I | re.ASCII)
_HOURS: Final = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*(am|pm)?", re.I | re.ASCII)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{1,2})", re.ASCII)
_SHORT: Final = re.compile(r"([0-9]{1,2}+)[./]?([0-9]{1,2}+)[./]?([0-9]{2})?", re.ASCII)
_SINCE: Final = re.compile(r"uts([0-9]{7,12})", re.I | re.ASCII)
_BETWEEN: Final = re.compile(r"[ \t\-T]")


def parse_moment(text: str, now: float, *, past: bool) -> float:
    """Seconds since 1970 by the local clock; 0 where nothing is said. `past`: what lacks its day is today's, what lacks
    its year not in a later month; otherwise what comes next is meant. Raises ParseError."""
    try:
        return _moment(text.split("\n")[0], now, past)
    except (ValueError, OverflowError, OSError):
        raise ParseError("not a moment", text) from None


def _moment(text: str, now: float, past: bool) -> float:
    if (since := _SINCE.fullmatch(text)) is not None:
        return float(since[1])
    if (match := _NOW.fullmatch(text)) is not None:
        seconds = int("".join((match[2] or "0").split())) * _UNITS[(match[3] or "").lower()]
        return float(int(now) + (-seconds if match[1] == "-" else seconds))
    today = datetime.fromtimestamp(int(now))
    clock: tuple[int, int, int] | None = None
    day: tuple[int | None, int, int] | None = None  # without its year where that is not said
    at = 0
    while at < len(text):
        if (match := _BETWEEN.match(text, at)) is not None:
            pass
        elif (match := _DAY.match(text, at)) is not None:
            date = today if match[1].lower() == "today" else today + timedelta(days=1)
            day = (date.year, date.month, date.day)
        elif (match := _HOUR.match(text, at)) is not None:
            clock = (_HOURS[match[1].lower()], 0, 0)
        elif (match := _CLOCK.match(text, at)) is not None:
            clock = (_hour(int(match[1]), match[4]), int(match[2]), int(match[3] or 0))
        elif (match := _DATE.match(text, at)) is not None:
            day = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _SHORT.match(text, at)) is not None:
            year = int(match[3] or 0)
            day = (2000 + year if year else None, int(match[1]), int(match[2]))
        else:
            raise ValueError(text)
        at = match.end()
    if clock is None and day is None:
        return 0.0
    return _resolved(day, clock or (0, 0, 0), today, past)


def _hour(hour: int, half: str | None) -> int:
    if half is None:
        return hour
    if hour > 12:
        raise ValueError(hour)
    return hour % 12 + (12 if half.lower() == "pm" else 0)


def _resolved(
    day: tuple[int | None, int, int] | None, clock: tuple[int, int, int], today: datetime, past: bool
) -> float:
    here = (today.hour, today.minute)
    if day is None:
        date = today if past or clock[:2] > here else today + timedelta(days=1)
        day = (date.year, date.month, date.day)
    year, month, number = day
    if year is None:
        if past:
            year = today.year - (month > today.month)
        else:
            year = today.year + ((month, number, *clock[:2]) <= (today.month, today.day, *here))
    if not 1 <= number <= 31:
        raise ValueError(number)
    # The 31st of a shorter month is a day of the next one.
    return (datetime(year, month, 1, *clock) + timedelta(days=number - 1)).timestamp()
