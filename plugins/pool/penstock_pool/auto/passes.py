"""One pass over a pool that gets its own allocations: what became of them, what is to be done, and doing it.

Any process of the pool's owner may make a pass, one after the other (`order.held_alone`). A submission is written down
by its name before it is asked for: a process that is killed in between leaves that, and the next pass finds the job by
it. So at any instant every job of the pool in Slurm is in the file, or its name is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from penstock.api import Geometry, Job, JobState, Partition, Snapshot, Verb, plural
from penstock.errors import Infeasible, LeftAlone, NotNow, NotPermitted, OutcomeUnknown, PenstockError
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.values.durations import duration_text
from penstock.values.waits import Distribution, Estimate, Observation
from penstock_pool.auto.acts import AutoActs
from penstock_pool.auto.choose import (
    QUANTILES,
    AllocationShape,
    AllocationVerdict,
    AutoCaps,
    NodeSize,
    PendingAllocation,
    RunningAllocation,
    Waits,
    candidates,
    decide,
)
from penstock_pool.auto.order import AutoAllocation, AutoState
from penstock_pool.demand import Demand

__all__ = ["AutoPass", "WaitSource"]

_log = get_logger(__name__)
_LOOKED_FOR: Final = 120.0
"""Seconds after which a submission that nobody answered, and that no job bears the name of, was none."""
_LAG: Final = 10.0
"""Seconds by which a look at Slurm may lag behind a submission."""
_FRESH: Final = 30.0
"""Seconds for which what a scheduler says it needs counts."""
_THINK: Final = 30.0
"""Seconds until it is thought over again where nothing has happened: it takes some tenths of a second."""
_FAILURES: Final = 10
"""Submissions that fail one after the other before nothing more is asked for."""
_LOSSES: Final = 3
"""Allocations that end one after the other without having joined, likewise."""
_YOUNG: Final = 60.0
"""Seconds in which Slurm may start a job at its next turn."""
_IDLE: Final = 30.0
_LAST: Final = 600.0
"""Seconds for which no task must have waited before what is queued is taken back: where nothing runs any more, and
while something does, which may be tried again or have others follow."""


class WaitSource(Protocol):
    """What is known of waits (`ModelStore` with `Predictions.prepare`)."""

    async def prepare(self, geometries: Collection[Geometry]) -> bool:
        """These are about to be asked for."""
        ...

    def predict(self, geometry: Geometry) -> Estimate:
        """The wait to count with."""
        ...

    def around(self, geometry: Geometry, estimate: Estimate) -> Distribution:
        """Waits to reckon with then."""
        ...

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        """A job of this geometry waited."""
        ...


@dataclass(frozen=True, slots=True)
class AutoPass:
    """What a pass needs. `save` keeps the state."""

    slurm: Reader
    acts: AutoActs
    waits: WaitSource
    save: Callable[[], None]

    async def run(self, state: AutoState, demand: Demand | None, snapshot: Snapshot) -> AllocationVerdict | None:
        """Read what became of the allocations, then do what the verdict says, as far as may be. None: nothing was
        decided, because the pool is stopped or says nothing, or is not to get any allocations now."""
        now = self.slurm.now()
        await self._follow(state, demand, snapshot, now)
        if state.off or demand is None or self.acts.executor.pause_control.off is not None:
            why = "nothing more is wanted" if state.off else "the pool is stopped" if demand is None else "all is off"
            await self._let_go(state, why)
            return None
        if not -_FRESH < now - demand.at < _FRESH:
            return None
        await self._take_back(state, demand, now)
        what = _what(state, demand)
        if state.told.get("of") == what and 0 <= now - state.told["at"] < _THINK:
            self.save()
            return None
        verdict = await self.look(state, demand, snapshot)
        self._tell(state, verdict, now)
        done = False
        if not state.paused and self.acts.executor.ready(self.acts.subject):
            done = await self._submit(state, verdict)
        for name in verdict.withdraw:
            await self._cancel(state, state.find(name), "the pool has all the nodes that it may have, for longer")
        for name in verdict.drain:
            self._leave(state.find(name), "its successors are there")
        state.told["of"] = _what(state, demand) if done else ""
        self.save()
        return verdict

    async def look(self, state: AutoState, demand: Demand, snapshot: Snapshot) -> AllocationVerdict:
        """The verdict, of which nothing is done."""
        now = self.slurm.now()
        order = state.order
        partitions = _partitions(state, snapshot)
        if not partitions:
            known = ", ".join(sorted(name for name, p in snapshot.partitions.items() if p.up)) or "none"
            named = ",".join(order.partitions) or "a default one"
            return AllocationVerdict(reasons=(f"nothing: there is no partition {named} that is up (up: {known})",))
        size = _size(state, demand, snapshot, partitions)
        limits = {p.name: min(order.limit, p.max_time or order.limit) for p in partitions}
        most = min(order.max_nodes, max((len(p.nodes) for p in partitions), default=1))
        caps = AutoCaps(most, min(order.max_jobs, most), limits)
        wanted = candidates(demand, size, caps)
        waits = await self._waits(state, wanted)
        pending, running = [], []
        for each in state.allocations:
            if each.leaving:
                continue
            if each.started is None:
                pending.append(PendingAllocation(each.name, each.shape, _starts(each.waits, now - each.submitted)))
            else:
                left = each.shape.limit - (now - each.started)
                running.append(RunningAllocation(each.name, each.shape, left, each.joined))
        return decide(demand, size, running, pending, caps, waits)

    # What became of them.

    async def _follow(self, state: AutoState, demand: Demand | None, snapshot: Snapshot, now: float) -> None:
        there = demand.jobs if demand else frozenset()
        for each in list(state.allocations):
            if each.job is None:
                await self._find(state, each, now)
                continue
            row = snapshot.jobs.get(each.job)
            if row is not None and row.submit != each.born:  # new, requeued, or another job with its number
                if each.job in await self.slurm.find(each.name):
                    each.born = row.submit
                else:
                    row = None
            if row is not None and row.start is not None and not row.pending and each.started is None:
                each.started = row.start
                self._learn(state, each, Observation(max(row.start - each.submitted, 0.0)))
            if str(each.job) in there:
                each.joined, state.lost = True, 0
            if row is None and snapshot.taken_at < each.submitted + _LAG:
                continue
            if row is None or row.state.ended:
                self._over(state, each, row, now)
        self.save()

    async def _find(self, state: AutoState, allocation: AutoAllocation, now: float) -> None:
        found = await self.slurm.find(allocation.name)
        if found:
            allocation.job = min(found)
        elif now - allocation.submitted > _LOOKED_FOR:
            state.allocations.remove(allocation)

    def _over(self, state: AutoState, allocation: AutoAllocation, row: Job | None, now: float) -> None:
        state.allocations.remove(allocation)
        if allocation.joined or allocation.leaving:
            return
        if allocation.started is None and (row is None or row.start is None):
            self._learn(state, allocation, Observation.more_than(max(now - allocation.submitted, 0.0)))
        if row is not None and row.state is JobState.COMPLETED:
            return  # it had joined and left between two looks, when there was nothing to do any more
        state.lost += 1
        how = f"ended as {row.state.value}" if row is not None else "is gone"
        self.acts.say(Verb.NOTHING, "lost", f"job {allocation.job} {how} before it had joined the pool")
        if state.lost >= _LOSSES:
            log = self.acts.log(allocation.job or 0)
            self._pause(
                state, f"{_LOSSES} allocations in a row ended before they had joined; the last one's log: {log}"
            )

    def _learn(self, state: AutoState, allocation: AutoAllocation, seen: Observation) -> None:
        told = allocation.estimate
        estimate = Estimate(told["index"], told["seconds"], told["said"]) if told else None
        self.waits.observe(_geometry(state, allocation.shape, 1), seen, estimate)

    # What is done.

    async def _submit(self, state: AutoState, verdict: AllocationVerdict) -> bool:
        """Whether all were submitted."""
        for (shape, count), why in zip(verdict.submit, verdict.reasons, strict=False):
            geometry = _geometry(state, shape, 1)
            for _ in range(count):
                estimate = self.waits.predict(geometry)
                told = {"index": estimate.index, "seconds": estimate.seconds, "said": dict(estimate.said)}
                quantiles = _quantiles(self.waits.around(geometry, estimate))
                name = f"{self.acts.prefix}{secrets.token_hex(4)}"
                allocation = AutoAllocation(name, shape, self.slurm.now(), quantiles, told, why)
                state.allocations.append(allocation)
                self.save()
                try:
                    allocation.job = await self.acts.submit(allocation)
                except LeftAlone as e:
                    state.allocations.remove(allocation)
                    self.acts.say(Verb.HOLD, "paused", str(e))
                    return False
                except (Infeasible, NotPermitted, NotNow) as e:
                    if not isinstance(e, OutcomeUnknown):  # else it may be there: it is looked for
                        state.allocations.remove(allocation)
                    if not isinstance(e, NotNow) or e.again_in is None:
                        self._refused(state, e)
                    return False
                state.failed = 0
                self.save()
        return True

    def _refused(self, state: AutoState, error: PenstockError) -> None:
        state.failed += 1
        _log.warning("a pool got no allocation", pool=self.acts.subject, why=str(error))
        if state.failed >= _FAILURES:
            self._pause(state, f"{_FAILURES} submissions in a row failed; the last one: {error}")

    def _pause(self, state: AutoState, why: str) -> None:
        state.paused = why
        self.acts.say(Verb.HOLD, "gave-up", f"{why}; `penstock pool auto --resume` tries again")

    async def _take_back(self, state: AutoState, demand: Demand, now: float) -> None:
        """What is queued goes when no task has waited, or been foreseen, for a while. Not before: whatever waits in the
        queue starts before a new one of its shape could."""
        if demand.waiting or demand.foreseen:
            state.done = None
            return
        state.done = now if state.done is None else state.done
        least = _IDLE if demand.idle else _LAST
        if now - state.done >= least:
            for each in state.allocations:
                if each.started is None and each.job is not None:
                    await self._cancel(state, each, f"no task has waited for {duration_text(least)}")

    async def _let_go(self, state: AutoState, why: str) -> None:
        for each in state.allocations:
            if each.started is None and each.job is not None:
                await self._cancel(state, each, why)
            elif state.off and each.job is not None and each.joined:
                self._leave(each, "nothing more is wanted")
        self.save()

    async def _cancel(self, state: AutoState, allocation: AutoAllocation, why: str) -> None:
        if allocation.leaving:
            return
        try:
            await self.acts.cancel(allocation, why)
        except PenstockError as e:
            _log.warning("an allocation could not be taken back", job=allocation.job, why=str(e))
            return
        self._learn(state, allocation, Observation.more_than(max(self.slurm.now() - allocation.submitted, 0.0)))
        allocation.leaving = True
        self.save()

    def _leave(self, allocation: AutoAllocation, why: str) -> None:
        """The pool's scheduler has its members leave when it sees this."""
        if not allocation.leaving:
            allocation.leaving = True
            self.acts.say(Verb.NOTHING, "let-go", f"job {allocation.job}: {why}: it leaves when its tasks have ended")

    # What is known.

    async def _waits(self, state: AutoState, wanted: Sequence[tuple[AllocationShape, int]]) -> Waits:
        """The wait of the last of several jobs is taken for that of one job with all their nodes."""
        geometries = {each: _geometry(state, *each) for each in wanted}
        await self.waits.prepare(list(geometries.values()))
        return {each: _quantiles(self.waits.around(g, self.waits.predict(g))) for each, g in geometries.items()}

    def _tell(self, state: AutoState, verdict: AllocationVerdict, now: float) -> None:
        state.told = {**asdict(verdict), "at": now}
        if verdict.unreachable:
            text = (
                f"{plural(verdict.unreachable, 'task')} need more than an allocation may have (at most "
                f"{duration_text(state.order.limit)}): they wait"
            )
            self.acts.say(Verb.HOLD, "too-large", text)


