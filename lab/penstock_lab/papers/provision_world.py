"""The dissertation's two clusters for `penstock bench provision`: exact run times, conservative by Figure 2.

With exact estimates a job's place never changes once it has one, so the whole simulation is the table of free slots:
every job of the log is put on it when it arrives. A copy of the table at some instant is what is advertised then.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

from penstock.errors import UserError
from penstock_lab.sim.swf import load
from penstock_planning.plan.besteffort import when_parents_end
from penstock_planning.plan.dag import Dag, one_site
from penstock_planning.plan.slots import Slot
from penstock_planning.plan.table import SlotTable

__all__ = [
    "COPIES",
    "SITES",
    "Jobs",
    "World",
    "a_workflow",
    "best_effort",
    "cybershake",
    "instants",
    "log_of",
    "read_jobs",
    "read_limited_jobs",
    "utilisation",
    "with_second_copy",
]

WEEK: Final = 7 * 86400


@dataclass(frozen=True, slots=True)
class SiteLog:
    """A log and the size of its machine in the dissertation; `tasks` are the mean processors of a task (4.7)."""

    pattern: str
    procs: int
    tasks: int
    slots: int


SITES: Final = {"CTC": SiteLog("CTC-SP2", 430, 22, 27), "SDSC": SiteLog("SDSC-SP2", 128, 6, 14)}
COPIES: Final = {"CTC": (0.0, 0.2, 0.35), "SDSC": (0.0, 0.05, 0.1)}
"""Shares of the second copy that give about the dissertation's loads: 63, 76, 88 % of CTC, and 84 to 90 % of SDSC.
Its 70 and 78 % cannot be had: as cleaned today, this log alone loads the machine by 83 %."""

Jobs = list[tuple[int, ...]]
"""(submission, run time, processors) by submission; with a fourth, the time limit, where run times are not known."""


def read_jobs(logs: Sequence[Path], site: str) -> Jobs:
    """The jobs of a site's log, each with its real run time. UserError if the log is not there."""
    trace = load(log_of(logs, site), SITES[site].procs, "singh", "actual").trace
    return sorted(zip(trace.submit, trace.run, trace.procs, strict=True))


def read_limited_jobs(logs: Sequence[Path], site: str) -> Jobs:
    """The jobs with the time that their users asked for, those that are complete. UserError as above."""
    trace = load(log_of(logs, site), SITES[site].procs, "strong", "user").trace
    return sorted(zip(trace.submit, trace.run, trace.procs, trace.estimate, strict=True))


def log_of(logs: Sequence[Path], site: str) -> Path:
    """The log of a site among these files. UserError if it is not there."""
    found = [path for path in logs if SITES[site].pattern in path.name]
    if not found:
        raise UserError(f"PENSTOCK_TRACES has no log named {SITES[site].pattern}*")
    return found[0]


def with_second_copy(jobs: Jobs, share: float, seed: int) -> Jobs:
    """More load: the log again, a week later, each job with this probability (section 4.7)."""
    rng = random.Random(seed)
    more = [(submit + WEEK, *rest) for submit, *rest in jobs if rng.random() < share]
    return sorted([*jobs, *more])


def utilisation(jobs: Jobs, procs: int) -> float:
    """Work over the machine's time from the first submission to the last."""
    return sum(run * width for _, run, width, *_ in jobs) / (procs * (jobs[-1][0] - jobs[0][0]))


def instants(jobs: Jobs, runs: int, seed: int) -> list[float]:
    """Submission times in the middle of the log, where there is load before and after."""
    rng = random.Random(seed)
    first, last = jobs[len(jobs) // 10][0], jobs[9 * len(jobs) // 10][0]
    return sorted(rng.uniform(first, last) for _ in range(runs))


class World:
    """A machine to which the jobs of a log come."""

    def __init__(self, procs: int, jobs: Jobs) -> None:
        self.procs = procs
        self.jobs = jobs
        self.table = SlotTable([Slot(jobs[0][0], procs, 1.0, divisible=True, extensible=True)], named=False)
        self._next = 0
        self.ends: list[float] = []

    def copy(self) -> World:
        """One that goes its own way; the log is shared."""
        twin = copy.copy(self)
        twin.table, twin.ends = copy.copy(self.table), list(self.ends)
        twin.table.pieces, twin.table.starts = list(self.table.pieces), list(self.table.starts)
        twin.table.used = {}
        return twin

    def to(self, time: float) -> None:
        """Let everybody come who comes up to and at this time."""
        while self._next < len(self.jobs) and self.jobs[self._next][0] <= time:
            submit, run, procs = self.jobs[self._next]
            self._next += 1
            self.table.forget(submit)
            start = self.table.put(procs, run, submit)
            assert start is not None
            heappush(self.ends, start + run)
        self.table.forget(time)

    def in_system(self, time: float) -> int:
        """Jobs that run or wait."""
        while self.ends and self.ends[0] <= time:
            heappop(self.ends)
        return len(self.ends)

    def advertised(self) -> list[Slot]:
        """The slots: those without an end are divisible and extensible."""
        out = []
        for piece in self.table.pieces:
            ever = piece.end == float("inf")
            length = 48 * 3600.0 if ever else piece.end - piece.start
            out.append(Slot(piece.start, piece.procs, length, divisible=ever, extensible=ever))
        return out


def best_effort(world: World, dag: Dag, now: float) -> float:
    """The makespan if each task is submitted when its parents have ended, among all who come meanwhile."""

    def submit(when: float, task: int) -> float:
        world.to(when)
        asked = dag.tasks[task]
        start = world.table.put(asked.procs, asked.durations[0], when)
        assert start is not None
        return start + asked.durations[0]

    return when_parents_end(dag, now, submit) - now


def a_workflow(tasks: int, levels: int, procs: int, widest: int, seed: int) -> Dag:
    """Figure 12: levels of equal size, two parents each, 1,000 s and `procs` processors on average."""
    rng = random.Random(seed)
    rows: list[tuple[str, int, float, list[str]]] = []
    before: list[str] = []
    for _ in range(levels):
        level = [f"t{len(rows) + i}" for i in range(tasks // levels)]
        for name in level:
            width = min(widest, rng.randint(1, 2 * procs - 1))
            rows.append((name, width, rng.randint(500, 1500), rng.sample(before, min(2, len(before)))))
        before = level
    return one_site(rows)


def cybershake() -> Dag:
    """Table 2 and Figure 17: 8,039 tasks, two of them 24 hours on 288 processors."""
    rows: list[tuple[str, int, float, list[str]]] = [("xyz", 1, 1, []), ("preSGT", 1, 300, ["xyz"])]
    rows.append(("cvm", 288, 2100, ["xyz"]))
    rows += [(name, 288, 86400, ["preSGT", "cvm"]) for name in ("pvml_chk1", "pmvl_chk2")]
    rows += [(f"synth{i}", 1, 519, ["pvml_chk1", "pmvl_chk2"]) for i in range(4017)]
    return one_site([*rows, *((f"peak{i}", 1, 1, [f"synth{i}"]) for i in range(4017))])
