"""What users ask of workflows at the agent's door."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.api import Job, Snapshot
from penstock.core.pace import Pace
from penstock.core.parts import Operation, Site, StatusShare
from penstock.errors import NotFound, UserError
from penstock.values.documents import brief, show
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.model import Workflow, workflow_from_dict
from penstock.workflow.phases import Submitter
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.state import WorkflowRun
from penstock.workflow.stored import read_latest
from penstock.workflow.submit.admission import seconds_open
from penstock.workflow.submit.trying import Trial

__all__ = ["WorkflowRequests", "with_reasons"]

_SHOWN: Final = 200
_TEXT: Final = 4_000_000  # characters of stored workflows that are looked through for one answer


class WorkflowRequests:
    """Each operation answers one request. `trial` says what a workflow would come to."""

    def __init__(self, workflows: WorkflowController, trial: Trial, site: Site) -> None:
        self._workflows, self._trial = workflows, trial
        self._store, self._observer, self._callers = site.store, site.observer, site.callers

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {
            "submit": self.submit,
            "cancel": self.cancel,
            "env": self.environment,
            "follow": self.follow,
            "guide": self.guide,
            "more": self.more,
            "plan": self.plan,
            "retry": self.retry,
            "try": self.try_,
        }

    async def submit(self, uid: int, request: Mapping[str, Any]) -> object:
        """Of the agent's own user, who the agent then submits the stages for."""
        self._callers.require_agents_user(uid)
        workflow, strategy = _workflow(request), request.get("strategy")
        if not isinstance(strategy, str):
            raise UserError(f"strategy: must be a text, not {show(strategy)}")
        return {"run": await self._workflows.submissions.submit(uid, workflow, strategy, _environment(request))}

    async def try_(self, uid: int, request: Mapping[str, Any]) -> object:
        """Not for everybody: it tells of all jobs that the agent has seen. Others look for themselves."""
        self._callers.require_agents_user(uid)
        return await self._trial.answer(uid, _workflow(request))

    async def cancel(self, uid: int, request: Mapping[str, Any]) -> object:
        """The jobs that the caller has to cancel, which are those that it submitted itself."""
        number = self._own_number(uid, request)
        jobs = self._workflows.cancel(number, "cancelled by its owner")
        return {"jobs": jobs, "unwritten": self._workflows.book.unwritten.get(number, "")}

    async def more(self, uid: int, request: Mapping[str, Any]) -> object:
        """Further stages may come for so long."""
        number = self._own_number(uid, request)
        try:
            seconds = seconds_open(request.get("seconds"))
        except (TypeError, ValueError) as e:
            raise UserError(f"more: not a time: {show(request.get('seconds'))}") from e
        self._workflows.more(number, seconds)
        return None

    async def retry(self, uid: int, request: Mapping[str, Any]) -> object:
        """What has failed runs again: one stage, or all."""
        self._callers.require_agents_user(uid)
        stage = request.get("stage")
        name = None if stage is None else str(stage)
        self._workflows.submissions.retry(_number(request), name, _environment(request))
        return None

    async def plan(self, uid: int, request: Mapping[str, Any]) -> object:
        """What `guide` would do with these stages, before their jobs are submitted."""
        self._callers.require_served(uid)
        return await self._workflows.registrations.plan(uid, request)

    async def guide(self, uid: int, request: Mapping[str, Any]) -> object:
        """Jobs that the caller has submitted as stages: the agent releases them in time."""
        self._callers.require_served(uid)
        return {"run": await self._workflows.registrations.register(uid, request)}

    async def follow(self, uid: int, request: Mapping[str, Any]) -> object:
        """Jobs that the caller has submitted behind one another, by sbatch's own dependencies."""
        self._callers.require_served(uid)
        return {"run": await self._workflows.registrations.follow(uid, request)}

    async def environment(self, uid: int, _request: Mapping[str, Any]) -> object:
        """The variables by which MPI jobs find the agent."""
        self._callers.require_served(uid)
        return self._workflows.carrier.environment

    async def status(self, uid: int, pace: Pace) -> StatusShare:
        """The user's workflows, the latest last; root's are everybody's. There may be ten thousand stages of them."""
        mine = [*await self._own_runs(uid, pace), *await self._owned_runs(uid, pace)]
        told = []
        for run in sorted(mine, key=lambda run: run.id):
            told.append(with_reasons(run_to_dict(run), self._observer.last))
            await pace.after(len(run.stages))
        jobs = {stage["job"] for run in told for stage in run["stages"] if stage["job"] is not None}
        return StatusShare({"workflows": told}, jobs=jobs, left_alone=self._left_alone(uid))

    def _left_alone(self, uid: int) -> Iterator[tuple[str, str, str]]:
        for number, run in self._workflows.runs.items():
            if uid in (0, run.uid if run.owned else os.geteuid()) and (why := self._workflows.held(run)) is not None:
                yield f"workflow {number}", why.code, why.text

    async def _own_runs(self, uid: int, pace: Pace) -> list[WorkflowRun]:
        """Those that the agent submits the stages of."""
        if uid not in (0, os.geteuid()):
            return []
        live, found = self._workflows.runs, []
        for number, _owner, text in self._store.runs.texts(submitter=Submitter.AGENT, limit=_SHOWN, most_text=_TEXT):
            found.append(live.get(number) or run_from_dict(json.loads(text)))
            await pace.after(len(found[-1].stages))
        return _with_older(found, (run for run in live.values() if not run.owned))

    async def _owned_runs(self, uid: int, pace: Pace) -> list[WorkflowRun]:
        """Those whose owners have submitted the stages."""
        live = self._workflows.runs
        latest = await pace.walk(read_latest(self._store, None if uid == 0 else uid, live))
        return _with_older(latest, (r for r in live.values() if r.owned and uid in (0, r.uid)))

    def _own_number(self, uid: int, request: Mapping[str, Any]) -> int:
        """The number of a workflow that is the caller's to end or to change: its owner's, where its owner submits the
        jobs, else that of the agent's user."""
        number = _number(request)
        run = self._workflows.runs.get(number)
        if run is None or not run.owned:
            self._callers.require_agents_user(uid)
        elif uid not in (0, run.uid):
            raise NotFound(f"there is no running workflow {number}")
        return number


