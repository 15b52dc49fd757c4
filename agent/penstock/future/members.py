"""What joint policies know of malleable jobs: how quick on which size, when they end, what they can give up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import Job, Offer, Snapshot
from penstock.future.queue import QueuePlan

__all__ = ["Member", "Memory", "Speeds", "room_for", "under_way"]

_ENDLESS: Final = 7 * 86400.0
"""Seconds that a job counts as running which has no time limit and does not say how far it is."""


class Speeds:
    """Seconds of a step by size, as measured; what it would be on other sizes is worked out by Amdahl's law.

    `like` are the speeds of jobs of the same kind, which count as long as only one size was measured.
    """

    def __init__(self, like: Speeds | None = None) -> None:
        self._measured: dict[int, float] = {}
        self._like = like

    def saw(self, offer: Offer) -> None:
        """Take up what the application says of its present size."""
        if not offer.step_seconds:
            return
        self._measured[offer.size] = offer.step_seconds
        if self._like is not None and len(self._measured) > 1:
            self._like._measured = self._measured

    @property
    def known(self) -> bool:
        """Whether sizes can be compared at all."""
        return len(self._measured) > 1 or (self._like is not None and self._like.known)

    def at(self, size: int) -> float:
        """Seconds of a step on that size, compared to others; perfect scaling where nothing is known."""
        if size in self._measured:
            return self._measured[size]
        if len(self._measured) > 1:
            return self._amdahl(size)
        mine, seconds = next(iter(self._measured.items()), (1, 1.0))
        if self._like is not None and self._like.known:
            return seconds * self._like._amdahl(size) / self._like._amdahl(mine)
        return seconds * mine / size

    def _amdahl(self, size: int) -> float:
        """seconds = serial + parallel / size, through the two measured sizes that are furthest apart."""
        low, high = min(self._measured), max(self._measured)
        slow, fast = self._measured[low], self._measured[high]
        parallel = min(max((slow - fast) / (1 / low - 1 / high), 0.0), slow * low)
        return slow - parallel / low + parallel / size

    def scaling(self, size: int, larger: int) -> float:
        """How much of the gain of perfect scaling it has on a larger size: 1 perfect, 0 none."""
        return (1 - self.at(larger) / self.at(size)) / (1 - size / larger)


@dataclass(slots=True)
class Member:
    """A malleable job in this pass; `size` is what it shall have, in processes."""

    offer: Offer
    job: Job
    speeds: Speeds
    size: int
    now: float
    beneficiary: int | None = None
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.sizes = tuple(sorted({*self.offer.reachable(), self.offer.size}))

    @property
    def left(self) -> float:
        """Seconds that it still runs on its present size; by its time limit where it does not say."""
        steps, each = self.offer.steps_left, self.offer.step_seconds
        if steps is not None and each is not None:
            return steps * each
        return _ENDLESS if self.job.end is None else max(self.job.end - self.now, 0.0)

    def nodes_of(self, size: int) -> int:
        """Nodes that so many processes take."""
        return size // self.offer.per_node

    def next_below(self, size: int) -> int | None:
        """The largest size that it can have below this one."""
        return max((s for s in self.sizes if s < size), default=None)

    def next_above(self, size: int) -> int | None:
        """The smallest size that it can have above this one."""
        return min((s for s in self.sizes if s > size), default=None)

    def later(self, old: int, new: int) -> float:
        """By how many seconds it ends later on `new` than on `old`; below 0: earlier."""
        now = self.speeds.at(self.offer.size)
        return self.left * (self.speeds.at(new) - self.speeds.at(old)) / now

    def freed(self, size: int) -> tuple[str, ...]:
        """The nodes that it leaves when it shrinks to `size`: the machine keeps the first ones."""
        nodes = self.offer.nodes or self.job.nodes
        return nodes[self.nodes_of(size) :]


class Memory:
    """The speeds of all jobs of a policy, from pass to pass."""

    def __init__(self) -> None:
        self._speeds: dict[int, Speeds] = {}
        self._kinds: dict[tuple[int, ...], Speeds] = {}

    def members(self, offers: Iterable[Offer], snapshot: Snapshot) -> dict[str, list[Member]]:
        """The jobs that make these offers, by partition, with all that was measured of them so far."""
        offers = sorted(offers, key=lambda o: o.job)
        self._speeds = {o.job: self._speeds.get(o.job) or Speeds(self._kind(o, snapshot)) for o in offers}
        groups: dict[str, list[Member]] = {}
        for offer in offers:
            speeds, job = self._speeds[offer.job], snapshot.jobs[offer.job]
            speeds.saw(offer)
            groups.setdefault(job.partition, []).append(Member(offer, job, speeds, offer.size, snapshot.taken_at))
        return groups

    def speeds(self, job: int) -> Speeds:
        """Those of a job that was among the last offers."""
        return self._speeds[job]

    def _kind(self, offer: Offer, snapshot: Snapshot) -> Speeds:
        """What is known of jobs that are probably runs of the same program: those of one user with the same limits."""
        limits = (offer.minimum, offer.maximum, offer.factor, offer.preferred or 0, offer.per_node)
        return self._kinds.setdefault((snapshot.jobs[offer.job].uid, *limits), Speeds())


def under_way(members: Iterable[Member]) -> tuple[list[str], int]:
    """What resizes that are under way do to a partition: the nodes that they free, and how many idle ones they take."""
    leaving: list[str] = []
    coming = 0
    for m in members:
        if m.offer.target is not None:
            leaving += m.freed(m.offer.target)
            coming += m.offer.coming
    return leaving, coming


def room_for(
    pending: Job,
    members: Sequence[Member],
    plan: QueuePlan,
    cost: Callable[[Member, int, int], float | None],
    nodes: int = 0,
) -> dict[int, int]:
    """To which sizes members (by their place in the list) shrink so that `pending` can start; empty if that cannot be.

    Found step by step, each from one size of a member to the next below: always the step with the least
    `cost(member, old, new)` for each node that it frees; None is a step that may not be taken. `nodes`: on how many it
    is to start, where that is more than the fewest that it takes.
    """
    sizes = {place: m.size for place, m in enumerate(members)}
    taken: list[tuple[int, int]] = []  # whom, and the size before
    lacking = max(pending.least_nodes, nodes) - plan.idle(plan.now)

    def enough(sizes: Mapping[int, int], lacking: int) -> bool:
        freed = sum(m.nodes_of(m.size) - m.nodes_of(sizes[place]) for place, m in enumerate(members))
        return freed >= lacking and plan.starts(pending, _given_up(members, sizes))

    while not enough(sizes, lacking):
        options = []
        for place, m in enumerate(members):
            smaller = m.next_below(sizes[place])
            if smaller is not None and (price := cost(m, sizes[place], smaller)) is not None:
                freed = m.nodes_of(sizes[place]) - m.nodes_of(smaller)
                options.append((price / freed, place, smaller))
        if not options:
            return {}
        _, place, smaller = min(options)
        taken.append((place, sizes[place]))
        sizes[place] = smaller
    for place, before in reversed(taken):  # the last steps may have made earlier ones needless
        tried = {**sizes, place: before}
        if before > sizes[place] and enough(tried, lacking if nodes else 0):
            sizes = tried
    return {place: size for place, size in sizes.items() if size < members[place].size}


def _given_up(members: Sequence[Member], sizes: Mapping[int, int]) -> list[str]:
    return [n for place, size in sizes.items() if size < members[place].offer.size for n in members[place].freed(size)]
