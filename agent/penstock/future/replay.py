"""What becomes of a few jobs in a queue whose future is given: backfilling event by event, in counts of nodes.

The rules are those of Slurm as far as `present` has them:

    order     who waits now, in Slurm's order; behind them whoever comes later, by when that is. A job of ours that
              depends on others comes when they have ended (`by_submission` false: it does not age before), or counts
              from now like those of ours that depend on nobody
    start     by time limits, anew at each event: one after the other in that order, each where it can start first
              without moving those before it; who cannot start now has a reservation there. That is Slurm's backfill,
              which looks at the first `depth` jobs (bf_max_job_test). With `protect` 1 only the first job of an area
              that cannot start has one: EASY (Lifka 1995)
    end       after its run time, which nobody knows before
    closed    nodes of a reservation: no job starts that could reach into it on them

In one area it agrees to the second with the laboratory's EASY, and with its replanning. Where areas overlap, a job
takes first what the fewest areas can use, and so do reservations. What comes at the same instant counts as one event:
ends first, then who comes, then one look at the queue. Slurm's own delays (its rounds, prologues) are left out. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from penstock.future.compiled import CompiledReplay
from penstock.future.drawn import Drawn, OwnJob, Span, children_of
from penstock.future.present import Present
from penstock.future.steps import cut
from penstock.kernel.library import KERNEL

__all__ = ["DEPTH", "HORIZON", "replay", "replay_queue"]

HORIZON: Final = 30 * 86400.0
"""Seconds from now after which a replay ends: what has not started by then never does."""
DEPTH: Final = 100
"""Jobs that a look considers; Slurm's default of bf_max_job_test."""
_PART: Final = 500
"""Work between two breaths, in units of some two microseconds: an event is one of them."""
_FOUND: Final = 8
"""Starts that are remembered for each number of nodes."""
_LOOKED: Final = 50
"""Jobs in the queue, or on their nodes, that are looked at in such a unit."""


def replay(
    present: Present,
    drawn: Drawn,
    jobs: Sequence[OwnJob],
    *,
    by_submission: bool = False,
    depth: int = DEPTH,
    protect: float = math.inf,
) -> Generator[int, None, list[Span]]:
    """The span of each of our jobs, all submitted now, in parts (see `Pace.walk`), each the work done since."""
    if KERNEL is None:
        return _Replay(present, drawn, jobs, by_submission, depth, protect).run()
    before = len(present.running) + len(present.waiting)
    numbers = range(before, before + len(jobs))
    return _by_kernel(present, drawn, jobs, numbers, by_submission=by_submission, depth=depth, protect=protect)


def replay_queue(
    present: Present, drawn: Drawn, places: Sequence[int], *, depth: int = DEPTH, protect: float = math.inf
) -> Generator[int, None, list[Span]]:
    """The span of each of those who wait at these places of `Present.waiting`, nothing of ours being submitted."""
    if KERNEL is None:
        return _Replay(present, drawn, (), False, depth, protect, places).run()
    numbers = [len(present.running) + place for place in places]
    return _by_kernel(present, drawn, (), numbers, by_submission=False, depth=depth, protect=protect)


def _by_kernel(
    present: Present, drawn: Drawn, jobs: Sequence[OwnJob], numbers: Sequence[int], **options: float
) -> Generator[int, None, list[Span]]:
    one = CompiledReplay(present, drawn, jobs, numbers, last=present.now + HORIZON, **options)
    starts, ends = yield from one.run(_PART)
    return list(map(Span, starts, ends))


class _Levels:
    """How many nodes of an area are free by time limits: `free[i]` from `times[i]` on."""

    __slots__ = ("_found", "free", "times")

    def __init__(self, now: float, free: int, changes: Iterable[tuple[float, int]]) -> None:
        self.times, self.free = [now], [free]
        self._found: dict[int, list[tuple[float, float]]] = {}
        times, levels = self.times, self.free
        for time, change in changes:
            free += change
            if time == times[-1]:
                levels[-1] = free
            elif change:
                times.append(time)
                levels.append(free)

    def fits(self, nodes: int, until: float) -> bool:
        """Whether so many are free from the first instant up to another."""
        for time, free in zip(self.times, self.free, strict=True):
            if time >= until:
                return True
            if free < nodes:
                return False
        return True

    def earliest(self, nodes: int, limit: float) -> float:
        """Since when so many are free for `limit` seconds; infinity: never.

        What was found is not free any more a moment later: as many for no less time are not to be had before that.
        """
        times, levels = self.times, self.free
        found = self._found.setdefault(nodes, [])
        known = max([begin for least, begin in found if limit >= least], default=times[0])
        at, end = (bisect_left(times, known) if known > times[0] else 0), len(times)
        while True:
            while at < end and levels[at] < nodes:
                at += 1
            if at == end:
                begin = math.inf
                break
            begin = times[at]
            until = begin + limit
            at += 1
            while at < end and times[at] < until and levels[at] >= nodes:
                at += 1
            if at == end or times[at] >= until:
                break
        if len(found) < _FOUND or limit < found[-1][0]:
            found[_FOUND - 1 :] = []
            found.append((limit, begin))
        return begin

    def take(self, nodes: int, begin: float, end: float) -> None:
        """Nodes that somebody has from `begin` to `end`."""
        times, free = self.times, self.free
        first = cut(times, free, begin)
        last = len(free) if end == math.inf else cut(times, free, end)
        free[first:last] = [level - nodes for level in free[first:last]]


