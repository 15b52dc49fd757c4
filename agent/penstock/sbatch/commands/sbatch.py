"""penstock sbatch: sbatch, and `#PENSTOCK` lines."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

import click

from dmr.hydra import complaint
from penstock.config import Config, load
from penstock.console.door import why_silent
from penstock.errors import AgentUnavailable, ConfigError, PenstockError, UserError
from penstock.fronts.commands.shim import front_settings
from penstock.fronts.programs.known import keep_settings
from penstock.fronts.programs.process import first_environment
from penstock.fronts.programs.script import PipedScript, order_of, script_lines, take_in
from penstock.ipc.client import ask_agent
from penstock.resize.commands.molding import first_shape, tell_shapes
from penstock.resize.waiting.model import read_checkpoint
from penstock.sbatch.commands.chaining import Chaining, dependency_of, followable
from penstock.sbatch.commands.stages import (
    SubmittedStage,
    note,
    record_handed_on,
    stage_name,
    start_size,
    submit_stage,
    tell_changed,
)
from penstock.sbatch.directives import Request, own_options, read_directives, request
from penstock.sbatch.moldable import shaped
from penstock.sbatch.submission import explain, hand_on, pass_on
from penstock.slurm.option_words import SbatchWords, exports_all, job_name, read_words, script_words, value_of
from penstock.workflow.phases import Kept
from penstock.workflow.run.owned import let_go

__all__ = ["sbatch"]

# With these sbatch submits nothing.
_ONLY_SAYS = ("usage", "version", "test-only", "autocomplete")
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
    ours = own_options(line.ours)
    if line.has("help"):
        raise click.exceptions.Exit(_help(line))
    if any(line.has(name) for name in _ONLY_SAYS):
        pass_on(line.words(), {})
    piped = take_in(line.script, line.value("chdir")) if line.script is not None or not line.has("wrap") else None
    if piped is not None:
        source, lines = line.script or "standard input", piped.lines
    elif line.script is not None:
        source, lines = line.script, script_lines(line.script, line.value("chdir"))
    else:
        source, lines = "--wrap", []
    script = script_words(lines)
    asked = request(ours, read_directives(lines, source), stage_name(line, script))
    if asked.checkpoint is not None:
        text = "\n".join(lines) or line.value("wrap") or ""
        if why := complaint(read_checkpoint(asked.checkpoint).signal, text, os.environ):
            raise UserError(f"{source}: checkpoint: {why}")
    config = load()
    with contextlib.suppress(ConfigError):  # which is said where it matters
        keep_settings(first_environment(), front_settings(config))
    environment = _environment(config, asked, line, script)
    if asked.workflow is None:
        raise click.exceptions.Exit(_plain(config, asked, line, script, piped, environment))
    placed = submit_stage(config, asked, line, script, piped, environment)
    raise click.exceptions.Exit(_tell(placed, line, asked))


def _help(line: SbatchWords) -> int:
    """sbatch's own help, and what it has besides here; the exit code is sbatch's."""
    code = 0
    with contextlib.suppress(PenstockError):  # where there is no sbatch
        code = explain(line.words())
    click.echo(f"\n{_OWN_HELP}")
    return code


def _plain(
    config: Config,
    asked: Request,
    line: SbatchWords,
    script: SbatchWords,
    piped: PipedScript | None,
    environment: Mapping[str, str],
) -> int:
    """Submit a job that names no workflow, exactly as sbatch does; then see whether it is one of a chain."""
    molded = shaped(asked, line, script)
    size = first_shape(config, asked, line, script) if molded else start_size(asked, line, script, environment)
    said = record_handed_on(config, stage_name(line, script) or "", quiet=line.has("quiet"))
    chaining = None
    numbered = dependency = dependency_of(line, script)
    try:
        chaining = Chaining.of(config)
        numbered = chaining.numbered(dependency)
    except PenstockError as e:
        said = said or line.has("quiet") or note(f"jobs that depend on this one are not followed: {e}")
    # A job's name is the one thing of a dependency that Slurm would not understand.
    by_number = () if numbered == dependency else (f"--dependency={numbered}",)
    descriptors = () if piped is None else piped.passed_on
    done = hand_on(line.words(*size, *by_number), environment, descriptors, None if chaining is None else chaining.own)
    if not followable(line, script, os.environ):
        if molded:
            note("the job keeps its size: its number is not known, or it went to another cluster")
        return done.end()
    if done.job is not None:
        tell_changed(config, done.job)
        if molded:
            tell_shapes(config, asked, done.job, line.value("chdir") or script.value("chdir"))
    if chaining is not None and done.job is not None:
        order = order_of(line.words(*size), line, script, piped, os.environ)
        name = job_name(line, script, os.environ)
        try:
            chaining.submitted(done.job, name, stage_name(line, script) or name, numbered, order)
        except PenstockError as e:
            if not said:
                note(f"job {done.job} is not followed as one of a chain: {e}")
    return done.end()


def _environment(config: Config, asked: Request, line: SbatchWords, script: SbatchWords) -> dict[str, str]:
    """What the job finds in its environment besides the user's."""
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
        exported = value_of("export", line, script, os.environ) or "ALL"
        if not exports_all(exported.split(",")):
            click.echo(f"penstock: the job will keep its size: --export={exported} keeps DMR_AGENT from it", err=True)
    return found


def _tell(placed: SubmittedStage, line: SbatchWords, asked: Request) -> int:
    """Say what sbatch would have said; the exit code."""
    job = placed.done.job
    if job is None:
        sys.stdout.write(placed.done.text.decode(errors="replace"))
        return placed.done.end() or 1
    _say(job, placed.done.cluster, line)
    if placed.failed is not None:
        hint = {
            Kept.NOT: "",
            Kept.BEGIN: f"; it is kept back: {let_go(job)} lets it go",
            Kept.HOLD: f"; it is held: scontrol release {job} lets it go",
        }[placed.kept]
        click.echo(f"penstock: job {job} is no part of {asked.workflow}: {placed.failed}{hint}", err=True)
    code = placed.done.end()
    return code or (placed.failed.exit_code if placed.failed else 0)


def _say(job: int, cluster: str, line: SbatchWords) -> None:
    """What sbatch would have said."""
    if line.has("quiet"):
        return
    if line.has("parsable"):
        click.echo(f"{job}{cluster}")
    else:
        click.echo(f"Submitted batch job {job}" + (f" on cluster {cluster[1:]}" if cluster else ""))
    sys.stdout.flush()
