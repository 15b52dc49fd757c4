"""How much of the idle node time an elastic job uses beside rivals on a real Slurm, and what they lose: in pairs.

    python -m penstock_lab.bench.elastic_slurm --out FILE [--use farm] [--rounds 8] [--at-once 2] [--slower 1]  # root

Each round has two throw-away Slurms of eight nodes with PrologFlags=Contain, side by side. Another user's same jobs
arrive at both, as many as the nodes could run at a load of 0.6. On one of the nodes runs a job of ours: at the first
Slurm it keeps that node, at the second it may have all eight: a farm, or Dask or Ray, with tasks of two seconds, or
steps of one second of torchrun or of an MPI program that starts again with each size. For 15 minutes:

    idle    of the first Slurm: node time without a job, in stretches longer than a node took to join at the second one
    used    of the second: node time in which tasks ran on nodes that the job had been lent, and ended
    late    by how much rivals started later than Slurm had ever expected of them (`squeue --start`, every 3 s)

With --slower S others' jobs last S times as long and come as much more rarely, so that what idles does so for longer,
and the window has 7.5 S minutes, 15 at least. Ray and torch are in no environment of the project: `--python` is one
that has them, which the cluster's users can run.

Each round is a line of the file as soon as it is measured, and a second run goes on behind them.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
import yaml

from penstock.slurm.hostlist import expand_hosts
from penstock_lab.bench.elastic_programs import EACH, PROGRAMS
from penstock_lab.bench.pool import World
from penstock_lab.bench.pool_auto_slurm import NODES, agent, rivals
from penstock_lab.bench.rounds import STOPPED, rounds_command, say
from penstock_lab.intervals import mean_of, ratio_of_means

LOAD: Final = 0.6
BEFORE: Final = 4
WARM: Final = 60.0
LASTS: Final = 900.0
_SLOWER_LASTS: Final = 450.0
GOAL: Final = 0.8
INTERVAL: Final = 10
SCHEDULING: Final = f"bf_interval={INTERVAL},bf_resolution=5,bf_continue,sched_interval=5"
_COMMAND: Final = [sys.executable, "-m", "penstock"]

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Held:
    """What accounting says of one job: who, when it held which nodes."""

    job: int
    user: str
    begin: float
    end: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ElasticWindow:
    """A pair of `lasts` seconds. Node-seconds; `late` are seconds, of each rival that Slurm had expected a start of."""

    machine: str
    seed: int
    number: int
    idle: float
    idle_short: float
    used: float
    held: float
    join: float
    resizes: int
    late: tuple[float, ...]
    late_alone: tuple[float, ...]
    slower: float = 1.0
    use: str = "farm"

    @property
    def lasts(self) -> float:
        """Seconds of the window."""
        return lasting(self.slower)

    def told(self) -> dict[str, Any]:
        """For a line of a file."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> ElasticWindow:
        """What `told` has written."""
        return cls(**{**told, "late": tuple(told["late"]), "late_alone": tuple(told["late_alone"])})


def lasting(slower: float) -> float:
    """Seconds of a window beside jobs that last so many times as long."""
    return max(LASTS, _SLOWER_LASTS * slower)


def clipped(spans: Sequence[Span], begin: float, end: float) -> float:
    """Seconds of what lies within."""
    return sum(max(0.0, min(b, end) - max(a, begin)) for a, b in spans)


def gaps(busy: Sequence[Span], begin: float, end: float) -> list[float]:
    """The lengths of the stretches of [begin, end] that none of these covers."""
    found, at = [], begin
    for a, b in sorted(busy):
        if a > at:
            found.append(min(a, end) - at)
        at = max(at, b)
        if at >= end:
            return found
    return [*found, end - at]


def lateness(promises: Mapping[int, Sequence[float]], rows: Sequence[Held]) -> tuple[float, ...]:
    """By how much each job started later than the earliest start that was ever expected of it; not below 0."""
    starts = {row.job: row.begin for row in rows}
    return tuple(max(0.0, starts[job] - min(each)) for job, each in promises.items() if each and job in starts)


