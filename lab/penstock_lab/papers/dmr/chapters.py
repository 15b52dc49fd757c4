"""The chapters of `penstock bench dmr`: each runs its measurement, judges it by its goals, and draws its pictures.

A part more is a function of the same form in `CHAPTERS`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock_lab.papers.dmr import modes, nearness, others, others_logs, others_paired, paper, resize, table4
from penstock_lab.papers.dmr.application import COST
from penstock_lab.papers.dmr.models import models
from penstock_lab.papers.dmr.real import real
from penstock_lab.papers.report import Chapter, Goal, Table
from penstock_lab.papers.traces import traces

__all__ = ["CHAPTERS", "LOGS", "SIMULATED", "Tell"]

Tell = Callable[[str], None]

_ROUNDS: Final = 5  # of the cost of a resize


def table_4(out: Path | None, tell: Tell) -> Chapter:
    """Workloads of rigid and malleable jobs."""
    outcomes = table4.measure(tell=tell)
    rows = table4.rows(outcomes)
    pictures: Sequence[Path] = ()
    if out is not None:
        from penstock_lab.papers.dmr.pictures import draw

        pictures = draw(out, outcomes)
    bounds = {n: table4.bound(n) for n in paper.JOBS}
    fixed = {row.jobs: row.completion for row in rows if row.version == "fixed"}
    text = (
        f"CG, Jacobi and N-body in random order on {paper.NODES} simulated nodes, submitted every "
        f"{paper.INTERARRIVAL:g} s on average; malleable jobs under the real agent, in virtual time. In brackets: the "
        "paper's own values. Means over jobs. The speed-up models are fitted to the paper's tables alone. With them no "
        "scheduler whatever can cut completion by more than "
        + ", ".join(f"{1 - bounds[n] / fixed[n]:.0%}" for n in paper.JOBS)
        + f" for {', '.join(map(str, paper.JOBS))} jobs, even if it knew all and resized for nothing (a Lagrangian "
        "bound: column at most). Versions: fixed (rigid, at the maximum), paper (malleable, the paper's policy), "
        "flexible (the shipped policy), flexible-moldable (the same, started on any number of nodes up to the "
        "preferred size), preferred and moldable (rigid, at the preferred size, or on what is free), share-20 and "
        "share-50 (so many % as in flexible-moldable, the others as in fixed), linear (linear speed-up)."
    )
    data = [row.row() for row in rows]
    shown = [_workloads(rows, bounds), _models()]
    return Chapter("table4", "Table 4, figures 4 to 8", text, data, shown, table4.goals(outcomes), pictures)


def tables_2_and_3(out: Path | None, tell: Tell) -> Chapter:
    """Synchronous against asynchronous checks."""
    outcomes = modes.run(tell=tell)
    overheads, compared = modes.overheads(outcomes), modes.compared(outcomes)
    text = (
        "The workloads of table 4, malleable, submitted at the maximum, under the shipped policy. In brackets: the "
        "paper's own values (table 3's are of another workload). An asynchronous answer is taken up at the next check, "
        "when the agent says whether it still stands. How long a call keeps the program is not measured here: the "
        f"simulation assumes the paper's {COST.check:g} s for a check, and for a resize {COST.spawn:g} s and the "
        f"moving of {COST.volume / 1e9:g} GB at {COST.bandwidth / 1e9:g} GB/s, which come to about what the paper "
        "says. Figure 3 measures it on a real Slurm. In the agent an expansion takes longer, as Slurm has to grant it "
        "and the program to come and hear of it."
    )
    data = [o.row() for o in overheads] + compared
    shown = [_overheads(overheads), _compared(compared)]
    return Chapter("modes", "Tables 2 and 3", text, data, shown, modes.goals(overheads))


def cost_of_a_resize(_out: Path | None, tell: Tell) -> Chapter:
    """One program on real Slurm, through all sizes."""
    found = asyncio.run(resize.measure(_ROUNDS, tell))
    text = (
        f"Flexible Sleep with {resize.BYTES / 1e9:g} GB on an eight-node Slurm on this machine "
        f"({os.cpu_count()} cores for all nodes, load {os.getloadavg()[0]:.1f} at the end) asks for one size after the "
        f"other, {_ROUNDS} times over; medians in seconds. Raw: the same nodes through Slurm's commands alone, as many "
        "processes spawned and as many bytes moved by MPI alone (one MPI_Alltoallv into fresh memory), in the same "
        "run. decide: from the program's wish to the agent's decision; tell: until the program's next check; commit: "
        "from the data's arrival until the agent has heard of it; return: until Slurm has the nodes back."
    )
    data = resize.rows(found)
    return Chapter("resize", "Figure 3: the cost of a resize", text, data, [_phases(data)], resize.goals(found))


def others_on_slurm(_out: Path | None, tell: Tell) -> Chapter:
    """Promised starts beside a malleable job, on real Slurm."""
    pairs = others.measure(tell=tell)
    most = max(p.malleable.late(j) for p in pairs for j in p.malleable.starts)
    moved = max(m for p in pairs for m in p.moved())
    text = (
        f"{len(pairs)} pairs on {others.NODES} nodes of a real Slurm: a job that starts on one node and is malleable "
        f"from 1 to 4, under the shipped policy, beside {others.JOBS} jobs of another user on two nodes each, most for "
        "one minute and some for two, with limits equal to their run times; and the same submissions with that job "
        f"kept on one node. Slurm plans every {others.BACKFILL:g} s (bf_interval), its default. A promise is the first "
        f"start that squeue shows for a job. {others.AT_ONCE} pairs at a time on this machine "
        f"({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end)."
    )
    data: list[dict[str, object]] = []
    for p in pairs:
        arms = {"malleable": p.malleable, "kept": p.kept}
        late = {f"latest_{name}_s": max(arm.late(j) for j in arm.starts) for name, arm in arms.items()}
        promised = len(p.malleable.first)
        moves, delays = p.moved(), p.delays()
        data.append(
            {
                "pair": p.seed,
                "promises": promised,
                "grown": p.malleable.grown,
                **late,
                "moved_most_s": max(moves),
                "delay_mean_s": sum(delays) / len(delays),
                "delay_most_s": max(delays),
            }
        )
    columns = (
        "pair",
        "promises",
        "nodes grown",
        "latest start, malleable",
        "kept",
        "moved most",
        "delay, mean",
        "most",
    )
    cells = [[f"{v:.1f}" if isinstance(v, float) else f"{v}" for v in row.values()] for row in data]
    shown = [Table("Pairs: seconds after the promised start; difference of the two runs", columns, cells)]
    where = f"{len(pairs)} pairs, {sum(len(p.malleable.first) for p in pairs)} promises"
    goals = [
        Goal(where, "latest start after its promise beside the malleable job, s", most, others.BACKFILL),
        Goal(where, "most that a promise slipped more than beside the kept job, s", moved, others.BACKFILL),
    ]
    return Chapter("others", "Others' promised starts, on a real Slurm", text, data, shown, goals)


def others_in_logs(_out: Path | None, tell: Tell) -> Chapter:
    """Others' delays beside a malleable job, on real logs."""
    rows = others_logs.measure(traces(), tell=tell)
    text = (
        f"Windows of {others_logs.JOBS} jobs of real logs on the simulated Slurm, spread over each log: after half of "
        "them a job of 16 nodes and four hours is submitted, once malleable from 4 to 64 under the shipped policy, and "
        "once kept at its size. A delay is by how much later a job began that had not begun before it; below 0: "
        "earlier. Limits: the users' own, or (actual) the run times and a minute. In brackets: 95 % intervals, by "
        "resampling windows. Users' limits are so long that most jobs end early, and then every change moves what "
        "comes behind it."
    )
    columns = ("log", "limits", "windows", "jobs", "nodes grown", "ends earlier by, s", "moved by > 60 s")
    cells = []
    for row in rows:
        spans = [f"{v:.1f} ({low:.1f} to {high:.1f})" for v, low, high in (row.mean, row.p95)]
        plain = (row.log, row.limits, f"{row.windows}", f"{row.jobs}", f"{row.grown}", f"{row.gain:.0f}")
        cells.append([*plain, f"{row.moved:.1%}", *spans])
    shown = [Table("Others' delays, s", (*columns, "mean delay", "95th percentile"), cells)]
    return Chapter("others-logs", "Others' delays, on real logs", text, [row.row() for row in rows], shown)


