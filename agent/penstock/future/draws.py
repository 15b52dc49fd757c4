"""Draws of a queue's future from its past: how long others run, and who comes. Pure.

    run time   a share of the limit, drawn from those of ended jobs; of a job that runs already, from those that are
               larger than what it has run. Of fewer than `past.ENOUGH` jobs nothing is concluded: then each share up to
               the whole is as likely as any other. A user of whom n jobs are known (10 at most) has them drawn from
               with a chance of n in n + 1, and six in ten of that user's jobs have the same chance in a draw: who
               asked for too much in one job did so in the next
    arrivals   whole hours of the past, drawn with replacement, one for each hour to come: who came in that hour comes
               again, as many minutes after the hour. Those of the same time of day, give or take an hour, are taken
               where at least three were watched. What has not ended by now runs for a drawn share of its limit

A draw is given by a seed and a number alone. So every cut that is tried meets the same futures (common random numbers).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.future.drawn import Arrivals
from penstock.future.past import ENOUGH, HOUR, PastJob, QueuePast
from penstock.future.present import Present
from penstock.future.replay import HORIZON

__all__ = ["Draw", "Drawing"]

_LONGEST: Final = HORIZON
"""Seconds that a job without a limit counts as asking for."""
_ALIKE: Final = 3
_DAY: Final = 24
_RUN_ALIKE: Final = 0.6
"""The share of a user's jobs that run alike in a draw: bands of starts are too narrow without."""
_RUNNING, _WAITING, _ARRIVALS, _OWN, _WHICH, _COMMON = 0, 1, 2, 3, 4, 6
"""Parts of a draw, each with random numbers of its own; that of `_WHICH` is two wide."""

Shares = NDArray[np.float64]


