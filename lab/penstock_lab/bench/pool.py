"""One pool over several allocations, beside one srun per task and one job per task.

    python -m penstock_lab.bench.pool [--tasks 10000] [--allocations 4] [--cores 25] [--sruns 100] [--jobs 40] [--kill]

Brings up a local Slurm, as root. `--tasks` sleeps of one second run in a pool over `--allocations` jobs of one node of
`--cores` cores each (more than the machine has: a sleep needs none). Beside it, in the same run, on one such job:
`--sruns` of the same tasks as a step each, as many at a time as the job has cores; and `--jobs` of them as a batch job
each, a core each. These counts are smaller because they take so much longer; the busy share tells what is comparable:

    busy share = task-seconds / (cores * (end of the last task - start of the first))

A fifth allocation joins at a third of the tasks, and one is killed at two thirds with `--kill`. Told are the busy
share (of the cores that were there at each moment), the scheduler's CPU time per task, the seconds from a member's
registration to the start of its first task, and how often tasks ran. Goals are in lab/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock_lab.cluster import ClusterSpec, up

COMMAND = [sys.executable, "-m", "penstock", "pool"]
GOALS = {"busy share": 0.9, "scheduler ms per task": 2.0, "seconds until a join is used": 2.0}


class World:
    """A cluster and a folder of one of its users. `more` are further options of the cluster."""

    def __init__(self, nodes: int, cores: int, name: str = "", **more: Any) -> None:
        folder = Path(f"/var/tmp/pst-bench-pool-{os.getpid()}{name}")
        self.cluster = up(ClusterSpec(nodes=nodes, folder=folder, cpus=cores, select="cons_tres", **more))
        self.place = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/var/tmp"))
        user = self.cluster.user("alice")
        os.chown(self.place, user.uid, user.gid)
        self.environment = {"PENSTOCK_POOL__FOLDER": str(self.place / "pools")}

    def run(self, words: list[str], limit: float = 1800.0) -> str:
        done = self.cluster.run_as("alice", words, env=self.environment, cwd=self.place, timeout=limit)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def batch(self, script: str, *options: str) -> int:
        file = self.place / "job.sh"
        file.write_text(f"#!/bin/bash\n{script}\n")
        return int(self.run(["sbatch", "--parsable", "-t60", *options, str(file)]))

    def until(self, probe: Callable[[], Any], limit: float = 1800.0) -> Any:
        end = time.monotonic() + limit
        while not (found := probe()):
            if time.monotonic() > end:
                raise SystemExit(self.run(["squeue"]))
            time.sleep(0.5)
        return found

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.run([*COMMAND, "status", "--json"])))

    def down(self) -> None:
        self.cluster.down()
        shutil.rmtree(self.place, ignore_errors=True)


def in_pool(world: World, tasks: int, allocations: int, cores: int, kill: bool) -> dict[str, float]:
    world.run([*COMMAND, "start", "--detach"])
    file = world.place / "tasks.jsonl"
    file.write_text('{"command": ["sleep", "1"], "time": 1, "workdir": "/tmp"}\n' * tasks)
    jobs = [world.batch(f"exec {' '.join(COMMAND)} join", "-N1", f"-n{cores}") for _ in range(allocations)]
    world.until(lambda: len(world.status()["members"]) == allocations)
    before = world.status()["cpu"]
    world.run([*COMMAND, "submit", "--file", str(file)])
    world.until(lambda: world.status()["tasks"]["complete"] > tasks / 3)
    extra = world.batch(f"exec {' '.join(COMMAND)} join", "-N1", f"-n{cores}")
    if kill:
        world.until(lambda: world.status()["tasks"]["complete"] > tasks * 2 / 3)
        world.cluster.run_as("root", ["scancel", "-s", "KILL", str(jobs[0])])
    world.until(lambda: world.status()["tasks"]["complete"] == tasks)
    after = world.status()
    log = [json.loads(line) for line in (world.place / "pools/main/tasks.jsonl").read_text().splitlines()]
    world.run([*COMMAND, "stop"])
    starts = [line for line in log if line["op"] == "start"]
    ends = [line for line in log if line["op"] == "end"]
    first, last = min(s["at"] for s in starts), max(e["at"] for e in ends)
    members = {str(job): [first, last] for job in jobs} | {str(extra): [last, last]}
    for member in after["members"]:
        if member["job"] == str(extra):
            members[str(extra)][0] = member["joined"]
    used = min((s["at"] for s in starts if s["job"] == str(extra)), default=last) - members[str(extra)][0]
    if kill:
        members[str(jobs[0])][1] = max(e["at"] for e in ends if e["outcome"] == "lost")
    return {
        "tasks": tasks,
        "seconds": last - first,
        "busy share": sum(e["outcome"] == "complete" for e in ends)
        / sum(cores * (end - begin) for begin, end in members.values()),
        "scheduler ms per task": 1000 * (after["cpu"] - before) / tasks,
        "seconds until a join is used": used,
        "lost attempts": sum(e["outcome"] == "lost" for e in ends),
        "complete more than once": len(ends) - sum(e["outcome"] == "lost" for e in ends) - tasks,
    }


def by_srun(world: World, tasks: int, cores: int) -> dict[str, float]:
    step = "srun --exact -n1 -c1 --mem=0 sleep 1"
    script = f"date +%s.%N >begin; seq {tasks} | xargs -P {cores} -I% {step}; date +%s.%N >end"
    job = world.batch(script, "-N1", f"-n{cores}")
    world.until(lambda: not world.run(["squeue", "-h", "-j", str(job)]).strip() and (world.place / "end").exists())
    seconds = float((world.place / "end").read_text()) - float((world.place / "begin").read_text())
    return {"tasks": tasks, "seconds": seconds, "busy share": tasks / (cores * seconds)}


def by_job(world: World, tasks: int, cores: int) -> dict[str, float]:
    began = time.time()
    for _ in range(tasks):
        world.batch("sleep 1", "-n1", "--output=/dev/null")
    world.until(lambda: not world.run(["squeue", "-h"]).strip())
    seconds = time.time() - began
    width = min(cores, tasks)
    return {"tasks": tasks, "seconds": seconds, "busy share": tasks / (width * seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description="One pool beside one srun and one job per task.")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--allocations", type=int, default=4)
    parser.add_argument("--cores", type=int, default=25)
    parser.add_argument("--sruns", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--kill", action="store_true", help="kill one allocation at two thirds of the tasks")
    given = parser.parse_args()
    world = World(given.allocations + 1, given.cores)
    try:
        rows = {"pool": in_pool(world, given.tasks, given.allocations, given.cores, given.kill)}
        rows["one srun per task"] = by_srun(world, given.sruns, given.cores)
        rows["one job per task"] = by_job(world, given.jobs, given.cores)
    finally:
        world.down()
    print(f"{given.allocations} allocations of {given.cores} cores, load {os.getloadavg()[0]:.1f}")
    for name, row in rows.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in row.items()))
    pool = rows["pool"]
    missed = [
        name for name, goal in GOALS.items() if (pool[name] < goal if name == "busy share" else pool[name] > goal)
    ]
    print(f"goals missed: {', '.join(missed) or 'none'}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
