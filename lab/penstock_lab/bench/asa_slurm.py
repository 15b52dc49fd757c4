"""The same workflow under `perstage` and under `auto`, on real Slurm, under load, with and without ACCRUE_ALWAYS.

    python -m penstock_lab.bench.asa_slurm [--repetitions 5] [--at-once 10] [--widths 4 4 4] [--json] >table

Every repetition has a throw-away Slurm of eight nodes and an agent of its own, and runs a chain of three stages under
both strategies, one after the other (which comes first alternates). Another user keeps jobs of two nodes pending
throughout; their run times are drawn from the repetition's number, so that both strategies meet the same series, and
the workflow is submitted when the series has run for a while from an empty machine. Nothing is learned beforehand.
Seconds of wall clock; core-hours of the workflow's own jobs. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from penstock.api import Job, JobSpec
from penstock.errors import PenstockError
from penstock.workflow.metrics import gap_before, run_metrics
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import WorkflowRun
from penstock_lab.demo.sites import NODES, Site, slurm_site

STAGES = (75.0, 60.0, 90.0)
STAGE_NODES = (4, 4, 4)
STAGE_LIMIT = 120.0
BACKLOG = 5
RIVAL_NODES = 2
RIVAL_SECONDS = (20, 40)
RIVAL_LIMIT = 60.0
LOAD_FIRST = 45.0
CORES = 2  # of a node of the throw-away cluster
STRATEGIES = ("perstage", "auto")
RULES = {False: "default", True: "ACCRUE_ALWAYS"}


@dataclass(frozen=True, slots=True)
class Row:
    """One run. Seconds; `later_wait` is the perceived wait of the stages after the first, added up."""

    rule: str
    strategy: str
    number: int
    by: str
    phase: str
    later_wait: float
    total_wait: float
    makespan: float | None
    core_hours: float
    overhead: float
    attempts: int
    why: str


class Rivals:
    """Another user's jobs, always `BACKLOG` of them pending; their run times depend on the seed alone."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._draw = random.Random(seed)
        self._mine: set[int] = set()

    async def top_up(self) -> None:
        """Submit what is missing by what the agent saw last; a job it has not seen yet counts as pending."""
        _at, jobs = await self._site.arena.look()
        known = {job.id for job in jobs}
        pending = sum(job.id in self._mine and job.pending for job in jobs) + len(self._mine - known)
        for _ in range(BACKLOG - pending):
            script = f"#!/bin/bash\nsleep {self._draw.randint(*RIVAL_SECONDS)}\n"
            spec = JobSpec("rival", script, RIVAL_NODES, RIVAL_LIMIT, output="/dev/null")
            self._mine.add(await self._site.arena.rival(spec))

    async def stop(self) -> None:
        """Take the load away and wait until the machine is empty."""
        for job in self._alive(await self._site.own.jobs()):
            await self._site.arena.cancel_rival(job.id)
        while self._alive(await self._site.own.jobs()):
            await asyncio.sleep(1.0)

    def _alive(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if job.id in self._mine and not job.state.ended]


def chain(widths: Sequence[int], workdir: str) -> Workflow:
    """The workflow of every run; `widths` are the nodes of its stages."""
    stages: list[Stage] = []
    for i, (seconds, nodes) in enumerate(zip(STAGES, widths, strict=True)):
        after = (stages[-1].name,) if stages else ()
        stages.append(Stage(f"s{i + 1}", nodes, STAGE_LIMIT, seconds, f"sleep {seconds:g}", after))
    return Workflow("bench", tuple(stages), workdir=workdir)


async def measure(site: Site, workflow: Workflow, rule: str, strategy: str, number: int) -> Row:
    """One run under a load that begins with it and ends with it."""
    rivals = Rivals(site, number)
    run: int | None = None
    began = time.monotonic()
    try:
        while True:
            try:
                await rivals.top_up()
                if run is None and time.monotonic() - began >= LOAD_FIRST:
                    run = await site.arena.submit(workflow, strategy)
                if run is not None and (state := (await site.arena.runs())[run]).phase.final:
                    return row(state, rule, number)
            except PenstockError as error:  # the machine is busy: what is missing is done a second later
                say(f"{rule} {strategy} {number}: {error}")
            await asyncio.sleep(1.0)
    finally:
        await rivals.stop()


