"""What a malleable job does to other users' jobs on a real Slurm: pairs of runs that differ in nothing else.

One job asks for a node and is malleable up to four, beside jobs of another user on two nodes each, whose run times are
their limits, so that Slurm can keep every start that it promises. Each pair has the same submissions twice: the job
malleable, under an agent, and kept at its submitted size. Slurm's periods are its defaults (backfill every 30 s); only
the resolution of its plan is a second.
"""

from __future__ import annotations

import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.errors import PenstockError
from penstock.slurm.parse import parse_time
from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from penstock_lab.papers.dmr.application import COST
from penstock_lab.papers.dmr.live import USER, agent_on, answered
from penstock_lab.papers.dmr.models import Model
from penstock_lab.papers.dmr.paper import Application
from penstock_lab.papers.dmr.standin import Order
from penstock_planning.select.speedup import Amdahl

__all__ = ["AT_ONCE", "BACKFILL", "JOBS", "NODES", "PAIRS", "Arm", "Pair", "measure", "submissions"]

PAIRS: Final = 20
AT_ONCE: Final = 7
"""Pairs that run at the same time, each on two clusters: nearly all that their jobs do is sleep."""
JOBS: Final = 14
NODES: Final = 8
BACKFILL: Final = 30.0
"""Seconds between two rounds of backfill."""
_WIDTH: Final = 2
_OTHER: Final = "bob"
_SCHEDULING: Final = f"bf_interval={BACKFILL:g},bf_resolution=1,sched_interval=60"
_ALONE: Final = 600.0  # what the malleable job runs for at its submitted size, and its limit
_PATIENCE: Final = 1200.0
_SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "agent": {"interval": 1.0, "idle_interval": 1.0},
    "slurm": {"min_interval": 1.0, "requests_per_second": 20},
    "asa": {"predictor": "last", "watch_queue": False, "ask_slurm": False, "history": 0},
    "dmr": {"policy": "throughput", "cooldown": 2},
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One run. By the others' places in line, seconds since their submission: `starts`, and of each what Slurm promised
    when it first gave it a start (`first`) and the earliest that it ever promised (`earliest`)."""

    starts: Mapping[int, float]
    first: Mapping[int, float]
    earliest: Mapping[int, float]
    resizes: Sequence[Mapping[str, Any]] = ()

    def late(self, job: int) -> float:
        """Seconds by which it began later than Slurm had promised first; below 0: earlier. 0 without a promise."""
        return self.starts[job] - self.first.get(job, self.starts[job])

    @property
    def grown(self) -> int:
        """Nodes that the malleable job was given."""
        done = [r for r in self.resizes if r["kind"] == "expand" and r["outcome"] == "completed"]
        return sum(int(r["new_size"]) - int(r["old_size"]) for r in done)


@dataclass(frozen=True, slots=True)
class Pair:
    """The same submissions with the job malleable and with the job kept at its size."""

    seed: int
    malleable: Arm
    kept: Arm

    def moved(self) -> list[float]:
        """By how many seconds each promised start slipped further than in the run without resizes."""
        both = self.malleable.first.keys() & self.kept.first.keys()
        return [self.malleable.late(j) - self.kept.late(j) for j in sorted(both)]

    def delays(self) -> list[float]:
        """By how many seconds each of the others began later than in the run without resizes."""
        return [start - self.kept.starts[j] for j, start in sorted(self.malleable.starts.items())]


def submissions(seed: int) -> list[int]:
    """The others' limits in minutes, in order: most of one, some of two, so that they do not all end together."""
    return random.Random(seed).choices([1, 2], [3, 1], k=JOBS)


def measure(pairs: int = PAIRS, tell: Callable[[str], None] = lambda text: None, first: int = 1) -> list[Pair]:
    """Run the pairs on clusters of their own. Only for root; PenstockError when a job does not start."""
    place = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        with ThreadPoolExecutor(2 * AT_ONCE) as pool:
            runs = [(s, m, pool.submit(_arm, place, s, m, tell)) for s in range(first, first + pairs) for m in (1, 0)]
            arms = {(seed, kind): run.result() for seed, kind, run in runs}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return [Pair(s, arms[s, 1], arms[s, 0]) for s in range(first, first + pairs)]


def _arm(place: Path, seed: int, malleable: int, tell: Callable[[str], None]) -> Arm:
    name = f"p{seed}{'mk'[not malleable]}"
    try:
        cluster = up(ClusterSpec(nodes=NODES, folder=place / name, name=name, scheduling=_SCHEDULING))
        if malleable:
            with agent_on(cluster, "agent", _SETTINGS) as agent:
                starts, first, earliest = _run(cluster, submissions(seed), agent.environment)
                found = Arm(starts, first, earliest, agent.resizes())
        else:
            found = Arm(*_run(cluster, submissions(seed), None))
    finally:
        down(place / name)
    late = max(found.late(j) for j in found.starts)
    tell(f"pair {seed}, {'malleable' if malleable else 'kept'}: grown by {found.grown}, latest start {late:.0f} s late")
    return found


def _run(
    cluster: Cluster, minutes: Sequence[int], environment: Mapping[str, str] | None
) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    command = f"sleep {_ALONE:g}"
    if environment is not None:
        row = Application("solver", round(_ALONE * 10), 1, 4, 4, 1.0)
        order = Order(Model(row, _ALONE, Amdahl()), 1, COST, "solver.json")
        command = shlex.join([sys.executable, "-m", "penstock_lab.papers.dmr.standin", order.text()])
    options = ["-N1", f"-t{_ALONE / 60:g}", "--no-requeue", "-o", "/dev/null"]
    script = f"#!/bin/sh\nexec {command}\n"
    cluster.run_as(USER, ["sbatch", *options], input=script, env=environment, check=True)
    answered(lambda: "RUNNING" in _queue(cluster, USER), "the first job has not started", 60.0)
    sleeps = "".join(f"sbatch --parsable -N{_WIDTH} -t{m} -o /dev/null --wrap 'sleep {60 * m}'\n" for m in minutes)
    zero = time.time()
    numbers = cluster.run_as(_OTHER, ["sh"], input=sleeps, check=True).stdout.split()
    jobs = {int(number): place for place, number in enumerate(numbers)}
    starts: dict[int, float] = {}
    first: dict[int, float] = {}
    earliest: dict[int, float] = {}
    deadline = time.monotonic() + _PATIENCE
    while len(starts) < len(minutes):
        if time.monotonic() > deadline:
            raise PenstockError(f"{len(minutes) - len(starts)} jobs have not started after {_PATIENCE:g} s")
        for line in _queue(cluster, _OTHER).splitlines():
            number, state, start = line.split("|")
            job, at = jobs[int(number)], parse_time(start)
            if at is None:
                continue
            if state != "PENDING":
                starts.setdefault(job, at - zero)
            elif len(numbers) == len(minutes):
                first.setdefault(job, at - zero)
                earliest[job] = min(earliest.get(job, at - zero), at - zero)
        time.sleep(1.0)
    return starts, first, earliest


def _queue(cluster: Cluster, user: str) -> str:
    who = cluster.user(user).name
    command = ["squeue", "--noheader", "--states=all", f"--user={who}", "--format=%i|%T|%S"]
    return cluster.run_as("root", command, env={"SLURM_TIME_FORMAT": "%s"}, check=True).stdout
