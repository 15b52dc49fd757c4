"""What one look at a long queue costs on real Slurm: requests, our CPU time, memory.

    python -m penstock_lab.bench.snapshot [--jobs 10000] [--rounds 5] [--json]      as root: it acts as two users

Fills the queue of a throw-away Slurm with separate held jobs of mixed sizes by two users (no arrays: they would be one
row), which takes minutes. Then the same queue is read by the agent's backend, by `squeue --json` with Python's json
module, and by `squeue` alone with its answer thrown away, which is what Slurm's own part costs. Last, an agent runs
for some passes over that queue, and its memory is read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import product
from pathlib import Path

import psutil
import yaml
from rich.console import Console
from rich.table import Table

from penstock.slurm.cli import CliBackend
from penstock_lab.cluster import Cluster, ClusterSpec, down, up

USERS = ("alice", "bob")
SIZES = tuple(product((1, 2, 3, 5, 8), (10, 60, 240, 1440)))  # nodes, minutes
MAX_CPU, MAX_MB = 0.5, 150
LOOKS = "penstock_looks_total"


def fill(cluster: Cluster, jobs: int) -> None:
    """Submit so many held jobs, every size as often as the others, half of them by either user."""
    shares = list(product(USERS, SIZES))
    with tempfile.NamedTemporaryFile("w", prefix="penstock-bench-", suffix=".sh", delete=False) as file:
        file.write("#!/bin/sh\nsleep 1\n")
    script = Path(file.name)
    script.chmod(0o755)
    try:
        for number, (user, (nodes, minutes)) in enumerate(shares):
            count = jobs * (number + 1) // len(shares) - jobs * number // len(shares)
            sbatch = ["sbatch", "--parsable", "--hold", f"--nodes={nodes}", f"--time={minutes}", str(script)]
            argv = ["xargs", "-P2", "-I{}", *sbatch, "--output=/dev/null", "--job-name={}"]
            names = "".join(f"job-{i}\n" for i in range(count))
            with tempfile.TemporaryFile("w+") as source:
                source.write(names)
                source.seek(0)
                process = cluster.popen_as(user, argv, cwd=Path("/tmp"), stdin=source, stdout=subprocess.DEVNULL)
                if process.wait(600) != 0:
                    sys.exit(f"sbatch failed for {user}")
    finally:
        script.unlink()


def cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def measure(cluster: Cluster, rounds: int) -> dict[str, float]:
    prefix, conf = cluster.prefix("alice"), cluster.env["SLURM_CONF"]
    backend = CliBackend(prefix=prefix, user=cluster.user("alice").name, slurm_conf=conf)
    await backend.partitions()
    looks = []
    for _ in range(rounds):
        requests = sum(backend.requests.values())
        ours, theirs, began = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN), time.monotonic()
        found = await backend.jobs()
        looks.append(
            {
                "jobs": len(found),
                "requests": sum(backend.requests.values()) - requests,
                "cpu_s": cpu(resource.RUSAGE_SELF) - ours,
                "squeue_cpu_s": cpu(resource.RUSAGE_CHILDREN) - theirs,
                "wall_s": time.monotonic() - began,
            }
        )
    await backend.close()
    return {key: statistics.median(look[key] for look in looks) for key in looks[0]}


def measure_json(cluster: Cluster, rounds: int) -> dict[str, float]:
    looks = []
    for _ in range(rounds):
        ours, theirs, began = cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN), time.monotonic()
        text = cluster.run_as("alice", ["squeue", "--json", "-a", "-t", "all"], cwd=Path("/tmp"), timeout=120).stdout
        jobs = len(json.loads(text)["jobs"])
        looks.append(
            {
                "jobs": jobs,
                "requests": 1,
                "cpu_s": cpu(resource.RUSAGE_SELF) - ours,
                "squeue_cpu_s": cpu(resource.RUSAGE_CHILDREN) - theirs,
                "wall_s": time.monotonic() - began,
            }
        )
    return {key: statistics.median(look[key] for look in looks) for key in looks[0]}


def agent_over(cluster: Cluster, seconds: float) -> dict[str, float]:
    """An agent that looks at the queue every second: the most megabytes seen, its looks and its CPU seconds."""
    folder = cluster.home("alice")
    config, log = folder / "bench.yaml", folder / "agent.log"
    settings = {
        "agent": {"state_dir": str(folder / "agent"), "interval": 1, "idle_interval": 1},
        "slurm": {"min_interval": 1, "requests_per_second": 20},
        "dmr": {"munge_socket": str(cluster.munge_socket), "listen": "127.0.0.1:0"},
        "metrics": {"listen": "127.0.0.1:9397"},
    }
    config.write_text(yaml.safe_dump(settings))
    config.chmod(0o644)
    argv = [sys.executable, "-m", "penstock", "agent"]
    with log.open("w") as output:
        environment = {"PENSTOCK_CONFIG": str(config)}
        process = cluster.popen_as("alice", argv, env=environment, cwd=folder, stdout=output, stderr=output)
    try:
        agent, most, deadline = None, 0.0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.2)
            if process.poll() is not None:
                sys.exit(f"the agent ended: {log.read_text()}")
            agent = agent or agent_process(process.pid)
            if agent is not None:
                most = max(most, agent.memory_info().rss / 1e6)
                used = agent.cpu_times()
        with urllib.request.urlopen("http://127.0.0.1:9397/metrics", timeout=10) as answer:
            text = answer.read().decode()
        looks = re.search(rf"^{LOOKS} (\S+)", text, re.MULTILINE)
        if looks is None:
            sys.exit(f"the agent's metrics have no {LOOKS}")
        return {"rss_mb": most, "looks": float(looks[1]), "cpu_s": used.user + used.system}
    finally:
        process.terminate()
        process.wait(30)


def agent_process(pid: int) -> psutil.Process | None:
    """The agent itself, behind what changes the user."""
    root = psutil.Process(pid)
    for candidate in (*root.children(recursive=True), root):
        if candidate.cmdline()[1:4] == ["-m", "penstock", "agent"]:
            return candidate
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("only root can act as two users")
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        cluster = up(ClusterSpec(nodes=8, folder=folder / "slurm", extra=("MaxJobCount=20000",)))
        began = time.monotonic()
        fill(cluster, options.jobs)
        filled = time.monotonic() - began
        results = {
            "agent's backend": asyncio.run(measure(cluster, options.rounds)),
            "squeue --json + json": measure_json(cluster, options.rounds),
        }
        agent = agent_over(cluster, seconds=20)
        version = cluster.slurm_version
    finally:
        down(folder / "slurm")
        folder.rmdir()
    ours = results["agent's backend"]
    good = ours["requests"] == 1 and ours["cpu_s"] < MAX_CPU and agent["rss_mb"] < MAX_MB
    if options.json:
        print(json.dumps({"slurm": version, "looks": results, "agent": agent, "filled_s": filled}, indent=2))
    else:
        table = Table("one look", "jobs", "requests", "our CPU s", "squeue's CPU s", "wall s", box=None)
        for name, r in results.items():
            cells = (f"{r['cpu_s']:.2f}", f"{r['squeue_cpu_s']:.2f}", f"{r['wall_s']:.2f}")
            table.add_row(name, f"{r['jobs']:,.0f}", f"{r['requests']:.0f}", *cells)
        console = Console(width=120)
        console.print(table)
        console.print(
            f"an agent over this queue, a look a second: {agent['rss_mb']:.0f} MB, "
            f"{agent['cpu_s']:.1f} CPU s in {agent['looks']:.0f} looks, start included"
        )
        console.print(f"Slurm {version}, load {os.getloadavg()[0]:.1f}; goals: one request, {MAX_CPU} s, {MAX_MB} MB")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
