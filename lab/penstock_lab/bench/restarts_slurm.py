"""What rivals wait where the agent is killed every minute, against where it lives: on twin Slurms, side by side.

    python -m penstock_lab.bench.restarts_slurm --out FILE [--minutes 45] [--rounds 1] [--at-once 1]    # as root

Each round has two throw-away Slurms of eight nodes with PrologFlags=Contain. At both two MPI programs run on end
(Jacobi, half of whose step no node shortens), which begin on one node and may have four, and the same jobs of
another user arrive by the same draw, for so many minutes. At the first Slurm the agent is killed every minute and
started again. At the end all that has arrived runs to its end. Told are, for each Slurm,

    waits    of the rivals, from submission to start (s): median, 95th percentile, the longest
    wrong    a rival that never got its nodes; a program with other bits than a run that never changed its size; sizes
             of a program that are not those of its resizes in the agent's state; what `penstock audit --verify` finds;
             a job or companion that is left

and whether the goal holds: nothing is wrong, and the 95th percentile beside the killed agent is at most that of the
other plus one interval of the agent and its longest start.

Each round is a line of the file as soon as it is measured, and a second run goes on behind them: 45 minutes may as well
be three rounds of 15.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count, pairwise
from typing import Any, Final

import click
import numpy as np

from penstock.errors import PenstockError
from penstock.ipc.client import ask
from penstock_lab.bench.elastic_slurm import SCHEDULING
from penstock_lab.bench.pool import World
from penstock_lab.bench.pool_auto_slurm import AGENT, NODES, looks_often, rivals, started
from penstock_lab.bench.rounds import STOPPED, rounds_command, say
from penstock_lab.soak.solver import End, Solver, ended

LOAD: Final = 0.4
"""Of the rivals, of all nodes."""
BEFORE: Final = 2
PROGRAMS: Final = 2
MOST: Final = 4
"""Nodes of each."""
EVERY: Final = 60.0
"""Seconds from one kill to the next."""
INTERVAL: Final = 2.0
"""Seconds between two looks of the agent."""
_SHAPE: Final = (96, 64)
_SWEEPS: Final = 600
_ALONE, _SHARED = 0.3, 0.3  # s of a sweep that no node shortens, and that so many share
_LAST: Final = 1800.0  # s in which everything has to end that has arrived
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"})


@dataclass(frozen=True, slots=True)
class Side:
    """One Slurm of a round: waits of the rivals (s), starts of the agent (s), and what is wrong."""

    waits: tuple[float, ...]
    starts: tuple[float, ...]
    programs: int
    resizes: int
    wrong: tuple[str, ...]

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Side:
        """What `asdict` has written."""
        lists = {name: tuple(told[name]) for name in ("waits", "starts", "wrong")}
        return cls(**{**told, **lists})


@dataclass(frozen=True, slots=True)
class RestartsWindow:
    """A pair."""

    machine: str
    seed: int
    number: int
    minutes: float
    killed: Side
    alive: Side

    def told(self) -> dict[str, Any]:
        """For a line of a file."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> RestartsWindow:
        """What `told` has written."""
        return cls(**{**told, "killed": Side.read(told["killed"]), "alive": Side.read(told["alive"])})


