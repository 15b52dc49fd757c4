"""Durations as people write them, in workflow files and in the configuration."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DURATION_FORMS", "duration_text", "parse_duration"]

DURATION_FORMS: Final = "a duration such as 90 (seconds), 90s, 30m, 2h, 1h30m, 00:30:00 or 1-02:00:00"

_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WORDS: Final = (
    r"(?:(?P<d>\d{1,9}(?:\.\d{1,9})?)d)?(?:(?P<h>\d{1,9}(?:\.\d{1,9})?)h)?"
    r"(?:(?P<m>\d{1,9}(?:\.\d{1,9})?)m(?:in)?)?(?:(?P<s>\d{1,9}(?:\.\d{1,9})?)s)?"
)
_CLOCK: Final = r"(?:(?P<d>\d{1,6})-)?(?P<a>\d{1,6})(?::(?P<b>\d{1,2}))?(?::(?P<c>\d{1,2}))?"
_LONGEST: Final = 1e9


def parse_duration(value: object, *, zero: bool = False) -> float | None:
    """Seconds > 0 (with `zero` also 0), or None if `value` is no duration. A bare number is seconds.

    With colons as in sbatch: `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`. Fractions only with units ("1.5h").
    """
    seconds: float | None = None
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        seconds = float(value) if abs(value) <= _LONGEST else None
    elif isinstance(value, str) and len(value) <= 60:
        seconds = _parse_text(value.strip().lower())
    if seconds is None or (seconds == 0 and not zero):
        return None
    return seconds if 0 <= seconds <= _LONGEST else None


def _parse_text(text: str) -> float | None:
    if not text.isascii():
        return None
    compact = text.replace(" ", "")
    words = re.fullmatch(_WORDS, compact)
    if words is not None and any(words.groups()):
        return float(sum(float(n) * _UNITS[unit] for unit, n in words.groupdict().items() if n is not None))
    clock = re.fullmatch(_CLOCK, text)
    if clock is None:
        return None
    d, a, b, c = (int(g) if g is not None else None for g in clock.group("d", "a", "b", "c"))
    if (b or 0) > 59 or (c or 0) > 59:
        return None
    if d is not None:
        return float(d * 86400 + (a or 0) * 3600 + (b or 0) * 60 + (c or 0))
    if b is None:
        return float(a or 0)
    return float((a or 0) * 60 + b) if c is None else float((a or 0) * 3600 + b * 60 + c)


def duration_text(seconds: float) -> str:
    """The shortest of the forms above that is exact to the second: 5400 -> 1h30m."""
    left = round(seconds)
    parts = []
    for unit, size in _UNITS.items():
        n, left = divmod(left, size)
        if n:
            parts.append(f"{n}{unit}")
    return "".join(parts) or "0s"
