"""penstock sbatch: sbatch, and `#PENSTOCK` lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.audit.opening import tell_of_command
from penstock.audit.record import RecordOutcome
from penstock.cli.arrays import again, completed_tasks
from penstock.cli.door import ask_or_leave, plan_stages
from penstock.cli.keeping import KEEPS_BACK, check_agent, put_off
from penstock.config import Config, load
from penstock.errors import AgentUnavailable, PenstockError, UserError
from penstock.ipc.client import ask_agent
from penstock.off.handing import let_go
from penstock.sbatch.directives import Request, read_directives, request, sbatch_lines
from penstock.sbatch.moldable import moldable
from penstock.sbatch.options import CommandLine, parse
from penstock.sbatch.submission import Submitted, pass_on, script_lines, submit
from penstock.slurm.parse import ParseError
from penstock.workflow.state import Kept, StageRun, WorkflowRun

__all__ = ["sbatch", "submit_again"]

# With these sbatch submits nothing.
_ONLY_SAYS = ("help", "usage", "version", "test-only", "autocomplete")


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

    Every option of sbatch means what it always does. On the command line these are --penstock-workflow=NAME, and so on.
    """
    line = parse(words)
    if any(line.has(name) for name in _ONLY_SAYS):
        raise click.exceptions.Exit(pass_on(line.words(), None, {}))
    stdin = None
    if line.script is not None:
        source, lines = line.script, script_lines(line.script, line.value("chdir"))
    elif line.has("wrap"):
        source, lines = "--wrap", []
    else:
        stdin = sys.stdin.buffer.read()
        source, lines = "standard input", stdin.decode(errors="replace").splitlines()
    script = _options_of(lines)
    asked = request(line.ours, read_directives(lines, source), _name(line, script))
    config = load()
    environment = _environment(config, asked, line)
    if asked.workflow is None:
        size = _start_size(asked, line, script, environment)
        name = _name(line, script) or ""
        text = "sbatch was called with it, and has said itself how it went"
        _record(config, line, RecordOutcome.DONE, "handed-on", text, None, name)
        raise click.exceptions.Exit(pass_on(line.words(*size), stdin, environment))
    placed = submit_stage(config, asked, line, script, stdin, environment)
    raise click.exceptions.Exit(_tell(placed, line, asked))


def _options_of(lines: list[str]) -> CommandLine:
    try:
        return parse(sbatch_lines(lines))
    except UserError:
        return CommandLine()  # sbatch will refuse it


def _record(
    config: Config, line: CommandLine, outcome: RecordOutcome, code: str, text: str, job: int | None, subject: str
) -> None:
    """Into the audit trail of the user's own commands; what is submitted does not depend on it."""
    why = tell_of_command(config, "sbatch", outcome, code, text, job, subject)
    if why and not line.has("quiet"):
        click.echo(f"penstock: not recorded for `penstock audit`: {why}", err=True)


def _name(line: CommandLine, script: CommandLine) -> str | None:
    named = line.value("job-name") or os.environ.get("SBATCH_JOB_NAME") or script.value("job-name")
    return named or (Path(line.script).stem if line.script else None)


def _environment(config: Config, asked: Request, line: CommandLine) -> dict[str, str]:
    """What the job finds in its environment besides the user's."""
    found: dict[str, str] = {}
    if asked.workflow is not None and asked.stage is not None:
        found |= {"PENSTOCK_WORKFLOW": asked.workflow, "PENSTOCK_STAGE": asked.stage}
    if asked.malleable is not None:
        try:
            found |= {**ask_agent(config, "env"), "DMR_SIZES": asked.malleable}
        except AgentUnavailable as e:
            click.echo(f"penstock: the job will keep its size: {e}", err=True)
        exported = line.value("export") or os.environ.get("SBATCH_EXPORT") or "ALL"
        if "ALL" not in exported.split(","):
            click.echo(f"penstock: the job will keep its size: --export={exported} keeps DMR_AGENT from it", err=True)
    return found


