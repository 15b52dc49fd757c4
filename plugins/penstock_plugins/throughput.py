"""The shipped policy: shrinks and grows all malleable jobs in view of each other, so that the whole queue ends earlier.

**Shrinking.** Pending jobs are gone through in the order of Slurm's plan. One that can start on idle nodes is left to
Slurm. For one that cannot, jobs give up nodes together, as few as it lacks, and only if the plan shows that Slurm will
give exactly these nodes to it: without an operator's rights nobody can reserve them. Which jobs, and how far, is
decided step by step (from one reachable size to the next smaller one), each time the step that costs least: the
seconds by which the job ends later for each node that it frees.

A step is open to a job when it pays. Down to the preferred size it always does: that is what the user says that the
program runs well on. Below, or without one, it is a question of speed. Say a job runs on a nodes and another one that
waits could have half of them. Sharing gets more done if rho = 2 * speed(a/2) / speed(a) - 1 is above 0, which it is for
every program that does not scale perfectly. But the first of two equal jobs ends later by it, so that the two end
earlier *on average* only if rho > 1/3. With w more jobs that wait for these nodes, each of which gains what is gained
before its turn, it is rho > 1 / (3 + 2 w). So a long queue packs jobs tightly, and a short one leaves them their speed.
Where the job that waits lacks k times what the step frees, k such steps are weighed against its speed on all it gets.

While the first in line cannot be helped, jobs that gain next to nothing beyond their preferred size go there, for
nobody in particular: so the nodes gather.

**Speed** is what the application measures itself: seconds of a step at its sizes, with Amdahl's law between and beyond
them. Until it was seen on two sizes, earlier runs of the same program count (`future.speeds`). Without those it is
taken to scale perfectly. Then it shrinks for others to its preferred size, or to what it has without the nodes that it
was given since it began, and no further.

**Growing.** Nodes that nobody in the queue is given by Slurm's plan for as long as the job may run, or for a while
where its program can leave them at any time, go to where they save most time for each node. While others wait, only to
programs that scale, and not if shrinking everybody would let one of those start: then it is a matter of moments. Nodes
that Slurm has planned for somebody (PLANNED), or would have to power up, are left alone unless the plan shows them free
that long.

While nobody waits, jobs grow to their preferred size whatever is believed of them (DMR paper, 4.2). A larger size that
is not believed to be worth its nodes is tried now and then. What was measured to be of no use goes back, but for the
size that the job was submitted with, and its preferred one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.api import Job, Offer, Reason, ResizeVerdict, Snapshot, plural
from penstock.future.members import Member, members_of, room_for, under_way
from penstock.future.queue import DEPTH, QueuePlan, later, waiting
from penstock.future.speeds import SCALES_AT_ALL, Memory

__all__ = ["Throughput", "ThroughputPool"]

_SCALES: Final = 0.25
"""How well a program has to scale to be lent nodes while others wait, who may need them back soon."""
_WORTH: Final = 15.0
"""Seconds that growing has to save: less than that is not worth the resize."""
_WORTH_A_TRIAL: Final = 60.0
"""Seconds that a size would have to save if the program scaled perfectly, to be tried against what is believed."""
_GROWS: Final = ("expand-idle", "expand-preferred", "expand-idle", "expand-trial")


class Throughput:
    """See the module's text."""

    name = "throughput"

    def __init__(self) -> None:
        self.memory = Memory()

    def decide_all(self, offers: Sequence[Offer], snapshot: Snapshot) -> Mapping[int, ResizeVerdict]:
        """The sizes that all of these jobs should have now."""
        verdicts: dict[int, ResizeVerdict] = {}
        for partition, members in members_of(self.memory, offers, snapshot).items():
            verdicts |= ThroughputPool(partition, members, snapshot).verdicts()
        return verdicts


