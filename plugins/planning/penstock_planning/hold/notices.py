"""What people are told of workflows in slots. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dmr.wire import clean
from penstock.core.events import Event
from penstock.workflow.phases import StagePhase
from penstock.workflow.state import WorkflowRun
from penstock_planning.hold.exchanges import FOR_THE_BETTER

__all__ = ["notices_of"]


def notices_of(run: WorkflowRun, *, uid: int, user: str, now: float) -> Iterator[Event]:
    """What went wrong with a reserved workflow, as the ledger has it: stages that failed or were given up, and those
    that got a later slot or should have another one, so that it does not end when it was to end."""
    name = run.name
    for entry in run.stages:
        stage, hold = entry.name, entry.held.hold
        why = clean(run.told.get(stage) or entry.failure or "")
        details = {"reserved": name, "stage": stage, "job": entry.job, "why": why}
        if entry.phase in (StagePhase.FAILED, StagePhase.CANCELLED):
            yield Event(
                f"stage-failed reserved {name}/{stage} hold {hold}",
                "stage-failed",
                now,
                f"stage {stage} of the reserved workflow {name} has failed",
                f"Stage {stage} of {name}: {why or 'its job has failed'}\n\nWhat is held: penstock hold list\n",
                uid,
                user,
                details,
            )
        elif why and why not in FOR_THE_BETTER and entry.phase is not StagePhase.DONE:
            yield Event(
                f"deadline reserved {name}/{stage} hold {hold}",
                "deadline",
                now,
                f"the reserved workflow {name} will end later than planned",
                f"Stage {stage} of {name} does not run in the slot that was planned: {why}\n\n"
                "What is held now: penstock hold list\n",
                uid,
                user,
                details,
            )
