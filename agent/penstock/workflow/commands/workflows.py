"""penstock cancel, more, retry: workflows on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.config import Config, load
from penstock.console import complete
from penstock.console.door import ask_or_leave, left_environment
from penstock.console.output import emit_json
from penstock.errors import Infeasible, PenstockError, UserError
from penstock.values.durations import duration_text
from penstock.workflow.commands.runs import Shown, answered, find, shown

if TYPE_CHECKING:
    from penstock.workflow.state import WorkflowRun

__all__ = ["cancel", "more", "retry"]


@click.command()
@click.argument("workflow", shell_complete=complete.workflows)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cancel(workflow: str, as_json: bool) -> None:
    """Cancel a workflow and its jobs. WORKFLOW is a number, wN, or a name."""
    import asyncio

    from penstock.workflow.run.identity import known_job  # slow to load

    config = load()
    run = find(shown(answered(config)), workflow)
    jobs = list(run.owned.jobs()) if run.owned else []
    if run.final and not jobs:  # of one that has failed, Slurm may hold a job for another run
        raise Infeasible(f"no running workflow {run.label}: it is {run.phase}")
    failed, unwritten = [], ""
    if run.reserved:
        asyncio.run(_give_up(config, run.name))
        jobs = [stage.job for stage in run.stages if stage.job is not None]
    elif not run.final:
        unwritten = (ask_or_leave(config, "cancel", {"run": run.number}) or {}).get("unwritten", "")
    if run.owned and jobs:
        from penstock.console.backends import cancel_all  # slow to load

        failed = asyncio.run(cancel_all(config, [known_job(run.owned, job, run.owned.uid) for job in jobs]))
    if as_json:
        emit_json({"run": run.number or run.name, "jobs": jobs, "failed": failed, "unwritten": unwritten})
    else:
        click.echo(f"Workflow {run.label} is being cancelled")
        if unwritten:
            click.echo(f"penstock: known to this agent alone, a restarted one goes on with it: {unwritten}", err=True)
    if failed:
        from penstock.console.backends import first_of

        raise PenstockError(f"some jobs could not be cancelled: {first_of(failed)}")


async def _give_up(config: Config, name: str) -> None:
    from penstock.console.acting import acting  # slow to load
    from penstock.core.installed import installed_parts

    async with acting(config) as hand:
        for part in installed_parts():
            await part.give_up_run(config, hand.slurm, hand.executor, name)


@click.command()
@click.argument("workflow", shell_complete=complete.workflows)
@click.argument("time", metavar="TIME|no")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def more(workflow: str, time: str, as_json: bool) -> None:
    """Say that more stages of a workflow come, or are all there.

    Until TIME is over it goes on although all of its stages have ended; `no`: it ends with those it has. WORKFLOW is a
    number, wN, or a name.
    """
    from penstock.sbatch.directives import parse_more  # slow to load

    config = load()
    seconds = parse_more(time, "TIME")
    run = find(shown(answered(config)), workflow)
    if run.final or run.number is None:
        raise Infeasible(f"no running workflow {run.label}: it is {run.phase}")
    ask_or_leave(config, "more", {"run": run.number, "seconds": seconds})
    if as_json:
        emit_json({"run": run.number, "seconds": seconds})
    elif seconds:
        click.echo(f"Workflow {run.label} waits for more stages for {duration_text(seconds)}")
    else:
        click.echo(f"Workflow {run.label} ends with the stages that it has")


@click.command()
@click.argument("workflow", shell_complete=complete.workflows)
@click.argument("stage", required=False, shell_complete=complete.stages)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def retry(workflow: str, stage: str | None, as_json: bool) -> None:
    """Run again what failed of a workflow.

    All of it, or STAGE and what comes after it. Of a job array only the tasks that have not completed.

    WORKFLOW is a number, wN, or a name. A stage that `penstock sbatch` submitted is submitted again from its folder,
    by the same command line, with the script as it is now.
    """
    config = load()
    run = find(shown(answered(config)), workflow)
    if run.reserved:
        raise Infeasible(
            f"workflow {run.name}: the slots of what failed are given up; `penstock plan --reserve` plans the rest anew"
        )
    if stage is not None:
        run.stage(stage)
    jobs: dict[str, int] = {}
    tasks: dict[str, str] = {}
    if run.owned is None:
        with left_environment(config) as given:
            ask_or_leave(config, "retry", {"run": run.number, "stage": stage, **given})
    else:
        for name, (job, left) in _again(config, run, run.owned, stage).items():
            jobs[name] = job
            if left is not None:
                tasks[name] = left
    if as_json:
        emit_json({"run": run.number, "jobs": jobs, "tasks": tasks})
        return
    for name, job in jobs.items():
        only = f": tasks {tasks[name]}, which have not completed" if name in tasks else ""
        click.echo(f"Submitted batch job {job} for stage {name}{only}")
    if run.owned is None:
        click.echo(f"Workflow {run.number} runs again")


def _again(config: Config, shown_run: Shown, run: WorkflowRun, stage: str | None) -> dict[str, tuple[int, str | None]]:
    """Submit the stages that did not complete, and those waiting after them, once more, in their order; the new jobs,
    and of an array the tasks that run again.

    Slurm 22.05 turns the owner's hold of a job whose dependency has failed into an administrator's within seconds: the
    owner can only cancel it.
    """
    import asyncio

    from penstock.console.backends import cancel_all, first_of  # slow to load
    from penstock.sbatch.commands.stages import submit_again
    from penstock.workflow.phases import StagePhase
    from penstock.workflow.run.identity import known_job  # slow to load

    broken = [i for i, s in enumerate(run.stages) if s.phase in (StagePhase.FAILED, StagePhase.CANCELLED)]
    if stage is not None:
        place = next(i for i, s in enumerate(run.stages) if s.name == stage)
        broken = [i for i in broken if i in {place, *run.following([place])}] if place in broken else []
    if not broken:
        named = f"stage {stage!r} is {shown_run.stage(stage).phase}" if stage else f"it is {shown_run.phase}"
        raise UserError(f"nothing of workflow {run.id} failed that could run again: {named}")
    waiting = [i for i in run.following(broken) if run.stages[i].stands_by]
    kept = [i for i in waiting if not run.stages[i].mine.chained]
    jobs = [job for i in kept if (job := run.stages[i].job) is not None]
    known = [known_job(run, job, run.uid) for job in jobs]
    failed = asyncio.run(cancel_all(config, known)) if jobs else []
    if failed:
        raise PenstockError(f"jobs that come after it could not be cancelled: {first_of(failed)}")
    found: dict[str, tuple[int, str | None]] = {}
    moved: dict[int, int] = {}  # new jobs by the old ones
    for i in sorted({*broken, *kept}):  # parents stand before their children
        entry = run.stages[i]
        found[entry.name] = submit_again(config, run, entry, moved)
        new, _tasks = found[entry.name]
        moved |= dict.fromkeys((*entry.mine.former, *(() if entry.job is None else (entry.job,))), new)
    if behind := [i for i in waiting if i not in kept and any(run.stages[j].job in moved for j in run.stages[i].after)]:
        from penstock.workflow.commands.following import follow_moved

        follow_moved(config, run, behind, moved)
    # Not before: Slurm may cancel what depends on them.
    held = [entry.job for i in broken if (entry := run.stages[i]).held_again and entry.job is not None]
    if held and (failed := asyncio.run(cancel_all(config, [known_job(run, job, run.uid) for job in held]))):
        raise PenstockError(f"jobs held for another run could not be cancelled: {first_of(failed)}")
    return found