def _phases(data: Sequence[Mapping[str, float]]) -> Table:
    columns = list(dict.fromkeys(name for row in data for name in row))
    cells = [
        ["" if row.get(c) is None else f"{row[c]}" if isinstance(row[c], int) else f"{row[c]:.3f}" for c in columns]
        for row in data
    ]
    return Table("Seconds by phase", columns, cells)


def _workloads(rows: Sequence[table4.Row], bounds: Mapping[int, float]) -> Table:
    columns = (
        "jobs",
        "version",
        "utilisation",
        "waiting s",
        "execution s",
        "completion s",
        "cut",
        "at most",
        "resizes",
    )
    fixed = {row.jobs: row.completion for row in rows if row.version == "fixed"}
    cells = []
    for row in rows:
        data = row.row()

        def beside(value: str, key: str, form: str, data: Mapping[str, object] = data) -> str:
            theirs = data[f"paper_{key}"]
            return value if theirs is None else f"{value} ({theirs:{form}})"

        cells.append(
            [
                f"{row.jobs}",
                row.version,
                beside(f"{row.utilisation:.1%}", "utilisation", ".1%"),
                beside(f"{row.waiting:.0f}", "waiting_s", ".0f"),
                beside(f"{row.execution:.0f}", "execution_s", ".0f"),
                beside(f"{row.completion:.0f}", "completion_s", ".0f"),
                f"{-row.cut:+.1%}" + _their_cut(row),
                "" if row.version.endswith("-linear") else f"{bounds[row.jobs] / fixed[row.jobs] - 1:+.1%}",
                f"{row.resizes}",
            ]
        )
    return Table("Table 4", columns, cells)


