"""How near expected starts come, and what their bands hold: every job that waits at some submissions of a log.

The truth is a replay of the whole log under `replan` (everybody planned anew by the users' time limits at each event,
as Slurm's backfill does), which knows nothing of what is expected. What is expected is what the product says of a job
that is submitted now, from what had happened by then.
"""

from __future__ import annotations

import random
import statistics
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.core.pace import at_once
from penstock.future.bands import SURE, Band, Misses, band_of, guaranteed_start, likely_starts
from penstock.future.past import HOUR, PastJob, QueuePast, latest_of_each
from penstock.future.present import Present, Running, Waiting
from penstock_lab.intervals import mean_of, ratio_of_means
from penstock_lab.papers.chapters import Tell
from penstock_lab.papers.provision_world import SITES, log_of
from penstock_lab.papers.queue_log import read
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces
from penstock_lab.sim.replay import replay
from penstock_lab.sim.trace import Trace

__all__ = ["Expected", "Replayed", "expectations", "starts"]

_JOBS: Final = 400
_FULL: Final = 10
_HALF: Final = 0.5
_LEAST, _MOST = 0.88, 0.92
_HOURS: Final = 21 * 24  # as `PastRecorder` keeps them
_ENDED: Final = 5000
_LONGEST: Final = 8 * 86400  # a job that came so long ago has ended


class Expected(NamedTuple):
    """Of one job (s): submission, its start, the one by time limits, the band as drawn, and as it was widened."""

    submit: float
    start: float
    guaranteed: float
    drawn: Band
    band: Band