class Drawing:
    """Draws futures of this present out of this past; `draw(k)` is the k-th, counted from 0. `known` are run times (s)
    of those who wait that are not to be drawn, by their place."""

    def __init__(
        self, present: Present, past: QueuePast, seed: int, known: Mapping[int, float] = MappingProxyType({})
    ) -> None:
        self.present, self.past, self.seed = present, past, seed
        used = _ascending(past.used)
        self.shares = _Shares(used)
        """Of the limits of jobs whose users are not known."""
        self.own_shares = _Shares(_ascending(past.own)) if len(past.own) >= ENOUGH else self.shares
        """Of the limits of the user's own."""
        running, waiting = present.running, present.waiting
        self._start = np.array([job.start for job in running])
        self._last = np.array([min(job.end, present.now + _LONGEST) for job in running])
        self._limit = np.array([min(job.limit, _LONGEST) for job in running])
        ran = (present.now - self._start) / np.maximum(self._limit, 1.0)
        self._names = sorted({job.user for job in running}.union(j.user for j in waiting) - {""})
        known_of = {user: np.sort(np.array(shares)) for user, shares in past.by_user.items()}
        self._running = _SharesOfUsers(used, self._names, known_of, [job.user for job in running], ran)
        self._waiting = _SharesOfUsers(
            used, self._names, known_of, [job.user for job in waiting], np.zeros(len(waiting))
        )
        self._asked = np.array([min(job.limit, _LONGEST) for job in waiting])
        told = {place: run for place, run in known.items() if place < len(waiting)}
        self._told = np.array(list(told), dtype=np.intp), np.array(list(told.values()))
        self._came: dict[int, list[PastJob]] = defaultdict(list)
        for job in past.jobs:
            self._came[int(job.submit // HOUR)].append(job)
        self._in_hour: dict[int, Shares] = {}

    def draw(self, number: int) -> Draw:
        """See `Draw`."""
        return Draw(self, number)

    def generator(self, number: int, part: int) -> np.random.Generator:
        """Random numbers of a draw, each part its own, so that none depends on how many another has used."""
        return np.random.default_rng([self.seed, number, part])

    def ends(self, number: int) -> Shares:
        """When each running job ends; one that is past its limit between now and when Slurm is expected to end it."""
        now = self.present.now
        chances = self.generator(number, _RUNNING).random(len(self._limit))
        ends = self._start + self._shares_of(self._running, number, _RUNNING, chances) * self._limit
        inside = (now < ends) & (ends <= self._last)
        found: Shares = np.where(inside, ends, now + chances * (self._last - now))
        return found

    def runs(self, number: int) -> Shares:
        """How long (s) each of those who wait will run."""
        chances = self.generator(number, _WAITING).random(len(self._asked))
        runs = self._shares_of(self._waiting, number, _WAITING, chances) * self._asked
        places, seconds = self._told
        runs[places] = seconds
        found: Shares = np.maximum(runs, 1.0)
        return found

    def _shares_of(self, jobs: _SharesOfUsers, number: int, part: int, chances: Shares) -> Shares:
        which = self.generator(number, part + _WHICH)
        alike, own = which.random(len(chances)) < _RUN_ALIKE, which.random(len(chances))
        return jobs.by(chances, alike, self.generator(number, _COMMON).random(len(self._names)), own)

    @cached_property
    def hours_of_day(self) -> dict[int, tuple[int, ...]]:
        """The watched hours that stand for each hour of the day (UTC)."""
        hours = self.past.hours
        near = {of: tuple(h for h in hours if (h - of + 1) % _DAY <= 2) for of in range(_DAY)}
        return {of: found if len(found) >= _ALIKE else hours for of, found in near.items()}

    def came_in(self, hour: int) -> Shares:
        """Who came in a watched hour, five numbers each, in columns: how long (s) after it began, for how many nodes of
        which area (-1: of one that does not count here), for at most and for how long (s; NaN: that is not known)."""
        if hour not in self._in_hour:
            areas = self.present.by_partition
            rows = [
                (
                    job.submit % HOUR,
                    job.nodes,
                    areas.get(job.partition.partition(",")[0], -1),
                    min(job.limit, _LONGEST),
                    np.nan if job.run is None else job.run,
                )
                for job in self._came.get(hour, ())
            ]
            self._in_hour[hour] = np.array(rows, dtype=np.float64).reshape(-1, 5).T
        return self._in_hour[hour]


class Draw:
    """One future of the others (`replay.Drawn`)."""

    def __init__(self, drawing: Drawing, number: int) -> None:
        self._drawing = drawing
        self.ends = drawing.ends(number)
        self.runs = drawing.runs(number)
        self._random = drawing.generator(number, _ARRIVALS)
        self._own = drawing.generator(number, _OWN)
        self._hour = int(drawing.present.now // HOUR)
        self._parts: list[Arrivals] = []
        self._over = not drawing.past.hours

    def own_chances(self, count: int) -> Shares:
        """So many chances in [0, 1) for jobs of the user's own; to be asked for once."""
        return self._own.random(count)

    def arrivals(self, part: int) -> Arrivals | None:
        """See `replay.Drawn`; a part is a day."""
        while part >= len(self._parts) and not self._over:
            self._draw_hours()
        return self._parts[part] if part < len(self._parts) else None

    def _draw_hours(self) -> None:
        """A day, or what is left."""
        drawing, now = self._drawing, self._drawing.present.now
        begins: list[Shares] = []
        hours: list[Shares] = []
        chances: list[Shares] = []
        while len(hours) < _DAY and not self._over:
            begin = self._hour * HOUR
            alike = drawing.hours_of_day[self._hour % _DAY]
            hours.append(drawing.came_in(alike[int(self._random.random() * len(alike))]))
            count = int(hours[-1].shape[1])
            chances.append(self._random.random(count))
            begins.append(np.full(count, begin))
            self._hour += 1
            self._over = begin > now + HORIZON
        after, nodes, area, limit, ran = np.concatenate(hours, axis=1)
        submit = np.concatenate(begins) + after
        shares = drawing.shares.by(np.concatenate(chances))
        runs = np.maximum(np.where(np.isnan(ran), shares * limit, np.minimum(ran, limit)), 1.0)
        counts = (submit > now) & (area >= 0)
        part = Arrivals(submit, nodes.astype(np.int64), area.astype(np.int64), limit, runs)
        self._parts.append(Arrivals(*(column[counts] for column in part)))


class _Shares:
    """Shares of limits by chances in [0, 1), each above what jobs `ran` already (a share): one of those that are known,
    which come in ascending order; where none is above it, each up to the whole is as likely."""

    def __init__(self, known: Shares, ran: Shares | float = 0.0) -> None:
        self._known = known
        self._used = np.clip(ran, 0.0, 1.0)
        self._first = np.searchsorted(known, self._used, side="right")
        self._left = len(known) - self._first

    def by(self, chances: Shares) -> Shares:
        """One for each chance."""
        even: Shares = self._used + (1.0 - self._used) * (1.0 - chances)  # never what was used already
        if not len(self._known):
            return even
        place = np.minimum(self._first + (chances * self._left).astype(np.intp), len(self._known) - 1)
        found: Shares = np.where(self._left > 0, self._known[place], even)
        return found


class _SharesOfUsers:
    """The same for jobs of these users, each by what is known of the user (ascending shares by name). `names` are those
    of all users, "" is none of them."""

    def __init__(
        self, anybody: Shares, names: Sequence[str], known: Mapping[str, Shares], users: Sequence[str], ran: Shares
    ) -> None:
        self._anybody = _Shares(anybody, ran)
        place = {user: i for i, user in enumerate(names)}
        self._user = np.array([place.get(user, len(names)) for user in users], dtype=np.intp)
        self._named = self._user < len(names)
        theirs = [known.get(user, np.empty(0)) for user in users]
        count = np.array([len(shares) for shares in theirs], dtype=np.intp)
        first = np.array([shares.searchsorted(r, side="right") for shares, r in zip(theirs, ran, strict=True)], np.intp)
        self._weight = count / (count + 1)
        self._left = count - first
        self._known = np.concatenate([*theirs, np.empty(0)])
        self._begin = np.cumsum(count) - count + first

    def by(self, chances: Shares, alike: NDArray[np.bool_], common: Shares, own: Shares) -> Shares:
        """One for each job. `alike`: by the chance that its user's jobs have in `common`, by user; `own`: chances that
        it is not drawn from what is known of that user."""
        chances = np.where(alike & self._named, np.append(common, 0.0)[self._user], chances)
        found = self._anybody.by(chances)
        which = (own < self._weight) & (self._left > 0)
        found[which] = self._known[self._begin[which] + (chances[which] * self._left[which]).astype(np.intp)]
        return found


def _ascending(shares: Sequence[float]) -> Shares:
    return np.sort(np.array(shares if len(shares) >= ENOUGH else (), dtype=np.float64))
