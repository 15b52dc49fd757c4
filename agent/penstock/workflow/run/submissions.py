"""Workflows whose jobs the agent submits: how one is accepted and planned, and run again."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

from penstock.api import Decision, Geometry, Verb
from penstock.core.parts import Site
from penstock.errors import NotFound, NotNow, NotPermitted, UserError
from penstock.workflow.documents import run_from_dict
from penstock.workflow.files.checks import check_against, check_units, partitions_of
from penstock.workflow.model import Workflow
from penstock.workflow.phases import Submitter
from penstock.workflow.run.beliefs import Beliefs
from penstock.workflow.run.book import Book
from penstock.workflow.run.carrying import subject_of
from penstock.workflow.run.environments import RunEnvironments
from penstock.workflow.run.retrying import retried
from penstock.workflow.run.runner import Runner
from penstock.workflow.stored import earlier_runs, note_rules
from penstock.workflow.strategies.cuts import place_units
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import Foreseeing, Outlook, Rules
from penstock.workflow.submit.expectations import expected_by

__all__ = ["Submissions"]


class Submissions:
    """To one agent; `beliefs` are what it expects of waits."""

    def __init__(
        self, site: Site, runner: Runner, rules: Rules, book: Book, beliefs: Beliefs, environments: RunEnvironments
    ) -> None:
        self._observer, self._executor, self._store = site.observer, site.executor, site.store
        self._clock, self._wake = site.clock, site.wake
        self._runner, self._rules, self._book = runner, rules, book
        self._beliefs, self._environments = beliefs, environments
        self._core_hour_weight = site.config().workflows.core_hour_weight

    async def submit(self, uid: int, workflow: Workflow, strategy: str, environment: str | None = None) -> int:
        """Accept a workflow; the number of its run. `environment` names the one that was left for its jobs. Raises
        `UserError` for what this cluster can never run."""
        snapshot = await self._observer.look()
        if not snapshot.partitions:
            raise NotNow("nothing was submitted, as Slurm does not answer: " + "; ".join(snapshot.problems))
        default = next((p.name for p in snapshot.partitions.values() if p.default), None)
        partition = check_against(workflow, snapshot.partitions, default)
        place = (partitions_of(workflow, partition.name), [workflow.account or ""], [workflow.qos or ""])
        if (refused := self._executor.pause_control.refuses("workflows", os.geteuid(), *place)) is not None:
            raise NotPermitted(f"the agent may not submit this: {refused.text}")
        if any(stage.guessed for stage in workflow.stages):
            workflow = expected_by(workflow, earlier_runs(self._store, uid))
        asked: dict[Geometry, float] = {}
        now, cores = self._clock.now(), [n.cpus for name in partition.nodes if (n := snapshot.nodes.get(name))]
        outlook = Outlook(
            wait=self._beliefs.expecting(asked),
            partition=partition.name,
            qos=workflow.qos or "",
            account=workflow.account or "",
            rules=replace(self._rules, whole_nodes=self._rules.whole_nodes or partition.exclusive),
            max_time=partition.max_time,
            cores=sum(cores) / len(cores) if cores else 1.0,
            core_hour_weight=self._core_hour_weight,
        )
        planner = strategy_named(strategy)
        if isinstance(planner, Foreseeing):
            outlook = replace(outlook, better=await self._beliefs.better_cut(workflow, snapshot))
        plan = planner.plan(workflow, outlook)
        if asked:  # others may have something to say of these: now with that, for all that is planned at this look
            await self._beliefs.prepare(tuple(asked))
            expected = self._beliefs.expecting(self._beliefs.expected_at(snapshot))
            plan = planner.plan(workflow, replace(outlook, wait=expected))
        check_units(workflow, place_units(workflow, plan.cut), partition, plan.by or strategy)
        try:
            with self._book.together():
                note_rules(self._store, self._rules)
                number = self._store.runs.add(uid, {}, now, Submitter.AGENT)
                run = self._runner.start(
                    number,
                    workflow,
                    strategy,
                    now,
                    partition=partition.name,
                    token=_token(),
                    plan=plan,
                    max_time=partition.max_time,
                )
                self._book.save(self._environments.kept(run, environment))
                if plan.reasons:
                    self._store.decisions.record(Decision(Verb.NOTHING, subject_of(run), plan.reasons), now)
        finally:
            self._environments.sweep()
        self._wake(f"workflow {number} was submitted")
        return number

    def retry(self, number: int, stage: str | None = None, environment: str | None = None) -> None:
        """Run what has not completed of a workflow again; `environment` as for `submit`. Raises `NotFound`, and
        `UserError` while it still runs."""
        run = self._book.runs.get(number)
        if run is None:
            stored = [state for n, _uid, state in self._store.runs.latest() if n == number]
            if not stored:
                raise NotFound(f"there is no workflow {number}")
            run = run_from_dict(stored[0])
        if run.owned:
            raise UserError(f"only {run.user} can retry workflow {number}: run `penstock retry {number}` as {run.user}")
        made = retried(run, stage, token=_token(), now=self._clock.now())
        self._book.save(self._environments.kept(made, environment))
        self._wake(f"workflow {number} is to be retried")


def _token() -> str:
    return secrets.token_hex(3)
