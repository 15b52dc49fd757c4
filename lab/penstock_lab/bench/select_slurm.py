"""A bag of tasks on a real Slurm of three partitions of different speeds and loads: random against selected.

    python -m penstock_lab.bench.select_slurm      # as root, some ten minutes: a throw-away cluster of eight nodes

The partitions `fast` (2 nodes), `medium` and `slow` (3 nodes each) differ by a factor on what a task sleeps: 1, 1.5 and
3. Another user keeps `medium` busy. 60 tasks of 10 s on a fast node are sent in pairs, a node each, twice over: to a
random partition each, and by `penstock select --submit` with a pass of `penstock bags` every few seconds. Times are
Slurm's, of whole seconds; the time to completion is that of Ha et al. (golden case G11).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

from penstock_lab.cluster import Cluster, ClusterSpec, up
from penstock_planning.select.workload import Times, times_of

FOLDER = Path("/var/tmp/pst-bench-select")
PARTITIONS = {"fast": ("n[1-2]", 2, 1.0), "medium": ("n[3-5]", 3, 1.5), "slow": ("n[6-8]", 3, 3.0)}
SECONDS = 10.0
WORK = f"""case $SLURM_JOB_PARTITION in fast) f=1;; medium) f=1.5;; *) f=3;; esac
sleep $(echo "$f * {SECONDS}" | bc)"""
COMMAND = [sys.executable, "-m", "penstock"]


def settings(cluster: Cluster) -> dict[str, str]:
    """The environment of the user's commands; their state goes with the cluster."""
    alice = cluster.user("alice")
    state = cluster.home("alice") / "state"
    state.mkdir(mode=0o700)
    os.chown(state, alice.uid, alice.gid)
    clocks = {name: {"base": 3e9 / factor} for name, (_, _, factor) in PARTITIONS.items()}
    _give(state / "site.yaml", {"partitions": clocks})
    task = {"name": "md", "run": WORK, "time": "3m", "workdir": str(state), "partition": ",".join(PARTITIONS)}
    task["requirements"] = [{"type": "compute", "amount": SECONDS * 3e9}]  # type: ignore[assignment]
    _give(state / "task.json", task)
    return {
        "XDG_STATE_HOME": str(state),
        "PENSTOCK_SELECT__GAIN": "10",
        "PENSTOCK_SLURM__REQUEST_BURST": "500",
        "PENSTOCK_SLURM__SUBMISSIONS_PER_HOUR": "1000",
    }


def _give(file: Path, content: object) -> None:
    file.write_text(json.dumps(content))
    file.chmod(0o644)


def load(cluster: Cluster, seed: int) -> None:
    """Another user's jobs for `medium`: more than it can run for a while."""
    rng = random.Random(seed)
    for _ in range(6):
        wrap = ["--wrap", f"sleep {rng.randint(20, 60)}"]
        cluster.run_as("bob", ["sbatch", "-p", "medium", "-N1", "-t", "2", "-o", "/dev/null", *wrap], check=True)


def at_random(cluster: Cluster, tasks: int, seed: int) -> None:
    """Pairs of tasks, each to a random partition."""
    rng = random.Random(seed)
    for _ in range(tasks // 2):
        where = rng.choice(list(PARTITIONS))
        words = ["sbatch", "-p", where, "-N1", "-t", "3", "-o", "/dev/null", "--wrap", WORK]
        cluster.run_as("alice", words, check=True)


def selected(cluster: Cluster, tasks: int, environment: dict[str, str]) -> dict[str, int]:
    """By penstock; where the tasks went in the end."""
    folder = Path(environment["XDG_STATE_HOME"])
    words = [
        "select",
        str(folder / "task.json"),
        "--site-file",
        str(folder / "site.yaml"),
        "-n",
        str(tasks),
        "--submit",
    ]
    done = cluster.run_as("alice", [*COMMAND, *words, "--json"], env=environment, timeout=300.0)
    assert done.returncode == 0, done.stderr
    number = json.loads(done.stdout)["resources"][0]["bag"]
    while True:
        done = cluster.run_as("alice", [*COMMAND, "bags", str(number), "--json"], env=environment, timeout=300.0)
        assert done.returncode == 0, done.stderr
        (bag,) = json.loads(done.stdout)["bags"]
        if bag["finished"]:
            found: dict[str, int] = {}
            for array in bag["arrays"]:
                found[array["resource"]] = found.get(array["resource"], 0) + array["jobs"] - array["withdrawn"]
            return {**found, "moves": len(bag["moves"])}
        time.sleep(3.0)


def idle(cluster: Cluster, who: str) -> None:
    """Wait until a user has no jobs left."""
    while cluster.run_as(who, ["squeue", "-h", "-u", cluster.users[who]], check=True).stdout.strip():
        time.sleep(1.0)


def measured(cluster: Cluster, since: float) -> Times:
    """The times of alice's jobs since then, when accounting has them all."""
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    words = ["sacct", "-nPX", "-S", begin, "-u", cluster.users["alice"], "-o", "Submit,Start,End,State"]
    while True:
        text = cluster.run_as("alice", words, env={"SLURM_TIME_FORMAT": "%s"}, check=True).stdout
        rows = [line.split("|") for line in text.splitlines()]
        rows = [row for row in rows if row[0].isdigit() and int(row[0]) >= int(since)]
        if rows and not any(row[3] in ("RUNNING", "PENDING") for row in rows):
            spans = [[float(x) for x in row[:3]] for row in rows if row[1].isdigit() and row[2].isdigit()]
            return times_of(((s, b), (b, e)) for s, b, e in spans)
        time.sleep(1.0)


def main() -> int:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--tasks", type=int, default=60)
    options.add_argument("--rounds", type=int, default=3)
    asked = options.parse_args()
    extra = tuple(
        f"PartitionName={name} Nodes={nodes} MaxTime=10 State=UP" for name, (nodes, _, _) in PARTITIONS.items()
    )
    cluster = up(ClusterSpec(nodes=8, folder=FOLDER, extra=extra))
    try:
        environment = settings(cluster)
        print("| round | strategy | TTC s | Tq s | Tx s | jobs by partition |\n|---|---|---|---|---|---|")
        for number in range(asked.rounds):
            for strategy in ("random", "selected")[:: 1 if number % 2 else -1]:
                load(cluster, number)
                begun = time.time()
                where = ""
                if strategy == "random":
                    at_random(cluster, asked.tasks, number)
                else:
                    where = str(selected(cluster, asked.tasks, environment))
                idle(cluster, "alice")
                times = measured(cluster, begun)
                cluster.run_as("root", ["scancel", "-u", cluster.users["bob"]], check=True)
                idle(cluster, "bob")
                row = (
                    number + 1,
                    strategy,
                    f"{times.total:.0f}",
                    f"{times.waiting:.0f}",
                    f"{times.execution:.0f}",
                    where,
                )
                print("| " + " | ".join(map(str, row)) + " |", flush=True)
    finally:
        cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