class Keeper:
    """The agent of a world, which it kills and starts again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.starts: list[float] = []
        self.wrong: list[str] = []
        self._start()

    def _start(self) -> None:
        began = time.monotonic()
        self._process: subprocess.Popen[str] = started(self._world)
        while self.environment() is None:
            if self._process.poll() is not None or time.monotonic() > began + 120:
                raise RuntimeError("the agent does not start")
            time.sleep(0.2)
        self.starts.append(time.monotonic() - began)

    def environment(self) -> dict[str, str] | None:
        """What programs need to find it; None while it does not answer."""
        try:
            return dict(ask(self._world.place / "agent/agent.sock", "env", timeout=5.0))
        except (PenstockError, OSError):
            return None

    def kill(self) -> None:
        """SIGKILL, and a new one."""
        self._process.kill()
        self._process.wait(10)
        self._start()

    def stop(self) -> None:
        """As systemd would."""
        self._process.terminate()
        self._process.wait(60)


@dataclass
class Programs:
    """The MPI programs of a world: as many run as `PROGRAMS` says, as long as new ones come."""

    world: World
    environment: Mapping[str, str]
    all: list[Solver] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _number: Iterator[int] = field(default_factory=lambda: count(1))

    def tend(self, *, more: bool) -> None:
        """See who has ended, and submit others in their place."""
        said = self.world.run(["sacct", "-nPX", "-D", "-S", "now-1day", "-o", "JobIDRaw,JobName,State"])
        states = {row[0]: row[2].split()[0] for line in said.splitlines() if len(row := line.split("|")) == 3}
        for one in self.alive:
            if (state := states.get(str(one.job), "")) in _ENDED:
                self._over(one, state)
        for _ in range(PROGRAMS - len(self.alive) if more else 0):
            self._submit()

    def over(self) -> bool:
        """Whether all have ended; no more come."""
        self.tend(more=False)
        return not self.alive

    @property
    def alive(self) -> list[Solver]:
        """Those that have not ended."""
        return [one for one in self.all if one.over is None]

    def _submit(self) -> None:
        one = Solver(f"solver{next(self._number)}", 0, _SHAPE, _SWEEPS, time.time())
        line = one.command(1, MOST, _ALONE) + f" --seconds {_SHARED}"
        words = ["sbatch", "--parsable", "--no-requeue", "-J", one.name, "-N1", "--exclusive", "-t30"]
        done = self.world.cluster.run_as(
            "alice",
            [*words, "-o", f"{one.name}.out"],
            input=f"#!/bin/bash\n{line}\n",
            env={**self.world.environment, **self.environment},
            cwd=self.world.place,
            check=True,
        )
        one.job = int(done.stdout)
        self.all.append(one)

    def _over(self, one: Solver, state: str) -> None:
        one.over, one.state = time.time(), state
        result = self.world.place / one.result
        end, wrong = ended(one, np.load(result) if result.exists() else None)
        if end is not End.EXACT:
            output = (self.world.place / f"{one.name}.out").read_text(errors="replace")[-1000:]
            self.wrong += [*wrong, output]

    def sizes(self, one: Solver) -> list[int]:
        """That the program says it has had."""
        report = self.world.place / one.report
        lines = report.read_text().splitlines() if report.exists() else []
        events = [json.loads(line) for line in lines]
        return [int(event["size"]) for event in events if event["event"] in ("start", "resized")]


def resized(world: World) -> dict[int, list[tuple[int, int]]]:
    """By job, the resizes that were completed, by the agent's state: sizes before and after."""
    found: dict[int, list[tuple[int, int]]] = {}
    with closing(sqlite3.connect(f"file:{world.place}/agent/penstock.db?mode=ro", uri=True, timeout=10)) as base:
        rows = base.execute("SELECT job, old_size, new_size FROM resizes WHERE outcome='completed' ORDER BY id")
        for job, old, new in rows:
            found.setdefault(job, []).append((old, new))
    return found


def other_sizes(name: str, said: Sequence[int], known: Sequence[tuple[int, int]]) -> list[str]:
    """What is wrong with what a program says of its sizes, against its resizes in the agent's state."""
    wrong = [f"{name} has had the sizes {list(said)}"] if any(not 1 <= size <= MOST for size in said) else []
    if list(pairwise(said)) != list(known):
        wrong.append(f"{name} says that it had the sizes {list(said)}, and the agent knows of {list(known)}")
    return wrong


