"""A task's output goes to a file, up to a limit: the rest of a flood is read and thrown away. On the worker."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["Capture", "output_path", "output_paths", "task_of_output"]

_CHUNK = 65536
_CHUNKS = 16


def output_path(folder: Path, task: int, attempt: int, kind: str) -> Path:
    """The file for `out` or `err` of an attempt; it is there only if something was written."""
    return folder / f"{task}.{attempt}.{kind}"


def output_paths(folder: Path, task: int, attempt: int) -> list[Path]:
    """Both files of an attempt."""
    return [output_path(folder, task, attempt, kind) for kind in ("out", "err")]


def task_of_output(path: Path) -> int | None:
    """The task whose output that is; None: it is none of ours."""
    task, _, rest = path.name.partition(".")
    return int(task) if task.isdecimal() and rest else None


class Capture:
    """Copies what comes from a pipe to a file of at most `limit` bytes, which is made with the first of them."""

    def __init__(self, pipe: int, path: Path, limit: int) -> None:
        os.set_blocking(pipe, False)
        self.pipe = pipe
        self.problem = ""
        self._path = path
        self._left = limit
        self._dropped = 0
        self._file: int | None = None

    def pump(self) -> bool:
        """Copy what is there now, not for ever; False at the end of the stream."""
        for _ in range(_CHUNKS):
            try:
                data = os.read(self.pipe, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._write(data)
        return True

    def close(self) -> None:
        """Say in the file what is missing, and close it."""
        if self._dropped and self._file is not None:
            with contextlib.suppress(OSError):
                os.write(self._file, f"\npenstock: cut here, {self._dropped} more bytes were written\n".encode())
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes) -> None:
        keep, self._dropped = data[: self._left], self._dropped + max(len(data) - self._left, 0)
        self._left -= len(keep)
        try:
            if self._file is None and keep:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            while keep and self._file is not None:
                keep = keep[os.write(self._file, keep) :]
        except OSError as e:
            # The task goes on: that its output is missing is said with its end.
            self.problem = f"its output could not be written: {e.strerror}"
            self._left = 0
