"""A pool as an executor of Parsl.

    with parsl.load(Config(executors=[PenstockExecutor("main")])):
        print(square(7).result())

`square` being any app of Parsl's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from parsl.executors.base import ParslExecutor

from penstock.pool.futures import PoolExecutor

__all__ = ["PenstockExecutor"]


class PenstockExecutor(ParslExecutor):
    """Each app is a task of the pool of that name, in a process of its own. `task` says what each needs, with the keys
    of a line of `pool submit --file`; an app's `parsl_resource_specification` has the same keys, and counts before it.
    Blocks there are none: the pool has the nodes. Raises as `PoolExecutor` does when it is started."""

    def __init__(self, pool: str = "main", *, label: str = "penstock", task: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.label = label
        self._name = pool
        self._task = task
        self._pool: PoolExecutor | None = None

    def start(self) -> None:
        """Connect."""
        self._pool = PoolExecutor(self._name, task=self._task)

    def submit(
        self,
        func: Callable[..., Any],
        resource_specification: Mapping[str, Any],
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Future[Any]:
        """Run an app. Raises UserError for a resource that a pool does not know."""
        assert self._pool is not None, "it was not started"
        return self._pool.submit_as(resource_specification, func, *args, **kwargs)

    def shutdown(self) -> None:
        """End what has not ended."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        super().shutdown()