def waited(world: World, since: float) -> tuple[tuple[float, ...], list[str]]:
    """What rivals waited (s), and who never got nodes."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    words = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-nPX", "-u", world.cluster.users["bob"], "-S", begun]
    said = world.cluster.run_as("root", [*words, "-o", "JobID,Submit,Start"], check=True).stdout
    waits, without = [], []
    for line in said.splitlines():
        job, submitted, start = line.split("|")
        if start.isdigit():
            waits.append(float(start) - float(submitted))
        else:
            without.append(f"job {job} of a rival never got its nodes")
    return tuple(waits), without


@contextmanager
def killed_every_minute(keeper: Keeper) -> Iterator[None]:
    """Until this ends."""
    over = threading.Event()

    def strike() -> None:
        while not over.wait(EVERY):
            try:
                keeper.kill()
            except RuntimeError as error:
                keeper.wrong.append(str(error))
                return

    thread = threading.Thread(target=strike, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def measure(seed: int, minutes: float, *, kills: bool) -> Side:
    """One of the two Slurms."""
    world = World(NODES, 2, f"-r{seed}-{'killed' if kills else 'alive'}", contain=True, scheduling=SCHEDULING)
    looks_often(world)
    world.environment |= {
        "PENSTOCK_AGENT__INTERVAL": f"{INTERVAL:g}",
        "PENSTOCK_AGENT__IDLE_INTERVAL": f"{INTERVAL:g}",
        "PENSTOCK_DMR__LISTEN": f"{world.cluster.address}:0",
        "PENSTOCK_DMR__POLICY": "throughput",
        "PENSTOCK_DMR__COOLDOWN": "2",
        "PENSTOCK_DMR__MUNGE_SOCKET": str(world.cluster.munge_socket),
        "PENSTOCK_SLURM__MIN_INTERVAL": "1",
    }
    keeper = Keeper(world)
    try:
        since = time.time()
        programs = Programs(world, keeper.environment() or {})
        programs.tend(more=True)
        world.until(lambda: any(len(programs.sizes(one)) > 1 for one in programs.all), 120.0)
        with rivals(world, seed, LOAD, BEFORE):
            if kills:
                with killed_every_minute(keeper):
                    _watch(programs, 60.0 * minutes)
            else:
                _watch(programs, 60.0 * minutes)
        rivals_left = ["squeue", "-h", "-u", world.cluster.users["bob"]]
        wrong: list[str] = []
        try:
            world.until(lambda: not world.cluster.run_as("root", rivals_left).stdout.strip(), _LAST)
            world.until(programs.over, _LAST)
            world.until(lambda: not world.run(["squeue", "-h"]).strip(), 120.0)
        except SystemExit as left:
            wrong.append(f"not all have ended: {left}")
        waits, without = waited(world, since)
        known = resized(world)
        for one in programs.all:
            wrong += other_sizes(one.name, programs.sizes(one), known.get(one.job, []))
        audit = world.cluster.run_as("alice", [*AGENT[:-1], "audit", "--verify"], env=world.environment)
        if audit.returncode:
            wrong.append(f"penstock audit --verify: {(audit.stdout + audit.stderr)[-600:]}")
        resizes = sum(map(len, known.values()))
        return Side(
            waits, tuple(keeper.starts), len(programs.all), resizes, (*keeper.wrong, *without, *programs.wrong, *wrong)
        )
    finally:
        keeper.stop()
        world.down()


def _watch(programs: Programs, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        programs.tend(more=True)
        if STOPPED.wait(min(left, 5.0)):
            raise RuntimeError("stopped")


def one_round(seed: int, minutes: float) -> RestartsWindow:
    """Both side by side."""
    with ThreadPoolExecutor(2) as threads:
        killed, alive = threads.map(lambda kills: measure(seed, minutes, kills=kills), [True, False])
    window = RestartsWindow("real Slurm", seed, 0, minutes, killed, alive)
    say(f"round {seed}: {window}")
    return window


def _late(waits: Sequence[float]) -> float:
    return float(np.percentile(waits, 95)) if waits else 0.0


def report(windows: Sequence[RestartsWindow]) -> Iterator[str]:
    """The table."""
    yield f"{len(windows)} pairs, of {sum(w.minutes for w in windows):g} minutes in all, on {NODES} nodes"
    sides = {name: [getattr(window, name) for window in windows] for name in ("killed", "alive")}
    late = {}
    for name, those in sides.items():
        waits = [wait for side in those for wait in side.waits]
        late[name] = _late(waits)
        yield (
            f"{name:<7} {len(waits)} rivals waited: median {np.median(waits or [0.0]):.0f} s, 95th percentile "
            f"{late[name]:.0f} s, longest {max(waits, default=0.0):.0f} s; {sum(s.programs for s in those)} programs, "
            f"{sum(s.resizes for s in those)} resizes, {sum(len(s.starts) for s in those)} lives of the agent"
        )
        yield from (f"{name:<7} WRONG: {wrong}" for side in those for wrong in side.wrong)
    start = max(max(side.starts) for side in sides["killed"])
    bound = late["alive"] + INTERVAL + start
    held = late["killed"] <= bound and not any(side.wrong for those in sides.values() for side in those)
    told = "held" if held else "MISSED"
    yield f"goal: nothing wrong, and at most {late['alive']:.0f} + {INTERVAL:g} + {start:.1f} s: {told}"


main = rounds_command(
    RestartsWindow.read,
    one_round,
    report,
    click.option("--minutes", type=click.FloatRange(1), default=45.0, show_default=True, help="Of each round."),
)


if __name__ == "__main__":
    main()
