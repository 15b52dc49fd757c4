"""The chapter of `penstock bench dmr` that is measured on a real Slurm: a workload in a fraction of its time beside the
simulator's, and MPI programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from penstock_lab.papers.dmr import compressed, paper, programs
from penstock_lab.papers.dmr.compressed import Compared, log_writer, spans
from penstock_lab.papers.dmr.drive import Outcome
from penstock_lab.papers.dmr.probe import Latencies
from penstock_lab.papers.dmr.programs import Measured, same_results
from penstock_lab.papers.report import Chapter, Table

__all__ = ["chapter", "real"]


def real(out: Path | None, tell: Callable[[str], None]) -> Chapter:
    """Measure both. UserError without root or Slurm."""
    keep = log_writer(out)
    latencies, compared = compressed.measure(tell=tell, keep=keep)
    measured = programs.measure(tell=tell, keep=keep)
    return chapter(out, latencies, compared, measured)


def chapter(
    out: Path | None, latencies: Latencies, compared: Sequence[Compared], measured: Sequence[Measured]
) -> Chapter:
    """What was measured, judged and drawn."""
    pictures: Sequence[Path] = ()
    if out is not None:
        from penstock_lab.papers.dmr.pictures import draw_real

        pictures = draw_real(out, {each.version: (each.real, each.simulated[0]) for each in compared})
    fixed, flexible = measured
    same = ", ".join(f"{n} of {name}" for name, n in same_results(fixed, flexible).items())
    loads = [(each.version, each.load) for each in compared] + [
        (f"MPI, {each.version}", each.load) for each in measured
    ]
    text = (
        f"Table 4's workload of {compressed.JOBS} jobs on {paper.NODES} real slurmd, all times divided by "
        f"{compressed.BY:g}; rigid jobs sleep, malleable ones are processes that speak the wire protocol with the real "
        "agent. Beside each row the simulator's, with the same workload and settings, and with the latencies that "
        f"were measured in this run: the mean of {compressed.PHASES} simulations, as it is not known in which phase "
        "of the scheduler's cycle the first job came. A job's instants are those of its script; what it held is as "
        f"Slurm accounts for it. Then {programs.JOBS} MPI programs on {programs.NODES} nodes of one machine, rigid and "
        f"malleable. Their results are those of the rigid ones in {same}. Load of the machine before and after: "
        + ", ".join(f"{version} {before:.1f} and {after:.1f}" for version, (before, after) in loads)
        + "."
    )
    data = [*compressed.rows(compared, paper.NODES, compressed.BY), *programs.rows(measured)]
    shown = [_figures(data), _parameters(latencies, compared), _spans([*compared, *measured]), _outcomes(compared)]
    return Chapter("real", "On a real Slurm", text, data, shown, compressed.goals(compared, paper.NODES), pictures)


def _figures(data: Sequence[dict[str, object]]) -> Table:
    columns = ("workload", "version", "source", "utilisation", "waiting s", "execution s", "completion s", "makespan s")
    keys = ("waiting_s", "execution_s", "completion_s", "makespan_s")
    cells = []
    for row in data:
        texts = [f"{row[key]:.1f}" for key in keys]
        who = (str(row["workload"]), str(row["version"]), str(row["source"]))
        cells.append([*who, f"{row['utilisation']:.1%}", *texts, f"{row['resizes']:g}"])
    return Table("Figures", (*columns, "resizes"), cells)


def _parameters(found: Latencies, compared: Sequence[Compared]) -> Table:
    before = "measured before the workloads: "
    cells = [
        ["scheduler's cycle", f"{found.cycle:.3f}", before + "twice what single jobs waited longer than the quickest"],
        ["script after the scheduler's decision", f"{found.launch:.3f}", before + "the quickest of these jobs"],
        ["nodes free after a script's end", f"{found.clear:.3f}", before + "jobs on the same nodes, less these waits"],
        ["a look at the queue", f"{found.query:.3f}", before + "raw commands on a job that sleeps"],
        ["merge", f"{found.merge:.3f}", before + "the same"],
        ["shrink", f"{found.shrink:.3f}", before + "the same"],
    ]
    for each in compared:
        if any(r.malleable for r in each.real.ran):
            cells.append([f"program after its script, {each.version}", f"{each.boot:.3f}", "the stand-ins of this run"])
            cells.append([f"script's end after its program, {each.version}", f"{each.leave:.3f}", "the same"])
    for section, keys in compressed.settings(compressed.BY).items():
        for key, value in keys.items():
            text = value if isinstance(value, str) else f"{value:g}"
            cells.append([f"{section}.{key}", text, "the agent's settings, both"])
    return Table("Parameters of the simulator", ("what", "value, s", "from"), cells)


def _spans(measured: Sequence[Compared | Measured]) -> Table:
    cells = []
    for each in measured:
        sources: list[tuple[str, Outcome]]
        if isinstance(each, Compared):
            sources = [("real", each.real), ("simulated", each.simulated[0])]
        else:
            sources = [("real, MPI", each.outcome)]
        for source, found in sources:
            for kind, between, count, seconds in spans(found.resizes):
                cells.append([each.version, source, kind, between, f"{count}", f"{seconds:.2f}"])
    return Table("Resizes", ("version", "source", "kind", "between", "how many", "mean s"), cells)


def _outcomes(compared: Sequence[Compared]) -> Table:
    cells = []
    for each in compared:
        for source, found in (("real", each.real), ("simulated", each.simulated[0])):
            counts: dict[tuple[str, str], int] = {}
            for r in found.resizes:
                key = (str(r["kind"]), str(r["outcome"]))
                counts[key] = counts.get(key, 0) + 1
            cells += [[each.version, source, kind, how, f"{n}"] for (kind, how), n in sorted(counts.items())]
        if each.unheard:
            cells.append([each.version, "real", "requests", "without an answer", f"{each.unheard}"])
    return Table("What became of resizes", ("version", "source", "kind", "outcome", "how many"), cells)
