"""penstock simulate: what the jobs of a log would have waited on a machine under a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from penstock.cli.output import emit_json
from penstock.errors import UserError
from penstock.sim.replay import POLICIES, TIES, replay
from penstock.sim.score import score
from penstock.sim.swf import ESTIMATES, FILTERS, load, write

__all__ = ["simulate"]

_MAX_PROCS = 1_000_000_000


@dataclass(frozen=True)
class _OneOf:
    """Like click.Choice, but wrong input is one line and not a page of usage."""

    choices: Sequence[str]

    def __call__(self, context: click.Context, option: click.Parameter, value: str) -> str:
        if value not in self.choices:
            raise UserError(f"--{option.name} must be one of {', '.join(self.choices)}, not {value!r}")
        return value


def _processors(context: click.Context, option: click.Parameter, value: str | None) -> int:
    if value is None:
        raise UserError("--procs is missing: how many processors has the machine?")
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:12]) <= _MAX_PROCS):
        raise UserError(f"--procs must be a whole number from 1 to {_MAX_PROCS}, not {value[:40]!r}")
    return int(value)


def _choice(
    name: str, choices: Sequence[str], default: str, text: str
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return click.option(
        f"--{name}", metavar="|".join(choices), default=default, show_default=True, callback=_OneOf(choices), help=text
    )


@click.group()
def simulate() -> None:
    """Replay workloads on a machine that is only simulated."""


@simulate.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--procs", metavar="N", callback=_processors, help="Processors of the machine (required).")
@_choice("policy", tuple(POLICIES), "easy", "Who may overtake whom.")
@_choice("estimates", ESTIMATES, "user", "Requested times, or the run times that they should have been.")
@_choice("filter", FILTERS, "strong", "Which records are replayed.")
@_choice("ties", TIES, "pyss", "Order of events in the same second.")
@click.option("--skip-bad", is_flag=True, help="Count damaged lines and go on.")
@click.option(
    "--out", metavar="LOG", type=click.Path(path_type=Path), help="Write the jobs with their simulated waits."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def swf(
    file: Path,
    procs: int,
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
    if out is not None and not out.absolute().parent.is_dir():
        raise UserError(f"{out.absolute().parent}, where --out should go, is not a folder")
    log = load(file, procs, filter, estimates, skip_bad)
    starts = replay(log.trace, procs, policy, ties)
    result = score(log.trace, starts, procs)
    if out is not None:
        waits = {n: start - submit for n, start, submit in zip(log.trace.ids, starts, log.trace.submit, strict=True)}
        setup = (
            f"waits simulated by penstock: {policy}, {procs} processors, {estimates} estimates, {filter} filter, {ties}"
        )
        write(out, file, waits, procs, filter, [setup])
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
                "sha256": result.sha256,
            }
        )
        return
    if log.bad:
        click.echo(f"{log.bad} bad lines left out; the first: {log.first_bad}", err=True)
    click.echo(f"n                      {result.jobs} of {log.records} records")
    click.echo(f"mean wait              {result.mean_wait:.4f} s")
    click.echo(f"mean bounded slowdown  {result.mean_slowdown:.5f}")
    click.echo(f"utilisation            {100 * result.utilisation:.2f} %")
    click.echo(f"sha256                 {result.sha256}")
