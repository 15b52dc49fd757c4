"""Takes the resizes that save the most delay x nodes: what provisioning pays for a slot, paid for a size (Singh 2008).

Every plan of sizes has a price: for each job that waits the seconds until it would start times its nodes, and for each
malleable job the seconds by which it ends later than on the size that it has, times the nodes that it has. Who waits is
planned for as Slurm plans, but with the ends that malleable jobs expect where they say how many steps are left, and not
with their time limits.

From the present sizes on, the policy takes one resize after the other, always the one that lowers the price most: one
job grows by a step onto idle nodes, or jobs shrink together for one that waits, each step the cheapest for the nodes
that it frees. It stops where no resize saves more than a quarter of a minute for each node that changes hands. A job is
resized once in a pass.

As in every policy, a shrink is for somebody only if Slurm's own plan, by time limits, gives the freed nodes to that
job, and nobody grows onto nodes that Slurm has planned for another. How quick a job is on other sizes is what it
measured itself, or runs of its program before it (see `throughput`). While that is unknown, going down to the preferred
size costs nothing, because the user says that the program runs well on it, nor does giving back what a job was given
since it began, and nobody goes below. While nobody waits, jobs grow to their preferred size whatever is believed, try
larger ones now and then, and give back what was measured to be of no use, as in `throughput`.

Against `throughput`: that one ends more jobs early, whatever their size. This one weighs a job by its nodes, as an
owner of the machine would: a job on many nodes is not slowed down for a small one, and a wide one that waits is worth
more than several narrow ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.api import Offer, Reason, ResizeVerdict, Snapshot, plural
from penstock.future.members import Member, members_of, room_for, under_way
from penstock.future.queue import DEPTH, QueuePlan, later, waiting
from penstock.future.speeds import SCALES_AT_ALL, Memory

__all__ = ["Priced"]

_WORTH: Final = 15.0
"""Seconds that a resize has to save for each node that changes hands."""
_WORTH_A_TRIAL: Final = 60.0
"""Seconds that a size would have to save if the program scaled perfectly, to be tried against what is believed."""
_HELPED: Final = 10
"""Jobs that wait for which a way to shrink is looked for; those behind them are only planned."""
_LONGEST: Final = 7 * 86400.0
"""Seconds of waiting that count at most: those of a job that would never start."""


class Priced:
    """See the module's text."""

    name = "priced"

    def __init__(self) -> None:
        self.memory = Memory()

    def decide_all(self, offers: Sequence[Offer], snapshot: Snapshot) -> Mapping[int, ResizeVerdict]:
        """The sizes that all of these jobs should have now."""
        verdicts: dict[int, ResizeVerdict] = {}
        for partition, members in members_of(self.memory, offers, snapshot).items():
            verdicts |= _Market(partition, members, snapshot).verdicts()
        return verdicts


class _Resize(NamedTuple):
    """New sizes of some members, by their place in the list, and whom and what for."""

    sizes: Mapping[int, int]
    beneficiary: int | None
    reason: Reason
    asked: bool = False