def _start_size(
    asked: Request, line: CommandLine, script: CommandLine, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Without an agent a job that starts small would stay so."""
    return moldable(asked, line, script, os.environ) if "DMR_AGENT" in environment else ()


class Behind:
    """How a job is submitted behind those that it comes after: the options to add, and what to register.

    With times of its own, which `KEEPS_BACK` would replace or which sbatch does not take beside it (a deadline), it is
    held until it is put off (`keeping.put_off`). One that its owner holds is let go by its owner alone.
    """

    def __init__(
        self, before: list[Mapping[str, Any]], own_hold: bool, own_dependency: str | None, own_times: bool
    ) -> None:
        waits = [p for p in before if p["phase"] != "done"]
        alive = [p for p in waits if p["phase"] not in ("failed", "cancelled")]
        self.kept = Kept.NOT
        self.options: list[str] = []
        if not waits:
            return
        if own_dependency and "?" in own_dependency:
            raise UserError(f"--dependency={own_dependency}: a stage cannot wait for any of several jobs (?)")
        if not own_hold:
            self.kept = Kept.HOLD if own_times else Kept.BEGIN
            self.options.append("--hold" if own_times else KEEPS_BACK)
        if alive:
            after = "afterok:" + ":".join(str(p["job"]) for p in alive)
            self.options.append(f"--dependency={own_dependency},{after}" if own_dependency else f"--dependency={after}")


def behind(line: CommandLine, script: CommandLine, before: list[Mapping[str, Any]]) -> Behind:
    """See `Behind`; the user's own options are on the command line and in the script."""
    own = line.value("dependency") or script.value("dependency")
    times = any(found.has(name) for found in (line, script) for name in ("begin", "deadline"))
    found = Behind(before, line.has("hold") or script.has("hold"), own, times)
    if found.options and not (line.has("kill-on-invalid-dep") or script.has("kill-on-invalid-dep")):
        # When a stage fails, those after it must still be there for `penstock retry`.
        found.options.append("--kill-on-invalid-dep=no")
    return found


@dataclass(frozen=True, slots=True)
class SubmittedStage:
    """A stage's job as sbatch took it; `failed` says why it could not be registered, `kept` how it is kept back."""

    done: Submitted
    kept: Kept = Kept.NOT
    failed: PenstockError | None = None


def submit_stage(
    config: Config,
    asked: Request,
    line: CommandLine,
    script: CommandLine,
    stdin: bytes | None,
    environment: Mapping[str, str],
    *,
    run: int | None = None,
    replaces: int | None = None,
    workdir: str | None = None,
) -> SubmittedStage:
    """Submit the job of a stage and register it. `run`: the workflow it is known to belong to; `replaces`: its old job.

    Raises PenstockError, and then nothing was submitted.
    """
    if line.several or script.several:
        raise UserError("a job of several components (:) cannot be a stage of a workflow")
    if line.has("clusters") or line.has("cluster") or script.has("clusters") or os.environ.get("SBATCH_CLUSTERS"):
        raise UserError("a stage of a workflow cannot be sent to another cluster (--clusters)")
    stage: dict[str, Any] = {"name": asked.stage, "job": 0, "after": list(asked.after), "expect": asked.expect}
    registration: dict[str, Any] = {
        "workflow": asked.workflow,
        "strategy": asked.strategy,
        "stages": [stage],
        "run": run,
    }
    if replaces is not None:
        registration["replaces"] = {stage["name"]: replaces}
    known = plan_stages(config, registration)
    queued = behind(line, script, known["before"][asked.stage])
    if queued.kept:
        check_agent(known)
    size = _start_size(asked, line, script, environment)
    words = line.without("quiet").words(*size, *queued.options, "--parsable")
    done = submit(words, stdin, environment, workdir)
    subject = f"{asked.workflow}/{asked.stage}"
    if done.job is None:
        _record(config, line, RecordOutcome.REFUSED, "sbatch", done.text.decode(errors="replace"), None, subject)
        return SubmittedStage(done)
    _record(config, line, RecordOutcome.DONE, "", "", done.job, subject)
    order = {
        "words": list(line.words(*size)),
        "workdir": workdir or str(Path.cwd()),
        "script": None if stdin is None else stdin.decode(errors="replace"),
    }
    base = line.value("dependency") or script.value("dependency") or ""
    kept = queued.kept
    if kept is Kept.HOLD:
        try:
            stage["begin"] = put_off(config, done.job)
            kept = Kept.BEGIN
        except PenstockError as e:  # its hold keeps it as well, and Slurm the time that its owner gave
            click.echo(f"penstock: job {done.job} is held until it is due: {e}", err=True)
    stage |= {"job": done.job, "kept": kept.value, "base": base, "order": order}
    try:
        ask_or_leave(config, "guide", registration)
    except PenstockError as e:
        return SubmittedStage(done, kept, e)
    return SubmittedStage(done, kept)


def submit_again(config: Config, run: WorkflowRun, stage: StageRun) -> tuple[int, str | None]:
    """Submit a stage once more, as it was, in the place of its old job; its new job. Of an array whose tasks have
    completed in part only the others; the tasks are returned, too. Raises PenstockError."""
    order = stage.mine.order
    line = parse(order.words)
    if order.script is not None:
        lines = order.script.splitlines()
    else:
        lines = script_lines(line.script, line.value("chdir") or order.workdir) if line.script else []
    stdin = None if order.script is None else order.script.encode()
    after = tuple(run.stages[j].name for j in stage.after)
    asked = Request(run.name, stage.name, after, stage.mine.expect, run.strategy)
    names = {"PENSTOCK_WORKFLOW": run.name, "PENSTOCK_STAGE": stage.name}
    script = _options_of(lines)
    tasks = _tasks_left(config, line, script, stage)
    if tasks is not None:
        line = parse(line.words(f"--array={tasks}"))
    workdir = order.workdir or None
    placed = submit_stage(config, asked, line, script, stdin, names, run=run.id, replaces=stage.job, workdir=workdir)
    code = placed.done.end()
    if placed.done.job is None:
        raise PenstockError(f"stage {stage.name} was not submitted (sbatch ended with {code})")
    if placed.failed is not None:
        raise PenstockError(f"job {placed.done.job} is no part of {run.name}: {placed.failed}")
    return placed.done.job, tasks


def _tasks_left(config: Config, line: CommandLine, script: CommandLine, stage: StageRun) -> str | None:
    """The tasks of a stage's array that are to run again; None: it is no array, or has not begun."""
    array = line.value("array") or os.environ.get("SBATCH_ARRAY_INX") or script.value("array")
    if array is None or stage.job is None or stage.start is None:
        return None
    try:
        return again(array, completed_tasks(stage.job, config.slurm.timeout))
    except ParseError:
        return None  # sbatch will refuse it


def _tell(placed: SubmittedStage, line: CommandLine, asked: Request) -> int:
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


def _say(job: int, cluster: str, line: CommandLine) -> None:
    """What sbatch would have said."""
    if line.has("quiet"):
        return
    if line.has("parsable"):
        click.echo(f"{job}{cluster}")
    else:
        click.echo(f"Submitted batch job {job}" + (f" on cluster {cluster[1:]}" if cluster else ""))
    sys.stdout.flush()
