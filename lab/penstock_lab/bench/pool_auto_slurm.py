"""`penstock pool auto` beside HyperQueue's rule on a real Slurm: the same tasks, the same rivals, in pairs.

    python -m penstock_lab.bench.pool_auto_slurm --out FILE [--rounds 8] [--at-once 2]   # root; 20 to 50 minutes each

Each round has a throw-away Slurm of eight nodes for every way, side by side, so that all of them meet the same load of
this machine. Another user's jobs arrive at each by the same draw, as many as the nodes can run and some before; when
they have filled it, a pool is given 360 sleeps of 20 s on average and may have four nodes. Times are a twelfth of what
such users have: allocations of 20 minutes at most, which end after 25 s without a task.

HyperQueue's rule (`hq alloc add slurm --backlog B --max-worker-count 4 --time-limit 20m`) is ours after its
documentation: another worker of one node is queued while fewer than the backlog are, and tasks wait that those that run
and that are queued could not take. Its members are Penstock's, so that only the allocations differ.

Each round is a line of the file as soon as it is measured, and a second run goes on behind them. The table and goals
are printed in the end. Progress goes to standard error.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np

from penstock_lab.bench.pool import COMMAND, World
from penstock_lab.bench.rounds import STOPPED, rounds_command, say
from penstock_lab.paired.poolpairs import AUTO, HQ, PoolWindow, report
from penstock_lab.paired.poolways import PoolOutcome
from penstock_planning.select.workload import times_of

NODES: Final = 8
CORES: Final = 2
MOST: Final = 4
"""Nodes that the pool may have."""
MINUTES: Final = 20
IDLE: Final = 25
TASKS: Final = 360
MEAN, SAID, SPREAD = 20.0, 80.0, 0.5
LOAD: Final = 0.95
BEFORE: Final = 10
"""Jobs of rivals that come at once, at the beginning."""
WARM: Final = 60.0
LONGEST: Final = 5400.0
_MEAN_NODES: Final = 16 / 6
_MEAN_SECONDS: Final = 60.0 * math.exp(0.9**2 / 2)
AGENT: Final = [sys.executable, "-m", "penstock", "agent"]


def rivals_of(seed: int, load: float, before: int, slower: float = 1.0) -> Iterator[tuple[float, int, float, int]]:
    """Jobs, without end: seconds until the next job, its nodes, seconds and minutes asked for. All takes so many times
    as long with `slower`."""
    draw = np.random.default_rng([seed, 1])
    apart = _MEAN_NODES * _MEAN_SECONDS / (NODES * load)
    first = before
    while True:
        nodes = int(draw.choice([1, 1, 2, 2, 4, 6]))
        seconds = slower * float(np.clip(60.0 * np.exp(0.9 * draw.standard_normal()), 10.0, 480.0))
        minutes = math.ceil(seconds * draw.uniform(1.2, 4.0) / 60.0)
        pause = 0.0 if first > 0 else slower * float(draw.exponential(apart))
        first -= 1
        yield pause, nodes, seconds, minutes


@contextmanager
def rivals(world: World, seed: int, load: float, before: int, slower: float = 1.0) -> Iterator[None]:
    """Bob's jobs arrive until this ends: so many at once, then as many as the nodes could run at this load."""
    over = threading.Event()

    def submit() -> None:
        for pause, nodes, seconds, minutes in rivals_of(seed, load, before, slower):
            if over.wait(pause):
                return
            words = [
                "sbatch",
                "-o/dev/null",
                "--exclusive",
                f"-N{nodes}",
                f"-t{minutes}",
                f"--wrap=sleep {seconds:.0f}",
            ]
            world.cluster.run_as("bob", words, timeout=120)

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Tasks:
    """What the pool's log says of its tasks."""

    def __init__(self, world: World) -> None:
        self._file = world.place / "pools" / "main" / "tasks.jsonl"
        self._read = 0
        self._running: dict[int, tuple[float, str]] = {}
        self._done: set[int] = set()
        self.spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """By job, when each of its tasks began and ended."""
        self.last = 0.0

    def look(self) -> Tasks:
        with self._file.open(encoding="utf-8") as lines:
            lines.seek(self._read)
            while (line := lines.readline()).endswith("\n"):
                self._read = lines.tell()
                self._take(json.loads(line))
        return self

    def _take(self, line: dict[str, Any]) -> None:
        if line["op"] == "start":
            self._running[line["id"]] = (line["at"], line["job"])
        elif line["op"] == "end" and (begun := self._running.pop(line["id"], None)) is not None:
            self.spans[begun[1]].append((begun[0], line["at"]))
            if line["outcome"] == "complete":
                self._done.add(line["id"])
                self.last = max(self.last, line["at"])

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return TASKS - len(self._done) - len(self._running)

    @property
    def over(self) -> bool:
        return len(self._done) == TASKS


def own_jobs(world: World, state: str) -> list[str]:
    return world.run(["squeue", "--me", "-h", "-t", state, "-o", "%i"]).split()


def hyperqueue(world: World, backlog: int) -> Callable[[Tasks], None]:
    """Its rule, to be called again and again."""
    join = f"exec {' '.join(COMMAND)} join --idle {IDLE}s"

    def look(tasks: Tasks) -> None:
        queued, running = len(own_jobs(world, "PD")), len(own_jobs(world, "R"))
        while queued < backlog and queued + running < MOST:
            if tasks.waiting <= (queued + running) * CORES - tasks.running:
                break
            world.batch(join, "-N1", "--exclusive", f"-t{MINUTES}", "-o/dev/null")
            queued += 1

    return look