def row(run: WorkflowRun, rule: str, number: int) -> Row:
    """What a finished run is told as."""
    found = run_metrics(run)
    waits = [gap_before(run, i) or 0.0 for i in range(len(run.stages))]
    attempts = sum(stage.attempt for stage in run.stages)
    core_hours = (CORES * found.node_hours, CORES * found.overhead_node_hours)
    by = run.by or run.strategy
    phase = run.phase.value
    times = (sum(waits[1:]), found.total_wait, found.makespan)
    return Row(rule, run.strategy, number, by, phase, *times, *core_hours, attempts, run.why or "")


async def repetition(accrue_always: bool, number: int, order: Sequence[str], widths: Sequence[int]) -> list[Row]:
    """Both strategies on one cluster."""
    rows: list[Row] = []
    async with slurm_site(None, accrue_always=accrue_always, interval=1.0) as site:
        workflow = chain(widths, str(site.folder))
        for strategy in order:
            rows.append(await measure(site, workflow, RULES[accrue_always], strategy, number))
            say(str(rows[-1]))
    return rows


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f}: {text}", file=sys.stderr, flush=True)


def raw_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| rule | strategy | by | run | wait of stages 2-3, s | total wait, s | makespan, s | core-hours | jobs |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for r in sorted(rows, key=lambda r: (r.rule, r.strategy, r.number)):
        span = "-" if r.makespan is None else f"{r.makespan:.0f}"
        told = f"{r.later_wait:.0f} | {r.total_wait:.0f} | {span} | {r.core_hours:.4f} | {r.attempts} |"
        lines.append(
            f"| {r.rule} | {r.strategy} | {r.by} | {r.number} | {told}{'' if r.makespan is not None else ' ' + r.why}"
        )
    return lines


def median_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| rule | strategy | runs | wait of stages 2-3, s | total wait, s | makespan, s | core-hours | extra |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for rule in RULES.values():
        base: float | None = None
        for strategy in STRATEGIES:
            runs = [r for r in rows if (r.rule, r.strategy) == (rule, strategy) and r.makespan is not None]
            if not runs:
                lines.append(f"| {rule} | {strategy} | 0 | - | - | - | - | - |")
                continue
            later, total = (statistics.median(v) for v in ([r.later_wait for r in runs], [r.total_wait for r in runs]))
            span = statistics.median(r.makespan for r in runs if r.makespan is not None)
            cost = statistics.median(r.core_hours for r in runs)
            extra = "-" if base is None else f"{100 * (cost / base - 1):+.2f} %"
            base = cost if strategy == STRATEGIES[0] else base
            told = f"{later:.0f} | {total:.0f} | {span:.0f} | {cost:.4f} | {extra} |"
            lines.append(f"| {rule} | {strategy} | {len(runs)} | {told}")
    return lines


async def measure_all(options: argparse.Namespace) -> list[Row]:
    """All repetitions, `at_once` side by side; one that breaks off is told and left out."""
    gate = asyncio.Semaphore(options.at_once)

    async def one(rule: bool, number: int) -> list[Row]:
        strategies = [s for s in STRATEGIES if options.strategy in (None, s)]
        async with gate:
            return await repetition(rule, number, strategies if number % 2 else strategies[::-1], options.widths)

    rules = [key for key, name in RULES.items() if options.rule in (None, name)]
    waiting = [one(rule, number) for number in range(1, options.repetitions + 1) for rule in rules]
    rows: list[Row] = []
    for found in await asyncio.gather(*waiting, return_exceptions=True):
        if isinstance(found, BaseException):
            say(f"a repetition failed: {found!r}")
        else:
            rows += found
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=10, help="clusters side by side")
    parser.add_argument("--widths", type=int, nargs=len(STAGES), default=STAGE_NODES, help="nodes of the stages")
    parser.add_argument("--rule", choices=RULES.values(), help="this rule alone")
    parser.add_argument("--strategy", choices=STRATEGIES, help="this strategy alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # the clusters are taken down whoever ends this, also in background
        signal.signal(number, signal.default_int_handler)
    rows = asyncio.run(measure_all(options))
    if options.json:
        print(json.dumps([asdict(r) for r in rows], indent=2))
        return
    print("\n".join([*median_table(rows), "", *raw_table(rows)]))
    print(f"\n{NODES} nodes, {BACKLOG} rivals pending, {options.at_once} clusters at once on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
