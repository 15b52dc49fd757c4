"""Waits in plain words, and what people write for times and amounts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["LIMIT_FORMS", "UNKNOWN", "age_text", "duration", "limit_seconds", "limit_text", "megabytes", "wait_text"]

UNKNOWN = "not known"
LIMIT_FORMS = "a time limit such as 30m, 4h, 2d, 90 (minutes), 1:30:00 or 1-12:00:00"
_AT_ONCE = 60.0
_WORTH_SAYING = 300.0
_LONGEST = 5 * 366 * 86400.0
_STEPS = tuple(60 * m for m in (1, 2, 3, 5, 10, 15, 20, 30, 45)) + tuple(3600 * h for h in (1, 2, 3, 4, 6, 8, 12, 18))
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_WORDS = re.compile(r"([0-9]{1,9})(s|min|m|h|d)", re.ASCII)
_AMOUNT = re.compile(r"([0-9]{1,12})([kmgt]?)b?", re.ASCII)
_MEGABYTES = {"k": 1 / 1024, "": 1.0, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}


def wait_text(p50: float | None, p95: float | None) -> str:
    """A wait (s) that half of such jobs do not exceed and one that 19 of 20 do not: "about 10 min (up to 1 h)"."""
    if p50 is None or p95 is None:
        return UNKNOWN
    if p50 > _LONGEST:
        return "no start in sight"
    most = f" (up to {duration(p95, up=True)})" if p95 >= max(_WORTH_SAYING, 1.5 * p50) else ""
    if p50 >= _AT_ONCE:
        return f"about {duration(p50)}{most}"
    return f"mostly at once{most}" if most else "starts at once"


def duration(seconds: float, *, up: bool = False) -> str:
    """A time as one would say it: to the nearest of 1, 2, 3, 5, 10 ... minutes, hours, days; `up`: to the next."""
    if seconds > _STEPS[-1]:
        if seconds > _LONGEST:
            return "years"
        days = max(-(-seconds // 86400) if up else round(seconds / 86400), 1)
        return f"{days:.0f} {'day' if days == 1 else 'days'}"
    step = next(s for s in _STEPS if s >= seconds) if up else min(_STEPS, key=lambda s: abs(s - seconds))
    return f"{step // 3600} h" if step >= 3600 else f"{step // 60} min"


def limit_seconds(text: str) -> float | None:
    """A time limit in seconds, as sbatch takes it (a bare number is minutes) or with units; None for what is none."""
    text = text.strip().lower()
    if len(text) > 40 or not text.isascii():
        return None
    compact = text.replace(" ", "")
    found = _WORDS.findall(compact)
    if found and "".join(n + unit for n, unit in found) == compact:
        return _positive(float(sum(int(n) * _UNITS[unit] for n, unit in found)))
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() and len(part) < 10 for part in (*parts, *([days] if dash else []))) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return _positive(int(days) * 86400.0 + hours * 3600 + minutes * 60 + seconds)
    if len(numbers) < 3:
        minutes, seconds = (*numbers, 0)[:2]
        return _positive(minutes * 60.0 + seconds)
    return _positive(numbers[0] * 3600.0 + numbers[1] * 60 + numbers[2])


def _positive(seconds: float) -> float | None:
    return seconds if 0 < seconds <= _LONGEST else None


def limit_text(seconds: float) -> str:
    """A time limit as people write it: 90 min, 4 h, 2 days."""
    minutes = round(seconds / 60)
    if minutes % 1440 == 0 and minutes >= 2880:
        return f"{minutes // 1440} days"
    return f"{minutes // 60} h" if minutes % 60 == 0 and minutes else f"{minutes} min"


def megabytes(text: str) -> float | None:
    """An amount of memory as sbatch takes it (a bare number is MB), in MB; None for what is none."""
    found = _AMOUNT.fullmatch(text.strip().lower())
    amount = int(found[1]) * _MEGABYTES[found[2]] if found else 0.0
    return amount if 0 < amount <= 1e12 else None


def age_text(told: Mapping[str, Any]) -> str:
    """From when an answer is; with a warning where that is long ago or Slurm does not answer."""
    age, problems = told.get("age"), told.get("problems") or []
    if age is None:
        return "Nothing is known yet: Penstock has not looked at the queue."
    when = "less than a minute ago" if age < 60 else f"{duration(age)} ago"
    if problems:
        return f"Not up to date: the queue was last seen {when}, and Slurm does not answer."
    if age > float(told.get("stale_after") or age):
        return f"Not up to date: the queue was last seen {when}."
    return f"From a look at the queue {when}."
