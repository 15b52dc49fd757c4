"""penstock simulate model: jobs of a workload model, as a log."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.console.options import choice, number, out_option, whole
from penstock.console.output import emit_json
from penstock.errors import UserError
from penstock_lab.sim.estimates import FORMS, Estimates, parse_estimates
from penstock_lab.sim.swfout import write_workload
from penstock_lab.sim.workloads import KINDS, LOADS, MAX_JOBS, MAX_LOAD, MODELS, Workload, generate

__all__ = ["MAX_MODEL_PROCS", "MAX_SEED", "estimates_option", "model", "with_estimates"]

MAX_MODEL_PROCS = 1_000_000
MAX_SEED = 2**63 - 1


def estimates_option(context: click.Context, option: click.Parameter, value: str) -> Estimates:
    """Callback of --estimates where the jobs come from a model: nobody was asked how long they would take."""
    rule = parse_estimates(value)
    if rule.rule == "user":
        raise UserError(f"a model has no users to ask: {option.opts[0]} is actual, times:F or f:F, not 'user'")
    return rule


def with_estimates(workload: Workload, rule: Estimates, seed: int) -> None:
    """Give the jobs of a model these estimates, and say so in its notes."""
    workload.trace.estimate = rule.of(workload.trace, seed)
    workload.notes.append(f"estimates {rule}")


@click.command()
@click.argument("name", metavar="|".join(MODELS))
@whole("jobs", "How many jobs.", most=MAX_JOBS, default=5000)
@whole("procs", "Processors of the machine that they are for.", most=MAX_MODEL_PROCS, default=128)
@number("load", "Offered load, such as 0.8. [default: as the model has it]", 0, MAX_LOAD, LOADS)
@whole("seed", "The same seed gives the same jobs.", least=0, most=MAX_SEED, default=1)
@click.option(
    "--estimates", metavar="RULE", default="actual", show_default=True, callback=estimates_option, help=f"{FORMS}."
)
@choice("kinds", tuple(KINDS), "both", "lublin: which classes of jobs.")
@out_option("Where the log goes (required); compressed if it ends with .gz.", required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def model(
    name: str,
    jobs: int,
    procs: int,
    load: float | None,
    seed: int,
    estimates: Estimates,
    kinds: str,
    out: Path,
    as_json: bool,
) -> None:
    """Write a log of jobs that a workload model makes up.

    \b
    lublin     Lublin and Feitelson 2003: batch and interactive jobs, with a daily cycle
    feitelson  Feitelson 1996: programs that are run again when they have ended

    The offered load is the processor seconds of all jobs over those of the machine from time 0 (a midnight) to the last
    submission (of a program's first run). --load is reached by stretching the gaps between arrivals, all by the same
    factor: sizes and run times stay, and so do the hours of lublin's day and the time between repeated runs. A machine
    that cannot keep up with its load (1 and above, and a little below) has a queue that grows with the number of jobs.

    \b
    actual   jobs run for what they requested
    times:F  they requested F times as much
    f:F      they requested between 1 and F + 1 times as much, all equally likely
    """
    workload = generate(name, jobs, procs, seed, load, kinds)
    with_estimates(workload, estimates, seed)
    write_workload(out, workload, procs)
    trace = workload.trace
    span = trace.submit[-1]
    offered = workload.load(procs)
    if as_json:
        emit_json(
            {
                "model": name,
                "jobs": len(trace),
                "procs": procs,
                "seed": seed,
                "estimates": str(estimates),
                "load": offered,
                "span_s": span,
                "mean_run_s": sum(trace.run) / len(trace),
                "mean_procs": sum(trace.procs) / len(trace),
                "out": str(out),
            }
        )
        return
    click.echo(f"{len(trace)} jobs for {procs} processors over {span / 86400:.1f} days: {out}")
    click.echo(f"load                   {'-' if offered is None else f'{offered:.4f}'}")
    click.echo(f"mean run time          {sum(trace.run) / len(trace):.1f} s")
    click.echo(f"mean processors        {sum(trace.procs) / len(trace):.2f}")
