"""What is known of jobs that wait: how much work they are and how they scale, learned from runs like them.

A kind is an owner's programs with the same limits (minimum, maximum, preferred size). A pending job is taken for one of
a kind when it asks for the nodes that `penstock sbatch` asks for it (minimum to preferred size), or for minimum to
maximum. The work of a kind is the node-seconds of a run on the fewest nodes, in the mean of all runs that were seen, by
their own word (steps that are left, seconds of a step) and how long they had been running.

Of jobs that are no such kind, how much of their time limits they use is learned, owner by owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.api import Job, Snapshot
from penstock.future.members import Member
from penstock.future.rollout import PlayedJob

__all__ = ["Kinds"]

_KINDS: Final = 10_000
"""Kinds that are remembered, and owners."""
_RUNS: Final = 50
"""Runs that the mean share of time limits is of, about."""
_ENDLESS: Final = 7 * 86400.0
"""Seconds that a job counts as running which has no time limit."""


class _Kind(NamedTuple):
    """An owner's jobs that ask for so many nodes."""

    uid: int
    fewest: int
    most: int


class _Work(NamedTuple):
    """Node-seconds of a run on the fewest nodes, in the mean of so many; the share of its time there that more nodes do
    not shorten, and the most nodes that it can use (None: not known yet)."""

    mean: float = 0.0
    runs: int = 0
    serial: float = 1.0
    largest: int | None = None


class Kinds:
    """What a policy has learned, from pass to pass."""

    def __init__(self) -> None:
        self._works: dict[_Kind, _Work] = {}
        self._told: dict[int, float] = {}  # by running job: its work as it was last worked out
        self._ends: dict[int, float] = {}  # when it ends, by what it last said
        self._limits: dict[int, tuple[int, float, float]] = {}  # by rigid running job: owner, start, limit
        self._shares: dict[int, tuple[float, int]] = {}  # by owner

    def learn(self, members: Iterable[Member], snapshot: Snapshot) -> None:
        """Look at all running malleable jobs, and at who has ended."""
        members = list(members)
        mine = {m.offer.job for m in members}
        self._told = {job: work for job, work in self._told.items() if job in mine}
        self._ends = {job: end for job, end in self._ends.items() if job in mine}
        for m in members:
            if (work := _work(m)) is not None:
                self._learn(m, work)
                self._told[m.offer.job] = work
                self._ends[m.offer.job] = m.now + m.left
        self._saw(snapshot, mine)

    def work(self, job: Job) -> float | None:
        """Node-seconds of a pending job on the fewest nodes; None where nothing like it has run."""
        known = self._works.get(_Kind(job.uid, job.least_nodes, job.num_nodes))
        return None if known is None else known.mean

    def pending(self, job: Job) -> PlayedJob:
        """A job that waits, as far as it is known: rigid, for the usual part of its time limit, where it is not."""
        least, known = job.least_nodes, self._works.get(_Kind(job.uid, job.least_nodes, job.num_nodes))
        if known is None:
            return PlayedJob(self._share(job.uid) * (job.time_limit or _ENDLESS), 0.0, least, least)
        seconds = known.mean / least
        if known.largest is None:
            return PlayedJob(seconds, 0.0, least, least)
        serial = seconds * known.serial
        return PlayedJob(serial, (seconds - serial) * least, least, known.largest, start=job.num_nodes)

    def running(self, member: Member) -> PlayedJob:
        """A running malleable job; one whose speeds are not known keeps its size."""
        has = member.nodes_of(member.offer.size)
        left = max(self._ends.get(member.offer.job, member.now + member.left) - member.now, 0.0)
        least, most = member.nodes_of(member.sizes[0]), member.nodes_of(member.sizes[-1])
        if not member.speeds.known or least == most:
            return PlayedJob(left, 0.0, has, has, has)
        slow, fast = (left * _relative(member, nodes) for nodes in (least, most))
        parallel = max((slow - fast) / (1 / least - 1 / most), 0.0)
        return PlayedJob(max(slow - parallel / least, 0.0), parallel, least, most, has)

    def rigid(self, job: Job, nodes: int, now: float) -> PlayedJob:
        """Another running job, on so many nodes."""
        limit = _ENDLESS if job.end is None else max(job.end - now, 0.0)
        return PlayedJob(self._share(job.uid) * limit, 0.0, nodes, nodes, nodes)

    def _share(self, uid: int) -> float:
        """Which part of its time limits an owner uses; all, as long as nobody of theirs has ended."""
        return self._shares.get(uid, (1.0, 0))[0]

    def _learn(self, m: Member, work: float) -> None:
        offer, told = m.offer, self._told.get(m.offer.job)
        fewest, largest = _nodes(offer.minimum, offer.per_node), max(offer.maximum // offer.per_node, 1)
        serial: float | None = None
        if m.speeds.known and largest > fewest:
            slow, fast = _relative(m, fewest), _relative(m, largest)
            serial = min(max(1 - (1 - fast / slow) / (1 - fewest / largest), 0.0), 1.0)
        preferred = max((offer.preferred or offer.maximum) // offer.per_node, fewest)
        for most in {preferred, max(largest, fewest)}:
            kind = _Kind(m.job.uid, fewest, most)
            known = self._works.pop(kind, _Work())
            if told is None or not known.runs:
                known = known._replace(mean=(known.mean * known.runs + work) / (known.runs + 1), runs=known.runs + 1)
            else:  # it is known better now
                known = known._replace(mean=max(known.mean + (work - told) / known.runs, 0.0))
            if serial is not None:
                known = known._replace(serial=serial, largest=largest)
            self._works[kind] = known
            if len(self._works) > _KINDS:
                self._works.pop(next(iter(self._works)))

    def _saw(self, snapshot: Snapshot, mine: set[int]) -> None:
        """Who ran without being malleable and has ended says how much of a time limit is used."""
        now = snapshot.taken_at
        for number, (uid, start, limit) in self._limits.items():
            job = snapshot.jobs.get(number)
            if number in mine or (job is not None and job.state.holds_nodes):
                continue
            share, runs = self._shares.pop(uid, (0.0, 0))
            runs = min(runs + 1, _RUNS)
            used = min(max((now - start) / limit, 0.0), 1.0)
            self._shares[uid] = share + (used - share) / runs, runs
            if len(self._shares) > _KINDS:
                self._shares.pop(next(iter(self._shares)))
        self._limits = {}
        for job in snapshot.jobs.values():
            if job.running and job.id not in mine and job.start is not None and job.end is not None:
                self._limits[job.id] = job.uid, job.start, max(job.end - job.start, 1.0)


def _work(m: Member) -> float | None:
    """Node-seconds of the whole run on the fewest nodes; None where the program does not say enough."""
    offer, start = m.offer, m.job.start
    if offer.steps_left is None or not offer.step_seconds or start is None:
        return None
    fewest = _nodes(offer.minimum, offer.per_node)
    return (m.left + max(m.now - start, 0.0)) * _relative(m, fewest) * fewest


def _relative(m: Member, nodes: int) -> float:
    """Seconds on so many nodes for each that it takes on those that it has."""
    return m.speeds.at(nodes * m.offer.per_node) / m.speeds.at(m.offer.size)


def _nodes(size: int, per_node: int) -> int:
    return -(-max(size, 1) // per_node)
