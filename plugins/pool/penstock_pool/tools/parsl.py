"""A pool as an executor of Parsl; and blocks of Parsl's own that are asked for ahead.

    with parsl.load(Config(executors=[PenstockExecutor("main")])):
        print(square(7).result())

`square` being any app of Parsl's. `ask_ahead(dfk)` has Parsl ask for blocks a wait before they are needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from parsl.dataflow.states import States
from parsl.executors.base import ParslExecutor
from parsl.executors.status_handling import BlockProviderExecutor
from parsl.jobs.states import JobState

from penstock.host.logs import get_logger
from penstock.slurm.minutes import minutes_of
from penstock.tools.expected import ExpectedWait, ready_within
from penstock_pool.futures import PoolExecutor

__all__ = ["PenstockExecutor", "ask_ahead"]

_log = get_logger(__name__)
_OLD: Final = 0.5  # weight of what was known of run times, when one more is


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


def ask_ahead(dfk: Any, expect: Mapping[str, float] | None = None) -> int:  # noqa: ANN401
    """Have Parsl's strategy count, besides the tasks that are ready, those which will be by the time that a new block
    would have waited in Slurm's queue. To be called once, after `parsl.load`; for how many executors it holds.

    How long apps run is learned by their name; `expect` says it (seconds) before that. Without an agent to tell the
    wait nothing is asked for ahead. It is for strategies that look at `outstanding()`: `simple`, `htex_auto_scale`.
    """
    found = [one for one in dfk.executors.values() if isinstance(one, BlockProviderExecutor) and one.provider]
    for executor in found:
        executor.outstanding = _Outstanding(dfk, executor, dict(expect or {}))
    return len(found)


class _Outstanding:
    """In place of an executor's method of that name."""

    def __init__(self, dfk: Any, executor: Any, known: dict[str, float]) -> None:  # noqa: ANN401
        self._dfk = dfk
        self._executor = executor
        self._plain = executor.outstanding
        self._known = known
        self._began: dict[int, float] = {}
        self._served_since = math.inf
        self._counted: set[int] = set()
        provider = executor.provider
        self._expected = ExpectedWait(
            {
                "nodes": provider.nodes_per_block,
                "time_limit": 60 * (minutes_of(str(getattr(provider, "walltime", ""))) or 60),
                **{name: getattr(provider, name, None) or "" for name in ("partition", "qos", "account")},
            }
        )

    def __call__(self) -> int:
        ready = int(self._plain())
        wait = self._expected.seconds()
        try:
            return ready if wait is None else ready + self._soon(wait)
        except Exception as e:  # another release of Parsl: it does as ever
            _log.warning("Parsl's tasks cannot be looked at; nothing is asked for ahead", why=repr(e))
            return ready

    def _soon(self, wait: float) -> int:
        now, slots = time.time(), self._slots()
        if slots:
            self._served_since = min(self._served_since, now)
        tasks = {n: task for n, task in list(self._dfk.tasks.items()) if task["executor"] == self._executor.label}
        launched = {n: task for n, task in tasks.items() if task["status"] in (States.launched, States.running)}
        left: dict[int, float] = {}
        self._began = {number: began for number, began in self._began.items() if number in launched}
        if slots:
            for number, task in launched.items():
                began = self._beginning(number, task, len(launched) <= slots)
                left[number] = self._known.get(task["func_name"], math.inf) - (now - began)
        pending = {
            number: [getattr(one, "tid", None) for one in task["depends"] if not one.done()]
            for number, task in tasks.items()
            if task["status"] is States.pending
        }
        # What was counted stays so: with less to do Parsl ends blocks, those that wait in the queue first.
        self._counted &= pending.keys()
        self._counted |= ready_within(pending, left, wait)
        return len(self._counted)

    def _slots(self) -> int:
        """Workers that are there. Of a block's job Parsl hears a minute late, of a worker that connects at once."""
        if hasattr(self._executor, "connected_managers"):
            return sum(one["worker_count"] for one in self._executor.connected_managers())
        running = sum(one.state == JobState.RUNNING for one in self._executor.status_facade.values())
        return int(running * self._executor.provider.nodes_per_block * self._executor.workers_per_node)

    def _beginning(self, number: int, task: Any, at_once: bool) -> float:  # noqa: ANN401
        """Parsl knows when a task was handed over, and not when it began: that is the same if a worker was free."""
        if number not in self._began:
            began = max(task["try_time_launched"].timestamp(), self._served_since)
            self._began[number] = began
            if at_once:
                task["app_fu"].add_done_callback(lambda future: self._learn(task["func_name"], began, future))
        return self._began[number]

    def _learn(self, name: str, began: float, future: Future[Any]) -> None:
        if future.exception() is None:
            took = time.time() - began
            self._known[name] = took + _OLD * (self._known.get(name, took) - took)