class _Market:
    """The malleable jobs of one partition, and what the jobs that wait for its nodes pay for them."""

    def __init__(self, partition: str, members: Sequence[Member], snapshot: Snapshot) -> None:
        self._partition, self._members, self._snapshot = partition, members, snapshot
        self._freed, self._claimed = under_way(members)
        self._open = [m for m in members if m.offer.target is None]
        self._idle = len(snapshot.idle_nodes(partition))
        self._waiting = waiting(snapshot, partition)[:DEPTH]
        self._expected = QueuePlan(snapshot, partition, without={m.job.id for m in members})
        self._resized: dict[int, Reason] = {}

    def verdicts(self) -> dict[int, ResizeVerdict]:
        """Of all whose size is not being changed already."""
        price = self._price()
        while (best := self._best(price)) is not None:
            resize, price = best
            self._take(resize)
        stay = Reason("stay", "no resize would save enough waiting")
        return {
            m.offer.job: ResizeVerdict(m.size, (self._resized.get(m.offer.job, stay),), m.beneficiary)
            for m in self._open
        }

    def _best(self, price: float) -> tuple[_Resize, float] | None:
        """The resize that saves most, and the price with it."""
        best: tuple[float, _Resize, float] | None = None
        for resize in self._resizes():
            before = {place: self._open[place].size for place in resize.sizes}
            moved = sum(
                abs(self._open[p].nodes_of(s) - self._open[p].nodes_of(before[p])) for p, s in resize.sizes.items()
            )
            self._set(resize.sizes)
            new = self._price()
            self._set(before)
            saved = math.inf if resize.asked else price - new - _WORTH * moved
            if saved > 0 and (best is None or saved > best[0]):
                best = saved, resize, new
        return None if best is None else best[1:]

    def _set(self, sizes: Mapping[int, int]) -> None:
        for place, size in sizes.items():
            self._open[place].size = size

    def _take(self, resize: _Resize) -> None:
        self._set(resize.sizes)
        for place in resize.sizes:
            m = self._open[place]
            m.beneficiary, self._resized[m.offer.job] = resize.beneficiary, resize.reason
            self._freed += m.freed(m.size) if m.size < m.offer.size else ()
            self._claimed += max(m.nodes_of(m.size) - m.nodes_of(m.offer.size), 0)

    def _price(self) -> float:
        """Node-seconds by which all are late together, with the sizes that the members shall have."""
        now = self._snapshot.taken_at
        held, late = [], 0.0
        for m in self._members:
            size = m.size if m.offer.target is None else m.offer.target
            later = m.later(m.offer.size, size)
            nodes = m.offer.nodes or m.job.nodes
            until = min(now + m.left + later, math.inf if m.job.end is None else max(m.job.end, now))
            held.append((nodes[: m.nodes_of(size)], m.nodes_of(size) - len(nodes), until))
            late += self._loss(m, m.offer.size, size)
        starts = self._expected.forecast(self._waiting, held)
        return late + sum(
            min(start - now, _LONGEST) * p.num_nodes for p, start in zip(self._waiting, starts, strict=True)
        )

    # -- what could be done ------------------------------------------------------------------------------------------

    def _resizes(self) -> Iterator[_Resize]:
        plan = QueuePlan(self._snapshot, self._partition, self._freed, self._claimed)
        helped = 0
        for pending in self._waiting:
            if helped < _HELPED and not later(pending, self._snapshot) and not plan.starts(pending):
                helped += 1
                if steps := room_for(pending, self._open, plan, self._cost):
                    text = f"job {pending.id} can start on what it gives up, which saves more waiting than it costs"
                    yield _Resize(steps, pending.id, Reason("shrink-for-pending", text))
            plan.place(pending)
        for place, m in enumerate(self._open):
            if m.offer.job in self._resized:
                continue
            if m.size > m.offer.maximum and (smaller := m.next_below(m.offer.maximum + 1)) is not None:
                yield _Resize({place: smaller}, None, Reason("requested", "the application asks to shrink"), True)
            if not self._waiting and (size := m.useless) is not None:
                text = f"it was measured to run as well on {size} as on {m.size}"
                yield _Resize({place: size}, None, Reason("shrink-useless", text), True)
                continue
            room = min(plan.idle(m.job.end), self._idle - self._claimed)
            larger = m.next_above(m.size)
            if larger is not None and m.nodes_of(larger) - m.nodes_of(m.size) <= room:
                told = m.nodes_of(larger) - m.nodes_of(m.offer.size)  # with the steps before
                reason = Reason("expand-idle", f"{plural(told, 'more node')} idle, and it ends earlier with them")
                asked = m.size < m.offer.minimum
                if not self._waiting and m.prefers(m.size, larger) and m.at_best(m.size, larger) >= _WORTH:
                    asked, text = True, f"{plural(told, 'more node')} idle, and it prefers {m.offer.preferred}"
                    reason = Reason("expand-preferred", text)
                yield _Resize({place: larger}, None, reason, asked)
            if not self._waiting and (tried := self._trial(m, room)) is not None:
                text = f"whether it runs better on {tried} is tried now and then while nodes idle"
                yield _Resize({place: tried}, None, Reason("expand-trial", text), True)

    @staticmethod
    def _trial(m: Member, room: int) -> int | None:
        """A larger size that is to be tried although the policy does not believe in it, on so many idle nodes."""
        tried = m.trial
        if tried is None or m.nodes_of(tried) - m.nodes_of(m.size) > room:
            return None
        doubtful = m.speeds.scaling(m.size, tried) < SCALES_AT_ALL
        return tried if doubtful and m.at_best(m.size, tried) >= _WORTH_A_TRIAL else None

    def _cost(self, m: Member, old: int, new: int) -> float | None:
        """What going to the next smaller size loses; None if that may not be."""
        unknown = not m.speeds.known and not m.gives_back(old, new)
        return None if unknown or m.offer.job in self._resized else self._loss(m, old, new)

    @staticmethod
    def _loss(m: Member, old: int, new: int) -> float:
        """Node-seconds by which it is later on the new size."""
        if not m.speeds.known and new < old:
            return 0.0  # down to where nobody needs to know, see the module's text
        return m.later(old, new) * m.nodes_of(m.offer.size)