def _what(state: AutoState, demand: Demand) -> str:
    """What a new verdict is worth for, when it changes; everything else changes slowly."""
    rows = [[each.name, each.started is not None, each.joined, each.leaving] for each in state.allocations]
    return json.dumps([bool(demand.waiting), bool(demand.foreseen), asdict(state.order), rows])


def _geometry(state: AutoState, shape: AllocationShape, count: int) -> Geometry:
    order = state.order
    return Geometry(shape.partition, order.qos, shape.nodes * count, shape.limit, account=order.account)


def _quantiles(waits: Distribution) -> tuple[float, ...]:
    return tuple(waits.quantile(q) for q in QUANTILES)


def _starts(waits: Sequence[float], since: float) -> tuple[float, ...]:
    """Quantiles of what is left of a wait that has lasted so long: those that are not over yet share the chances. One
    that has just begun, or may have ended since the last look at Slurm, says nothing yet."""
    waited = max(since - _YOUNG, 0.0)
    left = [max(each - since, 0.0) for each in waits if each > waited or not waited]
    if not left:
        return tuple(waited * factor for factor in (0.1, 0.25, 0.5, 1.0))
    return tuple(left[min(int(q * len(left)), len(left) - 1)] for q in QUANTILES)


def _partitions(state: AutoState, snapshot: Snapshot) -> list[Partition]:
    """Those that were named, or the default one, as far as they are up."""
    named = state.order.partitions
    return [p for p in snapshot.partitions.values() if p.up and (p.name in named if named else p.default)]


def _size(state: AutoState, demand: Demand, snapshot: Snapshot, partitions: Sequence[Partition]) -> NodeSize:
    """What a member of its own has; before there is one, the least that a usable node of the partitions has."""
    own = {str(each.job) for each in state.allocations if each.job is not None}
    if mine := [m for m in demand.members if m.job in own]:
        least = min(mine, key=lambda m: m.cores)
        return NodeSize(least.cores, least.memory, least.gpus)
    names = {name for partition in partitions for name in partition.nodes}
    nodes: list[Any] = [node for name, node in snapshot.nodes.items() if name in names]
    usable = [node for node in nodes if node.usable] or nodes
    cores = float(state.order.cores or min((node.cpus for node in usable), default=1))
    memory = min((node.memory for node in usable if node.memory), default=None)
    return NodeSize(cores, None if memory is None or state.order.cores else int(memory * 2**20))
