"""What slurmrestd costs beside Slurm's commands, on one real Slurm in one run: requests, CPU time, latency.

    python -m penstock_lab.bench.rest [--release trixie] [--jobs 2000] [--rounds 5] [--json]     as root

Fills the queue of a throw-away Slurm with held jobs. Then the backends `cli` and `rest` (at a Unix socket, no command
is run) do the same in turns: a look at the queue and at the nodes, one job, a submission, a change, a cancel. "here" is
the CPU time of this process, "beside" that of the commands (with what makes them a user's of that cluster) or of
slurmrestd; slurmctld's is what it used meanwhile, its own scheduling included. The median of the rounds is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from penstock.api import JobSpec
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock.values.rest_address import RestAddress
from penstock_lab.bench.snapshot import fill
from penstock_lab.cluster import Cluster, ClusterSpec, down, restd, up
from penstock_lab.cluster.programs import PATH
from penstock_rest.backend import RestBackend
from penstock_rest.link import RestLink

HELD = JobSpec("bench", "#!/bin/sh\ntrue\n", 1, 600.0, hold=True, output="/dev/null", workdir="/tmp")


def backend_options(cluster: Cluster) -> dict[str, Any]:
    return {
        "user": cluster.user("alice").name,
        "prefix": cluster.prefix("alice"),
        "slurm_conf": cluster.env["SLURM_CONF"],
        "environment": {"PATH": PATH},
        "timeout": 120.0,
        "budget": RequestBudget(BudgetLimits(100_000, 10_000.0, 100_000, 100_000, 100_000)),
    }


def own_cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def process_cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


class Meter:
    """CPU seconds of all who take part, and requests."""

    def __init__(self, backend: CliBackend, server: psutil.Process, controller: psutil.Process) -> None:
        self.backend, self.server, self.controller = backend, server, controller

    def read(self) -> dict[str, float]:
        beside = own_cpu(resource.RUSAGE_CHILDREN) + process_cpu(self.server)
        return {
            "requests": float(sum(self.backend.requests.values())),
            "here_s": own_cpu(resource.RUSAGE_SELF),
            "beside_s": beside,
            "slurmctld_s": process_cpu(self.controller),
            "wall_s": time.monotonic(),
        }


async def measure(backend: CliBackend, meter: Meter, rounds: int, number: int) -> dict[str, dict[str, float]]:
    made: list[int] = []

    async def submit() -> None:
        made.append(await backend.submit(HELD))

    acts: dict[str, Callable[[], Awaitable[object]]] = {
        "the queue": backend.jobs,
        "the nodes": backend.nodes,
        "one job": lambda: backend._look(number),
        "submit": submit,
        "update": lambda: backend.update(made[-1], time_limit=300.0),
        "cancel": lambda: backend.cancel(made[-1]),
    }
    await backend.partitions()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            before = meter.read()
            await act()
            after = meter.read()
            found[name].append({key: after[key] - before[key] for key in before})
    return {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()}


async def both(cluster: Cluster, server: restd.RestServer, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    options = backend_options(cluster)
    link = RestLink(RestAddress.parse(server.url), cluster.user("alice").name)
    cli, rest = CliBackend(**options), RestBackend(link=link, commands=False, **options)
    running = psutil.Process(server.process.pid)
    serving = next((p for p in [running, *running.children(recursive=True)] if p.name() == "slurmrestd"), running)
    controller = psutil.Process(cluster.daemons.state.processes["slurmctld"].pid)
    try:
        number = (await cli.jobs())[-1].id
        found = {}
        for name, backend in (("cli", cli), ("rest", rest)):
            found[name] = await measure(backend, Meter(backend, serving, controller), rounds, number)
        return found
    finally:
        await cli.close()
        await rest.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="trixie")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("only root can act as another user")
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/var/tmp"))
    folder.chmod(0o755)
    spec = ClusterSpec(nodes=8, folder=folder / "slurm", release=options.release, extra=("MaxJobCount=20000",))
    try:
        cluster = up(spec)
        fill(cluster, options.jobs)
        with restd.serving(cluster, "alice") as server:
            found = asyncio.run(both(cluster, server, options.rounds))
        version = cluster.slurm_version
    finally:
        down(folder / "slurm")
        folder.rmdir()
    if options.json:
        print(json.dumps({"slurm": version, "jobs": options.jobs, "found": found}, indent=2))
        return
    heads = ("requests", "here ms", "beside ms", "slurmctld ms", "latency ms")
    table = Table("", "backend", *heads, box=None)
    for act in found["cli"]:
        for name in ("cli", "rest"):
            row = found[name][act]
            times = (f"{1000 * row[key]:.0f}" for key in ("here_s", "beside_s", "slurmctld_s", "wall_s"))
            table.add_row(act if name == "cli" else "", name, f"{row['requests']:.0f}", *times)
    Console(width=120).print(table)
    print(f"Slurm {version}, {options.jobs} jobs in the queue, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
