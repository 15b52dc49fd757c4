"""What a malleable job does to the jobs of real logs on the simulated Slurm, under the real agent.

Windows of a log, each run twice: with one more job that is malleable, and with the same job kept at its submitted size.
It is submitted when the machine has filled up. Others have the limits that their users gave, or limits equal to their
run times. Where jobs end before their limits any change moves everything behind it, one way or the other; so what
counts is how others' delays are distributed, with intervals from resampled windows.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from penstock.api import JobSpec
from penstock.host import logs as logs_of_the_agent
from penstock_lab.intervals import Interval, resampled
from penstock_lab.papers.dmr.drive import SITE, Outcome, Site, drive
from penstock_lab.papers.dmr.models import Model
from penstock_lab.papers.dmr.paper import Application
from penstock_lab.papers.dmr.workload import Entry
from penstock_lab.sim.swf import load, machine_procs
from penstock_lab.sim.trace import Trace
from penstock_planning.select.speedup import Amdahl

__all__ = ["JOBS", "LIMITS", "SLACK", "WINDOWS", "Row", "Window", "judged", "measure", "one"]

WINDOWS: Final = 12
LIMITS: Final = ("user", "actual")
JOBS: Final = 150
"""Of a window."""
_AHEAD: Final = 75  # of these are submitted before the malleable job
_NODES: Final = 16
_MOST: Final = 64
_LEAST: Final = 4
_HOURS: Final = 4.0  # of the malleable job at its submitted size
_LOOK: Final = 60.0
SLACK: Final = 60.0  # seconds between a run time and a limit that is equal to it: a job must be able to end by itself
_NAME: Final = "malleable"


@dataclass(frozen=True, slots=True)
class Window:
    """One window: by how many seconds each job that came after the malleable one or waited with it began later than
    beside the kept one, and nodes that it was given."""

    log: str
    limits: str
    number: int
    delays: Sequence[float]
    grown: int
    gain: float


@dataclass(frozen=True, slots=True)
class Row:
    """All windows of a log; seconds, each with its 95 % interval. `gain` is by how much earlier the malleable job ended
    on average, `moved` the share of jobs that began more than a minute later or earlier."""

    log: str
    limits: str
    windows: int
    jobs: int
    grown: int
    gain: float
    moved: float
    mean: Interval
    p95: Interval

    def row(self) -> dict[str, object]:
        """For programs."""
        names = ("log", "limits", "windows", "jobs", "grown", "gain", "moved")
        found: dict[str, object] = {name: getattr(self, name) for name in names}
        for name, values in (("mean_s", self.mean), ("p95_s", self.p95)):
            found |= dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))
        return found


def measure(
    paths: Sequence[Path], windows: int = WINDOWS, tell: Callable[[str], None] = lambda text: None
) -> list[Row]:
    """All windows of all logs, as many at once as there are cores. UserError for a log that cannot be read."""
    found: dict[tuple[Path, str], list[Window]] = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # Window by window through all logs.
        wanted = [(path, limits, n) for n in range(windows) for path in paths for limits in LIMITS]
        pending = {pool.submit(one, *each, windows): each for each in wanted}
        for done, future in enumerate(as_completed(pending), 1):
            path, limits, n = pending[future]
            found.setdefault((path, limits), []).append(future.result())
            tell(f"{done}/{len(pending)} {path.name}, limits: {limits}, window {n}")
    return [judged(sorted(found[path, limits], key=lambda w: w.number)) for path in paths for limits in LIMITS]


def one(path: Path, limits: str, number: int, windows: int) -> Window:
    """One window of so many that are spread over the log."""
    logs_of_the_agent.configure("critical", "text")
    procs = machine_procs(path)
    trace = load(path, procs, estimates=limits).trace
    first = (len(trace) - JOBS) * number // max(windows - 1, 1)
    entries = list(_entries(trace, first))
    site = Site(
        replace(SITE.cluster, nodes=procs, cpus=1),
        {"agent": {"interval": _LOOK, "idle_interval": _LOOK}, "slurm": {"min_interval": _LOOK}},
    )
    kept, malleable = (
        asyncio.run(drive([replace(e, malleable=m and e.spec.name == _NAME) for e in entries], "throughput", site=site))
        for m in (False, True)
    )
    return _compared(path.name.split("-")[0], limits, number, kept, malleable)


def _compared(log: str, limits: str, number: int, kept: Outcome, malleable: Outcome) -> Window:
    before = {r.name: r for r in kept.ran}
    me = before[_NAME]
    others = [r for r in malleable.ran if r.name != _NAME and before[r.name].start >= me.start]
    done = [r for r in malleable.resizes if r["kind"] == "expand" and r["outcome"] == "completed"]
    grown = sum(r["new_size"] - r["old_size"] for r in done)
    end = next(r.end for r in malleable.ran if r.name == _NAME)
    return Window(log, limits, number, [r.start - before[r.name].start for r in others], grown, me.end - end)


def _entries(trace: Trace, first: int) -> Iterator[Entry]:
    zero = trace.submit[first]
    for n in range(first, first + JOBS):
        submit = float(trace.submit[n] - zero)
        if n == first + _AHEAD:
            yield _entry(_NAME, submit, _NODES, _HOURS * 3600.0, _HOURS * 3600.0 + 600.0, Amdahl(0.02))
        limit = trace.estimate[n] + SLACK
        yield _entry(f"j{n}", submit, trace.procs[n], float(trace.run[n]), limit, Amdahl(1.0))


def _entry(name: str, submit: float, nodes: int, run: float, limit: float, speedup: Amdahl) -> Entry:
    row = Application(name, 1440, _LEAST, _MOST, _NODES, _LOOK)
    return Entry(
        submit, JobSpec(name, "#!/bin/sh\n", nodes, limit), Model(row, run * speedup.at(nodes), speedup), False, 2
    )


def judged(found: Sequence[Window]) -> Row:
    """What they say together; windows are resampled as wholes, as the jobs of one hang together."""
    delays = [np.asarray(w.delays, dtype=float) for w in found]
    whole = np.concatenate(delays)
    return Row(
        found[0].log,
        found[0].limits,
        len(found),
        len(whole),
        sum(w.grown for w in found),
        float(np.mean([w.gain for w in found])),
        float((np.abs(whole) > 60).mean()),
        resampled(len(found), lambda draw: np.concatenate([delays[i] for i in draw]).mean()),
        resampled(len(found), lambda draw: np.percentile(np.concatenate([delays[i] for i in draw]), 95)),
    )
