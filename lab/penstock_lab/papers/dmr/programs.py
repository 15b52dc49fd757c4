"""Real MPI programs on a real Slurm: short jobs of the four applications of the DMR paper, rigid and malleable.

Everything is real: batch jobs, mpiexec, spawned processes, data that moves. As the nodes of a local cluster share the
cores of one machine, a step's work is mostly a pause, as long as the models of the paper's applications make it on that
many nodes, one node here for eight of the paper's. Flexible Sleep scales perfectly, as there.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock_lab.cluster import Cluster
from penstock_lab.papers.dmr.accounts import outcome
from penstock_lab.papers.dmr.compressed import figures
from penstock_lab.papers.dmr.drive import Outcome
from penstock_lab.papers.dmr.live import USER, Submission, agent_on, cluster_of, run
from penstock_lab.papers.dmr.models import models, narrow
from penstock_lab.papers.dmr.workload import SEED

__all__ = ["JOBS", "NODES", "PROGRAMS", "Measured", "Program", "jobs_of", "measure", "rows", "same_results"]

JOBS: Final = 24
NODES: Final = 8
_FOR: Final = 8  # the paper's nodes, of which it has 64
_INTERARRIVAL: Final = 2.0
_STEPS: Final = 40
_PERIOD: Final = 1.0
_LIMIT: Final = 900.0
_PATIENCE: Final = 1500.0
_SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "agent": {"interval": 0.5, "idle_interval": 0.5},
    "slurm": {"min_interval": 0.5, "requests_per_second": 20, "submissions_per_hour": 3600},
    "asa": {"predictor": "last", "watch_queue": False, "ask_slurm": False, "history": 0},
    "dmr": {"policy": "throughput", "cooldown": 2, "grant_timeout": 10},
    "malleable": {"backend": "merge"},  # the paper's way
}


@dataclass(frozen=True, slots=True)
class Program:
    """An example program and the sizes it can have; a run takes `serial` + `parallel` / nodes seconds, and what the
    computer needs for it."""

    name: str
    maximum: int
    preferred: int | None
    serial: float
    parallel: float
    options: tuple[str, ...]

    def command(self, malleable: bool, result: str) -> str:
        """A line of bash that runs it on its maximum, at first."""
        steps = "--sweeps" if self.name == "jacobi" else "--steps"
        each = "--sweep-seconds" if self.name == "jacobi" else "--step-seconds"
        program = [sys.executable, "-m", f"dmr.examples.{self.name}", *self.options, steps, f"{_STEPS}"]
        program += [each, f"{self.serial / _STEPS:.4f}", "--seconds", f"{self.parallel / _STEPS:.4f}"]
        program += ["--min", "1", "--max", f"{self.maximum}", "--factor", "2", "--out", result]
        if self.preferred is not None:
            program += ["--preferred", f"{self.preferred}"]
        launch = [sys.executable, "-m", "dmr.launch", "-n", f"{self.maximum}", "-ppn", "1", *program]
        agent = f"export DMR_INHIBITOR_SECONDS={_PERIOD:g}" if malleable else "unset DMR_AGENT"
        return f"{agent}\n{shlex.join(launch)}"


def _fitted(name: str, seconds: float, *options: str) -> Program:
    """The program whose speed is that of the paper's, and which takes `seconds` on its maximum."""
    model = narrow(models()[name], _FOR)
    app, serial = model.application, model.alone * model.speedup.serial
    scale = seconds / model.seconds(app.maximum)
    return Program(name, app.maximum, app.preferred, serial * scale, (model.alone - serial) * scale, options)


PROGRAMS: Final = (
    _fitted("cg", 20.0, "--points", "128"),
    _fitted("jacobi", 20.0, "--rows", "128", "--cols", "128", "--check-every", "1"),
    _fitted("nbody", 20.0, "--bodies", "200"),
    Program("flexible_sleep", 4, None, 0.0, 60.0, ("--megabytes", "8")),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One version: what became of it, the machine's load (1 min) before and after, and the results by job."""

    version: str
    outcome: Outcome
    load: tuple[float, float]
    results: dict[str, Any]


def jobs_of(jobs: int, malleable: bool, seed: int = SEED) -> list[Submission]:
    """As many of each program as possible in random order; the same in both versions."""
    of_order, of_times = np.random.default_rng([seed, jobs]).spawn(2)
    order = of_order.permutation(np.arange(jobs) % len(PROGRAMS))
    times = np.cumsum(of_times.exponential(_INTERARRIVAL, jobs))
    found = []
    for number in range(jobs):
        program = PROGRAMS[order[number]]
        name = f"{program.name}-{number}"
        command = program.command(malleable, f"{name}.npy")
        at = float(times[number] - times[0])
        found.append(Submission(at, name, f"{program.maximum}", _LIMIT, command, malleable))
    return found


def measure(
    jobs: int = JOBS,
    tell: Callable[[str], None] = lambda text: None,
    keep: Callable[[str, str], None] = lambda name, text: None,
) -> list[Measured]:
    """Both versions on a cluster of their own."""
    found = []
    with cluster_of(NODES) as cluster:
        for version in ("fixed", "flexible"):
            tell(f"{version}: {jobs} MPI jobs on {NODES} nodes")
            found.append(_one(cluster, version, jobs, keep))
    return found


def _one(cluster: Cluster, version: str, jobs: int, keep: Callable[[str, str], None]) -> Measured:
    folder = cluster.home(USER) / f"mpi-{version}"
    before = os.getloadavg()[0]
    submissions = jobs_of(jobs, version != "fixed")
    resizes: list[dict[str, Any]] = []
    if version == "fixed":
        told, rows = run(cluster, submissions, {}, _PATIENCE, folder)
    else:
        with agent_on(cluster, "agent-mpi", _SETTINGS) as agent:
            try:
                told, rows = run(cluster, submissions, agent.environment, _PATIENCE, folder)
                resizes = agent.resizes()
            finally:
                keep("mpi.log", agent.log.read_text(errors="replace"))
    results = {job.name: _result(folder / f"{job.name}.npy") for job in submissions}
    return Measured(version, outcome(told, rows, (), resizes), (before, os.getloadavg()[0]), results)


def _result(path: Path) -> Any:  # noqa: ANN401 (an array)
    return np.load(path) if path.exists() else None


def same_results(fixed: Measured, flexible: Measured) -> dict[str, int]:
    """Of how many jobs of each program the results are those of the fixed version: to the last bit, of CG to 1e-10 of
    its largest value, as its sums depend on the number of processes. Flexible Sleep has looked itself."""
    same: dict[str, int] = {}
    for name, theirs in fixed.results.items():
        program, ours = name.rpartition("-")[0], flexible.results[name]
        if theirs is None:
            fits = program == "flexible_sleep"  # it has ended well, or its job would have failed
        elif program == "cg":
            fits = bool(np.abs(ours - theirs).max() <= 1e-10 * np.abs(theirs).max())
        else:
            fits = bool(np.array_equal(ours, theirs))
        same[program] = same.get(program, 0) + fits
    return same


def rows(measured: Sequence[Measured]) -> list[dict[str, object]]:
    """For programs: a row for each version."""
    return [
        {
            "workload": "mpi",
            "jobs": len(each.outcome.ran),
            "nodes": NODES,
            "version": each.version,
            "source": "real",
            **figures(each.outcome, NODES).row(),
        }
        for each in measured
    ]
