"""penstock simulate cluster: a log or a model through the whole simulated Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click
from click.core import ParameterSource

from penstock.api import ReservationSpec
from penstock.console.options import check_read_twice, choice, number, out_option, whole
from penstock.console.output import emit_json
from penstock.console.times import Duration
from penstock.errors import UserError
from penstock.values.durations import duration_text, parse_duration
from penstock_lab.cli.simulate_model import MAX_SEED
from penstock_lab.mock.model import ClusterConfig, Failures, Scheduler, Weights
from penstock_lab.sim.cluster import run
from penstock_lab.sim.clusterlog import Measures, check_failures, fates_of, jobs_of, measure
from penstock_lab.sim.estimates import FORMS, parse_estimates
from penstock_lab.sim.swf import FILTERS, SwfReader, header_procs, load
from penstock_lab.sim.swfout import Fate, write_outcome, write_workload
from penstock_lab.sim.trace import Trace
from penstock_lab.sim.workloads import KINDS, LOADS, MAX_JOBS, MAX_LOAD, MODELS, Workload, generate

__all__ = ["cluster"]

_MAX_NODES = 100_000
_OF_MODELS = {
    "jobs": "is for --model; a log is simulated with all its jobs",
    "load": "is for --model; `penstock simulate sweep` takes a log to another load",
    "kinds": "is for --model lublin; --filter chooses among a log's records",
}
_OF_LOGS = {
    "filter": "is for logs; --jobs and --kinds say what a model makes",
    "skip_bad": "is for logs; a model makes no damaged lines",
}


@dataclass(frozen=True, slots=True)
class _Source:
    """The jobs, and where they come from."""

    trace: Trace
    preceding: Mapping[int, int]
    log: Path | None = None
    workload: Workload | None = None


def _reservations(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> list[ReservationSpec]:
    """Reservations whose start counts from the first submission."""
    return [_reservation(option.opts[0], number, value) for number, value in enumerate(values, start=1)]


def _reservation(option: str, number: int, value: str) -> ReservationSpec:
    *times, nodes = value.split("/")
    seconds = [0.0 if time == "0" else parse_duration(time) for time in times]
    match seconds:
        case [float(start), float(duration)] if duration > 0 and nodes.isascii() and nodes.isdigit() and int(nodes):
            return ReservationSpec(f"maintenance-{number}", start, duration, int(nodes), users=("root",))
    raise UserError(f"{option} must be START/DURATION/NODES, such as 30d/8h/16, not {value[:40]!r}")


def _check_free(reserved: list[ReservationSpec], nodes: int) -> None:
    for each in reserved:
        free = sum(r.nodes for r in reserved if r.start <= each.start < r.start + r.duration)
        if free > nodes:
            after = f"{duration_text(each.start)} after the first submission"
            raise UserError(f"--keep-free keeps {free} nodes free {after}, the cluster has {nodes} (--nodes)")


def _check_given(context: click.Context, what: dict[str, str]) -> None:
    """UserError where one of these parameters was given: each would make no difference, and says what does."""
    for name, why in what.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UserError(f"--{name.replace('_', '-')} {why}")


def _nodes_of(file: Path | None, cpus_per_node: int) -> int:
    if file is None or file.is_fifo():
        raise UserError("--nodes is missing: how many nodes has the cluster?")
    procs = header_procs(SwfReader(file, skip_bad=True).read_header())
    if procs is None:
        raise UserError(f"--nodes is missing, and {file} does not say how large its machine is (; MaxProcs:)")
    nodes = -(-procs // cpus_per_node)
    if nodes > _MAX_NODES:
        raise UserError(
            f"{file} is of {procs} processors: give --cpus-per-node, a cluster has {_MAX_NODES} nodes at most"
        )
    return nodes


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--model", "model", metavar="|".join(MODELS), help="Jobs of a workload model instead of a log.")
@whole("jobs", "Model: how many jobs.", most=MAX_JOBS, default=5000)
@number("load", "Model: offered load, such as 0.8. [default: the model's own]", 0, MAX_LOAD, LOADS)
@choice("kinds", tuple(KINDS), "both", "lublin: which classes of jobs.")
@whole("nodes", "Nodes of the cluster. [default: those that hold the log's processors]", most=_MAX_NODES)
@whole("cpus-per-node", "CPUs of each; a job gets as many whole nodes as hold its processors.", most=4096, default=1)
@choice("policy", tuple(s.value for s in Scheduler), "easy", "Who may overtake whom.")
@click.option("--estimates", metavar="RULE", help=f"{FORMS}. [default: user for logs, actual for models]")
@choice("filter", FILTERS, "strong", "Log: which records are simulated.")
@click.option("--dependencies", is_flag=True, help="Jobs that name a preceding one wait for its end.")
@click.option("--accrue-always", is_flag=True, help="They age while they wait for it (PriorityFlags=ACCRUE_ALWAYS).")
@whole("weight-age", "PriorityWeightAge.", least=0, default=1000)
@whole("weight-size", "PriorityWeightJobSize.", least=0, default=0)
@click.option("--failures", metavar="MTBF", type=Duration(1), help="Nodes fail, each after this time in the mean.")
@click.option("--repair", metavar="TIME", type=Duration(1), default="1h", show_default=True, help="And are back after.")
@click.option(
    "--keep-free",
    "reserved",
    metavar="START/DURATION/NODES",
    multiple=True,
    callback=_reservations,
    help="Keep nodes free of jobs, START after the first submission; may be repeated.",
)
@click.option("--no-requeue", is_flag=True, help="Jobs whose node fails are not run again (JobRequeue=0).")
@whole("seed", "Of the model, of the failures, and of estimates f:F.", least=0, most=MAX_SEED, default=1)
@click.option("--skip-bad", is_flag=True, help="Log: count damaged lines and go on.")
@out_option("Write a log of what became of the jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def cluster(
    context: click.Context,
    file: Path | None,
    model: str | None,
    jobs: int,
    load: float | None,
    kinds: str,
    nodes: int | None,
    cpus_per_node: int,
    policy: str,
    estimates: str | None,
    filter: str,
    dependencies: bool,
    accrue_always: bool,
    weight_age: int,
    weight_size: int,
    failures: float | None,
    repair: float,
    reserved: list[ReservationSpec],
    no_requeue: bool,
    seed: int,
    skip_bad: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Simulate a log (plain or .gz) or a model on a whole Slurm, in virtual time.

    Unlike in `simulate swf`, nodes have names, and jobs priorities, dependencies and requeues; a reservation is for
    certain nodes. It is the simulated Slurm that the agent is tested with, and slower. Requested times are time limits.

    Waits are those until the last start of a job, figures in whole seconds, over the jobs that ran; the utilisation is
    that of whole nodes, without what was lost in runs that a failure ended.
    """
    rule = parse_estimates(estimates or ("actual" if model else "user"))
    if model and rule.rule == "user":
        raise UserError("a model has no users to ask: --estimates is actual, times:F or f:F, not 'user'")
    if (file is None) == (model is None):
        raise UserError("give either a log or --model")
    _check_given(context, _OF_LOGS if model else _OF_MODELS)
    if not model and filter == "singh" and rule.rule != "actual":
        raise UserError("--filter singh needs --estimates actual: it keeps jobs without a usable requested time")
    if file is not None:
        check_read_twice(file, out)
    if nodes is None:
        nodes = _nodes_of(file, cpus_per_node)
    _check_free(reserved, nodes)
    procs = nodes * cpus_per_node
    if file is None:
        assert model is not None
        source = _of_model(model, jobs, procs, seed, load, kinds)
    else:
        source = _of_log(file, procs, filter, skip_bad, dependencies)
    trace = source.trace
    trace.estimate = rule.of(trace, seed)
    config = ClusterConfig(
        nodes=nodes,
        cpus=cpus_per_node,
        scheduler=Scheduler(policy),
        accrue_always=accrue_always,
        weight_age=float(weight_age),
        weights=Weights(size=float(weight_size)),
        failures=None if failures is None else Failures(failures, repair, seed=seed),
    )
    if failures is not None and not no_requeue:
        check_failures(trace, cpus_per_node, failures)
    preceding = source.preceding if dependencies else None
    first = float(trace.submit[0]) if len(trace) else 0.0
    reservations = [replace(each, start=first + each.start) for each in reserved]
    outcomes = run(config, jobs_of(trace, cpus_per_node, not no_requeue, preceding), reservations)
    result = measure(trace, outcomes, nodes)
    if out is not None:
        note = (
            f"simulated by penstock: {policy}, {nodes} nodes of {cpus_per_node} CPUs, {rule} estimates"
            f"{'' if failures is None else f', a node fails every {failures:g} s in the mean, seed {seed}'}"
        )
        _write(out, source, fates_of(trace, outcomes), procs, filter, note)
    if as_json:
        said = {
            "source": str(file or model),
            "nodes": nodes,
            "cpus_per_node": cpus_per_node,
            "scheduler": policy,
            "estimates": str(rule),
            "jobs": len(trace),
        }
        emit_json(said | _figures(result))
    else:
        _show(result, requeues=failures is not None)