class Replayed:
    """A log under `replan`, and what could be seen of it at an instant."""

    def __init__(self, log: Path, procs: int) -> None:
        jobs = [job for job in read(log)[0] if job.run > 0 and job.nodes <= procs]
        jobs.sort(key=lambda job: job.submit)
        self.procs = procs
        self.jobs = [PastJob(j.submit, j.nodes, j.limit, "", max(1, min(j.run, j.limit)), j.user) for j in jobs]
        rows = ((i, int(j.submit), int(j.run or 1), j.nodes, int(j.limit)) for i, j in enumerate(self.jobs))
        trace = Trace.of(rows)
        self.starts = [0.0] * len(self.jobs)
        for number, start in zip(trace.ids, replay(trace, procs, "replan"), strict=True):
            self.starts[number] = float(start)
        self.submits = [job.submit for job in self.jobs]
        self._by_end = sorted(range(len(self.jobs)), key=self.end)
        self._ends = [self.end(i) for i in self._by_end]

    def end(self, i: int) -> float:
        """When a job ends."""
        return self.starts[i] + (self.jobs[i].run or 0.0)

    def waiting(self) -> list[int]:
        """The jobs that do not start at once, but for a tenth of the log at either end."""
        count = len(self.jobs)
        return [i for i in range(count // 10, 9 * count // 10) if self.starts[i] > self.submits[i]]

    def present(self, i: int) -> Present:
        """The queue and the machine as job `i` finds them."""
        now = self.submits[i]
        before = range(bisect_right(self.submits, now - _LONGEST), i)
        running = [
            Running((self.jobs[j].nodes,), self.starts[j], self.jobs[j].limit, self.starts[j] + self.jobs[j].limit,
                    user=self.jobs[j].user)
            for j in before if self.starts[j] < now < self.end(j)
        ]  # fmt: skip
        waiting = [
            Waiting(self.jobs[j].nodes, 0, self.jobs[j].limit, now, self.jobs[j].user)
            for j in before
            if self.starts[j] >= now
        ]
        free = self.procs - sum(job.cells[0] for job in running)
        return Present(now, (1,), ((0,),), (free,), tuple(running), tuple(waiting), (), {"": 0})

    def past(self, i: int) -> QueuePast:
        """What an agent knows by then that has watched the queue for three weeks."""
        now = self.submits[i]
        last = bisect_right(self._ends, now)
        ended = [self.jobs[j] for j in self._by_end[max(last - _ENDED, 0) : last]]
        hour = int(now // HOUR)
        first, end = (bisect_right(self.submits, h * HOUR - 1) for h in (hour - _HOURS, hour))
        came = [
            self.jobs[j] if self.end(j) <= now else self.jobs[j]._replace(run=None) for j in range(first, min(end, i))
        ]
        used = tuple(share for job in ended if (share := job.used) is not None)
        return QueuePast(used, (), tuple(came), tuple(range(hour - _HOURS, hour)), latest_of_each(ended))


def expectations(log: Replayed, which: Sequence[int]) -> Iterator[Expected]:
    """What is expected of these jobs, in order of submission. A band is widened by those whose jobs had started."""
    open_ones: list[tuple[float, Band]] = []
    misses = Misses()
    for i in which:
        now, job = log.submits[i], log.jobs[i]
        for start, band in sorted(one for one in open_ones if one[0] <= now):
            misses.judge(band, start)
        open_ones = [one for one in open_ones if one[0] > now]
        present = log.present(i)
        guaranteed = at_once(guaranteed_start(present, job.nodes, job.limit))
        found = at_once(likely_starts(present, log.past(i), job.nodes, job.limit, seed=i))
        drawn = band_of(found, now)
        open_ones.append((log.starts[i], drawn))
        yield Expected(now, log.starts[i], guaranteed, drawn, band_of(found, now, misses.wider))


def _holds(band: Band, start: float) -> bool:
    return band.low - 1 <= start <= band.high + 1  # whole seconds


def starts(_out: Path | None, tell: Tell, runs: int) -> Chapter:
    """Errors and bands by site."""
    many = _JOBS if runs >= _FULL else 4 * runs
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    for site, info in SITES.items():
        tell(f"starts: {site}")
        log = Replayed(log_of(traces(), site), info.procs)
        can = log.waiting()
        which = sorted(random.Random(7).sample(can, min(many, len(can))))
        found = list(expectations(log, which))
        limits = [abs(e.guaranteed - e.start) for e in found]
        likely = [abs(min(e.band.likely, e.guaranteed) - e.start) for e in found]
        ratio = ratio_of_means(likely, limits)
        cover = mean_of([float(_holds(e.band, e.start)) for e in found])
        drawn = statistics.mean(_holds(e.drawn, e.start) for e in found)
        wide = statistics.median((min(e.band.high, e.guaranteed) - e.band.low) / 3600 for e in found)
        rows.append(
            {
                "site": site, "jobs": len(found), "wait": statistics.mean(e.start - e.submit for e in found) / 3600,
                "by_limits": statistics.mean(limits) / 3600, "likely": statistics.mean(likely) / 3600,
                "median_by_limits": statistics.median(limits) / 3600, "median_likely": statistics.median(likely) / 3600,
                "ratio": ratio.told(), "cover": cover.told(), "cover_drawn": drawn, "width": wide,
            }
        )  # fmt: skip
        goals.append(Goal.of(site, "error of the likely start over that by time limits", ratio, _HALF))
        goals.append(Goal.of(site, f"share of starts in the {SURE:.0%} band, or it is too wide", cover, _MOST))
        outside = mean_of([float(not _holds(e.band, e.start)) for e in found])
        goals.append(Goal.of(site, "share of starts outside it", outside, 1 - _LEAST))
    text = (
        "Jobs that have to wait, in the queue of a log that is replayed with everybody planned anew by the users' time "
        "limits at each event. `by limits`: the start that a plan by limits promises. `likely`: the median of 40 drawn "
        "futures. Errors in hours, 95 % intervals over jobs. The band is widened by what earlier ones missed."
    )
    columns = (
        "site",
        "jobs",
        "wait",
        "by limits",
        "likely",
        "medians",
        "likely/limits",
        "in the band",
        "as drawn",
        "wide",
    )
    cells = [
        (
            *(r["site"], str(r["jobs"]), f"{r['wait']:.1f}", f"{r['by_limits']:.2f}", f"{r['likely']:.2f}"),
            f"{r['median_by_limits']:.2f}, {r['median_likely']:.2f}",
            *(r["ratio"], r["cover"], f"{r['cover_drawn']:.2f}", f"{r['width']:.1f}"),
        )
        for r in rows
    ]
    return Chapter("starts", "Starts: promised and likely", text, rows, [Table("Starts", columns, cells)], goals)
