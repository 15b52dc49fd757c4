"""penstock status, top, explain: what there is and why."""

from __future__ import annotations

import getpass
import re
import sys
import time
from contextlib import closing
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from penstock.cli import complete
from penstock.cli.door import ask_or_read
from penstock.cli.output import Terminal, ago, build_table, clock, emit_json, in_local_time, plain, table
from penstock.cli.runs import KEPT_BACK, STAGE_COLUMNS, StageLine, answered, find, in_slots, shown, with_waits
from penstock.cli.times import Duration
from penstock.config import Config, load
from penstock.errors import AgentUnavailable, PenstockError, UserError
from penstock.state.leadership import acts_path
from penstock.state.store import Store

__all__ = ["explain", "status", "top"]

_LATEST = 5
_OWN = re.compile(r"(hold|bag):([0-9]{1,18})|(pool):([A-Za-z0-9][A-Za-z0-9_.-]{0,39})")
_RUN = re.compile(r"w?([0-9]{1,18})(/.+)?")
_TOP = ("now", "problems", "workflows", "reserved", "malleable", "moldable")
_MOLDABLE = ("job", "nodes:time", "asked for", "phase")
_MALLEABLE = ("job", "phase", "ranks", "target", "companions", "note")


@click.command()
@click.argument("workflow", required=False, shell_complete=complete.workflows)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(workflow: str | None, as_json: bool) -> None:
    """Show workflows with their stages, and malleable jobs. WORKFLOW is a number, wN, or a name."""
    answer = answered(load(), last_known=True)
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
        run.print()
    if answer["malleable"]:
        table("malleable jobs", _MALLEABLE, _malleable_rows(answer))
    if answer.get("moldable"):
        table("moldable jobs", _MOLDABLE, _moldable_rows(answer))
    if not runs and not answer["malleable"] and not answer.get("moldable"):
        click.echo(f"Nothing of {getpass.getuser()} is running or has run.")


def _malleable_rows(answer: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (m["job"], m["phase"], m["offer"]["size"], m["target"] or None, _companions(m), m["note"])
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
    if not sys.stdout.isatty():
        Terminal(width=140).print(_screen(answer))
        return
    try:
        with Live(_screen(answer), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(_look(config), refresh=True)
    except KeyboardInterrupt:
        return


def _runs_for(stage: StageLine, now: float) -> str | None:
    return ago(now - stage.start) if stage.phase == "running" and stage.start is not None else None


def _look(config: Config) -> Group:
    try:
        return _screen(answered(config, last_known=True))
    except PenstockError as e:  # an agent that is started again comes back
        return Group(Text(plain(str(e))))


def _screen(answer: dict[str, Any]) -> Group:
    """Open workflows with what is not over of them, then the malleable jobs."""
    open_ = [run for run in shown(answer) if not run.final]
    stages = [s for run in open_ for s in run.stages]
    running, queued = sum(s.phase == "running" for s in stages), (KEPT_BACK, "submitted", "queued")
    parts: list[Any] = [
        f"penstock  {clock(answer['now'])}  workflows {len(open_)}  running {running}  "
        f"waiting {sum(s.job is not None and s.phase in queued for s in stages)}"
    ]
    parts += [Text(plain(f"on hold: {problem}")) for problem in answer["problems"]]
    rows = [
        (run.number or "-", run.name, *stage.cells(), _runs_for(stage, answer["now"]))
        for run in open_
        for stage in run.stages
        if run.reserved or stage.start is not None or stage.phase != "running"
    ]
    if rows:
        parts.append(build_table("", ("#", "workflow", *STAGE_COLUMNS, "runs for"), rows))
    if answer["malleable"]:
        parts.append(build_table("malleable jobs", _MALLEABLE, _malleable_rows(answer)))
    if answer.get("moldable"):
        parts.append(build_table("moldable jobs", _MOLDABLE, _moldable_rows(answer)))
    return Group(*parts)


def _decided(config: Config, subject: str) -> list[dict[str, Any]]:
    """By the agent, and by the caller's own commands."""
    path = acts_path(config)
    own = []
    if path.exists():
        with closing(Store.read_only(path)) as store:
            own = store.decisions(subject)
    try:
        agents = ask_or_read(config, "explain", {"subject": subject}, last_known=True)
    except AgentUnavailable:
        if not own and _OWN.fullmatch(subject.replace(" ", ":")) is None:  # else commands alone may have decided
            raise
        agents = []
    return sorted([*agents, *own], key=lambda decision: float(decision["at"]))


def _workflow(config: Config, subject: str) -> tuple[str, str]:
    """What the decisions about a workflow, or a stage of it, are kept under, and what there is to say of the choice.

    Raises UserError for what is no subject, and NotFound for a stage that the workflow does not have.
    """
    which, _, stage = subject.partition("/")
    if (numbered := _RUN.fullmatch(subject)) is not None:  # also of one that is shown no more
        return f"workflow {numbered[1]}{numbered[2] or ''}", ""
    silent: AgentUnavailable | None = None
    workflows: list[dict[str, Any]] = []
    try:
        workflows = answered(config, last_known=True)["workflows"]
    except AgentUnavailable as e:  # workflows in slots need no agent
        silent = e
    runs = shown({"workflows": workflows, "reserved": in_slots(config, final=True)})
    same = [run for run in runs if which in (run.name, run.flow)]
    if not same:
        raise silent or UserError(
            "SUBJECT must be a job number such as 1234, w3 for workflow 3, the name of a workflow such as mosaic, one "
            f"of its stages such as mosaic/merge, hold:2, bag:2, pool:main, or agent, not {subject!r}"
        )
    run = find(same, which)
    called = f"workflow {run.label}"
    if stage:
        called += f"/{run.stage(stage).name}"
    others = {each.label for each in same}
    note = f"{called} is the newest of {len(others)} of the name {which}" if len(others) > 1 else ""
    return called, note


@click.command()
@click.argument("subject", shell_complete=complete.subjects)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(subject: str, as_json: bool) -> None:
    """Say what was decided and why.

    SUBJECT is a job number, wN for workflow N, the name of a workflow, either of these with /STAGE for one of its
    stages, hold:N, bag:N, pool:NAME, or agent. Of several workflows of one name it is the newest.
    """
    config = load()
    if subject.isdecimal():
        named, note = f"job {subject}", ""
    elif subject == "agent":
        named, note = "agent", ""
    elif (known := _OWN.fullmatch(subject)) is not None:
        named, note = f"{known[1] or known[3]} {known[2] or known[4]}", ""
    else:
        named, note = _workflow(config, subject)
    decisions = _decided(config, named)
    if as_json:
        emit_json({"subject": named, "decisions": decisions})
        return
    if note:
        click.echo(plain(note), err=True)
    if not decisions:
        click.echo(f"Nothing was decided about {named}.")
    for d in decisions:
        why = in_local_time("; ".join(text for _code, text in d["reasons"]), d["at"])
        click.echo(plain(f"{clock(d['at'])}  {d['subject']}  {d['verb']}: {why}"))
