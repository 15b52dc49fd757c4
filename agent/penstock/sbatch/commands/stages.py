"""Submitting the job of a stage as its owner: the first time, and again in the place of one that did not complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.audit.opening import tell_of_command
from penstock.audit.record import RecordOutcome
from penstock.config import Config
from penstock.console.door import ask_or_leave, plan_stages, read_by_tool
from penstock.errors import PenstockError, UserError
from penstock.fronts.programs.agent import tell_touched
from penstock.fronts.programs.script import PipedScript, order_of, script_lines
from penstock.sbatch.commands.arrays import again, completed_tasks
from penstock.sbatch.commands.chaining import Chaining, dependency_of
from penstock.sbatch.commands.keeping import KEEPS_BACK, check_agent, put_off
from penstock.sbatch.directives import Request
from penstock.sbatch.moldable import moldable
from penstock.sbatch.submission import Submitted, as_seen, submit
from penstock.slurm.dependencies import renamed
from penstock.slurm.option_words import SbatchWords, elsewhere, given_name, job_name, read_words, script_words, value_of
from penstock.slurm.parse import ParseError
from penstock.values.lines import split_lines
from penstock.workflow.phases import Kept
from penstock.workflow.state import StageRun, WorkflowRun

__all__ = [
    "Behind",
    "SubmittedStage",
    "behind",
    "note",
    "record_handed_on",
    "record_submission",
    "stage_name",
    "start_size",
    "submit_again",
    "submit_stage",
    "tell_changed",
]


def record_submission(
    config: Config, line: SbatchWords, outcome: RecordOutcome, code: str, text: str, job: int | None, subject: str
) -> None:
    """Into the audit trail of the user's own commands; what is submitted does not depend on it."""
    _record(config, outcome, code, text, job, subject, quiet=line.has("quiet"))


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


def stage_name(line: SbatchWords, script: SbatchWords) -> str | None:
    """What a job is called as a stage, where nobody says so."""
    return given_name(line, script, os.environ) or (Path(line.script).stem if line.script else None)