def automatic(world: World) -> Callable[[Tasks], None]:
    """The agent does it."""
    given = ["--max-nodes", str(MOST), "-t", f"{MINUTES}m", "--idle", f"{IDLE}s"]
    world.run([*COMMAND, "auto", *given])
    return lambda _tasks: None


def looks_often(world: World) -> None:
    """Alice's agent looks as often in proportion as one on a site."""
    world.environment |= {
        "PENSTOCK_AGENT__STATE_DIR": str(world.place / "agent"),
        "PENSTOCK_AGENT__INTERVAL": "2",
        "PENSTOCK_AGENT__IDLE_INTERVAL": "2",
        "PENSTOCK_SLURM__SUBMISSIONS_PER_HOUR": "1000",
    }


def started(world: World) -> subprocess.Popen[str]:
    """Alice's agent; its words go to a file beside her folder."""
    with (world.place.parent / f"{world.place.name}.log").open("a", encoding="utf-8") as log:
        return world.cluster.popen_as("alice", AGENT, env=world.environment, cwd=world.place, stdout=log, stderr=log)


@contextmanager
def agent(world: World) -> Iterator[None]:
    """Alice's agent, until this ends."""
    looks_often(world)
    process = started(world)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def beyond(spans: Sequence[tuple[float, float]]) -> float:
    """Node-seconds over the cap, of jobs of one node each."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    found, held, last = 0.0, 0, 0.0
    for at, change in changes:
        found += max(held - MOST, 0) * (at - last)
        held, last = held + change, at
    return found


def outcome(world: World, tasks: Tasks, begun: float, cancelled: int) -> PoolOutcome:
    """By the pool's log and Slurm's accounting."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begun))
    words = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-nPX", "-S", since, "-o", "JobID,Start,End,NNodes"]

    def read() -> list[list[str]] | None:
        rows = [line.split("|") for line in world.run(words).splitlines()]
        return rows if all(row[2].isdigit() for row in rows) else None

    rows: list[list[str]] = world.until(read, 120.0)
    jobs = {row[0]: (float(row[1]), float(row[2])) for row in rows if row[1].isdigit() and row[1] != row[2]}
    if any(row[3] != "1" for row in rows):
        raise RuntimeError(f"jobs of several nodes: {rows}")
    held = sum(end - start for start, end in jobs.values())
    busy = sum(
        times_of((((begin, begin), (begin, end))) for begin, end in each).execution for each in tasks.spans.values()
    )
    idle = held - busy
    work = sum(end - start for each in tasks.spans.values() for start, end in each)
    over = beyond(list(jobs.values()))
    return PoolOutcome(tasks.last - begun, held, max(idle, 0.0), held - work / CORES, len(rows), cancelled, over)


def measure(seed: int, way: str) -> PoolOutcome:
    """One way on a Slurm of its own."""
    world = World(NODES, CORES, f"-{seed}-{way.replace(' ', '').replace(',', '')}")
    try:
        seconds = MEAN * np.exp(SPREAD * np.random.default_rng([seed, 2]).standard_normal(TASKS) - SPREAD**2 / 2)
        file = world.place / "tasks.jsonl"
        lines = [{"command": ["sleep", f"{s:.2f}"], "time": f"{SAID:g}s", "workdir": "/tmp"} for s in seconds]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with agent(world), rivals(world, seed, LOAD, BEFORE):
            world.run([*COMMAND, "start", "--detach"])
            look = {
                HQ[0]: partial(hyperqueue, world, 1),
                HQ[1]: partial(hyperqueue, world, 4),
                AUTO: partial(automatic, world),
            }
            if STOPPED.wait(WARM):
                raise RuntimeError("stopped")
            begun = time.time()
            world.run([*COMMAND, "submit", "--file", str(file), "--larger"])
            policy, tasks = look[way](), Tasks(world)
            while not tasks.look().over:
                policy(tasks)
                if time.time() - begun > LONGEST:
                    raise RuntimeError(f"{tasks.waiting} tasks still wait: {world.run(['squeue'])}")
                if STOPPED.wait(2.0):
                    raise RuntimeError("stopped")
            waiting = own_jobs(world, "PD")
            if way != AUTO and waiting:
                world.run(["scancel", *waiting])
            world.until(lambda: not own_jobs(world, "PD,R,CG"), 600.0)
            found = outcome(world, tasks, begun, len(waiting))
            world.run([*COMMAND, "stop"])
            return found
    finally:
        world.down()


def one_round(seed: int) -> PoolWindow:
    """All ways side by side."""

    def told(way: str) -> PoolOutcome:
        found = measure(seed, way)
        say(f"round {seed}, {way}: {found}")
        return found

    ways = [*HQ, AUTO]
    with ThreadPoolExecutor(len(ways)) as threads:
        outcomes = dict(zip(ways, threads.map(told, ways), strict=True))
    return PoolWindow("real Slurm", seed, 0, "at once", outcomes)


main = rounds_command(PoolWindow.read, one_round, report)


if __name__ == "__main__":
    main()
