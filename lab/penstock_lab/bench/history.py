"""How long a history of millions of jobs takes to import and to back-test, and how much memory.

    python -m penstock_lab.bench.history [--jobs N] [--folder DIR] [--keep]

A made-up dump of sacct (daily and weekly cycles, some hundred users who repeat their jobs, arrays, steps left out) is
written first, which is not counted. Each stage is a process of its own; times are the wall clock's. Ends with 1 when a
goal is missed: import and back-test together under ten minutes for ten million jobs, each under 1 GB.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

MARK = "@0123456789abcdef@"
GOAL_SECONDS = 600.0  # for ten million jobs
GOAL_MEMORY = 1024.0
CHUNK = 200_000


def write_dump(path: Path, jobs: int) -> None:
    """A dump as the documented line prints it: three years, whatever the number of jobs."""
    from penstock_lab.history.sacct import FIELDS

    rng = np.random.default_rng(1)
    gap = 3 * 365 * 86400 / jobs
    now, number = 1_600_000_000.0, 1
    usual = np.exp(rng.normal(6.5, 1.8, 400))  # of each user's jobs, seconds
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("".join(name + MARK for name in FIELDS) + "\n")
        while number <= jobs:
            n = min(CHUNK, jobs + 1 - number)
            submits = now + np.cumsum(rng.exponential(gap, n))
            now = float(submits[-1])
            busy = 1 + 0.9 * np.sin(2 * np.pi * submits / 86400)
            waits = np.exp(rng.normal(4.5, 2.0, n)) * busy
            users = rng.zipf(1.4, n) % 400
            kinds = rng.integers(0, 8, n)
            runs = np.minimum(usual[users] * (1 + kinds) / 4 * np.exp(rng.normal(0, 0.6, n)), 170_000)
            limits = np.maximum(np.ceil(runs * (1 + 3 * rng.random(n)) / 900) * 15, 15)
            nodes = 2 ** rng.integers(0, 6, n)
            lines = []
            for i in range(n):
                submit = int(submits[i])
                start = submit + int(waits[i])
                end = start + int(runs[i])
                user, kind, width = users[i], kinds[i], nodes[i]
                lines.append(
                    MARK.join(
                        (
                            str(number),
                            str(number),
                            "big",
                            f"user{user}",
                            f"acc{user % 40}",
                            "batch",
                            "normal",
                            "COMPLETED",
                            str(submit),
                            str(submit),
                            str(start),
                            str(end),
                            str(end - start),
                            str(int(limits[i])),
                            str(width),
                            str(width * 64),
                            str(width * 64),
                            "4000Mc",
                            f"run_{user}_{kind}",
                            "\n",
                        )
                    )
                )
                number += 1
            file.write("".join(lines))


def measured(*words: str) -> dict[str, Any]:
    """Wall-clock seconds, CPU seconds and peak memory (MB) of a command of penstock, and what it printed."""
    program = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"penstock {' '.join(words)} ended with {process.returncode}")
    return {
        "seconds": time.monotonic() - began,
        "cpu": used.ru_utime + used.ru_stime,
        "mb": used.ru_maxrss / 1024,
        "out": json.loads(out),
    }


def main() -> int:
    """Print the tables; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--keep", action="store_true", help="keep the dump and the history")
    options = parser.parse_args()
    dump, history = options.folder / "bench.jobs.gz", options.folder / "bench.history"
    if not dump.exists():
        write_dump(dump, options.jobs)
    print(f"{options.jobs:,} jobs, dump {dump.stat().st_size / 1e6:.0f} MB compressed\n")
    print("| stage | seconds | CPU s | peak MB | jobs/s |\n|---|---|---|---|---|")
    total, most = 0.0, 0.0
    tested: dict[str, Any] = {}
    for stage, words in (
        ("import", ("history", "import", str(dump), "--to", str(history), "--json")),
        ("backtest", ("backtest", str(history), "--json")),
    ):
        found = measured(*words)
        total, most = total + found["seconds"], max(most, found["mb"])
        rate = options.jobs / found["seconds"]
        print(
            f"| {stage} | {found['seconds']:.0f} | {found['cpu']:.0f} | {found['mb']:.0f} | {rate:,.0f} |", flush=True
        )
        tested = found["out"]
    print(f"\nhistory {history.stat().st_size / 1e6:.0f} MB\n")
    print("| what | predictor | sampled | jobs | jobs/s |\n|---|---|---|---|---|")
    for row in tested["rows"]:
        rest = f"{row['sampled']} | {row['jobs']:,} | {row['jobs_per_second']:,.0f}"
        print(f"| {row['what']} | {row['predictor']} | {rest} |")
    if not options.keep:
        dump.unlink()
        history.unlink()
    goal = GOAL_SECONDS * options.jobs / 10_000_000
    reached = total <= goal and most <= GOAL_MEMORY
    verdict = "reached" if reached else "MISSED"
    print(f"\ntogether {total:.0f} s (goal {goal:.0f}), {most:.0f} MB (goal {GOAL_MEMORY:.0f}): {verdict}")
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
