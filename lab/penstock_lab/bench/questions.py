"""What long questions of a user cost that user's short ones: `status` alone, and while two `try` are being answered.

    python -m penstock_lab.bench.questions [--jobs 1000] [--rounds 5] [--asked 50] [--json]

An agent as a process of its own over a simulated Slurm whose queue holds so many jobs, with its real socket. Each round
first asks `status` so many times, which is the reference, then as often while two `try` of the same user are under
way, and as often when these have been answered. Told: how many requests were refused, and the 99th percentile of
`status` as a ratio to the reference of that round, once as the command sees it, and once in processor time of the agent
between the connection and its answer, which says the same on a machine that others use, too. As root the bench becomes
another user: root has no limits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from penstock.api import JobSpec
from penstock.errors import NotNow, PenstockError
from penstock.ipc.client import ask
from penstock.values.lines import split_lines
from penstock.workflow.model import Stage, Workflow, workflow_to_dict
from penstock_lab.bench.fairness import quantile
from penstock_lab.mock import control
from penstock_lab.mock.model import ClusterConfig

NOBODY: Final = 65534
NODES: Final = 64
SHARE: Final = 0.99
INTERVAL: Final = 0.1  # seconds
BEGUN: Final = (
    5.0  # seconds: the agent decodes what the simulated Slurm says of all jobs, which takes one without a break
)
PAUSE: Final = 60.0  # seconds after which a user may again ask what is long
GOAL: Final = 2.0

FLOW: Final = Workflow(
    "chain", tuple(Stage(f"s{i}", 2 * i + 2, 3600, 1800, "./x", (f"s{i - 1}",) if i else ()) for i in range(3))
)


@dataclass(frozen=True, slots=True)
class Round:
    """How long each `status` took (s), and how much processor time the agent spent meanwhile, without and with the two
    `try`; how long these took, and how many requests were refused."""

    quiet: list[float]
    busy: list[float]
    worked_quiet: list[float]
    worked_busy: list[float]
    tries: list[float]
    refused: int


def asked(socket: Path, op: str, request: dict[str, Any] | None = None) -> float | None:
    """How long the answer took (s); None where it was refused."""
    began = time.perf_counter()
    try:
        ask(socket, op, request, timeout=300.0)
    except NotNow:
        return None
    return time.perf_counter() - began


def one_round(socket: Path, told: Path, times: int) -> Round:
    before = len(worked(told))
    quiet = repeated(socket, times)
    between = len(worked(told))
    with ThreadPoolExecutor(2) as threads:
        tries = [threads.submit(asked, socket, "try", {"workflow": workflow_to_dict(FLOW)}) for _ in range(2)]
        time.sleep(BEGUN)
        busy = repeated(socket, times)
    after = worked(told)
    took = [one.result() for one in tries]
    every = [*quiet, *busy, *took, *repeated(socket, times)]
    return Round(
        told_of(quiet), told_of(busy), after[before:between], after[between:], told_of(took), every.count(None)
    )


def told_of(some: list[float | None]) -> list[float]:
    """Those that were answered."""
    return [took for took in some if took is not None]


def repeated(socket: Path, times: int) -> list[float | None]:
    """`status` so many times, as often as is answered lastingly."""
    found = []
    for _ in range(times):
        found.append(asked(socket, "status"))
        time.sleep(INTERVAL)
    return found


def worked(told: Path) -> list[float]:
    """What the agent has written down of each `status`."""
    rows = (json.loads(line) for line in split_lines(told.read_text()))
    return [seconds for op, seconds in rows if op == "status"]


def agent(config: Path, out: Path) -> None:
    """The agent, which writes down how much its loop worked, for whatever, between each connection and its answer."""
    from penstock import app
    from penstock.config import load
    from penstock.host import logs
    from penstock.ipc.handlers import LocalDoor
    from penstock.ipc.server import Server

    begun: ContextVar[float] = ContextVar("begun")
    serve, answer = Server._serve, LocalDoor.answer
    told = out.open("w", buffering=1)

    async def serving(self: Server, name: str, connection: Any, peer: str) -> None:
        begun.set(time.thread_time())
        await serve(self, name, connection, peer)

    async def answering(self: LocalDoor, uid: int, line: bytes) -> bytes:
        reply = await answer(self, uid, line)
        told.write(json.dumps([json.loads(line)["op"], time.thread_time() - begun.get()]) + "\n")
        return reply

    Server._serve, LocalDoor.answer = serving, answering  # type: ignore[method-assign]
    settings = load(config)
    logs.configure("warning", settings.log.format)
    asyncio.run(app.serve(settings, config))


@contextmanager
def served(folder: Path, jobs: int) -> Iterator[tuple[Path, Path]]:
    """The socket of an agent over a queue of so many jobs, and what it writes down."""
    cluster = control.start(folder / "slurm", ClusterConfig(nodes=NODES), timeout=60.0)
    config, out, socket = folder / "penstock.yaml", folder / "told.jsonl", folder / "agent.sock"
    settings = {
        "agent": {"state_dir": str(folder / "state"), "socket": str(socket), "interval": 5},
        "slurm": {"backend": "mock", "mock_socket": str(cluster.socket), "min_interval": 5},
        "dmr": {"listen": "127.0.0.1:0"},
    }
    config.write_text(yaml.safe_dump(settings))
    fill(cluster, jobs)
    with (folder / "agent.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock_lab.bench.questions", "--agent", str(config), str(out)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        for _ in range(1200):
            try:
                if ask(socket, "queue")["jobs"]:
                    break
            except PenstockError:
                assert process.poll() is None, (folder / "agent.log").read_text()
            time.sleep(0.05)
        yield socket, out
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        cluster.stop()


def fill(cluster: control.Handle, jobs: int) -> None:
    """So many jobs of mixed sizes, most of which wait."""
    for i in range(jobs):
        limit = 1800.0 + 600 * (i * 5 % 23)
        spec = JobSpec(f"j{i}", "#!/bin/sh\nsleep 36000\n", 1 + i * 7 % 16, limit, workdir=str(cluster.folder))
        control.call(cluster.folder, "submit", spec=spec)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--asked", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--agent", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        agent(*options.agent)
        return
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    folder = Path(tempfile.mkdtemp(prefix="penstock-ask-"))
    rounds = []
    try:
        with served(folder, options.jobs) as (socket, told):
            for number in range(options.rounds):
                if number:
                    time.sleep(PAUSE)
                rounds.append(one_round(socket, told, options.asked))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(rounds, as_json=options.json)


def report(rounds: list[Round], *, as_json: bool) -> None:
    """The median of the rounds, and their range."""
    figures = {
        "status, p50, alone": [quantile(one.quiet, 0.5) for one in rounds],
        "status, p50, two try meanwhile": [quantile(one.busy, 0.5) for one in rounds],
        "status, p99, alone": [quantile(one.quiet, SHARE) for one in rounds],
        "status, p99, two try meanwhile": [quantile(one.busy, SHARE) for one in rounds],
        "processor, p99, alone": [quantile(one.worked_quiet, SHARE) for one in rounds],
        "processor, p99, two try meanwhile": [quantile(one.worked_busy, SHARE) for one in rounds],
        "ratio of p99": [quantile(one.busy, SHARE) / quantile(one.quiet, SHARE) for one in rounds],
        "ratio of p99, processor": [
            quantile(one.worked_busy, SHARE) / quantile(one.worked_quiet, SHARE) for one in rounds
        ],
        "try, the longer": [max(one.tries, default=math.nan) for one in rounds],
        "refused": [float(one.refused) for one in rounds],
    }
    if as_json:
        print(json.dumps(figures))
        return
    for name, values in figures.items():
        unit, scale = ("", 1) if name.startswith(("ratio", "refused")) else (" ms", 1000)
        low, middle, high = (scale * value for value in (min(values), statistics.median(values), max(values)))
        print(f"{name:34} {middle:8.1f}{unit} ({low:.1f} to {high:.1f})")
    ratio, refused = statistics.median(figures["ratio of p99, processor"]), sum(figures["refused"])
    print(f"goal: none refused, p99 at most {GOAL:g} times: {'reached' if ratio <= GOAL and not refused else 'missed'}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
