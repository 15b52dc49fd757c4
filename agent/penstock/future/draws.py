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

from penstock.future.past import ENOUGH, HOUR, PastJob, QueuePast
from penstock.future.present import Present
from penstock.future.replay import HORIZON, Arrival

__all__ = ["Draw", "Drawing"]

_LONGEST: Final = HORIZON
"""Seconds that a job without a limit counts as asking for."""
_ALIKE: Final = 3
_DAY: Final = 24
_RUN_ALIKE: Final = 0.6
"""The share of a user's jobs that run alike in a draw: bands of starts are too narrow without."""
_RUNNING, _WAITING, _ARRIVALS, _OWN, _WHICH, _COMMON = 0, 1, 2, 3, 4, 6
"""Parts of a draw, each with random numbers of its own; that of `_WHICH` is two wide."""


class Drawing:
    """Draws futures of this present out of this past; `draw(k)` is the k-th, counted from 0. `known` are run times (s)
    of those who wait that are not to be drawn, by their place."""

    def __init__(
        self, present: Present, past: QueuePast, seed: int, known: Mapping[int, float] = MappingProxyType({})
    ) -> None:
        self.present, self.past, self.seed, self.known = present, past, seed, known
        self._used = _ascending(past.used)
        self._by_user = {user: np.sort(np.array(shares)) for user, shares in past.by_user.items()}
        self._users = sorted({job.user for job in present.running}.union(j.user for j in present.waiting) - {""})
        self._own = _ascending(past.own) if len(past.own) >= ENOUGH else self._used
        self.came: dict[int, list[PastJob]] = defaultdict(list)
        for job in past.jobs:
            self.came[int(job.submit // HOUR)].append(job)
        elapsed = [present.now - job.start for job in present.running]
        self._limits = np.array([min(job.limit, _LONGEST) for job in present.running])
        self._elapsed = np.array(elapsed) / np.maximum(self._limits, 1.0) if elapsed else np.empty(0)

    def draw(self, number: int) -> Draw:
        """See `Draw`."""
        return Draw(self, number)

    def generator(self, number: int, part: int) -> np.random.Generator:
        """Random numbers of a draw, each part its own, so that none depends on how many another has used."""
        return np.random.default_rng([self.seed, number, part])

    def shares(self, chances: NDArray[np.float64], ran: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
        """Shares of limits by chances in [0, 1), each above what has been used already."""
        return _above(self._used, chances, ran)

    def shares_of(
        self,
        users: Sequence[str],
        number: int,
        part: int,
        ran: NDArray[np.float64] | float = 0.0,
    ) -> NDArray[np.float64]:
        """Shares of the limits of these users' jobs in a draw, each by what is known of the user."""
        chances = self.generator(number, part).random(len(users))
        common = dict(zip(self._users, self.generator(number, _COMMON).random(len(self._users)), strict=True))
        which = self.generator(number, part + _WHICH)
        alike, own = which.random(len(users)) < _RUN_ALIKE, which.random(len(users))
        theirs = np.array([common.get(user, chances[i]) for i, user in enumerate(users)])
        chances = np.where(alike, theirs, chances)
        found, used = self.shares(chances, ran), np.broadcast_to(ran, chances.shape)
        for i, user in enumerate(users):
            known = self._by_user.get(user)
            if known is not None and own[i] < len(known) / (len(known) + 1):
                first = int(np.searchsorted(known, used[i], side="right"))
                if left := len(known) - first:
                    found[i] = known[first + int(chances[i] * left)]
        return found

    def own_shares(self, chances: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for jobs of the user's own."""
        return _above(self._own, chances, 0.0)

    def ends(self, number: int) -> list[float]:
        """When each running job ends; one that is past its limit between now and when Slurm is expected to end it."""
        present, running = self.present, self.present.running
        chances = self.generator(number, _RUNNING).random(len(running))
        shares = self.shares_of([job.user for job in running], number, _RUNNING, self._elapsed)
        ends = []
        for job, share, limit, chance in zip(running, shares, self._limits, chances, strict=True):
            end = job.start + float(share) * float(limit)
            last = min(job.end, present.now + _LONGEST)
            ends.append(end if present.now < end <= last else present.now + float(chance) * (last - present.now))
        return ends

    @cached_property
    def hours_of_day(self) -> dict[int, tuple[int, ...]]:
        """The watched hours that stand for each hour of the day (UTC)."""
        hours = self.past.hours
        near = {of: tuple(h for h in hours if (h - of + 1) % _DAY <= 2) for of in range(_DAY)}
        return {of: found if len(found) >= _ALIKE else hours for of, found in near.items()}


class Draw:
    """One future of the others (`replay.Drawn`)."""

    def __init__(self, drawing: Drawing, number: int) -> None:
        self._drawing = drawing
        present = drawing.present
        self.ends: Sequence[float] = drawing.ends(number)
        shares = drawing.shares_of([job.user for job in present.waiting], number, _WAITING)
        self.runs: Sequence[float] = [
            max(drawing.known.get(place, float(share) * min(job.limit, _LONGEST)), 1.0)
            for place, (job, share) in enumerate(zip(present.waiting, shares, strict=True))
        ]
        self._random = drawing.generator(number, _ARRIVALS)
        self._own = drawing.generator(number, _OWN)
        self._hour = int(present.now // HOUR)
        self._arrivals: list[Arrival] = []
        self._over = not drawing.past.hours

    def own_chances(self, count: int) -> NDArray[np.float64]:
        """So many chances in [0, 1) for jobs of the user's own; to be asked for once."""
        return self._own.random(count)

    def arrival(self, i: int) -> Arrival | None:
        """See `replay.Drawn`."""
        while i >= len(self._arrivals) and not self._over:
            self._draw_an_hour()
        return self._arrivals[i] if i < len(self._arrivals) else None

    def _draw_an_hour(self) -> None:
        drawing, present = self._drawing, self._drawing.present
        begin = self._hour * HOUR
        hours = drawing.hours_of_day[self._hour % _DAY]
        jobs = drawing.came[hours[int(self._random.random() * len(hours))]]
        shares = drawing.shares(self._random.random(len(jobs)))
        for job, share in zip(jobs, shares, strict=True):
            submit = begin + job.submit % HOUR
            area = present.by_partition.get(job.partition.partition(",")[0])
            if submit > present.now and area is not None:
                limit = min(job.limit, _LONGEST)
                run = float(share) * limit if job.run is None else min(job.run, limit)
                self._arrivals.append(Arrival(submit, job.nodes, area, limit, max(run, 1.0)))
        self._hour += 1
        self._over = begin > present.now + HORIZON


def _ascending(shares: Sequence[float]) -> NDArray[np.float64]:
    return np.sort(np.array(shares if len(shares) >= ENOUGH else (), dtype=np.float64))


def _above(
    known: NDArray[np.float64], chances: NDArray[np.float64], ran: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """By the known shares that are above `ran`; where there is none, each up to the whole is as likely."""
    used = np.clip(np.broadcast_to(ran, chances.shape), 0.0, 1.0)
    even: NDArray[np.float64] = used + (1.0 - used) * (1.0 - chances)  # never what was used already
    if not len(known):
        return even
    first = np.searchsorted(known, used, side="right")
    left = len(known) - first
    place = np.minimum(first + (chances * left).astype(np.intp), len(known) - 1)
    found: NDArray[np.float64] = np.where(left > 0, known[place], even)
    return found
