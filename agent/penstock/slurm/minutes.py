"""Time limits as sbatch takes them, in minutes. Pure, and without imports: front programs read it."""

from __future__ import annotations

__all__ = ["minutes_of"]


def minutes_of(text: str) -> float | None:
    """`90`, `1:30`, `1:30:00`, `1-0`, `1-2:30` and so on; None for what is none of these, or has no end."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (*parts, *([days] if dash else []))):
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return int(days) * 1440 + hours * 60 + minutes + seconds / 60 if len(numbers) <= 3 else None
    if len(numbers) == 1:
        return float(numbers[0])
    if len(numbers) == 2:
        return numbers[0] + numbers[1] / 60
    return numbers[0] * 60 + numbers[1] + numbers[2] / 60 if len(numbers) == 3 else None
