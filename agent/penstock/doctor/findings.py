"""What a check finds. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Finding", "Level", "failed", "fine", "note", "unknown"]

_PAGE: Final = "docs/doctor.md"


class Level(StrEnum):
    """How a check ended: all is well; something is worth knowing; it is not so; it could not be found out."""

    OK = "ok"
    NOTE = "note"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen, and if not all is well: what would change it, and what that costs."""

    check: str
    level: Level
    seen: str
    change: str = ""
    cost: str = ""

    @property
    def docs(self) -> str:
        """Where the check is explained."""
        return f"{_PAGE}#{self.check}"


def fine(check: str, seen: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, seen)


def note(check: str, seen: str, change: str, cost: str = "") -> Finding:
    """It is so, but something is worth knowing."""
    return Finding(check, Level.NOTE, seen, change, cost)


def failed(check: str, seen: str, change: str, cost: str = "") -> Finding:
    """It is not so, and what needs it does not work."""
    return Finding(check, Level.NO, seen, change, cost)


def unknown(check: str, seen: str, change: str = "") -> Finding:
    """It could not be found out."""
    return Finding(check, Level.UNKNOWN, seen, change)
