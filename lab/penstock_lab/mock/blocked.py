"""Jobs that wait for something other than their turn: a release, a parent, a time, a limit of their partition."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from penstock_lab.mock.dependency import Clause
from penstock_lab.mock.events import Events, Kind
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig, PartitionConfig
from penstock_lab.mock.reservations import Reservations

__all__ = ["BlockedJobs"]


class _Waited(Protocol):
    """A cluster in which jobs wait for this and that."""

    config: ClusterConfig
    now: float
    jobs: dict[int, SimJob]
    partitions: dict[str, PartitionConfig]
    reservations: Reservations
    events: Events

    def limit(self, job: SimJob) -> float: ...
    def array(self, job: int) -> list[SimJob]: ...


class BlockedJobs:
    """Who waits, and who of them is to be looked at because something has changed for them."""

    def __init__(self, engine: _Waited) -> None:
        self._engine = engine
        self._waiting: dict[int, SimJob] = {}
        self._look: dict[int, SimJob] = {}
        self._children: dict[int, set[int]] = defaultdict(set)  # who waits for a job, or did

    @property
    def restless(self) -> bool:
        """Whether somebody is to be looked at."""
        return bool(self._look)

    def enter(self, job: SimJob) -> None:
        """The job waits, and is looked at before the next pass."""
        job.eligible = job.planned = None
        self._waiting[job.id] = self._look[job.id] = job
        for clause in job.dependency.clauses:
            if clause.job in self._engine.jobs:  # nothing will ever happen to one that is not known
                self._children[clause.job].add(job.id)
        if job.expands is not None:
            self._children[job.expands].add(job.id)

    def leave(self, job: SimJob) -> None:
        """The job is gone from here, if it was here."""
        self._waiting.pop(job.id, None)
        self._look.pop(job.id, None)

    def wake(self, job: SimJob) -> bool:
        """Look at the job again; False when it is not here."""
        if job.id in self._waiting:
            self._look[job.id] = job
            return True
        return False

    def notify(self, job: SimJob) -> None:
        """Something has happened to a job that others may wait for."""
        self._notify(job.id)
        if job.array is not None and job.array.job != job.id:
            self._notify(job.array.job)

    def forget(self, job: SimJob) -> None:
        """The controller has forgotten the job: what waits for it is free."""
        self.notify(job)
        self._children.pop(job.id, None)

    def resizers(self, job: SimJob) -> list[int]:
        """Who was submitted to expand the job, or waits for it in another way."""
        return sorted(self._children.get(job.id, ()))

    def admit(self) -> list[SimJob]:
        """Those who may have their turn from now on; they are no longer here."""
        look, self._look = self._look, {}
        admitted: list[SimJob] = []
        for job in look.values():
            reason = self._obstacle(job)
            if reason is None:
                job.reason = "Priority"
                del self._waiting[job.id]
                admitted.append(job)
            else:
                job.reason = reason
        return admitted

    def _notify(self, parent: int) -> None:
        for number in self._children.get(parent, ()):
            if number in self._waiting:
                self._look[number] = self._waiting[number]

    def _obstacle(self, job: SimJob) -> str | None:
        """Slurm's word for why the job may not start; None when it may. It becomes eligible by the way."""
        engine = self._engine
        limited = "limits" in engine.config.enforced
        if job.accrued is None and job.begin is not None and job.begin > engine.now and not limited:
            job.accrued = job.begin  # as in Slurm, where a time that is brought forward later does not change it
        wake = job.dependency.refresh(self._parents, engine.now)
        if wake is not None:
            engine.events.at(wake, Kind.WAKE, job.id)
        parent = None if job.expands is None else engine.jobs.get(job.expands)
        if job.dependency.never or (job.expands is not None and (parent is None or not parent.state.holds_nodes)):
            return "DependencyNeverSatisfied"
        if job.held or job.dependency:
            if limited:
                job.accrued = None
            return (f"JobHeld{job.held.title()}") if job.held else "Dependency"
        if job.eligible is None:
            job.eligible = max(engine.now, job.begin or 0.0)
        if job.accrued is None:
            job.accrued = job.eligible
        if job.eligible > engine.now:
            engine.events.at(job.eligible, Kind.WAKE, job.id)
            return "BeginTime"
        if job.batch and engine.now < job.submit + engine.config.batch_delay:
            engine.events.at(job.submit + engine.config.batch_delay, Kind.WAKE, job.id)
            return "None"
        partition = engine.partitions[job.partition]
        if engine.limit(job) > (partition.max_time or math.inf):
            return "PartitionTimeLimit"
        if job.num_nodes > (partition.max_nodes or math.inf):
            return "PartitionNodeLimit"
        if job.reservation and engine.reservations.get(job.reservation) is None:
            return "ReservationDeleted"
        return None

    def _parents(self, clause: Clause) -> Sequence[SimJob]:
        """The jobs of a dependency's clause."""
        if clause.job not in self._engine.jobs:
            return ()
        parents = self._engine.array(clause.job)
        if clause.task is None or parents[0].array is None:
            return parents
        one = [p for p in parents if p.task == clause.task]
        return one or [p for p in parents if p.waits_as_array and p.array and clause.task in p.array.waiting]
