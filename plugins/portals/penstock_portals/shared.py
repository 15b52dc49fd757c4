"""Answers that all users of a hub share for some seconds: however many pages are shown, the agent is asked once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock_portals.asking import ask

__all__ = ["SharedAnswers"]

_KEPT = 5.0
_MOST = 1000


class SharedAnswers:
    """`request` asks (socket, request, patience in s) in a thread; `now` tells seconds."""

    def __init__(
        self,
        request: Callable[[str, Mapping[str, Any], float], dict[str, Any]] = ask,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request = request
        self._now = now
        self._tasks: dict[str, tuple[float, asyncio.Task[dict[str, Any]]]] = {}

    async def expect(self, path: str, jobs: Sequence[Mapping[str, Any]], patience: float) -> dict[str, Any]:
        """What these jobs would wait, not older than some seconds. Raises AgentSilent, AgentRefusal."""
        return await self._shared(path, {"op": "expect", "jobs": list(jobs)}, patience)

    async def turn(self, path: str, job: int, patience: float) -> dict[str, Any]:
        """Where this job stands in the queue, not older than some seconds. Raises AgentSilent, AgentRefusal."""
        # `op` first: such requests have a measure of their own, as there is one for each server that waits.
        return await self._shared(path, {"op": "turn", "job": job}, patience)

    async def _shared(self, path: str, request: Mapping[str, Any], patience: float) -> dict[str, Any]:
        key, now = json.dumps([path, request]), self._now()
        if len(self._tasks) >= _MOST:
            self._tasks = {k: known for k, known in self._tasks.items() if now - known[0] < _KEPT}
        if key not in self._tasks or now - self._tasks[key][0] >= _KEPT:
            # A failure is shared as well: where no agent is, each page would wait for it.
            task = asyncio.ensure_future(asyncio.to_thread(self._request, path, request, patience))
            task.add_done_callback(_retrieved)
            self._tasks[key] = now, task
        # Others wait for the same answer: one who goes must not take it from them.
        return await asyncio.shield(self._tasks[key][1])


def _retrieved(task: asyncio.Task[dict[str, Any]]) -> None:
    """Nobody may be left who asks what became of it."""
    if not task.cancelled():
        task.exception()
