"""penstock doctor: what works on this site, and what would change the rest."""

from __future__ import annotations

import sys
import textwrap
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from penstock import __version__
from penstock.admin.commands import answers as site
from penstock.console.output import emit_json, table
from penstock.console.times import Duration
from penstock.core.findings import Finding, Level, Trouble
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.admin.doctor.facts import SiteFacts
    from penstock.admin.doctor.features import DoctorReport

__all__ = ["answer", "doctor"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--mpi", "with_mpi", is_flag=True, help="Run small MPI programs, too (up to some minutes).")
@click.option("-v", "--verbose", is_flag=True, help="Show every check, also those where all is well.")
@click.option(
    "--limit",
    type=Duration(0.001, 300),
    default="10s",
    show_default=True,
    metavar="TIME",
    help="What each request may take (bare: seconds).",
)
def doctor(as_json: bool, with_mpi: bool, verbose: bool, limit: float) -> None:
    """Say what works here, what does not, and what would change it.

    Asks Slurm a dozen times and changes nothing. Ends with 0 when all that the configuration asks for works, with 1
    when some of it does not.
    """
    from penstock.admin.doctor.features import examine
    from penstock.admin.doctor.reader import read_facts

    facts = read_facts(limit, with_mpi=with_mpi)
    report = examine(facts)
    if as_json:
        emit_json(answer(facts, report))
    else:
        _print(facts, report, verbose)
    if not report.healthy:
        raise click.exceptions.Exit(PenstockError.exit_code)


def answer(facts: SiteFacts, report: DoctorReport) -> site.Doctor:
    """The report for programs."""
    from penstock.admin.doctor.verdict import verdict  # slow to load

    slurm = None if isinstance(facts.site, Trouble) else facts.site
    return site.Doctor.told(
        facts,
        report,
        penstock=__version__,
        config=facts.config_path or None,
        cluster=slurm.cluster if slurm else None,
        slurm=slurm.release if slurm else None,
        operator=slurm.operator if slurm else None,
        requests=dict(facts.requests),
        seconds=round(facts.seconds, 3),
        verdict=verdict(facts, report),
        features=[site.Feature.told(each, each.spec, outcome=each.outcome.value) for each in report.features],
        checks=[site.Finding.told(f, id=f.check, level=f.level.value) for f in report.checks.values()],
    )


def _print(facts: SiteFacts, report: DoctorReport, verbose: bool) -> None:
    from penstock.admin.doctor.features import FeatureOutcome
    from penstock.admin.doctor.verdict import verdict  # slow to load

    click.echo(verdict(facts, report))
    told = answer(facts, report)
    where = f"cluster {told.cluster}, Slurm {told.slurm}" if told.cluster else "no answer from Slurm"
    click.echo(f"{facts.user} on {facts.host}, {where}; {facts.requests_text}")
    rows = [
        (f.outcome.value, f.spec.title, f.spec.right, "yes" if f.wanted else "", " ".join(f.because))
        for f in report.features
    ]
    click.echo()
    table("", ("here", "what", "right", "asked for", "because of"), rows)
    shown = [f for f in report.checks.values() if verbose or f.check in report.worth_telling]
    for finding in sorted(shown, key=lambda f: f.check not in report.blocking):
        click.echo()
        _print_check(finding)
    click.echo()
    broken = [f for f in report.features if f.wanted and f.outcome in (FeatureOutcome.NO, FeatureOutcome.UNKNOWN)]
    if broken:
        click.echo(f"Asked for, and does not work: {', '.join(feature.spec.title for feature in broken)}")
    else:
        click.echo("All that the configuration asks for works.")


def _print_check(finding: Finding) -> None:
    click.echo(f"{finding.check} ({finding.level.value})")
    parts = [("seen", finding.seen), ("change", finding.change), ("cost", finding.cost)]
    if finding.level is not Level.OK:
        parts.append(("more", finding.docs))
    for name, text in parts:
        if text:
            click.echo(_wrapped(f"  {name:<7} ", text))


def _wrapped(begin: str, text: str) -> str:
    if not sys.stdout.isatty():
        return begin + text  # one line, for grep
    width = max(40, min(120, get_terminal_size().columns))
    return textwrap.fill(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
