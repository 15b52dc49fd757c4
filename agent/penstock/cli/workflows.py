"""penstock submit, status, explain, cancel: workflows and what the agent thinks about them."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

import click

from penstock.cli.output import ago, clock, emit_json, table
from penstock.config import load
from penstock.durations import DURATION_FORMS, parse_duration
from penstock.errors import UserError
from penstock.ipc.client import ask
from penstock.workflow.formats import load_workflow
from penstock.workflow.metrics import perceived_wait
from penstock.workflow.model import workflow_to_dict
from penstock.workflow.registry import known_strategies, strategy_named
from penstock.workflow.state import WorkflowRun, run_from_dict
from penstock.workflow.wfformat import Packing

__all__ = ["cancel", "explain", "status", "submit"]


class _Strategies(click.Command):
    """Its help lists the strategies, those of plug-ins included."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line for each: the first of its docstring."""
        rows = []
        for name in known_strategies():
            told = (type(strategy_named(name)).__doc__ or "").strip().splitlines()
            rows.append((name, told[0] if told else ""))
        with formatter.section("Strategies"):
            formatter.write_dl(rows)


@click.command(cls=_Strategies)
@click.argument("workflow", type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    type=click.Choice(known_strategies()),
    metavar="NAME",
    help="When each stage is submitted, see below; default: `workflows.strategy` of the configuration.",
)
@click.option(
    "--max-nodes", type=click.IntRange(1), default=1, show_default=True, help="WfFormat: for a stage, at most."
)
@click.option("--cores", type=click.IntRange(1), help="WfFormat: cores of a node; default: as many as this host has.")
@click.option("--time", "limit", metavar="TIME", help="WfFormat: limit of each stage; default: 3 times what it takes.")
@click.option("--task", metavar="COMMAND", help="WfFormat: run this for each task, for example 'sleep {runtime}'.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def submit(
    workflow: Path,
    strategy: str | None,
    max_nodes: int,
    cores: int | None,
    limit: str | None,
    task: str | None,
    as_json: bool,
) -> None:
    """Hand a workflow file to the agent: YAML, or WfFormat 1.5 or 1.6."""
    config = load()
    strategy = strategy or config.workflows.strategy
    strategy_named(strategy)
    seconds = None if limit is None else parse_duration(limit)
    if limit is not None and seconds is None:
        raise UserError(f"--time: must be {DURATION_FORMS}, not {limit!r}")
    packing = Packing(max_nodes, cores or os.cpu_count() or 1, time=seconds, command=task)
    parsed = load_workflow(workflow, packing)
    # Relative commands mean the folder the user stands in, not the agent's.
    encoded = workflow_to_dict(parsed)
    encoded["workdir"] = encoded["workdir"] or str(Path.cwd())
    answer = ask(config.socket_path, "submit", {"workflow": encoded, "strategy": strategy})
    if as_json:
        emit_json(answer)
    else:
        click.echo(f"Submitted workflow {answer['run']}")


@click.command()
@click.argument("run", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(run: int | None, as_json: bool) -> None:
    """Show workflows with their stages, and malleable jobs."""
    answer = ask(load().socket_path, "status")
    if run is not None:
        answer["workflows"] = [w for w in answer["workflows"] if w["id"] == run]
        if not answer["workflows"]:
            raise UserError(f"there is no workflow {run}")
    if as_json:
        emit_json(answer)
        return
    for problem in answer["problems"]:
        click.echo(f"on hold: {problem}", err=True)
    for encoded in answer["workflows"] if run is not None else answer["workflows"][-5:]:
        _show_run(run_from_dict(encoded), answer["now"])
    if answer["malleable"]:
        rows = [(m["job"], m["phase"], m["offer"]["size"], m["target"] or None, m["note"]) for m in answer["malleable"]]
        table("malleable jobs", ("job", "phase", "ranks", "target", "note"), rows)
    if not answer["workflows"] and not answer["malleable"]:
        click.echo(f"Nothing of {getpass.getuser()} is running or has run.")


def _show_run(run: WorkflowRun, now: float) -> None:
    by = f", by {run.by}" if run.by else ""
    title = f"workflow {run.id} {run.workflow.name} ({run.strategy}{by}): {run.phase.value}"
    if run.why:
        title += f" - {run.why}"
    rows: list[tuple[Any, ...]] = [
        (
            s.name,
            s.phase.value,
            s.job,
            clock(s.submitted),
            clock(s.start),
            clock(s.end),
            ago(s.estimate),
            ago(perceived_wait(run, i)),
            s.failure,
        )
        for i, s in enumerate(run.stages)
    ]
    table(title, ("stage", "phase", "job", "submit", "start", "end", "estimate", "perceived wait", "why"), rows)


@click.command()
@click.argument("subject")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(subject: str, as_json: bool) -> None:
    """Say what was decided and why. SUBJECT is a job number, wN for workflow N, or agent."""
    if subject[:1] == "w" and subject[1:].isdigit():
        named = f"workflow {subject[1:]}"
    elif subject.isdigit():
        named = f"job {subject}"
    elif subject == "agent":
        named = "agent"
    else:
        raise UserError(f"SUBJECT must be a job number such as 1234, w3 for workflow 3, or agent, not {subject!r}")
    decisions = ask(load().socket_path, "explain", {"subject": named})
    if as_json:
        emit_json(decisions)
        return
    if not decisions:
        click.echo(f"Nothing was decided about {named}.")
    for d in decisions:
        why = "; ".join(text for _code, text in d["reasons"])
        click.echo(f"{clock(d['at'])}  {d['subject']}  {d['verb']}: {why}")


@click.command()
@click.argument("run", type=int)
def cancel(run: int) -> None:
    """Cancel a workflow and its jobs."""
    ask(load().socket_path, "cancel", {"run": run})
    click.echo(f"Workflow {run} is being cancelled")
