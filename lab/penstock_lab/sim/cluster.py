"""Workloads on the simulated Slurm itself (`penstock_lab.mock`), where nodes have names, in virtual time.

`sim.replay` counts processors and knows the textbook policies; here jobs have partitions, QOS, dependencies, arrays,
licences and nodes that fail, and are planned as the mock plans them. Slower, but the same code that tests the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.api import JobSpec, JobState, ReservationSpec
from penstock.errors import UserError
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.speedup import Work
from penstock_planning.select.speedup import Speedup

__all__ = ["Outcome", "SimulatedJob", "run"]


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job to submit as `user` at `submit` (seconds). It runs `duration` seconds on the nodes that it asks for.

    With a `speedup` it takes more or less time on another number of nodes. A job is killed at its time limit.
    """

    submit: float
    spec: JobSpec
    duration: float
    user: str = "user"
    exit_code: int = 0
    speedup: Speedup | None = None

    def work(self) -> Work:
        """What it has to do, in the engine's terms."""
        speed = 1.0 if self.speedup is None else self.speedup.at(self.spec.nodes)
        return Work(self.duration * speed, self.exit_code, self.speedup)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: `nodes` are the last that it had, `restarts` how often it was requeued.

    `start` and `end` are None while it waits or runs, which only a simulation that stopped early leaves.
    """

    id: int
    submit: float
    start: float | None
    end: float | None
    nodes: tuple[str, ...]
    state: JobState
    restarts: int


def run(
    config: ClusterConfig, jobs: Iterable[SimulatedJob], reservations: Iterable[ReservationSpec] = ()
) -> Sequence[Outcome]:
    """Submit the jobs, which come in order of submission, and let time pass until nothing happens any more.

    The reservations are made when the first job is submitted, which is when nothing is in their way.

    Outcomes are in order of submission. Raises what the simulated Slurm refuses a job with (`Infeasible`), and
    UserError when a job is submitted before the one ahead of it. What can never start is PENDING in the end.
    """
    arrivals = iter(jobs)
    first = next(arrivals, None)
    if first is None:
        return []
    engine = Engine(config, first.submit)
    controller = Controller(engine)
    for reservation in reservations:
        controller.reserve("root", reservation)
    left = _Arrivals(engine, controller, arrivals)
    left.submit(first)
    while (due := engine.next_event()) is not None and (left.more or engine.active):
        engine.advance(due)
        engine.take_effects()
    return [_outcome(job) for job in engine.records.values()]


class _Arrivals:
    """Submits one job after the other, each in its time."""

    def __init__(self, engine: Engine, controller: Controller, rest: Iterator[SimulatedJob]) -> None:
        self._engine = engine
        self._controller = controller
        self._rest = rest
        self.more = True

    def submit(self, job: SimulatedJob) -> None:
        """Submit this one now, and see to it that the next one comes."""
        self._controller.submit(job.user, job.spec, job.work())
        following = next(self._rest, None)
        if following is None:
            self.more = False
            return
        if following.submit < job.submit:
            raise UserError(f"job {following.spec.name!r} is submitted at {following.submit:g} s, before the one ahead")
        self._engine.call_at(following.submit, lambda: self.submit(following))


def _outcome(job: SimJob) -> Outcome:
    return Outcome(job.id, job.submit, job.start, job.end, job.nodes, job.state, job.restarts)
