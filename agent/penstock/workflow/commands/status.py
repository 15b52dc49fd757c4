"""penstock status, top: what there is."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import click

from penstock.config import Config, load
from penstock.console import complete
from penstock.console.output import ago, build_table, clock, emit_json, plain, say, table
from penstock.console.parts import TextLine, TextTable
from penstock.console.times import Duration
from penstock.errors import PenstockError
from penstock.workflow.commands.runs import (
    KEPT_BACK,
    NEVER,
    NEVER_STARTS,
    StageLine,
    answered,
    elastic_jobs,
    find,
    shown,
    with_waits,
)

__all__ = ["status", "top"]

_LATEST = 5
_TOP = ("now", "problems", "workflows", "reserved", "malleable", "moldable")
_MOLDABLE = ("job", "nodes:time", "asked for", "phase")
_MALLEABLE = ("job", "phase", "ranks", "target", "companions", "note")
_OTHERS = ("job", "state", "nodes", "submit", "start", "why")
_MOST_OTHERS: Final = 10
_NEVER_WHY: Final = f"a job that it depends on has not ended as it must ({NEVER}): scancel it"
_NOT_HEARD: Final = "has not asked the agent so far"


@click.command()
@click.argument("workflow", required=False, shell_complete=complete.workflows)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(workflow: str | None, as_json: bool) -> None:
    """Show workflows with their stages, and malleable jobs. WORKFLOW is a number, wN, or a name."""
    config = load()
    answer = _with_names(config, answered(config, last_known=True))
    runs = shown(answer)
    if workflow is not None:
        runs = [find(runs, workflow)]
        answer["workflows"] = [w for w in answer["workflows"] if w["id"] == runs[0].number]
        answer["reserved"] = [w for w in answer["reserved"] if runs[0].reserved and w["name"] == runs[0].name]
    if as_json:
        emit_json(with_waits(answer))
        return
    for problem in answer["problems"]:
        click.echo(plain(f"on hold: {problem}"), err=True)
    # One whose jobs have become part of another has none left.
    for run in [run for run in runs if run.stages or workflow is not None][-_LATEST:]:
        say(*run.parts())
    if answer["malleable"]:
        table("malleable jobs", _MALLEABLE, _malleable_rows(answer))
    if answer.get("moldable"):
        table("moldable jobs", _MOLDABLE, _moldable_rows(answer))
    others = answer["jobs"] if workflow is None else ()
    if others:
        table("other jobs in the queue", _OTHERS, [_other(job) for job in others[:_MOST_OTHERS]], ("submit",))
        if len(others) > _MOST_OTHERS:
            click.echo(f"... and {len(others) - _MOST_OTHERS} more; `squeue --me` shows all")
    if not runs and not answer["malleable"] and not answer.get("moldable") and not others:
        from getpass import getuser

        click.echo(f"Nothing of {getuser()} is running or has run.")


def _with_names(config: Config, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with what the caller's elastic jobs are called in their files, which no look at Slurm says."""
    if not answer["malleable"] and not answer["jobs"]:
        return answer
    names = elastic_jobs(config)

    def named(job: dict[str, Any]) -> dict[str, Any]:
        return {**job, "called": names(job["job"], job.get("submitted"))}

    lists = {kind: [named(job) for job in answer[kind]] for kind in ("malleable", "jobs")}
    return {**answer, **lists}


def _other(job: dict[str, Any]) -> tuple[object, ...]:
    what = f"{job['name']} {job['called']}, elastic" if job["called"] else job["name"]
    if job["tasks"] > 1:
        what = f"{what} ({job['tasks']} tasks)"
    why = job["reason"] or _NOT_HEARD
    if why == NEVER:
        return (what, NEVER_STARTS, job["nodes"], clock(job["submitted"]), None, _NEVER_WHY)
    return (what, job["state"], job["nodes"], clock(job["submitted"]), clock(job["start"]), why)


def _malleable_rows(answer: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (
            f"{m['job']} {m['called']}" if m.get("called") else m["job"],
            m["phase"],
            m["offer"]["size"],
            m["target"] or None,
            _companions(m),
            m["note"],
        )
        for m in answer["malleable"]
    ]


def _moldable_rows(answer: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(m["job"], m["shapes"], m["asked"], m["phase"]) for m in answer["moldable"]]


def _companions(job: dict[str, Any]) -> str:
    return " ".join(str(c["job"]) for c in job.get("companions", ()))


@click.command()
@click.option(
    "--interval",
    type=Duration(0.2),
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Time between looks (bare: seconds).",
)
@click.option("--json", "as_json", is_flag=True, help="Print what there is now as JSON, once.")
def top(interval: float, as_json: bool) -> None:
    """Watch workflows and malleable jobs.

    They are shown once where the output is no terminal.

    It asks the agent, never Slurm, so it may run for as long as you like. Ctrl-C ends it.
    """
    config = load()
    answer = answered(config, last_known=True)
    if as_json:
        open_ = {run.number for run in shown(answer) if not run.final}
        answer["workflows"] = [w for w in answer["workflows"] if w["id"] in open_]
        answer = with_waits(answer)
        emit_json({key: answer.get(key, []) for key in _TOP})
        return
    answer = _with_names(config, answer)
    if not sys.stdout.isatty():
        say(*_screen(answer))
        return
    from penstock.console.styled import Live, group  # slow to load

    try:
        with Live(group(_screen(answer)), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(group(_look(config)), refresh=True)
    except KeyboardInterrupt:
        return


def _runs_for(stage: StageLine, now: float) -> str | None:
    return ago(now - stage.start) if stage.phase == "running" and stage.start is not None else None


def _look(config: Config) -> list[str | TextLine | TextTable]:
    try:
        return _screen(_with_names(config, answered(config, last_known=True)))
    except PenstockError as e:  # an agent that is started again comes back
        return [TextLine(plain(str(e)))]


def _screen(answer: dict[str, Any]) -> list[str | TextLine | TextTable]:
    """Open workflows with what is not over of them, then the malleable jobs."""
    open_ = [run for run in shown(answer) if not run.final]
    stages = [s for run in open_ for s in run.stages]
    running, queued = sum(s.phase == "running" for s in stages), (KEPT_BACK, "submitted", "queued")
    parts: list[str | TextLine | TextTable] = [
        f"penstock  {clock(answer['now'])}  workflows {len(open_)}  running {running}  "
        f"waiting {sum(s.job is not None and s.phase in queued for s in stages)}"
    ]
    parts += [TextLine(plain(f"on hold: {problem}")) for problem in answer["problems"]]
    for run in open_:
        here = [s for s in run.stages if run.reserved or s.start is not None or s.phase != "running"]
        parts += run.parts(here, {"runs for": [_runs_for(stage, answer["now"]) for stage in here]})
    if answer["malleable"]:
        parts.append(build_table("malleable jobs", _MALLEABLE, _malleable_rows(answer)))
    if answer.get("moldable"):
        parts.append(build_table("moldable jobs", _MOLDABLE, _moldable_rows(answer)))
    return parts