def start_size(
    asked: Request, line: SbatchWords, script: SbatchWords, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Without an agent a malleable job that starts small would stay so."""
    known = "DMR_AGENT" in environment or asked.elastic is not None
    return moldable(asked, line, script, os.environ) if known else ()


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


def behind(line: SbatchWords, script: SbatchWords, before: list[Mapping[str, Any]]) -> Behind:
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
    line: SbatchWords,
    script: SbatchWords,
    piped: PipedScript | None,
    environment: Mapping[str, str],
    *,
    run: int | None = None,
    replaces: int | None = None,
    workdir: str | None = None,
    stdin: bytes | None = None,
) -> SubmittedStage:
    """Submit the job of a stage and register it. `run`: the workflow it is known to belong to; `replaces`: its old job;
    `stdin`: its script, where it does not come as it came the first time.

    Raises PenstockError, and then nothing was submitted.
    """
    if line.several or script.several:
        raise UserError("a job of several components (:) cannot be a stage of a workflow")
    if elsewhere(line, script, os.environ):
        raise UserError("a stage of a workflow cannot be sent to another cluster (--clusters)")
    stage: dict[str, Any] = {"name": asked.stage, "job": 0, "after": list(asked.after), "expect": asked.expect}
    stage["free"] = not asked.chosen
    registration: dict[str, Any] = {
        "workflow": asked.workflow,
        "strategy": asked.strategy,
        "stages": [stage],
        "run": run,
        "more": asked.more,
    }
    if replaces is not None:
        registration["replaces"] = {stage["name"]: replaces}
    known = plan_stages(config, registration)
    # Another name where this was taken, and names of those that were given by their jobs; an older agent says neither.
    for named in known.get("stages", ()):
        stage |= named
    stage["free"], name = False, str(stage["name"])
    if asked.stage is not None and "PENSTOCK_STAGE" in environment:
        environment = {**environment, "PENSTOCK_STAGE": name}
    queued = behind(line, script, known["before"][name])
    if queued.kept:
        check_agent(known)
    size = start_size(asked, line, script, environment)
    words = line.without("quiet").words(*size, *queued.options, "--parsable")
    done = submit(words, stdin, environment, workdir, () if piped is None else piped.passed_on)
    subject = f"{asked.workflow}/{name}"
    if done.job is None:
        text = done.text.decode(errors="replace")
        record_submission(config, line, RecordOutcome.REFUSED, "sbatch", text, None, subject)
        return SubmittedStage(done)
    tell_changed(config, done.job)
    record_submission(config, line, RecordOutcome.DONE, "", "", done.job, subject)
    order = order_of(line.words(*size), line, script, piped, os.environ, workdir, stdin)
    base = dependency_of(line, script)
    with contextlib.suppress(PenstockError):  # a place of the caller's own is not needed for a workflow with a name
        Chaining.of(config).remember(done.job, job_name(line, script, os.environ), name, base)
    kept = queued.kept
    if kept is Kept.HOLD:
        try:
            stage["begin"] = put_off(config, done.job)
            kept = Kept.BEGIN
        except PenstockError as e:  # its hold keeps it as well, and Slurm the time that its owner gave
            click.echo(f"penstock: job {done.job} is held until it is due: {e}", err=True)
    called, born = as_seen(done.job)
    seen = {"called_in_slurm": called, "born": born}
    stage |= {"job": done.job, "kept": kept.value, "base": base, "order": order, **seen}
    try:
        ask_or_leave(config, "guide", registration)
    except PenstockError as e:
        return SubmittedStage(done, kept, e)
    return SubmittedStage(done, kept)


def submit_again(config: Config, run: WorkflowRun, stage: StageRun, moved: Mapping[int, int]) -> tuple[int, str | None]:
    """Submit a stage once more, as it was, in the place of its old job; its new job. Of an array whose tasks have
    completed in part only the others; the tasks are returned, too. `moved`: the new jobs of others by their old ones.
    Raises PenstockError."""
    order = stage.mine.order
    line = read_words(order.words)
    if order.script is not None:
        lines = split_lines(order.script)
    else:
        lines = script_lines(line.script, line.value("chdir") or order.workdir) if line.script else []
    script = script_words(lines)
    stdin = None if order.script is None else order.script.encode()
    tasks = _tasks_left(config, line, script, stage)
    if tasks is not None:
        line = read_words(line.words(f"--array={tasks}"))
    if stage.mine.chained:
        placed = _link_again(config, run, stage, line, script, stdin, moved)
    else:
        after = tuple(run.stages[j].name for j in stage.after)
        asked = Request(run.name, stage.name, after, stage.mine.expect, run.strategy)
        names = {"PENSTOCK_WORKFLOW": run.name, "PENSTOCK_STAGE": stage.name}
        placed = submit_stage(
            config,
            asked,
            line,
            script,
            None,
            names,
            run=run.id,
            replaces=stage.job,
            workdir=order.workdir or None,
            stdin=stdin,
        )
    code = placed.done.end()
    if placed.done.job is None:
        raise PenstockError(f"stage {stage.name} was not submitted (sbatch ended with {code})")
    if placed.failed is not None:
        raise PenstockError(f"job {placed.done.job} is no part of {run.name}: {placed.failed}")
    return placed.done.job, tasks


def _tasks_left(config: Config, line: SbatchWords, script: SbatchWords, stage: StageRun) -> str | None:
    """The tasks of a stage's array that are to run again; None: it is no array, or has not begun."""
    array = value_of("array", line, script, os.environ)
    if array is None or stage.job is None or stage.start is None:
        return None
    try:
        return again(array, completed_tasks(stage.job, config.slurm.timeout))
    except ParseError:
        return None  # sbatch will refuse it


def _link_again(
    config: Config,
    run: WorkflowRun,
    stage: StageRun,
    line: SbatchWords,
    script: SbatchWords,
    stdin: bytes | None,
    moved: Mapping[int, int],
) -> SubmittedStage:
    """A job of a chain: its own words, with the dependency on the jobs that those before it have now."""
    after = [run.stages[j].name for j in stage.after]
    anew: dict[str, Any] = {"name": stage.name, "job": 0, "after": after, "expect": stage.mine.expect, "chained": True}
    registration = {
        "workflow": run.name,
        "strategy": run.strategy,
        "stages": [anew],
        "run": run.id,
        "replaces": {stage.name: stage.job},
    }
    before = plan_stages(config, registration)["before"][stage.name]
    broken = next((p for p in before if p["phase"] in ("failed", "cancelled")), None)
    if broken is not None:
        raise UserError(f"stage {stage.name} comes after {broken['name']}, which did not complete: retry that first")
    base = renamed(stage.mine.base, lambda word: moved.get(int(word)) if word.isdecimal() else None)
    alive = [str(p["job"]) for p in before if p["phase"] != "done"]
    dependency = ",".join([*([base] if base else []), *([f"afterok:{':'.join(alive)}"] if alive else [])])
    added = () if dependency == dependency_of(line, script) else (f"--dependency={dependency}",)
    order = stage.mine.order
    done = submit(line.without("quiet").words(*added, "--parsable"), stdin, {}, order.workdir or None)
    if done.job is None:
        return SubmittedStage(done)
    tell_changed(config, done.job)
    record_submission(config, line, RecordOutcome.DONE, "", "", done.job, f"{run.name}/{stage.name}")
    kept = {"words": list(order.words), "workdir": order.workdir, "script": order.script}
    anew |= {"job": done.job, "kept": Kept.NOT.value, "base": base, "order": kept}
    Chaining.of(config).remember(done.job, job_name(line, script, os.environ), stage.name, dependency, kept)
    try:
        ask_or_leave(config, "guide", registration)
    except PenstockError as e:
        return SubmittedStage(done, failed=e)
    return SubmittedStage(done)
