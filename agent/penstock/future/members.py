"""What joint policies know of malleable jobs: how quick on which size, when they end, what they can give up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.api import Job, Offer, Snapshot
from penstock.future.queue import QueuePlan
from penstock.future.speeds import Memory, Speeds

__all__ = ["Member", "members_of", "room_for", "under_way"]

_ENDLESS: Final = 7 * 86400.0
"""Seconds that a job counts as running which has no time limit and does not say how far it is."""


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

    @property
    def floor(self) -> int:
        """The size that it is left with where no more is known than that others wait, or that more is of no use: its
        preferred one; else what it has without what it was given since it began."""
        if self.offer.preferred is not None:
            return self.offer.preferred
        return self.offer.size if self.offer.base is None else min(self.offer.base, self.offer.size)

    def gives_back(self, old: int, new: int) -> bool:
        """Whether that step can be asked of it for one that waits although its speeds are not known: it is above its
        preferred size, or gives back only what it was given since it began."""
        preferred, base = self.offer.preferred, self.offer.base
        return (preferred is not None and old > preferred) or (base is not None and new >= base)

    @property
    def useless(self) -> int | None:
        """The size that it runs as well on as on its own, by what it has measured; None: none, or none above its floor.
        What it was submitted with, and its preferred size, it keeps."""
        floor = max(self.floor, self.offer.base or 0)
        return self.speeds.useless((s for s in self.sizes if s >= floor), self.now)

    def prefers(self, size: int, larger: int) -> bool:
        """Whether a larger size is within the preferred one, which needs no other reason while nobody waits (DMR paper,
        4.2)."""
        return self.offer.preferred is not None and size < larger <= self.offer.preferred

    @property
    def trial(self) -> int | None:
        """The larger size that it is time to try although it is not believed to be worth its nodes: at most twice its
        own, or the next one that it can have."""
        size, larger = self.offer.size, self.next_above(self.offer.size)
        if larger is None or not self.speeds.tries(self.now):
            return None
        return max((s for s in self.sizes if size < s <= 2 * size), default=larger)

    def at_best(self, size: int, larger: int) -> float:
        """Seconds that it would end earlier on the larger size if it scaled perfectly."""
        return self.left * self.speeds.at(size) / self.speeds.at(self.offer.size) * (1 - size / larger)

    def freed(self, size: int) -> tuple[str, ...]:
        """The nodes that it leaves when it shrinks to `size`: the machine keeps the first ones."""
        nodes = self.offer.nodes or self.job.nodes
        return nodes[self.nodes_of(size) :]


def members_of(memory: Memory, offers: Iterable[Offer], snapshot: Snapshot) -> dict[str, list[Member]]:
    """The jobs that make these offers, by partition, with all that was measured of them and of their programs so far;
    the memory takes up what they say now."""
    groups: dict[str, list[Member]] = {}
    for offer in sorted(offers, key=lambda o: o.job):
        job = snapshot.jobs[offer.job]
        member = Member(offer, job, memory.of(offer, snapshot), offer.size, snapshot.taken_at)
        groups.setdefault(job.partition, []).append(member)
    return groups


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
