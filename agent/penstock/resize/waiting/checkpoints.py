"""Whether a program has saved its state: its file is newer than the signal, not empty, and has come to rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.resize.waiting.model import SavedFile

__all__ = ["Checkpoints", "saved_file"]

_SETTLED: Final = 2.0
"""Seconds for which it must not have changed."""


def saved_file(path: str) -> SavedFile | None:
    """None: there is none, or it cannot be looked at."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return SavedFile(found.st_mtime, found.st_size)


class Checkpoints:
    """`look` shows a file."""

    def __init__(self, look: Callable[[str], SavedFile | None] = saved_file) -> None:
        self._look = look
        self._seen: dict[str, tuple[SavedFile, float]] = {}

    def complete(self, path: str, before: SavedFile | None, now: float) -> bool:
        """Whether the file is another one than `before`, and has been the same for some time. Asked again and again."""
        found = self._look(path)
        if found is None or found == before or found.size == 0:
            self._seen.pop(path, None)
            return False
        last = self._seen.get(path)
        if last is None or last[0] != found:
            self._seen[path] = (found, now)
            return False
        if now - last[1] < _SETTLED:
            return False
        del self._seen[path]
        return True

    def now(self, path: str) -> SavedFile | None:
        """The file as it is."""
        return self._look(path)
