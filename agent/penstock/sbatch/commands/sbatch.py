"""penstock sbatch: sbatch, and `#PENSTOCK` lines."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Protocol

import click

from penstock.config import Config, load
from penstock.console.door import why_silent
from penstock.errors import AgentUnavailable, ConfigError
from penstock.fronts.commands.shim import front_settings
from penstock.fronts.programs.known import keep_settings
from penstock.fronts.programs.process import first_environment
from penstock.fronts.programs.sbatch import ONLY_SAYS
from penstock.ipc.client import ask_agent
from penstock.sbatch.commands.chaining import PlainJob
from penstock.sbatch.commands.stages import StageJob
from penstock.sbatch.job import SbatchJob, read_job
from penstock.sbatch.submission import only_say
from penstock.slurm.option_words import read_words

__all__ = ["sbatch"]

_OWN_HELP = """Penstock's own options, which may be words of #PENSTOCK lines in the script, too:
      --penstock-workflow=name   the workflow that this job is a stage of
      --penstock-stage=name      what it is called there; else as the job or the script
      --penstock-after=a,b       the stages that it comes after
      --penstock-expect=time     the run time to expect; else the limit
      --penstock-more=time       more stages may come for so long; no: this was the last
      --penstock-strategy=name   asa, eager, perstage or auto
      --penstock-malleable=min:max:preferred:factor
                                 limits of a program that changes its size while it runs
      --penstock-elastic=min:max:preferred
                                 nodes of a job whose script runs `python -m dmr.elastic`
      --penstock-moldable=nodes:time,nodes:time,...
                                 sizes of a job that keeps the one it starts with
      --penstock-checkpoint=signal:file
                                 how a moldable job saves its state, which may then be
                                 stopped and started again with another size

Without them a job is submitted exactly as by sbatch. Jobs that depend on one another (-d afterok:JOB, or the name of a
job) are then followed as one workflow, called after the first: see `penstock status`, `explain`, `logs`, `retry`."""


class Placing(Protocol):
    """What is done with a job besides having sbatch take it."""

    def submit(self, environment: Mapping[str, str]) -> int:
        """Submit it, with this in its environment besides the user's, and say what sbatch says; the exit code. Raises
        PenstockError."""
        ...


class _Untouched(click.Command):
    """A command that takes all words after its name as they are, `--help` and `--` too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        return []


@click.command(cls=_Untouched)
def sbatch(words: tuple[str, ...]) -> None:
    """Submit a job script as sbatch does, with #PENSTOCK lines.

    \b
    #PENSTOCK workflow=NAME stage=NAME after=STAGE,STAGE expect=40m strategy=asa
    #PENSTOCK malleable=min:max:preferred:factor
    #PENSTOCK elastic=min:max:preferred
    #PENSTOCK moldable=2:8h,4:4h30m,8:2h30m

    Every option of sbatch means what it always does. On the command line these are --penstock-workflow=NAME, and so on.
    Jobs that depend on one another (--dependency) are followed as one workflow without any of these.
    """
    line = read_words(words)
    if line.has(*ONLY_SAYS):
        code = only_say(line, ours=line.has("help"))
        click.echo(f"\n{_OWN_HELP}")
        raise click.exceptions.Exit(code)
    job = read_job(line)
    config = load()
    with contextlib.suppress(ConfigError):  # which is said where it matters
        keep_settings(first_environment(), front_settings(config))
    way: Placing = PlainJob(config, job) if job.asked.workflow is None else StageJob(config, job)
    raise click.exceptions.Exit(way.submit(_environment(config, job)))


def _environment(config: Config, job: SbatchJob) -> dict[str, str]:
    """What the job finds in its environment besides the user's."""
    asked = job.asked
    found: dict[str, str] = {}
    if asked.workflow is not None and asked.stage is not None:
        found |= {"PENSTOCK_WORKFLOW": asked.workflow, "PENSTOCK_STAGE": asked.stage}
    if asked.malleable is not None or asked.elastic is not None:
        if asked.malleable is not None:
            sizes = {"DMR_SIZES": asked.malleable}
        else:
            sizes = {"PENSTOCK_ELASTIC": asked.elastic or ""}
        try:
            found |= {**ask_agent(config, "env"), **sizes}
        except AgentUnavailable as e:
            click.echo(f"penstock: the job will keep its size: {why_silent(config, e)}", err=True)
        if not job.exports_all:
            text = f"--export={job.exported} keeps DMR_AGENT from it"
            click.echo(f"penstock: the job will keep its size: {text}", err=True)
    return found
