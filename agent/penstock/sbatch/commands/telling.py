"""What is said of a submission: to the audit trail of its owner's commands, to the agent, and to its owner."""

from __future__ import annotations

import os

import click

from penstock.audit.opening import tell_of_command
from penstock.audit.record import RecordOutcome
from penstock.config import Config
from penstock.console.door import read_by_tool
from penstock.fronts.programs.agent import tell_touched

__all__ = ["note", "record_handed_on", "record_submission", "tell_changed"]


def record_submission(config: Config, subject: str, job: int | None, text: str, *, quiet: bool) -> None:
    """Into the audit trail of the user's own commands: the `job`, or what sbatch has said instead (`text`). What is
    submitted does not depend on it."""
    if job is None:
        _record(config, RecordOutcome.REFUSED, "sbatch", text, None, subject, quiet=quiet)
    else:
        _record(config, RecordOutcome.DONE, "", "", job, subject, quiet=quiet)


def record_handed_on(config: Config, subject: str, *, quiet: bool) -> bool:
    """The same of a job that sbatch alone has to do with. Whether something was said of that."""
    text = "sbatch was called with it, and has said itself how it went"
    return _record(config, RecordOutcome.DONE, "handed-on", text, None, subject, quiet=quiet)


def _record(
    config: Config, outcome: RecordOutcome, code: str, text: str, job: int | None, subject: str, *, quiet: bool
) -> bool:
    why = tell_of_command(config, "sbatch", outcome, code, text, job, subject)
    return bool(why) and not quiet and note(f"not recorded for `penstock audit`: {why}")


def tell_changed(config: Config, job: int) -> None:
    """Tell the agent that a job is not any more as it has seen it, if an agent there is."""
    settings = {"socket": str(config.socket_path), "slurm_conf": os.environ.get("SLURM_CONF", "")}
    tell_touched(settings, os.environ, [job])


def note(text: str) -> bool:
    """Say something that changes nothing about the job, if a person reads it; true, as it was said."""
    if not read_by_tool():
        click.echo(f"penstock: {text}", err=True)
    return True
