"""What a real Slurm takes for what the simulated one does in a given time: measured on it before anything else runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Final

from penstock.api import Allocation, JobSpec
from penstock.errors import PenstockError
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock_lab.cluster import Cluster
from penstock_lab.papers.dmr.accounts import Told
from penstock_lab.papers.dmr.live import USER, Submission, run

__all__ = ["PROBES", "Latencies", "backend_of", "probe", "waits"]

PROBES: Final = (12, 5)
"""How many jobs one after the other, how many resizes."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """In seconds: `cycle` of the scheduler, `launch` of a script after the scheduler's decision, `clear` from a
    script's end until its nodes are free, a look at the queue (`query`), a merge, and a shrink."""

    cycle: float
    launch: float
    clear: float
    query: float
    merge: float
    shrink: float


def backend_of(cluster: Cluster) -> CliBackend:
    """The cluster as its user sees it, without the agent's limits."""
    often = RequestBudget(BudgetLimits(burst=1000, per_second=100.0, user_submissions_burst=3600))
    conf = cluster.env["SLURM_CONF"]
    return CliBackend(prefix=cluster.prefix(USER), user=cluster.users[USER], slurm_conf=conf, timeout=30, budget=often)


def probe(cluster: Cluster, links: int, rounds: int) -> Latencies:
    """Single jobs on an empty cluster, so many jobs one after the other on half of the nodes, and one that is resized.

    They are submitted, and end, at all phases of the scheduler's cycle.
    """
    half = cluster.spec.nodes // 2
    home = cluster.home(USER) / "probe"
    singles = [Submission(n * 1.37, f"single-{n}", "1", 600.0, "sleep 0.1", False) for n in range(links)]
    chain = links * 1.37
    blocker = Submission(chain, "blocker", f"{cluster.spec.nodes - half}", 600.0, f"sleep {links * 2 + 2}", False)
    seconds = [0.3 + n * 0.37 % 1 for n in range(links)]
    linked = [Submission(chain + 1, f"link-{n}", f"{half}", 600.0, f"sleep {s}", False) for n, s in enumerate(seconds)]
    told, _ = run(cluster, [*singles, blocker, *linked], {}, 120.0 + links * 5, home)
    return asyncio.run(_resized(backend_of(cluster), *waits(told.values()), home, rounds))


def waits(told: Iterable[Told]) -> tuple[float, float, float]:
    """Cycle, launch and clear (see `Latencies`) from what the jobs of `probe` wrote.

    A single job waits for the scheduler, for half a cycle in the mean, and is launched; the quickest has not waited.
    Between two that follow each other the nodes are cleared as well.
    """
    kinds: dict[str, list[Told]] = {"single": [], "link": [], "blocker": []}
    for each in sorted(told, key=lambda t: t.start):
        kinds[each.name.partition("-")[0]].append(each)
    single = [t.start - t.submit for t in kinds["single"]]
    between = [after.start - before.end for before, after in pairwise(kinds["link"])]
    launch = min(single)
    return 2 * (fmean(single) - launch), launch, max(fmean(between) - fmean(single), 0.0)


async def _resized(
    backend: CliBackend, cycle: float, launch: float, clear: float, folder: Path, rounds: int
) -> Latencies:
    try:
        spec = JobSpec("resized", "#!/bin/bash\nsleep 600\n", 2, 900.0, workdir=str(folder), output="/dev/null")
        job = await backend.submit(spec)
        kept: tuple[str, ...] = ()
        deadline = time.monotonic() + 60
        while not kept:
            kept = next((j.nodes for j in await backend.jobs() if j.id == job and j.running), ())
            if time.monotonic() > deadline:
                raise PenstockError("a job on two nodes does not start on an empty cluster")
            await asyncio.sleep(0.2)
        queries: list[float] = []
        merges: list[float] = []
        shrinks: list[float] = []
        for number in range(rounds):
            resizer = await backend.allocate(Allocation(f"probe-{number}", 2, 600.0, expands=job), 30.0)
            times = [time.monotonic()]
            for act in (backend.merge(resizer, job), backend.jobs(), backend.shrink(job, kept)):
                await act
                times.append(time.monotonic())
            for taken, (before, after) in zip((merges, queries, shrinks), pairwise(times), strict=True):
                taken.append(after - before)
        await backend.cancel(job)
        while any(j.id == job and not j.state.ended for j in await backend.jobs()):
            await asyncio.sleep(0.2)
        return Latencies(cycle, launch, clear, median(queries), median(merges), median(shrinks))
    finally:
        await backend.close()
