"""Adaptive scaling for clusters of dask-jobqueue, where a new worker has to wait in Slurm's queue.

    cluster.adapt(maximum_jobs=8, Adaptive=PenstockAdaptive)

Dask's own cancels workers that wait in the queue as soon as there is less to do for some seconds, and submits them
anew, at the queue's end, when there is more.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Hashable, Mapping
from typing import Any, Final

from distributed.deploy.adaptive import Adaptive

from penstock.tools.expected import ExpectedWait, geometry_of_script, ready_within

__all__ = ["PenstockAdaptive"]

_UNKNOWN: Final = 600.0  # seconds


class PenstockAdaptive(Adaptive):
    """Workers that wait in the queue are kept until there has been too little for them to do for as long as a new one
    is expected to wait: who cancels before gives more time away than is saved. And workers are asked for ahead: for
    tasks that will be ready by the time that a new one is there. How long tasks run Dask has learned by their name;
    `expect` says it (seconds, by name) before it has.

    Without an agent waits are taken to be `unknown` seconds, and nothing is asked for ahead.
    """

    cluster: Any
    _clock = staticmethod(time.monotonic)

    def __init__(
        self,
        cluster: Any = None,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        expect: Mapping[str, float] | None = None,
        unknown: float = _UNKNOWN,
        **options: Any,  # noqa: ANN401 (those of Dask's)
    ) -> None:
        self._expect = dict(expect or {})
        self._unknown = unknown
        self._expected = ExpectedWait(geometry_of_script(getattr(cluster, "job_header", "")))
        self._wait: float | None = None
        self._less_since: float | None = None
        self._keep = 0.0  # the longest wait that was expected since
        self._seen: dict[Hashable, float] = {}
        self._counted: set[Hashable] = set()
        super().__init__(cluster, *args, **options)

    async def target(self) -> int:
        """How many workers there should be, those that are asked for ahead included."""
        plain = int(await super().target())  # type: ignore[no-untyped-call]
        self._wait = await asyncio.to_thread(self._expected.seconds)
        return plain if self._wait is None else max(plain, self._ahead(self._wait))

    async def recommendations(self, target: int) -> dict[str, Any]:
        """What to do; workers that wait in the queue are no part of it too early."""
        told: dict[str, Any] = await super().recommendations(target)
        now = self._clock()
        expected = self._unknown if self._wait is None else self._wait
        if target >= len(self.plan):
            self._less_since = None
        elif self._less_since is None:
            self._less_since, self._keep = now, expected
        self._keep = max(self._keep, expected)
        if told["status"] != "down" or self._less_since is None:
            return told
        if now - self._less_since > self._keep:
            return told
        waiting = self.plan - self.observed
        running = [worker for worker in told["workers"] if worker not in waiting]
        return {"status": "down", "workers": running} if running else {"status": "same"}

    def _ahead(self, wait: float) -> int:
        """Workers for what will run in `wait` seconds: tasks that go on till then, and tasks that are ready by then."""
        scheduler = self.cluster.scheduler
        if not hasattr(scheduler, "tasks"):  # it runs elsewhere
            return 0
        now = self._clock()
        waiting, left = {}, {}
        for key, task in scheduler.tasks.items():
            if task.state == "waiting":
                waiting[key] = [other.key for other in task.waiting_on]
            elif task.state == "processing":
                began = self._seen.setdefault(key, now)
                left[key] = self._run_time(task.prefix) - (now - began)
        self._seen = {key: began for key, began in self._seen.items() if key in left}
        # What was counted stays so, or a wait that is expected to be shorter now would cancel what was asked for.
        self._counted &= waiting.keys()
        self._counted |= ready_within(waiting, left, wait)
        if not self._counted:
            return 0
        still = sum(seconds > wait for seconds in left.values())
        workers = scheduler.workers.values()
        threads = sum(worker.nthreads for worker in workers) / len(workers) if workers else 1.0
        return math.ceil((len(self._counted) + still) / threads)

    def _run_time(self, prefix: Any) -> float:  # noqa: ANN401
        if prefix is None:
            return math.inf
        learned = float(prefix.duration_average)
        return learned if learned >= 0 else self._expect.get(prefix.name, math.inf)