class _Replay:
    """Jobs are numbers: those that run now, those that wait, ours, and who comes."""

    def __init__(
        self,
        present: Present,
        drawn: Drawn,
        jobs: Sequence[OwnJob],
        by_submission: bool,
        depth: int,
        protect: float,
        queue: Sequence[int] | None = None,
    ) -> None:
        self._present, self._drawn, self._jobs, self._by_submission = present, drawn, jobs, by_submission
        self._depth, self.protect = depth, protect
        self._areas = range(len(present.areas))
        self._cells_of = [[c for c, areas in enumerate(present.cells) if a in areas] for a in self._areas]
        self.beside = present.beside
        self._cells = list(present.free)
        self.free = self._by_area(present.free)
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
            (max(end, job.kept), j)
            for j, (end, job) in enumerate(zip(drawn.ends.tolist(), present.running, strict=True))
        ]
        heapify(self._ends)
        self._queue: list[tuple[float, int]] = []  # rank, job
        self._later: list[tuple[float, float, int]] = []  # when, rank, job
        for place, (waiting, run) in enumerate(zip(present.waiting, drawn.runs.tolist(), strict=True)):
            j = self._add(waiting.nodes, waiting.area, waiting.limit, run)
            rank = float(place - len(present.waiting))
            if waiting.after <= now:
                self._queue.append((rank, j))
            elif waiting.after < math.inf:
                self._later.append((waiting.after, rank, j))
        self._later.sort(reverse=True)
        self._first = len(self._width)
        for job in jobs:
            self._add(job.nodes, 0, job.limit, job.run)
        self._missing = [len(job.after) for job in jobs]
        self._children = children_of(jobs)
        self.looked = 0
        # Those whose spans are asked for: ours, or some of those who wait.
        behind = len(present.running)
        numbers = range(self._first, len(self._width)) if queue is None else [behind + place for place in queue]
        self._followed = {j: i for i, j in enumerate(numbers)}
        self._spans = [Span(math.inf, math.inf) for _ in self._followed]
        self._queue += [(0.0, self._first + i) for i, job in enumerate(jobs) if not job.after]
        self.shut = sorted(present.turns, reverse=True)

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
        """Until the last of those that are followed has started."""
        now, last = self._present.now, self._present.now + HORIZON
        left = len(self._followed) - self._look(now)
        arrivals = self._arrivals()
        coming = next(arrivals, None)
        done = 20 + len(self._width) // 4
        while left:
            now = min(
                self._ends[0][0] if self._ends else math.inf,
                coming[0] if coming is not None else math.inf,
                self._later[-1][0] if self._later else math.inf,
                self.shut[-1][0] if self.shut else math.inf,
            )
            if now > last:
                break
            # Who was looked at in vain cannot start before something is free that was not: it only gets harder.
            hope = False
            while self._ends and self._ends[0][0] <= now:
                self._over(heappop(self._ends)[1], now)
                hope = True
            while self.shut and self.shut[-1][0] <= now:
                self._turn(*self.shut.pop()[1:])
                hope = True
            while self._later and self._later[-1][0] <= now:
                _, rank, j = self._later.pop()
                insort(self._queue, (rank, j))
                hope |= self._width[j] <= self.free[self._area[j]]
            while coming is not None and coming[0] <= now:
                submit, nodes, area, limit, run = coming
                insort(self._queue, (submit - self._present.now, self._add(nodes, area, limit, run)))
                hope |= nodes <= self.free[area]
                coming = next(arrivals, None)
            if hope:
                left -= self._look(now)
            done += 1 + self.looked // _LOOKED
            self.looked %= _LOOKED
            if done >= _PART:
                yield done
                done = 0
        yield done
        return self._spans

    def _arrivals(self) -> Iterator[tuple[float, int, int, float, float]]:
        part = 0
        while (block := self._drawn.arrivals(part)) is not None:
            yield from zip(*(column.tolist() for column in block), strict=True)
            part += 1

    def _over(self, j: int, now: float) -> None:
        """Its nodes are free, and who came after it may come."""
        del self._running[bisect_left(self._running, (self._until[j], j))]
        for area in self._areas:
            self.free[area] += self._given[j][area]
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
            self.free[area] += sign * count
        for cell, count in enumerate(cells):
            self._cells[cell] += sign * count

    def _look(self, now: float) -> int:
        """Start whoever can; how many of those that are followed did."""
        width, area, free = self._width, self._area, self.free
        places = [i for i, (_, j) in enumerate(self._queue[: self._depth]) if width[j] <= free[area[j]]]
        self.looked += min(len(self._queue), self._depth) // 2
        if not places:
            return 0
        plan = _Plan(self, now)
        gone = set[int]()
        for place, (_rank, j) in enumerate(self._queue[: places[-1] + 1]):
            # Who cannot start behind the reservations made so far cannot behind more of them, and nobody needs one who
            # stands behind the last that still can.
            while places and places[-1] >= place and not plan.starts(self._queue[places[-1]][1]):
                places.pop()
            if not places or places[-1] < place:
                break
            if plan.starts(j):
                self._start(j, plan, now)
                gone.add(j)
                if not any(free):
                    break
            else:
                plan.reserve(j)
        self._queue = [entry for entry in self._queue if entry[1] not in gone]
        self.looked += len(self._queue)
        return sum(1 for j in gone if j in self._followed)

    def _start(self, j: int, plan: _Plan, now: float) -> None:
        cells, left = [0] * len(self._cells), self._width[j]
        for cell in self._cells_of[self._area[j]]:
            cells[cell] = part = min(left, max(self._cells[cell], 0))
            self._cells[cell] -= part
            left -= part
        given = self._by_area(cells)
        self._taken[j], self._given[j], self._until[j] = tuple(cells), given, now + self._limit[j]
        for area in self._areas:
            self.free[area] -= given[area]
        plan.take(given, self._until[j])
        insort(self._running, (self._until[j], j))
        heappush(self._ends, (now + self._run[j], j))
        if j in self._followed:
            self._spans[self._followed[j]] = Span(now, now + self._run[j])

    def levels(self, area: int, now: float) -> _Levels:
        """What is free of an area if nobody more starts."""
        changes = [(end, self._given[j][area]) for end, j in self._running]
        if self.shut:
            changes += [(time, sign * self._by_area(cells)[area]) for time, sign, cells in self.shut]
            changes.sort()
        self.looked += 2 * len(changes)
        return _Levels(now, self.free[area], changes)

    def asked(self, j: int) -> tuple[int, int, float]:
        """The area that a job wants nodes of, how many and for how long."""
        return self._area[j], self._width[j], self._limit[j]


