"""What drawn futures of long queues cost: the compiled kernel against its reference, pure Python, in the same run.

    PENSTOCK_TRACES=folder python -m penstock_lab.bench.futures [--waiting 100 1000 5000] [--rounds 5]

A machine of 338 nodes is full with jobs of the log of the CTC SP2, and as many of the jobs behind them wait as is said.
A chain of three stages is submitted now, and followed in futures that are drawn from the 5,000 jobs before, as
`penstock try` does. One round is one future, drawn anew and replayed by both; their spans must be equal. The figures
are CPU seconds, the median of the rounds, and the smallest and the largest ratio.

`try` may take so much work as 5 seconds of pure Python do: how many futures that is, by both, is told as well.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Iterator
from unittest.mock import patch

from penstock.future import replay
from penstock.future.drawn import OwnJob, Span
from penstock.future.draws import Drawing
from penstock.future.past import HOUR, PastJob, QueuePast, latest_of_each
from penstock.future.present import Present, Running, Waiting
from penstock.kernel.library import KERNEL, WHY_NOT
from penstock.workflow.submit.forecast import PATIENT
from penstock_lab.papers.traces import traces
from penstock_lab.sim.swf import SwfReader

NODES = 338
LOG = "CTC-SP2-1996"
FIRST = 20_000  # jobs of the log that have come already
KNOWN = 5_000  # of these so many are remembered
CHAIN = (OwnJob(4, 3600.0, 1800.0), OwnJob(16, 7200.0, 5000.0, (0,)), OwnJob(4, 3600.0, 1800.0, (1,)))
MOST = 200  # futures that are wanted


def jobs_of(log: str) -> Iterator[PastJob]:
    """The jobs of a log that fit the machine, with their users."""
    (path,) = (one for one in traces() if one.name.startswith(log))
    for job in SwfReader(path):
        limit, nodes = max(job.limit, 60), max(job.allocated, job.requested)
        if job.run > 0 and 0 < nodes <= NODES:
            user = job.raw.split()[11].decode()
            yield PastJob(float(job.submit), nodes, float(limit), "batch", float(min(job.run, limit)), user)


def situation(jobs: list[PastJob], waiting: int) -> tuple[Present, QueuePast]:
    """The machine full, so many jobs behind those that run, and the past."""
    rng = random.Random(1)
    now = jobs[FIRST].submit
    past = jobs[FIRST - KNOWN : FIRST]
    hours = tuple(range(int(past[0].submit // HOUR) + 1, int(now // HOUR)))[-21 * 24 :]
    came = set(hours)
    running, free = [], NODES
    for job in reversed(jobs[:FIRST]):
        if not free:
            break
        if job.limit >= HOUR and job.run is not None:
            nodes = min(job.nodes, free)
            free -= nodes
            start = now - rng.random() * job.run
            running.append(Running((nodes,), start, job.limit, start + job.limit, user=job.user))
    queue = tuple(Waiting(j.nodes, 0, j.limit, -math.inf, j.user) for j in jobs[FIRST : FIRST + waiting])
    present = Present(now, ((1 << NODES) - 1,), ((0,),), (free,), tuple(running), queue, (), {"batch": 0})
    used = tuple(job.used for job in past if job.used is not None)
    known = tuple(job for job in past if int(job.submit // HOUR) in came)
    return present, QueuePast(used, (), known, hours, latest_of_each(past))


def one(drawing: Drawing, number: int, compiled: bool) -> tuple[float, int, list[Span]]:
    """A future drawn and replayed: CPU seconds, units of work, the spans of the chain."""
    with patch.object(replay, "KERNEL", KERNEL if compiled else None):
        began, work = time.process_time(), 0
        parts = replay.replay(drawing.present, drawing.draw(number), CHAIN)
        while True:
            try:
                work += next(parts)
            except StopIteration as end:
                return time.process_time() - began, work, end.value


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if KERNEL is None:
        raise SystemExit(f"nothing to compare with: {WHY_NOT}")
    jobs = list(jobs_of(LOG))
    print("| waiting | pure Python s | kernel s | ratio | futures in Python's time | in the kernel's |")
    print("|---|---|---|---|---|---|")
    medians = {}
    for waiting in options.waiting:
        drawing = Drawing(*situation(jobs, waiting), 7)
        one(drawing, 0, True)
        rows = [(one(drawing, number, False), one(drawing, number, True)) for number in range(options.rounds)]
        assert all(reference[2] == kernel[2] for reference, kernel in rows), "they differ"
        ratios = [reference[0] / kernel[0] for reference, kernel in rows]
        python, compiled = (statistics.median(row[i][0] for row in rows) for i in (0, 1))
        medians[waiting] = compiled
        futures = [min(int(PATIENT / statistics.mean(row[i][1] for row in rows)), MOST) for i in (0, 1)]
        print(
            f"| {waiting:,} | {python:.3f} | {compiled:.4f} | {statistics.median(ratios):.0f} "
            f"({min(ratios):.0f} to {max(ratios):.0f}) | {futures[0]} | {futures[1]} |"
        )
    for fewer, more in zip(options.waiting, options.waiting[1:], strict=False):
        print(f"{fewer:,} to {more:,} waiting: {medians[more] / medians[fewer]:.1f} times the time of a future")
    print(f"load {os.getloadavg()[0]:.1f}, medians of {options.rounds} futures; goals: 20, 200 / 100 / 40, 12 times")


if __name__ == "__main__":
    main()
