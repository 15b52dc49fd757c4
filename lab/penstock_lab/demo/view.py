"""The live view: nodes, stages and events while they happen; plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.api import Job
from penstock.workflow.state import WorkflowRun

__all__ = ["View"]

_STYLES = {"rival": "grey50", "warm-up": "blue", "jacobi": "dark_orange", "resizer": "yellow"}


class View:
    """Shows what happens. `say` notes an event, `show` replaces the picture."""

    def __init__(self, nodes: Sequence[str], terminal: bool | None = None) -> None:
        self._nodes = nodes
        self._console = Console(stderr=False)
        self._live: Live | None = None
        self._terminal = sys.stdout.isatty() if terminal is None else terminal
        self._events: deque[str] = deque(maxlen=8)
        self._started = time.monotonic()

    def __enter__(self) -> View:
        if self._terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Note an event."""
        line = f"{time.monotonic() - self._started:6.1f}s  {text}"
        self._events.append(line)
        if self._live is None:
            print(line, flush=True)

    def show(self, title: str, jobs: Sequence[Job], labels: Mapping[int, str], run: WorkflowRun | None = None) -> None:
        """Redraw."""
        if self._live is None:
            return
        parts: list[RenderableType] = [self._cluster(jobs, labels)]
        if run is not None:
            parts.append(self._stages(run))
        parts.append(Text("\n".join(self._events)))
        self._live.update(Panel(Group(*parts), title=title, title_align="left"))

    def _cluster(self, jobs: Sequence[Job], labels: Mapping[int, str]) -> RenderableType:
        owner = {node: job for job in jobs if job.state.holds_nodes for node in job.nodes}
        grid = Table.grid(padding=(0, 1))
        cells = []
        for node in self._nodes:
            job = owner.get(node)
            label = labels.get(job.id, "rival") if job else "idle"
            cells.append(Text(f"{node} {label:<8.8}", style=_STYLES.get(label, "green" if job else "dim")))
        half = (len(cells) + 1) // 2
        grid.add_row(*cells[:half])
        grid.add_row(*cells[half:])
        pending = sum(job.pending for job in jobs)
        return Group(grid, Text(f"{pending} pending", style="dim"))

    def _stages(self, run: WorkflowRun) -> RenderableType:
        table = Table(box=None, pad_edge=False)
        for column in ("stage", "phase", "job"):
            table.add_column(column)
        for s in run.stages:
            table.add_row(s.name, s.phase.value, str(s.job or ""))
        return table