class _Plan:
    """The reservations of one look. What is free of an area is worked out when somebody asks."""

    def __init__(self, replay: _Replay, now: float) -> None:
        self._replay, self._now = replay, now
        self._levels: dict[int, _Levels] = {}
        self._made: list[tuple[int, int, float, float]] = []  # area, nodes, from, to
        self._left = [replay.protect] * len(replay.free)

    def starts(self, j: int) -> bool:
        """Whether a job can start now."""
        area, nodes, limit = self._replay.asked(j)
        if nodes > self._replay.free[area]:
            return False
        if not self._made and not self._replay.shut:
            return True
        return self._of(area).fits(nodes, self._now + limit)

    def reserve(self, j: int) -> None:
        """Reserve for a job where it can start first, if it ever can."""
        area, nodes, limit = self._replay.asked(j)
        if self._left[area] <= 0:
            return
        levels = self._of(area)
        self._replay.looked += 70 + len(levels.times) // 3
        begin = levels.earliest(nodes, limit)
        if begin < math.inf:
            self._left[area] -= 1
            made = area, nodes, begin, begin + limit
            self._made.append(made)
            for each in self._levels:
                self._claim(each, *made)

    def take(self, given: Sequence[int], until: float) -> None:
        """A job has so many nodes of each area from now on."""
        for area, levels in self._levels.items():
            if given[area]:
                levels.take(given[area], self._now, until)

    def _claim(self, each: int, area: int, nodes: int, begin: float, end: float) -> None:
        """What a reservation in one area takes of another: of its own nodes first those that the other has not."""
        if (taken := nodes - self._replay.beside[area][each]) > 0:
            self._levels[each].take(taken, begin, end)

    def _of(self, area: int) -> _Levels:
        if area not in self._levels:
            self._levels[area] = self._replay.levels(area, self._now)
            for made in self._made:
                self._claim(area, *made)
        return self._levels[area]