def _their_cut(row: table4.Row) -> str:
    if row.version != "paper":
        return ""
    fixed, flexible = paper.TABLE_4[row.jobs, "fixed"], paper.TABLE_4[row.jobs, "flexible"]
    return f" ({flexible.completion / fixed.completion - 1:+.0%})"


def _models() -> Table:
    sizes = (1, 2, 4, 8, 16, 32)
    cells = [
        [kind, name, *(f"{m.seconds(n):.0f}" if n <= m.application.maximum else "" for n in sizes)]
        for kind in ("fitted", "linear")
        for name, m in models(kind).items()
    ]
    return Table("Execution times, s, by nodes", ("models", "application", *map(str, sizes)), cells)


def _overheads(found: Sequence[modes.Overhead]) -> Table:
    columns = (
        "action",
        "mode",
        "quantity",
        "a job",
        "assumed s",
        "the paper's s, mean",
        "decision to done s",
        "aborted",
    )
    cells = []
    for o in found:
        theirs = paper.OVERHEADS[o.action, o.mode]
        values = (o.quantity, o.per_job)
        texts = [f"{v:.4g}" + ("" if t is None else f" ({t:g})") for v, t in zip(values, theirs[:2], strict=True)]
        assumed = f"{o.least:.4g}" + ("" if o.most == o.least else f" to {o.most:.4g}")
        waited = "" if o.agent is None else f"{o.agent:.1f}"
        cells.append([o.action, o.mode, *texts, assumed, f"{theirs[4]:g}", waited, f"{o.aborted}"])
    return Table(f"Table 2, {found[0].jobs} jobs", columns, cells)


def _compared(found: Sequence[Mapping[str, object]]) -> Table:
    columns = ("mode", "utilisation %", "sd", "waiting gain %", "execution gain %", "completion gain %")
    keys = ("utilisation", "utilisation_sd", "waiting_gain", "execution_gain", "completion_gain")
    cells = []
    for row in found:
        theirs = paper.MODES[str(row["mode"])]
        texts = [f"{row[k]:.1f}" + ("" if t is None else f" ({t:.1f})") for k, t in zip(keys, theirs, strict=True)]
        cells.append([str(row["mode"]), *texts])
    return Table("Table 3", columns, cells)


def near_the_bound(_out: Path | None, tell: Tell) -> Chapter:
    """The shipped policies beside what nobody can go below."""
    found = nearness.measure(tell=tell)
    text = (
        f"The workloads of table 4 in the mean of {len(nearness.SEEDS)} seeds, all jobs malleable and submitted as "
        "penstock sbatch does (minimum to preferred size): by how much the mean completion time is below that of jobs "
        "fixed at their maximum, and by how much it could be at most, even for a scheduler that knew all and resized "
        "for nothing. In the queue's order: under throughput. Reordered: under shortest, an administrator's choice. In "
        "brackets: 95 % intervals, by resampling seeds."
    )
    cells = [[f"{f.jobs}", f.order, f"{f.cut:.1f}", f"{f.at_most:.1f}", f.missing.told(".2f")] for f in found]
    shown = [Table("Cut of completion time, %", ("jobs", "order", "cut", "at most", "missing, points"), cells)]
    rows = [f.row() for f in found]
    return Chapter("bound", "Near the bound", text, rows, shown, nearness.goals(found))


def others_in_pairs(_out: Path | None, tell: Tell) -> Chapter:
    """What others lose by malleable jobs, in the simulator."""
    found = [others_paired.judged(*which, pairs) for which, pairs in others_paired.measure(tell=tell).items()]
    text = (
        f"{others_paired.JOBS} of the paper's jobs, half of them malleable, and the same submissions with these kept "
        "at the size that they started on; the others are rigid, at their maximum, and all are one user's. Crowded: "
        f"submitted every {paper.INTERARRIVAL:g} s on average, calm: every "
        f"{paper.INTERARRIVAL * others_paired.LOADS['calm']:g} s. In brackets: 95 % intervals, by resampling "
        "pairs. A delay below 0: the others begin earlier."
    )
    columns = (
        *("policy", "load", "pairs", "others' delay s", "began > 60 s later", "most s"),
        "malleable jobs end earlier by s",
    )
    cells = [
        [r.policy, r.load, f"{r.pairs}", r.delay.told(".0f"), r.late.told(), f"{r.most:.0f}", r.gain.told(".0f")]
        for r in found
    ]
    shown = [Table("Others beside malleable jobs", columns, cells)]
    return Chapter("others-pairs", "What others lose, in pairs", text, [r.row() for r in found], shown)


CHAPTERS: Final[Mapping[str, Callable[[Path | None, Tell], Chapter]]] = {
    "table4": table_4,
    "bound": near_the_bound,
    "modes": tables_2_and_3,
    "real": real,
    "resize": cost_of_a_resize,
    "others": others_on_slurm,
    "others-pairs": others_in_pairs,
    "others-logs": others_in_logs,
}
LOGS: Final = "others-logs"
"""The part that needs logs."""
SIMULATED: Final = ("table4", "bound", "modes", "others-pairs")
"""The parts that need no Slurm."""
