"""What a check of `penstock doctor` finds. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeVar

__all__ = ["Finding", "Folder", "Level", "Trouble", "Within", "failed", "fine", "note", "unknown"]

T = TypeVar("T")

_PAGE: Final = "docs/doctor.md"


@dataclass(frozen=True, slots=True)
class Trouble:
    """It does not work, or could not be found out: `why`. `asked` is false when it was not even tried."""

    why: str
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, or the nearest folder above it that is there (`made` false): where it is mounted (`kind` of
    file system), its permissions, its owner's user id, and how many bytes are free. `shared`: its holder has a lease,
    as other hosts may see it; `holder` says who that is."""

    path: str
    made: bool
    writable: bool
    mount: str
    kind: str
    mode: int
    owner: int
    free: int
    shared: bool = False
    holder: str = ""


class Within(Protocol):
    """Makes a call that may hang or raise, and waits no longer than doctor's time limit."""

    def __call__(self, call: Callable[[], T], /) -> T | Trouble:
        """What it has returned, or why there is nothing."""
        ...


class Level(StrEnum):
    """How a check ended: all is well; something is worth knowing; it is not so; it could not be found out."""

    OK = "ok"
    NOTE = "note"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen, and if not all is well: what would change it, and what that costs. `outside`: a part that does not
    come with Penstock has found it."""

    check: str
    level: Level
    seen: str
    change: str = ""
    cost: str = ""
    outside: bool = False

    @property
    def docs(self) -> str:
        """Where the check is explained; "": Penstock's pages know nothing of it."""
        return "" if self.outside else f"{_PAGE}#{self.check}"


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