@contextmanager
def promised(world: World) -> Iterator[dict[int, list[float]]]:
    """What Slurm expects of the starts of rivals that wait, looked at until this ends."""
    found: dict[int, list[float]] = {}
    over = threading.Event()
    words = ["env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-t", "PD", "-u", world.cluster.users["bob"], "-o", "%i %S"]

    def look() -> None:
        while not over.wait(3.0):
            for line in world.cluster.run_as("root", words).stdout.splitlines():
                job, _, start = line.partition(" ")
                if start.isdigit() and job.isdigit():
                    found.setdefault(int(job), []).append(float(start))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def accounted(world: World, since: float) -> list[Held]:
    """All jobs that have held nodes, when none does any more."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    words = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-anPX", "-S", begun, "-o", "JobID,User,Start,End,NodeList"]
    found = []
    for line in world.cluster.run_as("root", words, check=True).stdout.splitlines():
        job, user, start, end, nodes = line.split("|")
        if start.isdigit() and job.isdigit():
            ends = float(end) if end.isdigit() else time.time()
            found.append(Held(int(job), user, float(start), ends, expand_hosts(nodes)))
    return found


def elastic(world: World, use: str, python: str, lasts: float) -> int:
    """The job, which has more to do than it can."""
    program, tasks = PROGRAMS[use], int(1.5 * NODES * (lasts + WARM) / EACH)
    program.write(world.place, tasks)
    wanted = {"min": 1, "max": NODES, "use": use, "interval": 1, **program.says(python, tasks)}
    file = {
        "name": use,
        "time": f"{_minutes(lasts)}m",
        "output": "elastic-%j.log",
        "exclusive": True,
        "elastic": wanted,
    }
    (world.place / "elastic.yaml").write_text(yaml.safe_dump(file))
    return int(json.loads(world.run([*_COMMAND, "elastic", "elastic.yaml", "--json"]))["job"])


@dataclass(frozen=True, slots=True)
class Measured:
    """One of the two Slurms: the window, who held what, and what the job's tasks say."""

    begin: float
    lasts: float
    rows: list[Held]
    job: int
    late: tuple[float, ...]
    ran: dict[str, list[Span]]
    resizes: int

    @property
    def base(self) -> str:
        """The node that is ours at all times."""
        return next(row.nodes[0] for row in self.rows if row.job == self.job)

    @property
    def end(self) -> float:
        """Of the window."""
        return self.begin + self.lasts

    def joins(self) -> list[float]:
        """Seconds from when a node was lent to its first task."""
        found = []
        for row in self.rows:
            if row.user == self._owner and row.job != self.job:
                for node in row.nodes:
                    begun = [a for a, _ in self.ran.get(node, ()) if row.begin <= a <= row.end]
                    found += [min(begun) - row.begin] if begun else []
        return found

    @property
    def _owner(self) -> str:
        return next(row.user for row in self.rows if row.job == self.job)

    def lent(self) -> float:
        """Node-seconds of companions."""
        rows = [row for row in self.rows if row.user == self._owner and row.job != self.job]
        return sum(clipped([(row.begin, row.end)], self.begin, self.end) * len(row.nodes) for row in rows)

    def used(self) -> float:
        """Node-seconds of tasks on them."""
        return sum(clipped(spans, self.begin, self.end) for node, spans in self.ran.items() if node != self.base)

    def idle(self) -> list[float]:
        """Stretches of nodes without a job."""
        nodes = {f"n{i}" for i in range(1, NODES + 1)} - {self.base}
        return [
            gap
            for node in nodes
            for gap in gaps([(r.begin, r.end) for r in self.rows if node in r.nodes], self.begin, self.end)
        ]


def _answers(world: World) -> bool:
    """Whether the agent does: `status` would answer without one."""
    return world.cluster.run_as("alice", [*_COMMAND, "env"], env=world.environment).returncode == 0


def _minutes(lasts: float) -> int:
    """That our job asks for: it may wait before the window begins."""
    return math.ceil(lasts / 60 + 45)


