"""Submitting the job of a stage as its owner: the first time, and again in the place of one that did not complete."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from penstock.config import Config
from penstock.console.door import ask_or_leave, plan_stages
from penstock.errors import PenstockError, UserError
from penstock.resize.commands.molding import first_size
from penstock.sbatch.commands.arrays import again, completed_tasks
from penstock.sbatch.commands.chaining import Chaining
from penstock.sbatch.commands.keeping import KEEPS_BACK, check_agent, put_off
from penstock.sbatch.commands.telling import record_submission, tell_changed
from penstock.sbatch.directives import Request
from penstock.sbatch.job import SbatchJob, read_again
from penstock.sbatch.submission import Submitted, as_seen, submit_job
from penstock.slurm.dependencies import renamed
from penstock.slurm.parse import ParseError
from penstock.workflow.phases import Kept
from penstock.workflow.run.owned import let_go
from penstock.workflow.state import StageRun, WorkflowRun

__all__ = ["Behind", "StageJob", "behind", "submit_again"]


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


def behind(job: SbatchJob, before: list[Mapping[str, Any]]) -> Behind:
    """See `Behind`; the user's own options are on the command line and in the script."""
    found = Behind(before, job.has("hold"), job.value("dependency"), job.has("begin", "deadline"))
    if found.options and not job.has("kill-on-invalid-dep"):
        # When a stage fails, those after it must still be there for `penstock retry`.
        found.options.append("--kill-on-invalid-dep=no")
    return found


@dataclass(frozen=True, slots=True)
class SubmittedStage:
    """A stage's job as sbatch took it; `failed` says why it could not be registered, `kept` how it is kept back."""

    done: Submitted
    kept: Kept = Kept.NOT
    failed: PenstockError | None = None


@dataclass(frozen=True, slots=True)
class StageJob:
    """The job of a stage, which is registered. `run`: the workflow that it is known to belong to; `replaces`: its old
    job."""

    config: Config
    job: SbatchJob
    run: int | None = None
    replaces: int | None = None

    def submit(self, environment: Mapping[str, str]) -> int:
        """See `Placing`."""
        placed = self.placed(environment)
        job = placed.done.job
        if job is None:
            sys.stdout.write(placed.done.text.decode(errors="replace"))
            return placed.done.end() or 1
        if not self.job.quiet:
            cluster = placed.done.cluster
            where = f" on cluster {cluster[1:]}" if cluster else ""
            click.echo(f"{job}{cluster}" if self.job.line.has("parsable") else f"Submitted batch job {job}{where}")
        sys.stdout.flush()
        if placed.failed is not None:
            hint = {
                Kept.NOT: "",
                Kept.BEGIN: f"; it is kept back: {let_go(job)} lets it go",
                Kept.HOLD: f"; it is held: scontrol release {job} lets it go",
            }[placed.kept]
            text = f"penstock: job {job} is no part of {self.job.asked.workflow}: {placed.failed}{hint}"
            click.echo(text, err=True)
        code = placed.done.end()
        return code or (placed.failed.exit_code if placed.failed else 0)

    def placed(self, environment: Mapping[str, str]) -> SubmittedStage:
        """Submit and register it. Raises PenstockError, and then nothing was submitted."""
        config, job = self.config, self.job
        if job.several:
            raise UserError("a job of several components (:) cannot be a stage of a workflow")
        if job.elsewhere:
            raise UserError("a stage of a workflow cannot be sent to another cluster (--clusters)")
        stage, registration = _registration(job.asked, self.run, self.replaces)
        known = plan_stages(config, registration)
        # Another name where this was taken, and names of those that were given by their jobs.
        for named in known.get("stages", ()):
            stage |= named
        stage["free"], name = False, str(stage["name"])
        if job.asked.stage is not None and "PENSTOCK_STAGE" in environment:
            environment = {**environment, "PENSTOCK_STAGE": name}
        queued = behind(job, known["before"][name])
        if queued.kept:
            check_agent(known)
        size = first_size(config, job, environment).options
        done = submit_job(job, (*size, *queued.options, "--parsable"), environment)
        text = done.text.decode(errors="replace")
        if done.job is not None:
            tell_changed(config, done.job)
        record_submission(config, f"{job.asked.workflow}/{name}", done.job, text, quiet=job.quiet)
        if done.job is None:
            return SubmittedStage(done)
        with contextlib.suppress(PenstockError):  # a place of the caller's own is not needed for a workflow with a name
            Chaining.of(config).remember(done.job, job.name, name, job.dependency)
        stage |= {"base": job.dependency, "order": job.order(*size)}
        return _registered(config, done, done.job, queued.kept, stage, registration)


