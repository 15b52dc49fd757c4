"""penstock simulate: what the jobs of a log or a model would have waited on a machine under a policy."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.console.groups import CommandGroup
from penstock.console.options import check_read_twice, choice, out_option, whole
from penstock.console.output import emit_json
from penstock_lab.cli.simulate_cluster import cluster
from penstock_lab.cli.simulate_model import model
from penstock_lab.cli.simulate_sweep import sweep
from penstock_lab.sim.replay import POLICIES, TIES, replay
from penstock_lab.sim.score import score
from penstock_lab.sim.swf import ESTIMATES, FILTERS, load, machine_procs
from penstock_lab.sim.swfout import Fate, write_outcome

__all__ = ["simulate"]


@click.group(cls=CommandGroup)
def simulate() -> None:
    """Replay workloads on a machine that is only simulated."""


@simulate.command()
@click.argument("file", type=click.Path(path_type=Path))
@whole("procs", "Processors of the machine. [default: what the log's header says]")
@choice("policy", tuple(POLICIES), "easy", "Who may overtake whom.")
@choice("estimates", ESTIMATES, "user", "Requested times, or the run times that they should have been.")
@choice("filter", FILTERS, "strong", "Which records are replayed.")
@choice("ties", TIES, "pyss", "Order of events in the same second.")
@click.option("--skip-bad", is_flag=True, help="Count damaged lines and go on.")
@out_option("Write the jobs with their simulated waits.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def swf(
    file: Path,
    procs: int | None,
    policy: str,
    estimates: str,
    filter: str,
    ties: str,
    skip_bad: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Replay a log in Standard Workload Format (plain or .gz), such as those of the Parallel Workloads Archive.

    \b
    fcfs          in the order of submission
    easy          a job may overtake if it does not delay the first in the queue
    conservative  a job may overtake if it delays nobody's reservation
    replan        the whole queue is planned anew at every event

    \b
    strong  drops records that are incomplete or do not fit the machine; jobs run for their requested time at most
    singh   keeps every record that ran (with --estimates actual only)

    \b
    pyss   each submission is looked at alone, then each end
    batch  all ends, all submissions, then one look at the queue

    The sha256 is that of the lines "id wait", sorted by id as a number; two simulators that agree on it agree on
    every job. Waits are whole seconds; the bounded slowdown's threshold is 10 s.
    """
    check_read_twice(file, out)
    said = procs is None
    procs = machine_procs(file) if procs is None else procs
    log = load(file, procs, filter, estimates, skip_bad)
    starts = replay(log.trace, procs, policy, ties)
    result = score(log.trace, starts, procs)
    if out is not None:
        columns = zip(log.trace.ids, starts, log.trace.submit, log.trace.run, log.trace.procs, strict=True)
        fates = {number: Fate(start - submit, run, width, None) for number, start, submit, run, width in columns}
        setup = (
            f"waits simulated by penstock: {policy}, {procs} processors, {estimates} estimates, {filter} filter, {ties}"
        )
        write_outcome(out, file, fates, procs, filter, [setup])
    if as_json:
        emit_json(
            {
                "file": str(file),
                "procs": procs,
                "policy": policy,
                "estimates": estimates,
                "filter": filter,
                "ties": ties,
                "records": log.records,
                "dropped": log.dropped,
                "bad_lines": log.bad,
                "first_bad": log.first_bad or None,
                "n": result.jobs,
                "total_wait_s": result.total_wait,
                "mean_wait_s": result.mean_wait,
                "mean_bounded_slowdown": result.mean_slowdown,
                "utilisation": result.utilisation,
                "makespan_s": result.makespan,
                "sha256": result.sha256,
            }
        )
        return
    if log.bad:
        click.echo(f"{log.bad} bad lines left out; the first: {log.first_bad}", err=True)
    if said:
        click.echo(f"processors             {procs}, as the log's header says")
    click.echo(f"n                      {result.jobs} of {log.records} records")
    click.echo(f"mean wait              {result.mean_wait:.4f} s")
    click.echo(f"mean bounded slowdown  {result.mean_slowdown:.5f}")
    click.echo(f"utilisation            {100 * result.utilisation:.2f} %")
    click.echo(f"sha256                 {result.sha256}")


simulate.add_command(cluster)
simulate.add_command(model)
simulate.add_command(sweep)
