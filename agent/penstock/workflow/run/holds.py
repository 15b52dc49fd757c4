"""Why a run is left alone for now: what the agent is told to leave alone, and which jobs are of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.api import Job, Reason
from penstock.core.observe import Observer
from penstock.core.pauses import PauseControl
from penstock.workflow.phases import RunPhase
from penstock.workflow.state import WorkflowRun

__all__ = ["RunHolds"]


class RunHolds:
    """Of one agent's runs, by its pauses and the last look."""

    def __init__(self, pause_control: PauseControl, observer: Observer) -> None:
        self._pause_control, self._observer = pause_control, observer

    @property
    def state(self) -> tuple[object, ...]:
        """What may be done now: where two are equal, the same may be."""
        pause_control = self._pause_control
        return pause_control.pauses, pause_control.rules, pause_control.dry_run, pause_control.off

    def of(self, run: WorkflowRun) -> Reason | None:
        """Why the run is left alone for now."""
        pause_control, seen = self._pause_control, self._observer.last.jobs if self._observer.last else {}
        if run.phase is RunPhase.CANCELLING:
            return None  # what it has in the queue is taken away
        if run.owned:
            return self._held_of_owner(run, seen)
        if pause_control.off is not None and run.phase is RunPhase.FAILING:
            return None
        # What the workflow does not name was Slurm's choice.
        flow, jobs = run.workflow, [seen[i] for i in run.jobs() if i in seen]
        accounts = [flow.account] if flow.account else [job.account for job in jobs]
        qos = [flow.qos] if flow.qos else [job.qos for job in jobs]
        return pause_control.on("workflows", os.geteuid(), run.partitions, accounts, qos)

    def _held_of_owner(self, run: WorkflowRun, seen: Mapping[int, Job]) -> Reason | None:
        """One of its jobs is to be left alone."""
        pause_control = self._pause_control
        paused = pause_control.paused("workflows", run.uid, [stage.mine.partition for stage in run.stages])
        paused = paused or pause_control.rehearses(run.uid, "nothing is done to its jobs")
        if paused is not None or pause_control.rules is None:
            return paused
        for stage in run.stages:
            job = seen.get(stage.job or 0)
            if job is None and stage.phase.final:
                continue
            place = stage.mine if job is None else job
            where = ([place.partition], [place.account], [place.qos])
            # What is not known of a job that was never seen is not held against it: nothing is done to it.
            if (refused := pause_control.refuses("workflows", run.uid, *where, strict=job is not None)) is not None:
                return refused
        return None
