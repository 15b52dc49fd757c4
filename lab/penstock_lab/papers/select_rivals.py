"""What a user can do without Penstock: a bag sent by sbatch's own means, and what nobody could beat.

All send the same jobs: whole nodes that run as many tasks side by side as they have cores, under one time limit.

    one at random    the whole bag to one machine, drawn
    least loaded     the whole bag to the machine with the smallest share of nodes that jobs have or wait for, which is
                     what `sinfo` and `squeue` show
    -M               the whole bag to the cluster where Slurm itself says, at submission, that it would start first
    -p               in the queue of every machine at once: whichever has room for a job starts it, and takes it out of
                     the other queues. A job takes as many tasks as its node has cores from the bag's list, which is
                     kinder than one fixed size of job that has to fit everywhere
    bound            every node that becomes free (when its job really ends) goes to the bag at once, the best first
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.api import JobSpec, JobState
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.jobs import SimJob
from penstock_lab.papers.select_world import RESOURCES, World
from penstock_planning.select.spread import Lane, makespan, spread
from penstock_planning.select.workload import Span, Times, times_of

__all__ = ["LIMIT", "Sent", "bound", "drawn_order", "earliest", "least_loaded", "load", "sent"]

LIMIT: Final = 8 * 3600.0
"""What every job of a bag asks for, whoever sends it: enough for the slowest machine."""


@dataclass(frozen=True, slots=True)
class Sent:
    """How a bag fared, and how many of its tasks each machine was given."""

    times: Times
    shares: Mapping[str, int] = field(default_factory=dict)


def load(engine: Engine) -> float:
    """Nodes that jobs have or wait for, over all nodes."""
    waiting = sum(job.num_nodes * job.tasks for job in engine.jobs.values() if job.state is JobState.PENDING)
    return (len(engine.owner) + waiting) / len(engine.config.node_names)


def least_loaded(world: World, names: Sequence[str]) -> str:
    """The machine with the least load; the first of equals."""
    return min(names, key=lambda name: load(world.engines[name]))


def earliest(world: World, size: int, names: Sequence[str]) -> str:
    """The machine where Slurm says that the bag's array would start first; the first of equals, as the cluster where a
    user is logged in comes before others."""

    def start(name: str) -> float:
        return Controller(world.engines[name]).estimate(world.user, _spec(name, size)).start

    return min(names, key=start)


def sent(world: World, size: int, names: Sequence[str]) -> Sent:
    """The bag in the queues of these machines at once, until all is done. Of machines that could start a job at the
    same instant the one that is named first does."""
    queues = [_Queued(world, name, size) for name in names]
    now = world.clock.now()
    while not all(queue.done for queue in queues):
        now = max(now, min(due for queue in queues if (due := queue.engine.next_event()) is not None))
        for queue in queues:
            queue.engine.advance(now)
            queue.engine.take_effects()
            left = size - sum(each.begun for each in queues)
            for each in queues:
                each.keep(max(math.ceil(left / each.cores), 0))
    spans = [span for queue in queues for span in queue.ran()]
    return Sent(times_of(spans), {queue.name: queue.begun for queue in queues if queue.begun})


def bound(world: World, size: int) -> float:
    """The time (s) that nobody's mean can beat: nodes are the bag's as soon as who has them now is done.

    Runs take their means: the last of several that scatter is done later still.
    """
    lanes = []
    for name, target in RESOURCES.items():
        engine = world.engines[name]
        ends = [_real_end(job) - engine.now for job in engine.running for _ in job.nodes]
        free = [0.0] * (len(engine.config.node_names) - len(ends)) + ends
        waves = math.ceil(math.ceil(size / target.cores) / len(free))
        starts = sorted(target.overhead + at + wave * target.seconds for at in free for wave in range(waves + 1))
        lanes.append(Lane(name, [max(start, target.overhead) for start in starts], target.seconds, target.cores))
    return makespan(spread(size, lanes), lanes)


def _real_end(job: SimJob) -> float:
    return min(job.limit_at, math.inf if job.finish_at is None else job.finish_at)


def _spec(name: str, size: int) -> JobSpec:
    jobs = math.ceil(size / RESOURCES[name].cores)
    return JobSpec("bench.bag", "#!/bin/sh\n", 1, LIMIT, array=f"0-{jobs - 1}")


class _Queued:
    """The bag's array in the queue of one machine."""

    def __init__(self, world: World, name: str, size: int) -> None:
        self.name, self.cores = name, RESOURCES[name].cores
        self.engine = world.engines[name]
        self.number = Controller(self.engine).submit(world.user, _spec(name, size))
        head = self.engine.records[self.number]
        assert head.array is not None
        self._head, self._array, self._wanted = head, head.array, head.array.count

    @property
    def waiting(self) -> int:
        """Jobs that have not started."""
        return len(self._array.waiting) if self._head.task is None and not self._head.state.ended else 0

    @property
    def begun(self) -> int:
        """Tasks that have room in jobs that have started."""
        return self.cores * (self._wanted - self.waiting)

    @property
    def done(self) -> bool:
        """Whether nothing of it waits or runs."""
        return not self.waiting and not self._array.running

    def keep(self, most: int) -> None:
        """No more than so many of its jobs wait any longer."""
        beyond = self.waiting - most
        if beyond > 0:
            self._wanted -= beyond
            self.engine.strike(self._head, self._array.waiting[most:])

    def ran(self) -> Iterator[tuple[Span, Span]]:
        """When each of its jobs waited and ran."""
        for job in self.engine.accounted(self.number):
            if job.start is not None and job.end is not None:
                yield (job.submit, job.start), (job.start, job.end)


def drawn_order(rng: np.random.Generator) -> list[str]:
    """The machines in an order of chance."""
    names = list(RESOURCES)
    return [names[i] for i in rng.permutation(len(names))]
