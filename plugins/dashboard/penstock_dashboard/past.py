"""Who held which nodes since the page's program looks: Slurm forgets ended jobs, and which nodes a job once had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.api import Job

__all__ = ["KEPT", "JobHistory", "NodeSpan"]

KEPT: Final = 86400.0
"""Seconds for which what is over is kept."""
_MOST: Final = 5000
_SAME: Final = 1.0


@dataclass(frozen=True, slots=True)
class NodeSpan:
    """A job on the same nodes from `start` to `end`, None: still. A job that is resized has several."""

    job: int
    user: str
    partition: str
    nodes: tuple[str, ...]
    start: float
    end: float | None
    job_start: float | None


class JobHistory:
    """Joins looks to stretches of time. `since` is when the first look was: what was over by then is not known."""

    def __init__(self) -> None:
        self._open: dict[int, NodeSpan] = {}
        self._over: list[NodeSpan] = []
        self.since: float | None = None

    def see(self, at: float, jobs: Mapping[int, Job], resized: Mapping[int, float]) -> None:
        """What there is at this instant. `resized`: when jobs got their present nodes, if not at their start."""
        if self.since is None:
            self.since = at
        holding = {job.id: job for job in jobs.values() if job.state.holds_nodes and job.nodes}
        for number, held in list(self._open.items()):
            job = holding.get(number)
            again = job is not None and _moved(held.job_start, job.start)
            if job is None or again or job.nodes != held.nodes:
                # The agent knows when it resized a job; that it is otherwise is seen a while later.
                told = resized.get(number, at)
                changed = told if job is not None and not again and held.start < told < at else at
                self._close(held, changed, jobs.get(number), again)
                del self._open[number]
                if job is not None:
                    self._open[number] = _held(job, (job.start or at) if again else changed)
        new = [job for number, job in holding.items() if number not in self._open]
        ended = {held.job: held.end or 0.0 for held in self._over} if new else {}
        for job in new:
            # Seen for the first time: on these nodes at least since its last resize. Seen again, after a picture in
            # which it was missing: since that.
            since = max(job.start or at, resized.get(job.id, 0.0), ended.get(job.id, 0.0))
            self._open[job.id] = _held(job, min(since, at))
        self._over = [h for h in self._over if (h.end or at) > at - KEPT][-_MOST:]

    def _close(self, held: NodeSpan, at: float, job: Job | None, again: bool) -> None:
        end = at
        if job is not None and not again and job.state.ended and job.end is not None:
            end = min(job.end, at)
        if end > held.start:
            self._over.append(replace(held, end=end))

    @property
    def over(self) -> Iterable[NodeSpan]:
        """What has ended, in the order of its end."""
        return self._over

    @property
    def held(self) -> Iterable[NodeSpan]:
        """What is held now."""
        return self._open.values()


def _moved(before: float | None, now: float | None) -> bool:
    """Whether a job of the same number has begun anew."""
    return before is not None and now is not None and abs(before - now) > _SAME


def _held(job: Job, start: float) -> NodeSpan:
    return NodeSpan(job.id, job.user, job.partition, job.nodes, start, None, job.start)
