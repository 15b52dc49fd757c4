"""How fast the trace simulator is, and how much memory it takes.

    PENSTOCK_TRACES=folder python -m penstock_lab.bench.simulate [--rounds 3] [--json]

The folder holds CTC-SP2-1996-3.1-cln.swf.gz and SDSC-SP2-1998-4.2-cln.swf.gz from the Parallel Workloads Archive
(https://www.cs.huji.ac.il/labs/parallel/workload/logs.html). Each set-up runs in a process of its own. Measured is the
CPU time of the event loop with the log in memory, the median of the rounds; reading the log is told apart. The waits
are checked: a fast wrong answer is an error.

Two kinds of reference stand beside it. `textbook` is the module of that name, the policies as plain loops,
measured in the same process on the same log in turns with ours, and checked, too: the ratio depends on no machine. It
knows the tie order `batch` alone, so the ratio is that of both in this order, while loop and jobs/s are those of the
case. `elsewhere` are other people's figures on their machines, as CPU seconds for the same work.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock_lab.bench import textbook
from penstock_lab.sim.replay import replay
from penstock_lab.sim.score import score
from penstock_lab.sim.swf import load
from penstock_lab.sim.trace import Trace

MAX_RSS_MB = 300


@dataclass(frozen=True)
class Case:
    log: str
    procs: int
    policy: str
    keep: str
    estimates: str
    ties: str
    sha256: str
    goal: int  # jobs/s; 0: none was set
    references: str  # CPU seconds or jobs/s, elsewhere
    batch_sha256: str = ""  # of the waits in batch order, for the comparison with the textbook; "": not measured


SDSC, CTC = "SDSC-SP2-1998-4.2-cln.swf.gz", "CTC-SP2-1996-3.1-cln.swf.gz"
TEXTBOOK: dict[str, type[textbook.Easy] | type[textbook.Conservative]] = {
    "easy": textbook.Easy,
    "conservative": textbook.Conservative,
}
LOOP = "plain CPython loop"
CASES = {
    "EASY, SDSC@128, user estimates": Case(
        SDSC,
        128,
        "easy",
        "strong",
        "user",
        "pyss",
        "c47a8a769381741db6f5e25a65e67d096ca752f26ed53b35a4426ce6dbe2dbfb",
        100000,
        f"{LOOP} 50,000 jobs/s; AccaSim 55 s",
        "10c20c223e55d8f2e70b050b0fec1d1505a393ea2c79b4bb2707425e0e2eabb4",
    ),
    "EASY, CTC@338, user estimates": Case(
        CTC,
        338,
        "easy",
        "strong",
        "user",
        "pyss",
        "5390c60a18c69d688f5ed3d6205699f434833a09ecdacfa83cba730228570362",
        50000,
        f"{LOOP} 25,000 jobs/s",
        "b114d5f7f99c612bf97ee21208656df2d48d54d86f0f79073f6605795484e992",
    ),
    "conservative, CTC-singh@430, actual": Case(
        CTC,
        430,
        "conservative",
        "singh",
        "actual",
        "pyss",
        "022554287c135caf6f92f0747d9f7ccb2db223a1203edfd3de390050c33ac6fb",
        20000,
        f"pyss (PyPy) 10.2 s; GridSim 75 s; {LOOP} 5,000 to 6,000 jobs/s",
        "022554287c135caf6f92f0747d9f7ccb2db223a1203edfd3de390050c33ac6fb",
    ),
    "conservative, SDSC-singh@128, actual": Case(
        SDSC,
        128,
        "conservative",
        "singh",
        "actual",
        "pyss",
        "0052debc377f2c8025e4541da9fe91e3f8ad5552a4980a01eee569959df1d100",
        0,
        "GridSim 47 s; Alea/GridSim 92 s",
    ),
    "conservative, CTC@338, user estimates": Case(
        CTC,
        338,
        "conservative",
        "strong",
        "user",
        "pyss",
        "90818acba4275ffccd6aa907406b12dd2d36d211b0c22e3d6e766053c0cf437f",
        0,
        "-",
    ),
    "replan, CTC@338, user estimates": Case(
        CTC,
        338,
        "replan",
        "strong",
        "user",
        "batch",
        "d76ee620eb747a10b86a3e5a3657cd26f4c119abc0cfdfe424e78f2cbdc7f294",
        0,
        "-",
    ),
}


def measure(case: Case, folder: Path, rounds: int) -> dict[str, Any]:
    began = time.process_time()
    trace = load(folder / case.log, case.procs, case.keep, case.estimates).trace
    reading = time.process_time() - began
    seconds: list[float] = []
    ours: list[float] = []
    theirs: list[float] = []
    jobs = list(zip(trace.submit, trace.run, trace.procs, trace.estimate, strict=True))
    for _ in range(rounds):
        took, starts = timed(lambda: replay(trace, case.procs, case.policy, case.ties))
        seconds.append(took)
        check(case.sha256, trace, starts, case)
        if case.batch_sha256:  # in turns, so that both see the same load of the machine
            took, starts = timed(lambda: replay(trace, case.procs, case.policy, "batch"))
            ours.append(took)
            check(case.batch_sha256, trace, starts, case)
            took, starts = timed(lambda: textbook.replay(jobs, TEXTBOOK[case.policy](case.procs)))
            theirs.append(took)
            check(case.batch_sha256, trace, starts, case)
    loop = statistics.median(seconds)
    return {
        "jobs": len(trace),
        "reading_s": reading,
        "loop_s": loop,
        "loop_worst_s": max(seconds),
        "jobs_per_s": len(trace) / loop,
        "goal_jobs_per_s": case.goal or None,
        "reached": len(trace) / loop >= case.goal,
        "textbook_jobs_per_s": len(trace) / statistics.median(theirs) if theirs else None,
        "times_textbook": statistics.median(theirs) / statistics.median(ours) if theirs else None,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "references": case.references,
    }


def timed(work: Callable[[], Sequence[int]]) -> tuple[float, Sequence[int]]:
    began = time.process_time()
    starts = work()
    return time.process_time() - began, starts


def check(sha256: str, trace: Trace, starts: Sequence[int], case: Case) -> None:
    if score(trace, starts, case.procs).sha256 != sha256:
        raise SystemExit(f"{case}: the waits are wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(os.environ.get("PENSTOCK_TRACES", ""))
    if not all((folder / name).is_file() for name in (SDSC, CTC)):
        sys.exit(f"PENSTOCK_TRACES must name a folder with {SDSC} and {CTC}")
    results = {}
    for name, case in CASES.items():
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            results[name] = alone.apply(measure, (case, folder, options.rounds))
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results, options.rounds)
    if not all(r["reached"] and r["peak_rss_mb"] < MAX_RSS_MB for r in results.values()):
        sys.exit(1)


def show(results: dict[str, dict[str, Any]], rounds: int) -> None:
    table = Table(
        "replay", "read s", "loop s", "jobs/s", "goal", "reached", "textbook", "ratio", "MB", "elsewhere", box=None
    )
    for name, r in results.items():
        goal = f"{r['goal_jobs_per_s']:,}" if r["goal_jobs_per_s"] else "-"
        reached = ("yes" if r["reached"] else "MISSED") if r["goal_jobs_per_s"] else "-"
        row = (f"{r['reading_s']:.2f}", f"{r['loop_s']:.2f}", f"{r['jobs_per_s']:,.0f}", goal, reached)
        beside = (
            (f"{r['textbook_jobs_per_s']:,.0f}", f"{r['times_textbook']:.1f}") if r["times_textbook"] else ("-", "-")
        )
        table.add_row(name, *row, *beside, f"{r['peak_rss_mb']:.0f}", r["references"])
    console = Console(width=180)
    console.print(table)
    python = ".".join(map(str, sys.version_info[:3]))
    console.print(
        "textbook: jobs/s of penstock_lab.bench.textbook in the same run; ratio: ours to it, both in batch order\n"
        f"median CPU seconds of {rounds} rounds on one core, CPython {python}, load {os.getloadavg()[0]:.1f}; "
        f"memory goal {MAX_RSS_MB} MB"
    )


if __name__ == "__main__":
    main()
