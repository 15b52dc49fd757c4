"""Python calls as tasks of a pool: a function and its arguments go by cloudpickle through a file in the pool's folder,
which only its owner can read, and so does what comes back. `penstock_pool.call` runs them."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import cloudpickle

from penstock.errors import PenstockError
from penstock_pool.folder import PoolFolder
from penstock_pool.model import PoolTask
from penstock_pool.taskjson import task_from_dict

__all__ = ["MemberTraceback", "PoolCall", "call_files", "calls_folder"]

_CALL: Final = ("-m", "penstock_pool.call")


class MemberTraceback(Exception):
    """Where on the member something was raised: the cause of what is raised here. `tb` is its text."""

    def __init__(self, tb: str) -> None:
        super().__init__(tb)
        self.tb = tb

    def __str__(self) -> str:
        return f"\n{self.tb}"


class PoolCall:
    """One call, from its writing to its end. `task` is what is to be submitted; its name is its own, so that it can be
    submitted twice and is one task."""

    def __init__(self, task: PoolTask, file: Path) -> None:
        self.task = task
        self._file = file

    @staticmethod
    def write(
        folder: PoolFolder,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        needs: Mapping[str, Any],
    ) -> PoolCall:
        """Write down what is to be called; `needs` has the keys of a line of `pool submit --file`. Raises UserError for
        a wrong one, and what cloudpickle raises for what it cannot write."""
        content = cloudpickle.dumps((function, tuple(arguments), dict(named)))
        calls = calls_folder(folder)
        file = calls / secrets.token_hex(8)
        command = [sys.executable, *_CALL, str(file)]
        task = task_from_dict({"name": f"call-{file.name}", **needs, "command": command}, "task", str(Path.cwd()))
        folder.check()
        try:
            _write(file, content)
        except FileNotFoundError:  # the first call of this pool
            calls.mkdir(mode=0o700, exist_ok=True)
            _write(file, content)
        return PoolCall(task, file)

    def result(self, number: int, phase: str, why: str) -> Any:  # noqa: ANN401
        """What the function has returned; raises what it has raised in its last attempt, caused by a MemberTraceback,
        and PenstockError if there was no end of its own. Once only: what it left is removed."""
        told = None
        try:
            told = self._file.with_suffix(".result").read_bytes()
        except FileNotFoundError:
            pass  # what is raised below is to hold nothing of here
        finally:
            self.forget()
        if told is None:
            raise PenstockError(f"task {number} {phase}: {why}")
        returned, value, *where = cloudpickle.loads(told)  # a member of before does not say where
        if not returned:
            raise value from (MemberTraceback(where[0]) if where else None)
        return value

    def forget(self) -> None:
        """Remove what it left."""
        for file in _both(self._file):
            file.unlink(missing_ok=True)


def calls_folder(folder: PoolFolder) -> Path:
    """Where the files of calls are."""
    return folder.path / "calls"


def call_files(folder: PoolFolder, task: PoolTask) -> list[Path]:
    """The files of a call in this pool; none of another task."""
    if task.argv[1:-1] != _CALL or Path(task.argv[-1]).parent != calls_folder(folder):
        return []
    return _both(Path(task.argv[-1]))


def _write(file: Path, content: bytes) -> None:
    # With as few calls of the system as there can be: a client writes thousands of these a second.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def _both(file: Path) -> list[Path]:
    return [file, file.with_suffix(".result")]
