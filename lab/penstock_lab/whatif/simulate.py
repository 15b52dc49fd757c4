"""A window under the simulated Slurm, in virtual time: as the site is, or as it would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.api import JobSpec
from penstock_lab.mock.model import ClusterConfig, Scheduler
from penstock_lab.sim.cluster import SimulatedJob, run
from penstock_lab.whatif.windows import Window

__all__ = ["Judged", "Setup", "judged", "starts"]

_SCRIPT = "#!/bin/sh\n"


@dataclass(frozen=True, slots=True)
class Setup:
    """How the site schedules: its units, who may overtake whom, how many jobs of the queue a pass looks at
    (bf_max_job_test), and whether jobs age before they may start (PriorityFlags=ACCRUE_ALWAYS)."""

    units: int
    policy: Scheduler = Scheduler.EASY
    depth: int = 500
    accrue_always: bool = False

    def config(self) -> ClusterConfig:
        """The simulated Slurm."""
        return ClusterConfig(
            nodes=self.units,
            cpus=1,
            scheduler=self.policy,
            depth=self.depth,
            accrue_always=self.accrue_always,
        )


@dataclass(frozen=True, slots=True)
class Judged:
    """The judged jobs of one window, each with how long it waited (s, from eligible to start): as recorded, simulated
    as the site is (`now`), and as it would be (`then`). It ran for `run` and `then_run` seconds; spans are from the
    first of them to the last one's end (s), in both simulations."""

    number: int
    recorded: list[float]
    now: list[float]
    then: list[float]
    run: list[float]
    then_run: list[float]
    span_now: float
    span_then: float


def starts(window: Window, setup: Setup) -> list[tuple[float, float]]:
    """When each job of a window starts and ends, in its order (s from its beginning)."""
    outcomes = run(setup.config(), _jobs(window))
    found = []
    for arrival, outcome in zip(window.arrivals, outcomes, strict=True):
        if outcome.start is None or outcome.end is None:
            raise RuntimeError(f"job {arrival.number} did not start in the simulation")
        found.append((outcome.start, outcome.end))
    return found


def _jobs(window: Window) -> Iterator[SimulatedJob]:
    for at, arrival in enumerate(window.arrivals):
        spec = JobSpec(f"j{at}", _SCRIPT, arrival.units, arrival.limit)
        if arrival.eligible > arrival.submit:
            spec = replace(spec, begin=f"uts{arrival.eligible:.0f}")
        yield SimulatedJob(arrival.submit, spec, arrival.run)


def judged(window: Window, now: list[tuple[float, float]], then: list[tuple[float, float]]) -> Judged:
    """The judged jobs of a window that was simulated both ways."""
    chosen = [at for at, arrival in enumerate(window.arrivals) if arrival.judged]
    arrivals = [window.arrivals[at] for at in chosen]
    first = min(arrival.eligible for arrival in arrivals)
    waits = [[one[at][0] - window.arrivals[at].eligible for at in chosen] for one in (now, then)]
    return Judged(
        window.number,
        [arrival.start - arrival.eligible for arrival in arrivals if arrival.start is not None],
        waits[0],
        waits[1],
        [now[at][1] - now[at][0] for at in chosen],
        [then[at][1] - then[at][0] for at in chosen],
        max(now[at][1] for at in chosen) - first,
        max(then[at][1] for at in chosen) - first,
    )