class ThroughputPool:
    """The malleable jobs of one partition, and the jobs that wait for its nodes."""

    def __init__(self, partition: str, members: Sequence[Member], snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._all = members
        self._free = [m for m in members if m.offer.target is None]
        self._reasons: dict[int, Reason] = {}
        leaving, coming = under_way(members)
        self._plan = QueuePlan(snapshot, partition, leaving, coming)
        self._idle = len(snapshot.idle_nodes(partition)) - coming  # what is being given back cannot be had yet
        self._waiting = waiting(snapshot, partition)
        self._least = min((p.least_nodes for p in self._waiting if not later(p, snapshot)), default=0)
        self._size = len(snapshot.partitions[partition].nodes)

    def verdicts(self) -> dict[int, ResizeVerdict]:
        """Of all whose size is not being changed already."""
        self._demand()
        unserved = self._serve()
        if not unserved:
            self._give_back_useless()
        self._grow(unserved)
        for m in self._free:
            self._reasons.setdefault(m.offer.job, _why_it_stays(m, unserved))
        return {m.offer.job: ResizeVerdict(m.size, (self._reasons[m.offer.job],), m.beneficiary) for m in self._free}

    def _demand(self) -> None:
        """What the application itself demands (DMR paper, 4.1): a minimum above its size, a maximum below."""
        for m in self._free:
            if m.size > m.offer.maximum and (smaller := m.next_below(m.offer.maximum + 1)) is not None:
                self._shrink(m, smaller, None, Reason("requested", "the application asks to shrink"))

    # -- shrinking ---------------------------------------------------------------------------------------------------

    def _serve(self) -> int:
        """Free nodes for those who wait, one after the other; how many of them stay without."""
        unserved, hopeless = 0, math.inf
        for place, pending in enumerate(self._waiting[:DEPTH]):
            if later(pending, self._snapshot):
                self._plan.place(pending)
                continue
            if pending.least_nodes < hopeless and not self._plan.starts(pending):
                steps = self._steps(pending, len(self._waiting) - place)
                for member, size in steps.items():
                    reason = Reason("shrink-for-pending", f"job {pending.id} can start on what it gives up")
                    self._shrink(self._free[member], size, pending.id, reason)
                if not steps:
                    hopeless = pending.least_nodes  # nor can those be helped that need as much and come later
                    self._gather(pending, first=not unserved)
            unserved += not self._plan.place(pending)
            if hopeless <= self._least and not self._plan.idle(self._snapshot.taken_at):
                break
        return unserved

    def _gather(self, pending: Job, first: bool) -> None:
        """The first in line cannot be helped yet. Who has no use for more than its floor makes a beginning."""
        for m in self._free if first else ():
            smaller = m.next_below(m.size)
            if m.size <= m.floor or smaller is None:
                continue
            size = max((s for s in m.sizes if s <= m.floor), default=smaller)
            if m.speeds.known and m.speeds.scaling(size, m.size) < _SCALES:
                text = (
                    f"job {pending.id} waits for {plural(pending.least_nodes, 'node')}, and it runs as well on {size}"
                )
                self._shrink(m, size, None, Reason("shrink-useless", text))

    def _give_back_useless(self) -> None:
        """Nobody waits: what was tried and is of no use goes back."""
        for m in self._free:
            if m.size == m.offer.size and (size := m.useless) is not None:
                text = f"it was measured to run as well on {size} as on {m.size}"
                self._shrink(m, size, None, Reason("shrink-useless", text))

    def _steps(self, pending: Job, queue: int) -> dict[int, int]:
        """To which sizes jobs (by their place in `_free`) shrink so that `pending` can start; empty if that cannot be.

        `queue` is how many wait, it and those behind it.
        """
        lacking = pending.least_nodes - self._plan.idle(self._snapshot.taken_at)

        def cost(m: Member, old: int, new: int) -> float | None:
            return m.later(old, new) if self._pays(m, old, new, pending, lacking, queue) else None

        return room_for(pending, self._free, self._plan, cost)

    def _pays(self, m: Member, old: int, new: int, pending: Job, lacking: int, queue: int) -> bool:
        """Whether it is good on average that a job gives up nodes to one that waits; see the module's text.

        `lacking` nodes are not idle of those that `pending` needs: so many such jobs have to give up some.
        """
        if m.offer.preferred is not None and old > m.offer.preferred:
            return True  # to the preferred size, or to the nearest below it
        if not m.speeds.known:
            return m.gives_back(old, new)
        freed = m.nodes_of(old) - m.nodes_of(new)
        jobs = max(lacking / freed, 1.0)
        nodes = min(max(pending.least_nodes - lacking + freed, pending.least_nodes), pending.num_nodes)
        got = 1 / m.speeds.at(nodes * m.offer.per_node)
        more = (jobs / m.speeds.at(new) + got) * m.speeds.at(old) / jobs - 1
        others = (queue - 1) * jobs * m.nodes_of(old) / self._size
        return more > 1 / (3 + 2 * others)

    def _shrink(self, member: Member, size: int, beneficiary: int | None, reason: Reason) -> None:
        self._plan.free(member.freed(size)[: member.nodes_of(member.size) - member.nodes_of(size)])
        member.size, member.beneficiary = size, beneficiary
        self._reasons[member.offer.job] = reason

    # -- growing -----------------------------------------------------------------------------------------------------

    def _until(self, member: Member) -> float | None:
        """How long nodes must be free for it: to its end, or for as short as it can make use of them."""
        shortest, end = member.offer.shortest_loan, member.job.end
        if shortest is None:
            return end
        lent = self._snapshot.taken_at + shortest
        return lent if end is None else min(end, lent)

    def _grow(self, unserved: int) -> None:
        """Lend the nodes that nobody can start on to those whom they save most."""
        room = self._plan.idle(self._snapshot.taken_at) + sum(
            m.nodes_of(m.size) - m.nodes_of(m.sizes[0]) for m in self._all
        )
        soon = unserved and room >= self._least  # they will be needed in a moment
        while options := self._options(unserved, soon=bool(soon)):
            _, _, place, larger, more, reason = min(options, key=lambda option: option[:4])
            member = self._free[place]
            self._plan.take(more, self._until(member))
            self._idle -= more
            member.size = larger
            self._reasons[member.offer.job] = reason

    def _options(self, unserved: int, *, soon: bool) -> list[tuple[int, float, int, int, int, Reason]]:
        """How jobs could grow by a step: the more urgent kind first, of one kind what saves most for each node. With
        the job's place, its new size, the nodes that it takes, and why."""
        options = []
        for place, m in enumerate(self._free):
            larger = m.next_above(m.size)
            if larger is None or m.size < m.offer.size:
                continue
            gain, at_best = -m.later(m.size, larger), m.at_best(m.size, larger)
            scales = m.speeds.scaling(m.size, larger) >= (_SCALES if unserved else SCALES_AT_ALL)
            idle = ""
            if m.size < m.offer.minimum:
                urgency = 0
            elif not unserved and m.prefers(m.size, larger) and at_best >= _WORTH:
                urgency, gain, idle = 1, at_best, f", and it prefers {m.offer.preferred}"
            elif scales and not soon and gain >= _WORTH:
                urgency, idle = 2, f", of no use to {plural(unserved, 'waiting job')}" if unserved else ""
            elif not unserved and m.size == m.offer.size and (tried := m.trial) is not None:
                larger, at_best = tried, m.at_best(m.size, tried)
                if at_best < _WORTH_A_TRIAL:
                    continue
                urgency, gain, idle = 3, at_best, f": whether it runs better on {tried} is tried now and then"
            else:
                continue
            more = m.nodes_of(larger) - m.nodes_of(m.size)
            if more <= min(self._plan.idle(self._until(m)), self._idle):
                # It grows step by step: what is told is all of them.
                told = m.nodes_of(larger) - m.nodes_of(m.offer.size)
                reason = Reason(_GROWS[urgency], f"{plural(told, 'more node')} idle{idle}")
                options.append((urgency, -gain / more, place, larger, more, reason))
        return options


def _why_it_stays(m: Member, unserved: int) -> Reason:
    """A reason that is true of a job which keeps its size, while so many wait."""
    if not unserved or m.speeds.known or m.next_below(m.size) is None:
        return Reason("stay", "neither it nor a waiting job would gain by another size")
    if m.size > m.floor:
        return Reason("stay", "no waiting job could start on what it can give up")
    text = "how quick it is on fewer nodes is not known, so it keeps what it was submitted with, or prefers"
    return Reason("speed-unknown", text)
