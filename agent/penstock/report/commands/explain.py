"""penstock explain: what was decided and why."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from typing import Any, Final

import click

from penstock.config import Config, load
from penstock.console import complete
from penstock.console.door import ask_or_read
from penstock.console.output import clock, emit_json, in_local_time, plain
from penstock.errors import AgentUnavailable, NotFound, NotPermitted, UserError
from penstock.state.ownership import acts_path
from penstock.state.pools import pool_places
from penstock.workflow.commands.runs import Shown, answered, elastic_jobs, find, in_slots, shown

__all__ = ["explain"]

_JOB: Final = re.compile(r"([0-9]{1,18})(_[0-9]{1,9})?")
_OWN: Final = re.compile(r"(hold|bag):([0-9]{1,18})|(pool):([A-Za-z0-9][A-Za-z0-9_.-]{0,39})")
_RUN: Final = re.compile(r"w([0-9]{1,18})(?:/(.+))?|([0-9]{1,18})/(.+)")


@click.command()
@click.argument("subject", shell_complete=complete.subjects)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(subject: str, as_json: bool) -> None:
    """Say what was decided and why.

    SUBJECT is a job number (of a task of an array 41_2), wN for workflow N, the name of a workflow, either of these
    with /STAGE for one of its stages, hold:N, bag:N, pool:NAME, or agent. Of several workflows of one name it is the
    newest. Of what is not there it says so, and ends with 5. What a part that a site has added decides is told by the
    part's name, or NAME/..., to the agent's user, root and Slurm's operators.
    """
    config = load()
    note, known = "", True
    if (job := _JOB.fullmatch(subject)) is not None:
        named, decisions, note, known = _of_job(config, subject, int(job[1]))
    elif subject == "agent":
        named, decisions = "agent", _decided(config, "agent")
    elif (own := _OWN.fullmatch(subject)) is not None:
        named = f"{own[1] or own[3]} {own[2] or own[4]}"
        decisions, known = _decided(config, named, own=True), own[3] is not None and _is_pool(config, own[4])
    else:
        named, note, known = _workflow(config, subject)
        decisions = _decided(config, named)
    if not decisions and not known:
        raise NotFound(f"nothing is known of {named}" if job is None else _no_job(subject))
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


def _no_job(number: str) -> str:
    return f"nothing is known of job {number}: it is none of yours in the queue, and nothing was decided about it"


def _decided(config: Config, subject: str, *, own: bool = False) -> list[dict[str, Any]]:
    """By the agent, and by the caller's own commands. `own`: it may be that commands alone have decided."""
    path = acts_path(config)
    by_commands = []
    if path.exists():
        from penstock.state.store import Store  # slow to load

        with closing(Store.read_only(path)) as store:
            by_commands = store.decisions.of(subject)
    try:
        agents = ask_or_read(config, "explain", {"subject": subject}, last_known=True)
    except AgentUnavailable:
        if not by_commands and not own:
            raise
        agents = []
    return sorted([*agents, *by_commands], key=lambda decision: float(decision["at"]))


def _of_job(config: Config, subject: str, number: int) -> tuple[str, list[dict[str, Any]], str, bool]:
    """What a job is called, what was decided about it, what there is to say of the name, and whether it is known.

    A stage's decisions are kept under the stage, and those about nodes that were got for another job under that job.
    """
    answer: dict[str, Any] = {}
    with suppress(AgentUnavailable):  # then the decisions of commands are all there is
        answer = answered(config, last_known=True)
    if (row := next((job for job in answer.get("jobs", ()) if job["name"] == subject), None)) is not None:
        number = row["job"]
    known = row is not None or elastic_jobs(config)(number, None) is not None
    subjects, note = [f"job {number}"], ""
    for run in shown({"workflows": answer.get("workflows", ()), "reserved": in_slots(config, final=True)}):
        for stage in run.stages:
            if stage.job == number:
                subjects.append(f"workflow {run.label}/{stage.name}")
                note = f"job {number} is stage {stage.name} of workflow {_called(run)}"
    for job in (*answer.get("malleable", ()), *answer.get("moldable", ())):
        known |= job["job"] == number
        if number in {job.get("resizer"), *(companion["job"] for companion in job.get("companions", ()))}:
            subjects.append(f"job {job['job']}")
            note = f"job {number} holds nodes for job {job['job']}"
    known |= len(subjects) > 1
    decisions: list[dict[str, Any]] = []
    for each in subjects:
        try:
            decisions += _decided(config, each, own=known)
        except NotPermitted:  # what one does not see and what is not there are one to who is no operator
            continue
    return subjects[-1], sorted(decisions, key=lambda decision: float(decision["at"])), note, known


def _called(run: Shown) -> str:
    return run.label if run.name == run.label else f"{run.label} ({run.name})"


def _is_pool(config: Config, name: str) -> bool:
    return any(place.name == name for place in pool_places(config))


def _by_a_part(config: Config, subject: str) -> bool:
    """Whether something was decided about this as it stands, which the caller may see. No part is loaded for it."""
    with suppress(NotPermitted):
        return bool(_decided(config, subject))
    return False


def _workflow(config: Config, subject: str) -> tuple[str, str, bool]:
    """What the decisions about a workflow, or a stage of it, are kept under, what there is to say of the choice, and
    whether it is known.

    Raises UserError for what is no subject, and NotFound for a stage that the workflow does not have.
    """
    which, _, stage = subject.partition("/")
    silent: AgentUnavailable | None = None
    workflows: list[dict[str, Any]] = []
    try:
        workflows = answered(config, last_known=True)["workflows"]
    except AgentUnavailable as e:  # workflows in slots need no agent
        silent = e
    runs = shown({"workflows": workflows, "reserved": in_slots(config, final=True)})
    if (numbered := _RUN.fullmatch(subject)) is not None:
        number, stage = numbered[1] or numbered[3], numbered[2] or numbered[4] or ""
        called = f"workflow {number}" + (f"/{stage}" if stage else "")
        mine = next((run for run in runs if run.number == int(number)), None)
        if mine is not None and stage:
            mine.stage(stage)
        return called, "", mine is not None or silent is not None  # then it cannot be said
    same = [run for run in runs if which in (run.name, run.flow)]
    if not same and silent is None and _by_a_part(config, subject):
        return subject, "", True
    if not same:
        raise silent or UserError(
            "SUBJECT must be a job number such as 1234, w3 for workflow 3, the name of a workflow such as mosaic, one "
            "of its stages such as mosaic/merge, hold:2, bag:2, pool:main, agent, or what a part that the site has "
            f"added decides about, not {subject!r}"
        )
    run = find(same, which)
    called = f"workflow {run.label}"
    if stage:
        called += f"/{run.stage(stage).name}"
    others = {each.label for each in same}
    note = f"{called} is the newest of {len(others)} of the name {which}" if len(others) > 1 else ""
    return called, note, True
