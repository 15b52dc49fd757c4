"""penstock submit, status, explain, cancel: workflows and what the agent thinks about them."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import click

from penstock.cli.output import ago, clock, emit_json, table
from penstock.config import load
from penstock.errors import UserError
from penstock.ipc.client import ask
from penstock.workflow.formats import load_workflow
from penstock.workflow.metrics import perceived_wait
from penstock.workflow.model import workflow_to_dict
from penstock.workflow.state import WorkflowRun, run_from_dict
from penstock.workflow.strategies import STRATEGIES

__all__ = ["cancel", "explain", "status", "submit"]


@click.command()
@click.argument("workflow", type=click.Path(path_type=Path))
@click.option("--strategy", type=click.Choice(sorted(STRATEGIES)), default="asa", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def submit(workflow: Path, strategy: str, as_json: bool) -> None:
    """Hand a workflow file to the agent.

    \b
    asa       submits each stage ahead of its queue wait, as learned from earlier waits
    perstage  submits each stage when the one before has ended
    bigjob    submits one job with the most nodes and the sum of the times
    """
    parsed = load_workflow(workflow)
    # Relative commands mean the folder the user stands in, not the agent's.
    encoded = workflow_to_dict(parsed)
    encoded["workdir"] = encoded["workdir"] or str(Path.cwd())
    answer = ask(load().socket_path, "submit", {"workflow": encoded, "strategy": strategy})
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
    title = f"workflow {run.id} {run.workflow.name} ({run.strategy}): {run.phase.value}"
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
