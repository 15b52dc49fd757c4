"""Python functions as tasks of a pool.

    pool = Functions("main")
    numbers = [pool.submit(simulate, seed, task={"cores": 2, "time": "5m"}) for seed in range(100)]
    results = [pool.result(number) for number in numbers]

A function runs in a process of its own, as a command does: `python -m penstock.pool.call FILE`. It and its arguments go
by cloudpickle through files in the pool's folder, which only its owner can read; so does what it returns or raises.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from penstock.config import load
from penstock.errors import PenstockError
from penstock.pool.client import ask, wait
from penstock.pool.folder import pool_folder
from penstock.pool.model import task_from_dict, task_to_dict

__all__ = ["Functions"]


class Functions:
    """The pool of that name. Raises as `penstock pool` does: AgentUnavailable when it has no scheduler."""

    def __init__(self, name: str = "main") -> None:
        self._folder = pool_folder(load(), name)
        self._folder.check()
        self._files: dict[int, Path] = {}

    def submit(
        self,
        function: Callable[..., Any],
        *arguments: Any,  # noqa: ANN401
        task: Mapping[str, Any] | None = None,
        **named: Any,  # noqa: ANN401
    ) -> int:
        """Run `function(*arguments, **named)` in the pool; the task's number. `task` says what it needs, with the keys
        of a line of `pool submit --file`. Raises UserError for a wrong one."""
        calls = self._folder.path / "calls"
        calls.mkdir(mode=0o700, exist_ok=True)
        self._folder.check()
        file = calls / secrets.token_hex(8)
        file.write_bytes(cloudpickle.dumps((function, arguments, named)))
        command = [sys.executable, "-m", "penstock.pool.call", str(file)]
        value = task_from_dict({**(task or {}), "command": command}, "task", str(Path.cwd()))
        (number,) = ask(self._folder, "submit", {"tasks": [task_to_dict(value)]})
        self._files[number] = file
        return int(number)

    def result(self, number: int) -> Any:  # noqa: ANN401
        """What the function of this task has returned, once it has; raises what it has raised in its last attempt, and
        PenstockError if there was no end of its own. Once only: what it left is removed."""
        (task,) = wait(self._folder, [number])
        file = self._files.pop(number)
        result = file.with_suffix(".result")
        try:
            returned, value = cloudpickle.loads(result.read_bytes())
        except FileNotFoundError:
            raise PenstockError(f"task {number} {task['phase']}: {task['why']}") from None
        finally:
            file.unlink(missing_ok=True)
            result.unlink(missing_ok=True)
        if not returned:
            raise value
        return value