def _figures(result: Measures) -> dict[str, object]:
    figures = result.figures
    return {
        "states": result.states,
        "requeues": result.requeues,
        "n": figures.jobs if figures else 0,
        "total_wait_s": figures.total_wait if figures else None,
        "mean_wait_s": figures.mean_wait if figures else None,
        "mean_bounded_slowdown": figures.mean_slowdown if figures else None,
        "utilisation": figures.utilisation if figures else None,
        "makespan_s": figures.makespan if figures else None,
        "sha256": figures.sha256 if figures else None,
    }


def _show(result: Measures, *, requeues: bool) -> None:
    click.echo(f"jobs                   {', '.join(f'{n} {state}' for state, n in result.states.items())}")
    if requeues:
        click.echo(f"requeues               {result.requeues}")
    if (figures := result.figures) is not None:
        click.echo(f"mean wait              {figures.mean_wait:.4f} s")
        click.echo(f"mean bounded slowdown  {figures.mean_slowdown:.5f}")
        click.echo(f"utilisation            {100 * figures.utilisation:.2f} %")
        click.echo(f"makespan               {figures.makespan} s")


def _of_model(model: str, jobs: int, procs: int, seed: int, load_of_model: float | None, kinds: str) -> _Source:
    made = generate(model, jobs, procs, seed, load_of_model, kinds)
    preceding = {n: p for n, p in zip(made.trace.ids, made.preceding.tolist(), strict=True) if p}
    return _Source(made.trace, preceding, workload=made)


def _of_log(file: Path, procs: int, keep: str, skip_bad: bool, dependencies: bool) -> _Source:
    log = load(file, procs, keep, "actual" if keep == "singh" else "user", skip_bad, dependencies)
    if log.bad:
        click.echo(f"{log.bad} bad lines left out; the first: {log.first_bad}", err=True)
    return _Source(log.trace, log.preceding, log=file)


def _write(out: Path, source: _Source, fates: list[Fate], procs: int, keep: str, note: str) -> None:
    if source.workload is not None:
        write_workload(out, source.workload, procs, fates, [note])
    elif source.log is not None:
        by_number = dict(zip(source.trace.ids, fates, strict=True))
        write_outcome(out, source.log, by_number, procs, keep, [note])
