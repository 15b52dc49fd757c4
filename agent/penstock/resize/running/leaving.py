"""What becomes of malleable jobs while Penstock is off: growths are taken back, and programs are asked to give back
the nodes that are not their job's own.

A growth that its program has taken up comes to its end. A program that runs on a companion's nodes is asked to shrink
to those of its own job, as a policy would ask it, where its work then still fits into its time limit: it is never ended
for it, and no limit is raised.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.api import Decision, Job, Reason, ResizeVerdict, Snapshot, Verb
from penstock.core.off import CODE, Off
from penstock.future.speeds import measured_by
from penstock.host.clock import Clock
from penstock.resize.running.bounds import ResizeBounds, bounded
from penstock.resize.running.machine import MalleableJob
from penstock.resize.running.registry import Registry
from penstock.resize.running.settings import MalleableSettings
from penstock.resize.running.words import ResizePhase
from penstock.values import merging

__all__ = ["Leaver", "smaller"]


def smaller(me: MalleableJob) -> tuple[int, ...]:
    """The sizes (processes) at which it uses fewer companions and all nodes of its own, ascending."""

    def fits(count: int) -> bool:
        return me.splits(count) and set(me.own) <= set(me.nodes[:count])

    return tuple(s for s in me.offer.reachable() if s < me.offer.size and fits(s // me.offer.per_node))


class Leaver:
    """Decides in the place of `Decider`."""

    def __init__(self, registry: Registry, clock: Clock, settings: MalleableSettings) -> None:
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._staying: dict[int, str] = {}

    def staying(self, job: int) -> str | None:
        """Why the job keeps its companions; None: they are on their way back, or it has none."""
        return self._staying.get(job)

    def decide(self, job: Job, snapshot: Snapshot, off: Off) -> list[Decision]:
        """Take back what is open, or ask the program to shrink."""
        me, now = self._registry.jobs[job.id], self._clock.now()
        subject, why = f"job {job.id}", Reason(CODE, str(off))
        self._staying.pop(job.id, None)
        back = me.withdrawn("Penstock is off", now)
        if back is not me:
            self._registry.put(back)
            taken = Reason("taken-back", f"the growth from {me.origin} to {me.target} processes is taken back")
            return [Decision(Verb.HOLD, subject, (why, taken))]
        if me.phase is not ResizePhase.IDLE or not me.companions:
            return [Decision(Verb.HOLD, subject, (why,))]
        partition = snapshot.partitions.get(job.partition)
        if partition is None or self._registry.outdates(snapshot.taken_at):
            return []
        limits, site = self._settings.limits, self._settings.site
        shrinks = site is None or merging.shrinks(site)
        # Never with a longer limit: nothing new is begun.
        speeds = measured_by(self._settings.policy, job)
        cost = self._registry.cost(limits.cost)
        bounds = ResizeBounds(now, cost, False, shrinks, partition, nobody_waits=True, speeds=speeds)
        verdicts = [bounded(me, job, size, bounds) for size in smaller(me)]
        allowed = next((verdict for verdict in verdicts if verdict.size < me.offer.size), None)
        if allowed is None:
            text = verdicts[0].reasons[0].text if verdicts else "it has no possible size without its companions' nodes"
            self._staying[job.id] = text
            return [Decision(Verb.HOLD, subject, (why, Reason("keeps-companions", text)))]
        asked = Reason("asked-back", "the application is asked to give back the nodes of its companions")
        verdict = ResizeVerdict(allowed.size, (why, asked, *allowed.reasons))
        after = me.decided(verdict, job, "", limits, now)
        if after is me:  # it rests from its last resize
            return []
        if after.phase is ResizePhase.IDLE:
            self._staying[job.id] = after.note
            self._registry.put(replace(me, note=after.note))
            return [Decision(Verb.HOLD, subject, (why, Reason("keeps-companions", after.note)))]
        self._registry.put(after)
        return [Decision(Verb.SHRINK, subject, verdict.reasons, {"size": allowed.size})]
