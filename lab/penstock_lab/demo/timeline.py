"""Who held which node when, sampled tick by tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.api import Job

__all__ = ["Bar", "Timeline"]


@dataclass(slots=True)
class Bar:
    """A job on a node from `start` to `end` (seconds since the epoch)."""

    node: str
    job: int
    label: str
    start: float
    end: float


class Timeline:
    """Joins samples to bars. `label` names a job for the picture's legend.

    When a job began and ended Slurm says. When one that runs has got or given back a node it does not: that is known as
    exactly as the samples are close.
    """

    def __init__(self, label: Callable[[Job], str]) -> None:
        self._label = label
        self._open: dict[tuple[str, int], Bar] = {}
        self._begun: set[int] = set()
        self.bars: list[Bar] = []
        self.marks: list[tuple[float, str]] = []

    def mark(self, at: float, text: str) -> None:
        """Note an instant worth a word in the picture."""
        self.marks.append((at, text))

    def sample(self, at: float, jobs: Iterable[Job]) -> None:
        """What is held at this instant."""
        seen = {job.id: job for job in jobs}
        held = {(node, job.id): job for job in seen.values() if job.state.holds_nodes for node in job.nodes}
        for key in [k for k in self._open if k not in held]:
            over, gone = self._open.pop(key), seen.get(key[1])
            ended = gone.end if gone is not None and gone.state.ended else None
            over.end = at if ended is None else max(min(ended, at), over.start)
        for key, job in held.items():
            bar = self._open.get(key)
            if bar is None:
                # One that had nodes before has been given this one since the last sample.
                began = at if job.id in self._begun or job.start is None else job.start
                bar = self._open[key] = Bar(key[0], key[1], self._label(job), self._after(key[0], began), at)
                self.bars.append(bar)
            bar.end = at
        self._begun.update(job for _node, job in held)

    def _after(self, node: str, began: float) -> float:
        """When a job got the node, which began to hold it at `began`: not while another still had it. That may have
        been seen to leave it a moment late."""
        last = max((b for b in self.bars if b.node == node), key=lambda bar: bar.end, default=None)
        if last is None:
            return began
        last.end = max(last.start, min(last.end, began))
        return max(began, last.end)
