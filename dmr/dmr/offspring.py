"""Whether a process has children that run, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["running"]


def running(pid: int) -> bool | None:
    """Whether any child of its main thread runs; none does that has ended. None where that cannot be told."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return any(_runs(child) for child in children)


def _runs(pid: str) -> bool:
    try:
        # The second field, the name in parentheses, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