def with_reasons(run: Mapping[str, Any], snapshot: Snapshot | None) -> dict[str, Any]:
    """A workflow with what Slurm says its waiting jobs wait for, as `reason` of a stage."""
    seen: Mapping[int, Job] = snapshot.jobs if snapshot else {}
    return {**run, "stages": [_with_reason(stage, seen.get(stage["job"] or 0)) for stage in run["stages"]]}


def _with_reason(stage: dict[str, Any], job: Job | None) -> dict[str, Any]:
    return {**stage, "reason": job.reason} if job is not None and job.pending else stage


def _workflow(request: Mapping[str, Any]) -> Workflow:
    try:
        return workflow_from_dict(request["workflow"])
    except (KeyError, TypeError, ValueError) as e:
        raise UserError(f"this is no workflow: {brief(e)}") from e


def _environment(request: Mapping[str, Any]) -> str | None:
    """What names the environment that the command has left in the state folder (`state.environments`)."""
    token = request.get("environment")
    if token is not None and not isinstance(token, str):
        raise UserError(f"environment: must be a text, not {type(token).__name__}")
    return token


def _number(request: Mapping[str, Any]) -> int:
    number = request.get("run")
    if type(number) is not int or not 0 < number < 2**63:
        raise UserError(f"run: must be the number of a workflow, not {show(number)}")
    return number


def _with_older(latest: list[WorkflowRun], live: Iterable[WorkflowRun]) -> list[WorkflowRun]:
    """The latest workflows, and before them those that go on although so many have begun after them."""
    older = sorted((run for run in live if latest and run.id < latest[0].id), key=lambda run: run.id)
    return older[-_SHOWN:] + latest
