"""The machines and their load: what the ASA paper's workflows queue among. Pure; times in seconds from the beginning.

Two machines of the sizes of HPC2n (602 nodes of 28 cores) and UPPMAX (486 of 20) in slots of four cores, under EASY
backfilling by time limits. Everybody else's jobs come from Lublin's model, or from a log whose machine is then taken as
it is. Three rules of priority, as sites have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.api import JobSpec
from penstock_lab.mock.model import ClusterConfig, PriorityType, Scheduler, Weights
from penstock_lab.papers.paper import SLOT
from penstock_lab.sim.trace import Trace
from penstock_lab.sim.workloads import generate

__all__ = ["FAIR_SHARE", "LOGS", "MACHINES", "RULES", "Arrival", "Machine", "background", "cluster", "log_background"]

RULES: Final = ("default", "accrue-always", "basic")
"""priority/multifactor by age from when a job is eligible; the same from its submission; priority/basic."""
FAIR_SHARE: Final = "fair-share"
"""As default, and an account counts for less the more it has used lately."""
_FAIR: Final = 1000.0  # as much as a week of age
_USERS, _GROUPS = 40, 8
_LONGEST: Final = 48 * 3600.0
_BATCH_DELAY: Final = 3.0
_DEPTH: Final = 100  # bf_max_job_test


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of so many slots under an offered load."""

    name: str
    slots: int
    load: float


MACHINES: Final = {
    "hpc2n": Machine("hpc2n", 602 * 28 // SLOT, 0.80),
    "uppmax": Machine("uppmax", 486 * 20 // SLOT, 0.90),
}


LOGS: Final = {"ctc": Machine("ctc", 338, 0.84), "sdsc": Machine("sdsc", 128, 0.83)}
"""Machines of the Parallel Workloads Archive, a slot for each processor of theirs (CTC SP2 1996, SDSC SP2 1998)."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Somebody else's job."""

    submit: float
    seconds: float
    spec: JobSpec
    user: str


def cluster(machine: Machine, rule: str) -> ClusterConfig:
    """The machine under a rule of priority."""
    return ClusterConfig(
        nodes=machine.slots,
        cpus=SLOT,
        priority=PriorityType.BASIC if rule == "basic" else PriorityType.MULTIFACTOR,
        accrue_always=rule == "accrue-always",
        weights=Weights(fairshare=_FAIR if rule == FAIR_SHARE else 0.0),
        scheduler=Scheduler.REPLAN,
        depth=_DEPTH,
        batch_delay=_BATCH_DELAY,
    )


def background(machine: Machine, days: float, seed: int) -> Iterator[Arrival]:
    """The jobs of others for so many days, in order of submission.

    Time limits are the f-model's with a factor of 4 on average (users ask for far more than they need).
    """
    jobs = 500
    trace = _lublin(machine, jobs, seed)
    while trace.submit[-1] < days * 86400.0:
        jobs *= 2
        trace = _lublin(machine, jobs, seed)
    rng = np.random.default_rng([seed, 7])
    for submit, run, procs in zip(trace.submit, trace.run, trace.procs, strict=True):
        if submit > days * 86400.0:
            return
        seconds = min(float(run), _LONGEST)
        limit = min(60.0 * np.ceil(seconds * rng.uniform(1.0, 7.0) / 60.0), _LONGEST + 60.0)
        yield _arrival(float(submit), seconds, int(procs), float(limit), int(rng.integers(_USERS)))


def log_background(trace: Trace, begin: float, days: float, seed: int) -> Iterator[Arrival]:
    """The jobs of a log from an instant on (s since its first submission), for so many days, with the limits that their
    users gave."""
    rng, first = np.random.default_rng([seed, 7]), trace.submit[0] + begin
    for submit, run, procs, limit in zip(trace.submit, trace.run, trace.procs, trace.estimate, strict=True):
        if submit >= first + days * 86400.0:
            return
        if submit >= first:
            yield _arrival(submit - first, float(run), procs, float(limit), int(rng.integers(_USERS)))


def _arrival(submit: float, seconds: float, procs: int, limit: float, user: int) -> Arrival:
    spec = JobSpec("other", "#!/bin/sh\n", procs, limit, account=f"group{user % _GROUPS}")
    return Arrival(submit, seconds, spec, f"user{user}")


def _lublin(machine: Machine, jobs: int, seed: int) -> Trace:
    return generate("lublin", jobs, machine.slots, seed, machine.load).trace
