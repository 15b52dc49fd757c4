"""How long a resize keeps a program from computing: with new processes started ahead, and without, in one run.

    python -m penstock_lab.bench.stall [--rounds 6] [--megabytes 8] [--method replace|merge] [--sizes 4,8]

Starts a throw-away Slurm of eight nodes and an agent that grows by companions. A program of compute-bound steps goes
from one size to the other and back; once with `DMR_START_AHEAD=0`, which is the reference. Printed, medians in seconds:

    stall       from the end of the last step with the old size to the beginning of the first one with the new size
    worst gap   the longest time between two steps of one size, from the wish on: what the start itself held up
    slower      by how much the steps between the wish and the resize took longer than those before, in all, on rank 0
    CPU         what the new processes had used when they took over, all of them together

All ranks of all nodes share the cores of this machine, so a start takes from the steps what it would have of its own on
a cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from penstock.api import JobSpec
from penstock_lab.demo.sites import Site, slurm_site

REST = 25  # steps between two resizes
WORK = 0.005  # CPU seconds of a step, of each rank
GOALS = {"expand": 0.25, "shrink": 0.1}


@dataclass(frozen=True, slots=True)
class Stall:
    old: int
    new: int
    stall: float
    gap: float
    slower: float
    cpu: float


def program(options: argparse.Namespace) -> None:
    """What runs in the job."""
    import dmr

    path = Path(options.work)
    first = int(options.sizes.split(",")[0])  # and no other, until the plan says so
    app = dmr.App(first, first, factor=2, method=options.method)
    cpu = time.process_time()
    count = options.megabytes * 125_000

    def block() -> np.ndarray:
        start, stop = dmr.block_bounds(count, app.comm.size, app.comm.rank)
        return np.ones(stop - start)

    app.register("x", block, dmr.Block())
    sizes = [int(size) for size in options.sizes.split(",")]
    plan = sizes[1:] + (sizes * options.rounds)[: 2 * options.rounds - 1]
    app.register("place", 0)
    app.register("since", 0)
    fresh = app.resumed
    notes = path.open("a", buffering=1)
    for step in app.steps():
        if app.changed and step:  # with those that stayed
            used = app.comm.reduce(cpu if fresh else 0.0)
            if app.comm.rank == 0:
                notes.write(json.dumps({"cpu": used}) + "\n")
        fresh = fresh and not app.changed
        if app.changed and app["place"] and app.comm.size == plan[app["place"] - 1]:
            app["since"] = step
        began = time.time()
        until = time.process_time() + WORK
        while time.process_time() < until:
            app["x"][:1000] += 1.0
        app.comm.Barrier()
        ended = time.time()
        asked = step - app["since"] == REST
        if app.comm.rank == 0:
            notes.write(json.dumps({"size": app.comm.size, "begin": began, "end": ended, "asks": asked}) + "\n")
        if asked:
            if app["place"] == len(plan):
                break
            app.want(plan[app["place"]], plan[app["place"]], 2)
            app["place"] += 1


def stalls(lines: Iterable[dict[str, float]]) -> list[Stall]:
    """From what rank 0 of each size has noted, in order."""
    steps: list[dict[str, float]] = []
    cpu: dict[int, float] = {}
    for line in lines:
        if "cpu" in line:
            cpu[len(steps)] = line["cpu"]
        else:
            steps.append(line)
    found: list[Stall] = []
    asked, usual = 0, 0.0
    for place, (one, two) in enumerate(pairwise(steps)):
        if one["asks"]:
            asked = place
            usual = statistics.median(step["end"] - step["begin"] for step in steps[place - REST + 5 : place])
        if one["size"] == two["size"]:
            continue
        waiting = steps[asked : place + 1]
        gaps = [later["begin"] - former["end"] for former, later in pairwise(waiting)]
        slower = sum(step["end"] - step["begin"] - usual for step in waiting)
        stall = two["begin"] - one["end"]
        found.append(
            Stall(int(one["size"]), int(two["size"]), stall, max(gaps, default=0.0), slower, cpu.get(place + 1, 0.0))
        )
    return found


async def run(site: Site, options: argparse.Namespace, ahead: bool) -> list[Stall]:
    notes = site.folder / f"stall-{int(ahead)}.jsonl"
    first = options.sizes.split(",")[0]
    command = [sys.executable, "-m", "dmr.launch", "-n", first, "-ppn", "1", sys.executable, "-m", __spec__.name]
    command += ["--work", str(notes), "--method", options.method, "--sizes", options.sizes]
    command += ["--rounds", str(options.rounds), "--megabytes", str(options.megabytes)]
    exports = f"export MPIR_CVAR_POLLS_BEFORE_YIELD=1 DMR_START_AHEAD={int(ahead)}"
    script = f"#!/bin/bash\n{exports}\nexec {shlex.join(command)}\n"
    out = site.folder / "stall.out"
    spec = JobSpec("stall", script, int(first), 3600.0, workdir=str(site.folder), output=str(out))
    job = await site.own.submit(replace(spec, environment=await site.arena.ask("env")))
    until = time.monotonic() + 120 + 60 * options.rounds
    while not all(j.state.ended for j in await site.own.jobs() if j.id == job):
        if time.monotonic() > until:
            await site.own.cancel(job)
            break
        await asyncio.sleep(0.5)
    if not notes.exists():
        sys.exit(f"the program failed: {out.read_text()[-1000:]}")
    found = stalls(json.loads(line) for line in notes.read_text().splitlines())
    if len(found) < 2 * options.rounds:
        print(f"only {len(found)} of {2 * options.rounds} resizes: {out.read_text()[-1000:]}")
    return found


async def measure(options: argparse.Namespace) -> int:
    async with slurm_site((1.0, 10.0, 60.0), policy="wide", way="companion") as site:
        found = {ahead: await run(site, options, ahead) for ahead in (False, True)}
    cores = os.cpu_count()
    print(f"{options.megabytes} MB, {options.method}, by companions; load {os.getloadavg()[0]:.1f} on {cores} cores")
    print("| resize | started | rounds | stall s | longest | worst gap s | slower s | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    missed = 0
    for old, new in sorted({(s.old, s.new) for some in found.values() for s in some}):
        for ahead in (False, True):
            mine = [s for s in found[ahead] if (s.old, s.new) == (old, new)]
            if not mine:
                continue
            stall, gap, slower, cpu = (
                statistics.median(getattr(s, name) for s in mine) for name in ("stall", "gap", "slower", "cpu")
            )
            longest = max(s.stall for s in mine)
            print(
                f"| {old} to {new} | {'ahead' if ahead else 'waited for'} | {len(mine)} | {stall:.3f} | {longest:.3f} "
                f"| {gap:.3f} | {slower:.2f} | {cpu:.2f} |"
            )
            goal = GOALS["expand" if new > old else "shrink"]
            if ahead:
                missed += stall > goal
                print(f"goal: {old} to {new} at most {goal:g} s: {'reached' if stall <= goal else 'missed'}")
    return int(bool(missed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--megabytes", type=int, default=8)
    parser.add_argument("--method", choices=["replace", "merge"], default="replace")
    parser.add_argument("--sizes", default="4,8", help="two sizes, a factor of two apart")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        program(options)
    else:
        sys.exit(asyncio.run(measure(options)))


if __name__ == "__main__":
    main()
