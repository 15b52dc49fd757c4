"""What becomes of a few jobs in a queue whose future is given: EASY backfilling, event by event, in counts of nodes.

The rules are those of Slurm as far as `present` has them:

    order     who waits now, in Slurm's order; behind them whoever comes later, by when that is. A job of ours that
              depends on others comes when they have ended (`by_submission` false: it does not age before), or counts
              from now like those of ours that depend on nobody
    start     by time limits: the first job of an area that cannot start gets a reservation where it can start first,
              and who stands behind it starts where that leaves the reservations alone (Lifka 1995, one for each area)
    end       after its run time, which nobody knows before
    closed    nodes of a reservation: no job starts that could reach into it on them

In one area without reservations this is textbook EASY, and agrees to the second with the laboratory's. Where areas
overlap, each reservation is made by the time limits of running jobs alone, as if the others were not there. What comes
at the same instant counts as one event: ends first, then who comes, then one look at the queue. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Generator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, Protocol

from penstock.future.present import Present

__all__ = ["HORIZON", "Arrival", "Drawn", "OwnJob", "Span", "replay"]

HORIZON: Final = 30 * 86400.0
"""Seconds from now after which a replay ends: what has not started by then never does."""
_PART: Final = 500
"""Work between two breaths, in units of some three microseconds: an event is one of them."""
_LOOKED: Final = 50
"""Jobs in the queue, or on their nodes, that are looked at in such a unit."""


class OwnJob(NamedTuple):
    """A job of ours in the partition: nodes, time limit and run time (s), and the places of those it comes after."""

    nodes: int
    limit: float
    run: float
    after: tuple[int, ...] = ()


class Arrival(NamedTuple):
    """A job of others that is submitted at `submit` (s) to an area, runs for `run` seconds and says `limit`."""

    submit: float
    nodes: int
    area: int
    limit: float
    run: float


class Drawn(Protocol):
    """One drawn future of the others: the same for every cut that is tried in it."""

    ends: Sequence[float]
    """When each of `Present.running` ends (s)."""
    runs: Sequence[float]
    """How long each of `Present.waiting` will run (s)."""

    def arrival(self, i: int) -> Arrival | None:
        """The job that comes as the `i`-th, counted from 0, in order of submission; None: nobody comes any more."""
        ...


class Span(NamedTuple):
    """When a job started and ended (s); both infinite if it never did."""

    start: float
    end: float


def replay(
    present: Present, drawn: Drawn, jobs: Sequence[OwnJob], *, by_submission: bool = False
) -> Generator[int, None, list[Span]]:
    """The span of each of our jobs, all submitted now, in parts (see `Pace.walk`), each the work done since."""
    return _Replay(present, drawn, jobs, by_submission).run()


class _Replay:
    """Jobs are numbers: those that run now, those that wait, ours, and who comes."""

    def __init__(self, present: Present, drawn: Drawn, jobs: Sequence[OwnJob], by_submission: bool) -> None:
        self._present, self._drawn, self._jobs, self._by_submission = present, drawn, jobs, by_submission
        self._areas = range(len(present.areas))
        self._cells_of = [[c for c, areas in enumerate(present.cells) if a in areas] for a in self._areas]
        self._cells = list(present.free)
        self._free = self._by_area(present.free)
        now = present.now
        self._width = [sum(job.cells) for job in present.running]
        self._area = [0] * len(present.running)
        self._limit = [job.limit for job in present.running]
        self._run = [0.0] * len(present.running)
        self._taken: list[tuple[int, ...]] = [job.cells for job in present.running]
        self._given: list[Sequence[int]] = [self._by_area(job.cells) for job in present.running]
        self._until = [job.end for job in present.running]  # the end by its limit
        self._running = sorted((end, j) for j, end in enumerate(self._until))
        self._ends = [
            (max(end, job.kept), j) for j, (end, job) in enumerate(zip(drawn.ends, present.running, strict=True))
        ]
        heapify(self._ends)
        self._queue: list[tuple[float, int]] = []  # rank, job
        self._reserved: dict[int, list[float]] = {}  # by area: since when, and how many nodes beside it
        later = []
        for place, (waiting, run) in enumerate(zip(present.waiting, drawn.runs, strict=True)):
            j = self._add(waiting.nodes, waiting.area, waiting.limit, run)
            rank = float(place - len(present.waiting))
            if waiting.after <= now:
                self._queue.append((rank, j))
            elif waiting.after < math.inf:
                later.append((waiting.after, rank, j))
        self._later = sorted(later, reverse=True)
        self._first = len(self._width)
        for job in jobs:
            self._add(job.nodes, 0, job.limit, job.run)
        self._missing = [len(job.after) for job in jobs]
        self._children: list[list[int]] = [[] for _ in jobs]
        for i, job in enumerate(jobs):
            for parent in job.after:
                self._children[parent].append(i)
        self._looked = 0
        self._spans = [Span(math.inf, math.inf) for _ in jobs]
        self._queue += [(0.0, self._first + i) for i, job in enumerate(jobs) if not job.after]
        self._shut: list[tuple[float, int, tuple[int, ...]]] = []  # when, -1 closes and 1 opens, cells
        for closed in present.closed:
            if closed.start > now:
                self._shut.append((closed.start, -1, closed.cells))
            self._shut.append((closed.end, 1, closed.cells))
        self._shut.sort(reverse=True)
        self._closes = min((time for time, sign, _ in self._shut if sign < 0), default=math.inf)

    def _add(self, nodes: int, area: int, limit: float, run: float) -> int:
        self._width.append(nodes)
        self._area.append(area)
        self._limit.append(limit)
        self._run.append(min(run, limit))
        self._taken.append(())
        self._given.append(())
        self._until.append(math.inf)
        return len(self._width) - 1

    def _by_area(self, cells: Sequence[int]) -> list[int]:
        return [sum(cells[c] for c in self._cells_of[a]) for a in self._areas]

    def run(self) -> Generator[int, None, list[Span]]:
        """Until the last of ours has started."""
        now, last = self._present.now, self._present.now + HORIZON
        left = len(self._jobs) - self._look(now, 0)
        number, coming = 0, self._drawn.arrival(0)
        done = 20 + len(self._width) // 4
        while left:
            now = min(
                self._ends[0][0] if self._ends else math.inf,
                coming.submit if coming is not None else math.inf,
                self._later[-1][0] if self._later else math.inf,
                self._shut[-1][0] if self._shut else math.inf,
            )
            if now > last:
                break
            fresh = len(self._queue)  # from here on nobody has looked
            while self._ends and self._ends[0][0] <= now:
                self._over(heappop(self._ends)[1], now)
                fresh = 0
            while self._shut and self._shut[-1][0] <= now:
                self._turn(*self._shut.pop()[1:])
                fresh = 0
            while self._later and self._later[-1][0] <= now:
                _, rank, j = self._later.pop()
                insort(self._queue, (rank, j))
                fresh = 0
            while coming is not None and coming.submit <= now:
                rank = coming.submit - self._present.now
                j = self._add(coming.nodes, coming.area, coming.limit, coming.run)
                insort(self._queue, (rank, j))
                if self._queue[-1][1] != j:
                    fresh = 0
                number += 1
                coming = self._drawn.arrival(number)
            left -= self._look(now, fresh)
            done += 1 + self._looked // _LOOKED
            self._looked %= _LOOKED
            if done >= _PART:
                yield done
                done = 0
        yield done
        return self._spans

    def _over(self, j: int, now: float) -> None:
        """Its nodes are free, and who came after it may come."""
        del self._running[bisect_left(self._running, (self._until[j], j))]
        for area in self._areas:
            self._free[area] += self._given[j][area]
        for cell, count in enumerate(self._taken[j]):
            self._cells[cell] += count
        if self._first <= j < self._first + len(self._jobs):
            for child in self._children[j - self._first]:
                self._missing[child] -= 1
                if not self._missing[child]:
                    rank = 0.0 if self._by_submission else now - self._present.now
                    insort(self._queue, (rank, self._first + child))

    def _turn(self, sign: int, cells: tuple[int, ...]) -> None:
        """Nodes are closed (-1) or open again."""
        for area, count in enumerate(self._by_area(cells)):
            self._free[area] += sign * count
        for cell, count in enumerate(cells):
            self._cells[cell] += sign * count
        self._closes = min((time for time, each, _ in self._shut if each < 0), default=math.inf)

    def _look(self, now: float, fresh: int) -> int:
        """Start whoever can: one look through the queue from the place `fresh` on; how many of ours did.

        What was looked at before in vain need not be looked at again before something is freed: it only gets harder.
        """
        if not fresh:
            self._reserved = {}
        free, width, area, limit, reserved = self._free, self._width, self._area, self._limit, self._reserved
        gone: set[int] = set()
        mine = 0
        areas = len(free)
        self._looked += len(self._queue) - fresh
        for _rank, j in self._queue[fresh:] if fresh else self._queue:
            a, nodes = area[j], width[j]
            if nodes > free[a]:
                if a not in reserved:
                    self._reserve(a, nodes, limit[j], now)
                elif len(reserved) == areas and not any(free):
                    break
                continue
            end = now + limit[j]
            if end > self._closes and self._earliest(a, nodes, limit[j], now)[0] > now:
                given = None
            else:
                given = self._place(a, nodes, end)
            if given is None:
                if a not in reserved:
                    self._reserve(a, nodes, limit[j], now)
                continue
            cells, by_area = given
            self._taken[j], self._given[j], self._until[j] = cells, by_area, end
            for each in self._areas:
                free[each] -= by_area[each]
            for cell, count in enumerate(cells):
                self._cells[cell] -= count
            for each, room in reserved.items():
                if end > room[0]:
                    room[1] -= by_area[each]
            insort(self._running, (end, j))
            heappush(self._ends, (now + self._run[j], j))
            gone.add(j)
            if 0 <= j - self._first < len(self._jobs):
                self._spans[j - self._first] = Span(now, now + self._run[j])
                mine += 1
        if gone:
            self._looked += len(self._queue)
            self._queue = [entry for entry in self._queue if entry[1] not in gone]
        return mine

    def _place(self, area: int, nodes: int, end: float) -> tuple[tuple[int, ...], Sequence[int]] | None:
        """Which cells it takes, and what that is of each area; None where it would delay one with a reservation."""
        if len(self._cells) == 1:
            cells: tuple[int, ...] = (nodes,)
            by_area: Sequence[int] = cells
        else:
            taken = [0] * len(self._cells)
            left = nodes
            for cell in self._cells_of[area]:
                taken[cell] = part = min(left, max(self._cells[cell], 0))
                left -= part
            cells, by_area = tuple(taken), self._by_area(taken)
        for each, (since, room) in self._reserved.items():
            if end > since and by_area[each] > room:
                return None
        return cells, by_area

    def _reserve(self, area: int, nodes: int, limit: float, now: float) -> None:
        """Reserve for the first job of an area that cannot start; not for one that never can."""
        if self._closes < math.inf:
            since, room = self._earliest(area, nodes, limit, now)
        else:
            spare, since = self._free[area] - nodes, now
            given = self._given
            for end, j in self._running:
                if spare >= 0 and end != since:
                    break
                spare += given[j][area]
                since, self._looked = end, self._looked + 1
            # Those that end together are all counted.
            room = spare
            if spare < 0:
                since = math.inf
        if since < math.inf:
            self._reserved[area] = [since, room]

    def _earliest(self, area: int, nodes: int, limit: float, now: float) -> tuple[float, int]:
        """When so many nodes are free from then on for `limit` seconds, by time limits and with what will be closed,
        and how many more are free all that time; infinity if never."""
        steps = [(end, self._given[j][area]) for end, j in self._running if end > now]
        steps += [(time, sign * self._by_area(cells)[area]) for time, sign, cells in self._shut]
        steps.sort()
        self._looked += 5 * len(steps)
        level = self._free[area]
        begin, room = (now, level - nodes) if level >= nodes else (math.inf, 0)
        i = 0
        while i < len(steps):
            time = steps[i][0]
            if begin + limit <= time:
                return begin, room
            while i < len(steps) and steps[i][0] == time:
                level += steps[i][1]
                i += 1
            if level < nodes:
                begin = math.inf
            elif begin == math.inf:
                begin, room = time, level - nodes
            else:
                room = min(room, level - nodes)
        return begin, room
