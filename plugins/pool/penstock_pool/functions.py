"""Python functions as tasks of a pool.

    pool = Functions("main")
    numbers = [pool.submit(simulate, seed, task={"cores": 2, "time": "5m"}) for seed in range(100)]
    results = [pool.result(number) for number in numbers]

A function runs in a process of its own, as a command does. `penstock_pool.futures` has the interface of the standard
library's executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.config import load
from penstock_pool.callfiles import PoolCall
from penstock_pool.client import ask, wait
from penstock_pool.folder import pool_folder
from penstock_pool.model import task_to_dict

__all__ = ["Functions"]


class Functions:
    """The pool of that name. Raises as `penstock pool` does: AgentUnavailable when it has no scheduler."""

    def __init__(self, name: str = "main") -> None:
        self._folder = pool_folder(load(), name)
        self._folder.check()
        self._calls: dict[int, PoolCall] = {}

    def submit(
        self,
        function: Callable[..., Any],
        *arguments: Any,  # noqa: ANN401
        task: Mapping[str, Any] | None = None,
        **named: Any,  # noqa: ANN401
    ) -> int:
        """Run `function(*arguments, **named)` in the pool; the task's number. `task` says what it needs, with the keys
        of a line of `pool submit --file`. Raises UserError for a wrong one."""
        call = PoolCall.write(self._folder, function, arguments, named, task or {})
        (number,) = ask(self._folder, "submit", {"tasks": [task_to_dict(call.task)]})
        self._calls[number] = call
        return int(number)

    def result(self, number: int) -> Any:  # noqa: ANN401
        """What the function of this task has returned, once it has; raises what it has raised in its last attempt, and
        PenstockError if there was no end of its own. Once only: what it left is removed."""
        (task,) = wait(self._folder, [number])
        return self._calls.pop(number).result(number, task["phase"], task["why"])
