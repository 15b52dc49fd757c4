"""A workload of table 4 on a real Slurm in a fraction of its time, and the simulator with the same parameters.

Every time of the workload and of the agent's settings is divided: arrivals, the programs' work and their scheduling
period, what a resize costs them, the agent's intervals and deadlines. Slurm's own latencies are what they are, and are
measured for the simulator. Rigid jobs sleep, malleable ones are stand-ins that speak the wire protocol (`standin`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from penstock.host import logs as logs_of_the_agent
from penstock_lab.cluster import Cluster
from penstock_lab.mock.model import ClusterConfig, Scheduler
from penstock_lab.papers.dmr.accounts import outcome
from penstock_lab.papers.dmr.application import COST, Cost
from penstock_lab.papers.dmr.drive import Outcome, Site, drive
from penstock_lab.papers.dmr.live import USER, Submission, agent_on, cluster_of, run
from penstock_lab.papers.dmr.models import narrow
from penstock_lab.papers.dmr.paper import NODES
from penstock_lab.papers.dmr.probe import PROBES, Latencies, probe
from penstock_lab.papers.dmr.standin import Log, Order
from penstock_lab.papers.dmr.workload import SEED, Entry, Version, workload
from penstock_lab.papers.report import Goal

__all__ = [
    "BY",
    "JOBS",
    "PHASES",
    "VERSIONS",
    "Compared",
    "Figures",
    "compress",
    "figures",
    "goals",
    "log_writer",
    "mean",
    "measure",
    "rows",
    "settings",
    "spans",
]

BY: Final = 20.0
PHASES: Final = 8
JOBS: Final = 50
VERSIONS: Final = {
    "fixed": Version(),
    "flexible": Version(share=1.0),
    "flexible-moldable": Version(moldable=True, share=1.0, factor=1, up_to="preferred"),
}
_POLICY: Final = "throughput"
_NEAR: Final = 0.10
_PATIENCE: Final = 900.0
_FIGURES: Final = ("utilisation", "waiting", "execution", "completion", "makespan")


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the jobs, in seconds; the utilisation counts what they held until the last one ended."""

    utilisation: float
    waiting: float
    execution: float
    completion: float
    makespan: float
    resizes: float

    def row(self) -> dict[str, object]:
        """For programs."""
        return {
            "utilisation": self.utilisation,
            "waiting_s": self.waiting,
            "execution_s": self.execution,
            "completion_s": self.completion,
            "makespan_s": self.makespan,
            "resizes": self.resizes,
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """One version of the workload, real and simulated in `PHASES` phases of the scheduler's cycle, as nobody knows the
    real one's; `load` is the machine's (1 min) before and after it.

    `boot` and `leave` are the stand-ins' (see `Site`), `unheard` how many of their requests brought no answer.
    """

    version: str
    real: Outcome
    simulated: Sequence[Outcome]
    load: tuple[float, float]
    boot: float
    leave: float
    unheard: int


def compress(entries: Sequence[Entry], by: float, of: int = 1) -> list[Entry]:
    """The workload in a fraction of its time, and on fewer nodes: one for `of` of the paper's."""
    found = []
    for e in entries:
        model = narrow(e.model, of)
        application = replace(model.application, period=model.application.period / by)
        model = replace(model, application=application, alone=model.alone / by)
        fewest = None if e.spec.min_nodes is None else max(e.spec.min_nodes // of, 1)
        nodes = max(e.spec.nodes // of, 1)
        spec = replace(e.spec, nodes=nodes, min_nodes=fewest, time_limit=e.spec.time_limit / by)
        found.append(replace(e, submit=e.submit / by, spec=spec, model=model))
    return found


def cost(by: float) -> Cost:
    """What resizing costs the programs in a fraction of the time."""
    return Cost(COST.check / by, COST.spawn / by, COST.volume / by, COST.bandwidth)


def settings(by: float) -> dict[str, dict[str, Any]]:
    """The agent's settings: the defaults of what is due while something is, in a fraction of their time.

    Only the patience for a grant cannot be divided: Slurm's scheduler looks when it looks.
    """
    look = 10.0 / by
    return {
        "agent": {"interval": look, "idle_interval": look},
        "slurm": {
            "min_interval": look,
            "request_burst": round(30 * by),
            "requests_per_second": 2.0 * by,
            "submissions_per_hour": round(60 * by),
        },
        "dmr": {"policy": _POLICY, "cooldown": 30.0 / by, "accept_timeout": 120.0 / by, "grant_timeout": 5.0},
        "malleable": {"backend": "merge", "resize_timeout": 600.0 / by, "resize_cost": 15.0 / by},
    }


def measure(
    jobs: int = JOBS,
    nodes: int = NODES,
    by: float = BY,
    versions: Sequence[str] = tuple(VERSIONS),
    probes: tuple[int, int] = PROBES,
    seed: int = SEED,
    tell: Callable[[str], None] = lambda text: None,
    keep: Callable[[str, str], None] = lambda name, text: None,
) -> tuple[Latencies, list[Compared]]:
    """Bring a Slurm up, run the workload in these versions, and simulate each. `keep` is given the agents' logs.

    With fewer nodes than the paper's, jobs get fewer in proportion.
    """
    with cluster_of(nodes) as cluster:
        tell(f"{nodes} nodes of Slurm {cluster.slurm_version} are up; measuring its latencies")
        latencies = probe(cluster, *probes)
        found = []
        for version in versions:
            entries = compress(workload(jobs, VERSIONS[version], seed), by, max(NODES // nodes, 1))
            tell(f"{version}: {jobs} jobs, the last one submitted after {entries[-1].submit:.0f} s")
            found.append(_both(cluster, version, entries, by, latencies, keep))
    return latencies, found


def _both(
    cluster: Cluster,
    version: str,
    entries: Sequence[Entry],
    by: float,
    latencies: Latencies,
    keep: Callable[[str, str], None],
) -> Compared:
    folder = cluster.home(USER) / version
    before = os.getloadavg()[0]
    jobs = [_submission(entry, by) for entry in entries]
    resizes: list[dict[str, Any]] = []
    if any(e.malleable for e in entries):
        quiet = {"predictor": "last", "watch_queue": False, "ask_slurm": False, "history": 0}
        with agent_on(cluster, f"agent-{version}", {**settings(by), "asa": quiet}) as agent:
            try:
                told, rows = run(cluster, jobs, agent.environment, _PATIENCE, folder)
                resizes = agent.resizes()
            finally:
                keep(f"{version}.log", agent.log.read_text(errors="replace"))
    else:
        told, rows = run(cluster, jobs, {}, _PATIENCE, folder)
    after = os.getloadavg()[0]
    logs = {t.name: Log.read((folder / f"{t.name}.json").read_text()) for t in told.values() if t.malleable}
    actions = [action for log in logs.values() for action in log.actions]
    real = outcome(told, rows, actions, resizes)
    begun = [logs[t.name].began - t.start for t in told.values() if t.malleable]
    left = [t.end - logs[t.name].ended for t in told.values() if t.malleable]
    boot, leave = (fmean(begun), fmean(left)) if logs else (0.0, 0.0)
    site = _site(cluster, by, latencies, boot, leave)
    logs_of_the_agent.configure("critical", "text")
    simulated = [
        asyncio.run(drive(_later(entries, latencies.cycle * phase / PHASES), _POLICY, cost(by), site=site))
        for phase in range(PHASES)
    ]
    unheard = sum(log.unheard for log in logs.values())
    return Compared(version, real, simulated, (before, after), boot, leave, unheard)


def _later(entries: Sequence[Entry], seconds: float) -> list[Entry]:
    return [replace(e, submit=e.submit + seconds) for e in entries]


def _submission(entry: Entry, by: float) -> Submission:
    spec = entry.spec
    nodes = f"{spec.nodes}" if spec.min_nodes is None else f"{spec.min_nodes}-{spec.nodes}"
    command = f"sleep {entry.model.seconds(spec.nodes):.3f}"
    if entry.malleable:
        order = Order(entry.model, entry.factor, cost(by), f"{spec.name}.json")
        command = shlex.join([sys.executable, "-m", "penstock_lab.papers.dmr.standin", order.text()])
    return Submission(entry.submit, spec.name, nodes, spec.time_limit, command, entry.malleable)


def _site(cluster: Cluster, by: float, latencies: Latencies, boot: float, leave: float) -> Site:
    simulated = ClusterConfig(
        nodes=cluster.spec.nodes,
        cpus=cluster.spec.cpus,
        scheduler=Scheduler.REPLAN,
        cycle=latencies.cycle,
        merge_latency=latencies.merge,
        shrink_latency=latencies.shrink,
        query_latency=latencies.query,
    )
    return Site(simulated, settings(by), latencies.launch, boot, leave, latencies.clear)


def figures(found: Outcome, nodes: int) -> Figures:
    """The figures of one outcome on a cluster of so many nodes."""
    ran = found.ran
    makespan = max(r.end for r in ran) - min(r.submit for r in ran)
    return Figures(
        sum(r.node_seconds for r in ran) / (nodes * makespan),
        fmean(r.waiting for r in ran),
        fmean(r.execution for r in ran),
        fmean(r.completion for r in ran),
        makespan,
        sum(r["outcome"] == "completed" for r in found.resizes),
    )


def mean(found: Sequence[Figures]) -> Figures:
    """Of several simulations."""
    return Figures(*(fmean(getattr(f, name) for f in found) for name in (*_FIGURES, "resizes")))


def rows(compared: Sequence[Compared], nodes: int, by: float) -> list[dict[str, object]]:
    """For programs: a row for each version, real and simulated."""
    found: list[dict[str, object]] = []
    for each in compared:
        simulated = mean([figures(one, nodes) for one in each.simulated])
        for source, f in (("real", figures(each.real, nodes)), ("simulated", simulated)):
            found.append(
                {
                    "workload": "compressed",
                    "jobs": len(each.real.ran),
                    "nodes": nodes,
                    "compressed": by,
                    "version": each.version,
                    "source": source,
                    **f.row(),
                }
            )
    return found


def goals(compared: Sequence[Compared], nodes: int) -> list[Goal]:
    """The simulator is to be within 10 % of the real one in every figure."""
    found = []
    for each in compared:
        real, simulated = figures(each.real, nodes), mean([figures(one, nodes) for one in each.simulated])
        for name in _FIGURES:
            off = abs(getattr(simulated, name) / getattr(real, name) - 1)
            found.append(Goal(each.version, f"simulated {name}: off the real one by", off, _NEAR))
    return found


def spans(resizes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int, float]]:
    """Where the time of completed resizes went: kind, between which marks, how many, mean seconds."""
    marks = {
        "expand": ("decided", "granted", "merged", "accepted", "done"),
        "shrink": ("decided", "accepted", "done", "released"),
    }
    found = []
    for kind, names in marks.items():
        mine = [r["marks"] for r in resizes if r["kind"] == kind and r["outcome"] == "completed"]
        for a, b in pairwise(names):
            seconds = [m[b] - m[a] for m in mine if a in m and b in m]
            if seconds:
                found.append((kind, f"{a} to {b}", len(seconds), fmean(seconds)))
    return found


def log_writer(out: Path | None) -> Callable[[str, str], None]:
    """What `measure` is given to keep logs in that folder; None: nowhere."""

    def keep(name: str, text: str) -> None:
        if out is not None:
            (out / name).write_text(text)

    return keep