def measure(seed: int, use: str, python: str, slower: float) -> Measured:
    """One way on a Slurm of its own: an elastic job of this program, or none ("")."""
    lasts = lasting(slower)
    world = World(NODES, 2, f"-e{seed}-{use or 'alone'}", contain=True, scheduling=SCHEDULING)
    world.environment |= {
        "PENSTOCK_DMR__LISTEN": f"{world.cluster.address}:0",
        "PENSTOCK_DMR__POLICY": "throughput",
        "PENSTOCK_DMR__COOLDOWN": "2",
        "PENSTOCK_DMR__MUNGE_SOCKET": str(world.cluster.munge_socket),
        "PENSTOCK_SLURM__MIN_INTERVAL": "1",
    }
    try:
        with agent(world), rivals(world, seed, LOAD, BEFORE, slower), promised(world) as promises:
            since = time.time()
            world.until(lambda: _answers(world), 60.0)
            limit = _minutes(lasts)
            alone = [f"sleep {60 * limit}", "-N1", "--exclusive", f"-t{limit}"]
            job = elastic(world, use, python, lasts) if use else world.batch(*alone)
            world.until(lambda: world.run(["squeue", "-h", "-t", "R", "-j", str(job)]).strip(), LASTS * slower)
            if STOPPED.wait(WARM):
                raise RuntimeError("stopped")
            begin = time.time()
            if STOPPED.wait(lasts):
                raise RuntimeError("stopped")
            waiting = dict(promises)
        # With what the agent has added to it, which nobody gives back now that there is none.
        world.run(["scancel", "--me"])
        world.cluster.run_as("root", ["scancel", "-t", "PD", "-u", world.cluster.users["bob"]])
        world.until(lambda: not world.run(["squeue", "-h", "--me"]).strip(), 600.0)
        rows = accounted(world, since - WARM)
        ran: dict[str, list[Span]] = {}
        if (file := world.place / "ran").exists():
            for line in file.read_text().splitlines():
                node, a, b = line.split()
                ran.setdefault(node, []).append((float(a), float(b)))
        log = world.place / f"elastic-{job}.log"
        said = log.read_text(errors="replace") if log.exists() else ""
        resizes = said.count("elastic: grown ") + said.count("elastic: shrunk ")
        return Measured(begin, lasts, rows, job, lateness(waiting, rows), ran, resizes)
    finally:
        world.down()


def one_round(seed: int, use: str, python: str, slower: float) -> ElasticWindow:
    """Both side by side."""
    package = PROGRAMS[use].package
    if package and subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode:
        raise SystemExit(f"{python} has no {package}: name one that has it by --python")
    with ThreadPoolExecutor(2) as threads:
        alone, lent = threads.map(lambda one: measure(seed, one, python, slower), ["", use])
    join = statistics.median(lent.joins() or [0.0])
    idle = alone.idle()
    window = ElasticWindow(
        "real Slurm",
        seed,
        0,
        sum(gap for gap in idle if gap > join),
        sum(gap for gap in idle if gap <= join),
        lent.used(),
        lent.lent(),
        join,
        lent.resizes,
        lent.late,
        alone.late,
        slower,
        use,
    )
    say(f"round {seed}: {window}")
    return window


def _lates(those: Sequence[tuple[float, ...]]) -> str:
    every = sorted(one for each in those for one in each)
    if not every:
        return "none waited"
    beyond = sum(one > INTERVAL for one in every)
    return (
        f"{len(every)} waited; later than expected by more than bf_interval ({INTERVAL} s): {beyond}; "
        f"median {statistics.median(every):.0f} s, most {every[-1]:.0f} s"
    )


def report(windows: Sequence[ElasticWindow]) -> Iterator[str]:
    """The table."""
    share = ratio_of_means([w.used for w in windows], [w.idle for w in windows])
    lent = ratio_of_means([w.held for w in windows], [w.idle for w in windows])
    minutes = "/".join(f"{lasts / 60:g}" for lasts in sorted({w.lasts for w in windows}))
    uses = "/".join(sorted({w.use for w in windows}))
    yield f"{uses}: {len(windows)} pairs, of {minutes} minutes on {NODES} nodes, load of the rivals {LOAD:g}"
    met = "reached" if share.low >= GOAL else "missed" if share.high < GOAL else "not decided"
    yield f"of the idle node time used by tasks     {share.told()}   goal {GOAL:g}: {met}"
    yield f"of the idle node time held              {lent.told()}"
    yield f"idle without it, of seven nodes         {mean_of([w.idle / (7 * w.lasts) for w in windows]).told()}"
    yield f"a node's join, median of medians        {statistics.median([w.join for w in windows]):.1f} s"
    yield f"resizes a round                         {statistics.mean([w.resizes for w in windows]):.0f}"
    yield f"rivals beside it:  {_lates([w.late for w in windows])}"
    yield f"rivals without it: {_lates([w.late_alone for w in windows])}"


_OPTIONS: Final = (
    click.option("--use", type=click.Choice(list(PROGRAMS)), default="farm", show_default=True, help="What runs."),
    click.option("--python", type=click.Path(exists=True), default=sys.executable, help="Has what the program needs."),
    click.option(
        "--slower",
        type=click.FloatRange(1),
        default=1.0,
        show_default=True,
        help="How many times as long others' jobs last.",
    ),
)
main = rounds_command(ElasticWindow.read, one_round, report, *_OPTIONS)


if __name__ == "__main__":
    main()
