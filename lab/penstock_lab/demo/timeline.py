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
    """Joins samples to bars. `label` names a job for the picture's legend."""

    def __init__(self, label: Callable[[Job], str]) -> None:
        self._label = label
        self._open: dict[tuple[str, int], Bar] = {}
        self.bars: list[Bar] = []
        self.marks: list[tuple[float, str]] = []

    def mark(self, at: float, text: str) -> None:
        """Note an instant worth a line in the picture."""
        self.marks.append((at, text))

    def sample(self, at: float, jobs: Iterable[Job]) -> None:
        """What is held at this instant."""
        held = {(node, job.id): job for job in jobs if job.state.holds_nodes for node in job.nodes}
        for key in [k for k in self._open if k not in held]:
            self._open.pop(key).end = at
        for key, job in held.items():
            bar = self._open.get(key)
            if bar is None:
                bar = Bar(key[0], key[1], self._label(job), max(job.start or at, self._last(key[0])), at)
                bar.start = min(bar.start, at)
                self._open[key] = bar
                self.bars.append(bar)
            bar.end = at

    def _last(self, node: str) -> float:
        """A job cannot have held a node before another one left it."""
        return max((b.end for b in self.bars if b.node == node), default=0.0)
