"""What a resize costs on real Slurm, beside the raw Slurm commands in the same run; and what an idle agent costs.

    python bench/resize.py [--rounds 10] [--json]

Starts a throw-away Slurm of eight nodes and an agent. A Jacobi job on two nodes grows to four while the machine is
idle, and shrinks to two for a job that needs six nodes, over and over. The raw commands are `salloc --no-shell
--dependency=expand` + `scontrol update NumNodes=0` (grow) and `scontrol update NodeList=` (shrink) on a sleeping job.
All times are seconds of wall clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import statistics
import sys
import time
from pathlib import Path

import psutil
import yaml
from rich.console import Console
from rich.table import Table

from penstock.api import Allocation, JobSpec
from penstock.demo.sites import NODES, Site, slurm_site
from penstock.slurm.base import Backend

PARTS = {
    "expand": (
        ("grant", "decided", "granted"),
        ("merge", "granted", "merged"),
        ("until the next check", "merged", "accepted"),
        ("spawn, move, leave", "accepted", "done"),
    ),
    "shrink": (
        ("until the next check", "decided", "accepted"),
        ("spawn, move, leave", "accepted", "done"),
        ("step gone, nodes back", "done", "released"),
    ),
}


def jacobi(folder: Path, environment: dict[str, str]) -> JobSpec:
    command = [sys.executable, "-m", "dmr.launch", "-n", "2", "-ppn", "1", sys.executable, "-m", "dmr.examples.jacobi"]
    command += ["--rows", "64", "--cols", "64", "--sweeps", "1000000", "--check-every", "1", "--min", "2", "--max", "4"]
    command += ["--sweep-seconds", "0.05", "--out", f"{folder}/result.npy"]
    script = f"#!/bin/bash\nexec {shlex.join(command)}\n"
    output = str(folder / "jacobi.out")
    return JobSpec("jacobi", script, 2, 3600.0, workdir=str(folder), output=output, environment=environment)


async def breathe(site: Site, rounds: int) -> list[dict]:
    """Resizes of one job, as the agent recorded them."""
    job = await site.own.submit(jacobi(site.folder, await site.arena.ask("env")))
    deadline = time.monotonic() + 60 + 40 * rounds
    shrinks_asked = 0
    while time.monotonic() < deadline:
        found = [
            r for r in (await site.arena.ask("status"))["resizes"] if r["job"] == job and r["outcome"] == "completed"
        ]
        shrunk = sum(r["kind"] == "shrink" for r in found)
        grown = len(found) - shrunk
        if shrunk >= rounds and grown >= rounds:
            break
        if grown > shrinks_asked and shrunk == shrinks_asked:
            await site.arena.rival(JobSpec("rival", "#!/bin/bash\nsleep 1\n", NODES - 2, 60.0, output="/dev/null"))
            shrinks_asked += 1
        await asyncio.sleep(0.2)
    await site.own.cancel(job)
    return found


async def raw(own: Backend, folder: Path, rounds: int) -> dict[str, list[float]]:
    """The same by Slurm's commands alone."""
    spec = JobSpec("raw", "#!/bin/bash\nsleep 3600\n", 2, 3600.0, workdir=str(folder), output="/dev/null")
    job = await own.submit(spec)
    times: dict[str, list[float]] = {"grant": [], "merge": [], "expand": [], "shrink": []}
    kept: tuple[str, ...] = ()
    while not kept:
        kept = next((j.nodes for j in await own.jobs() if j.id == job and j.running), ())
        await asyncio.sleep(0.2)
    for number in range(rounds):
        started = time.perf_counter()
        resizer = await own.allocate(Allocation(f"raw-{number}", 2, 600.0, expands=job), 15.0)
        granted = time.perf_counter()
        await own.merge(resizer, job)
        merged = time.perf_counter()
        await own.shrink(job, kept)
        times["shrink"].append(time.perf_counter() - merged)
        times["grant"].append(granted - started)
        times["merge"].append(merged - granted)
        times["expand"].append(merged - started)
    await own.cancel(job)
    return times


async def idle(site: Site, seconds: float) -> dict[str, float]:
    """The agent's use of a core and of memory while nothing happens."""
    agent = next(p for p in psutil.process_iter(["pid"]) if p.pid == site.agent.pid)
    before = agent.cpu_times()
    await asyncio.sleep(seconds)
    after = agent.cpu_times()
    used = sum(after[:4]) - sum(before[:4])  # its own and that of the Slurm commands it ran
    return {"core_percent": 100 * used / seconds, "rss_mb": agent.memory_info().rss / 1e6}


def middle(values: list[float]) -> float:
    return statistics.median(values) if values else float("nan")


async def measure(rounds: int) -> dict:
    async with slurm_site((1.0, 10.0, 60.0)) as site:
        baseline = await raw(site.own, site.folder, rounds)
        resizes = await breathe(site, rounds)
        busy = await idle(site, 20.0)
        settings = yaml.safe_load(site.config.read_text())
        for key in ("interval", "idle_interval"):
            del settings["agent"][key]
        del settings["slurm"]["min_interval"]
        site.config.write_text(yaml.safe_dump(settings))
        site.agent.send_signal(signal.SIGHUP)
        await asyncio.sleep(2)
        quiet = await idle(site, 40.0)
        quiet["core_percent looking twice a second"] = busy["core_percent"]
    out: dict = {"rounds": rounds, "raw": {k: middle(v) for k, v in baseline.items()}, "idle": quiet}
    for kind, parts in PARTS.items():
        mine = [r["marks"] for r in resizes if r["kind"] == kind][:rounds]
        out[kind] = {name: middle([m[b] - m[a] for m in mine if a in m and b in m]) for name, a, b in parts}
        out[kind]["spawn alone"] = middle([m["app_spawn"] for m in mine if "app_spawn" in m])
        last = parts[-1][2]
        out[kind]["total"] = middle([m[last] - m["decided"] for m in mine if last in m])
        out[kind]["n"] = len(mine)
    slurm_part = out["expand"]["grant"] + out["expand"]["merge"]
    out["expand"]["slurm part / raw"] = slurm_part / out["raw"]["expand"]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    out = asyncio.run(measure(options.rounds))
    if options.json:
        print(json.dumps(out, indent=2))
        return
    console = Console(width=100)
    for kind in ("raw", "expand", "shrink", "idle"):
        table = Table("part", "median" if kind != "idle" else "value", title=kind, title_justify="left", box=None)
        for name, value in out[kind].items():
            table.add_row(name, f"{value:.3f}")
        console.print(table)
    console.print(f"{options.rounds} rounds, {os.cpu_count()} cores for {NODES} nodes, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
