"""What the owner of jobs may have in workflows, and how much of it is taken. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.values.fair import UserShare
from penstock.workflow.run.measure import Measure, check_room, measured
from penstock.workflow.state import StageRun, WorkflowRun

if TYPE_CHECKING:  # what reads registrations looks at the clock
    from penstock.workflow.submit.admission import Registration

__all__ = ["UserRoom"]


class UserRoom:
    """Of all users. `share` is what one of them may have; `runs` gives those that have not ended, by number."""

    def __init__(self, share: UserShare, runs: Callable[[], Mapping[int, WorkflowRun]]) -> None:
        self.share = share
        self._runs = runs
        self._measures: dict[int, tuple[WorkflowRun, Measure]] = {}

    def check(self, uid: int, asked: Registration, run: WorkflowRun | None, reopened: Sequence[StageRun] = ()) -> None:
        """One user's workflows must not fill the agent's memory, nor the state file, nor its time."""
        runs = self._runs()
        open_ = [self.measure(other) for other in runs.values() if other.owned and other.uid == uid]
        more = [*reopened, *(stage.entry for stage in asked.stages)]
        if run is not None and run.id not in runs:  # it goes on with all that it had
            more += [stage for stage in run.stages if stage.name not in {s.name for s in asked.stages}]
        after = sum(len(stage.after) for stage in asked.stages)
        check_room(open_, replace(measured(more), dependencies=after), self.share, fresh=run is None)

    def measure(self, run: WorkflowRun) -> Measure:
        """Taken anew only of what has changed."""
        known = self._measures.get(run.id)
        if known is None or known[0] is not run:
            known = self._measures[run.id] = run, measured(run.stages)
        return known[1]

    def forget(self, number: int) -> None:
        """The run has ended."""
        self._measures.pop(number, None)