def _registration(asked: Request, run: int | None, replaces: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the agent is told of a stage, and of the workflow that it is in."""
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
    return stage, registration


def _registered(
    config: Config, done: Submitted, job: int, kept: Kept, stage: dict[str, Any], registration: Mapping[str, Any]
) -> SubmittedStage:
    """Register a stage whose job is in the queue."""
    if kept is Kept.HOLD:
        try:
            stage["begin"] = put_off(config, job)
            kept = Kept.BEGIN
        except PenstockError as e:  # its hold keeps it as well, and Slurm the time that its owner gave
            click.echo(f"penstock: job {job} is held until it is due: {e}", err=True)
    called, born = as_seen(job)
    stage |= {"job": job, "kept": kept.value, "called_in_slurm": called, "born": born}
    try:
        ask_or_leave(config, "guide", registration)
    except PenstockError as e:
        return SubmittedStage(done, kept, e)
    return SubmittedStage(done, kept)


def submit_again(config: Config, run: WorkflowRun, stage: StageRun, moved: Mapping[int, int]) -> tuple[int, str | None]:
    """Submit a stage once more, as it was, in the place of its old job; its new job. Of an array whose tasks have
    completed in part only the others; the tasks are returned, too. `moved`: the new jobs of others by their old ones.
    Raises PenstockError."""
    after = tuple(run.stages[j].name for j in stage.after)
    asked = Request(run.name, stage.name, after, stage.mine.expect, run.strategy)
    job = read_again(stage.mine.order, asked)
    tasks = _tasks_left(config, job, stage)
    if tasks is not None:
        job = replace(job, line=job.line.adding(f"--array={tasks}"))
    if stage.mine.chained:
        placed = _link_again(config, run, stage, job, moved)
    else:
        names = {"PENSTOCK_WORKFLOW": run.name, "PENSTOCK_STAGE": stage.name}
        placed = StageJob(config, job, run.id, stage.job).placed(names)
    code = placed.done.end()
    if placed.done.job is None:
        raise PenstockError(f"stage {stage.name} was not submitted (sbatch ended with {code})")
    if placed.failed is not None:
        raise PenstockError(f"job {placed.done.job} is no part of {run.name}: {placed.failed}")
    return placed.done.job, tasks


def _tasks_left(config: Config, job: SbatchJob, stage: StageRun) -> str | None:
    """The tasks of a stage's array that are to run again; None: it is no array, or has not begun."""
    array = job.array
    if array is None or stage.job is None or stage.start is None:
        return None
    try:
        return again(array, completed_tasks(stage.job, config.slurm.timeout))
    except ParseError:
        return None  # sbatch will refuse it


def _link_again(
    config: Config, run: WorkflowRun, stage: StageRun, job: SbatchJob, moved: Mapping[int, int]
) -> SubmittedStage:
    """A job of a chain: its own words, with the dependency on the jobs that those before it have now."""
    anew, registration = _registration(job.asked, run.id, stage.job)
    anew["chained"] = True
    before = plan_stages(config, registration)["before"][stage.name]
    broken = next((p for p in before if p["phase"] in ("failed", "cancelled")), None)
    if broken is not None:
        raise UserError(f"stage {stage.name} comes after {broken['name']}, which did not complete: retry that first")
    base = renamed(stage.mine.base, lambda word: moved.get(int(word)) if word.isdecimal() else None)
    alive = [str(p["job"]) for p in before if p["phase"] != "done"]
    dependency = ",".join([*([base] if base else []), *([f"afterok:{':'.join(alive)}"] if alive else [])])
    added = () if dependency == job.dependency else (f"--dependency={dependency}",)
    done = submit_job(job, (*added, "--parsable"), {})
    if done.job is None:
        return SubmittedStage(done)
    tell_changed(config, done.job)
    record_submission(config, f"{run.name}/{stage.name}", done.job, "", quiet=job.quiet)
    order = stage.mine.order
    kept = {"words": list(order.words), "workdir": order.workdir, "script": order.script}
    anew |= {"job": done.job, "kept": Kept.NOT.value, "base": base, "order": kept}
    Chaining.of(config).remember(done.job, job.name, stage.name, dependency, kept)
    try:
        ask_or_leave(config, "guide", registration)
    except PenstockError as e:
        return SubmittedStage(done, failed=e)
    return SubmittedStage(done)
