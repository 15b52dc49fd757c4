"""The part of workflows: their stages are submitted, or released, in time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from penstock.api import SiteConfig
from penstock.config import Config
from penstock.core.families import Family
from penstock.core.pace import Pace
from penstock.core.parts import Controller, Operation, Part, Site, StatusShare
from penstock.errors import ConfigError, UserError
from penstock.host.logins import login
from penstock.state.environments import Environments
from penstock.workflow.notices import failed_stages
from penstock.workflow.requests import WorkflowRequests
from penstock.workflow.run import figures
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.run.runner import Runner
from penstock.workflow.state import WorkflowRun
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import Rules
from penstock.workflow.submit.trying import Trial

__all__ = ["WorkflowPart"]


class WorkflowPart(Part):
    """Its `controller` and the cluster's `rules` are there from `begin` on."""

    name: ClassVar[str] = "workflows"
    controller: WorkflowController
    rules: Rules
    _requests: WorkflowRequests

    def __init__(self, site: Site) -> None:
        self._site = site
        self._me = os.geteuid(), login(os.geteuid())
        self._begun = False

    @staticmethod
    def check(config: Config) -> None:
        """See `Part`."""
        try:
            strategy_named(config.workflows.strategy)
        except UserError as e:
            raise ConfigError(f"`workflows.strategy`: {str(e).removeprefix('strategy: ')}") from e

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        site, config = self._site, self._site.config()
        self.rules = rules = Rules.of(slurm, age_while_dependent=config.workflows.age_while_dependent)
        runner = Runner(
            accrues=rules.accrues,
            grace=config.workflows.grace,
            whole_nodes=rules.whole_nodes,
            # A begin time is then what a job ages from, whatever else it waits for.
            ages_from_release="limits" not in slurm.enforced,
            remembers=slurm.min_job_age,
            may_age=rules.may_age,
        )
        environments = None if site.store.path == ":memory:" else Environments(Path(site.store.path).parent)
        self.controller = WorkflowController(site, runner, rules, environments)
        trial = Trial(site.store, site.observer, site.waits.known_past, rules, slurm.scheduler_parameters)
        self._requests = WorkflowRequests(self.controller, trial, site)
        self._begun = True
        self.controller.book.on_change = self._tell
        for run in self.controller.runs.values():  # what failed when the agent before this one ended
            self._tell(None, run)

    def _tell(self, before: WorkflowRun | None, run: WorkflowRun) -> None:
        """Tells of stages that have failed: each is told of once, however often it is found."""
        uid, user = (run.uid, run.user) if run.owned else self._me
        for event in failed_stages(before, run, uid=uid, user=user, now=self._site.clock.now()):
            self._site.tell(event)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self.controller,)

    def operations(self) -> Mapping[str, Operation]:
        """See `Part`."""
        return self._requests.operations()

    async def status(self, uid: int, pace: Pace) -> StatusShare:
        """See `Part`."""
        return await self._requests.status(uid, pace)

    def owner(self, kind: str, number: int) -> int | None:
        """See `Part`."""
        return self._site.store.runs.owner(number) if kind == "workflow" else None

    def families(self) -> Iterable[Family]:
        """See `Part`."""
        return figures.families(self.controller.book if self._begun else None)

    def reachable(self, environment: Mapping[str, str]) -> None:
        """See `Part`."""
        self.controller.carrier.environment = dict(environment)

    def reconfigured(self, config: Config) -> None:
        """See `Part`."""
        if self._begun:
            self.controller.share = config.limits.share
