"""All jobs of a workflow at once, kept back: what their owner submits, and registers with the agent. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from penstock.api import Partition
from penstock.slurm.sbatch_options import spec_words
from penstock.workflow.files.checks import check_against, check_units
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import Kept
from penstock.workflow.scripts import job_spec, with_exports
from penstock.workflow.strategies.cuts import place_units
from penstock.workflow.strategies.perstage import PerStage
from penstock.workflow.strategies.registry import strategy_named
from penstock.workflow.strategy import Outlook
from penstock.workflow.ties import Tie

__all__ = ["HeldJob", "HeldWorkflow", "held"]


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job as sbatch is to take it: its options but for those that keep it back, its script, its name. `after` are
    the stages whose jobs it comes after, `expect` how long it runs (s)."""

    stage: str
    after: tuple[str, ...]
    expect: float
    words: list[str]
    script: str
    name: str

    @property
    def entry(self) -> dict[str, Any]:
        """What the agent is told of it while it has no number."""
        after = list(self.after)
        return {"name": self.stage, "job": 0, "after": after, "expect": self.expect, "kept": Kept.BEGIN.value}


@dataclass(frozen=True, slots=True)
class HeldWorkflow:
    """Its `jobs`, parents before their children. `strategy` says how they are let go."""

    workflow: str
    strategy: str
    jobs: tuple[HeldJob, ...]

    def registration(self, sent: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> dict[str, Any]:
        """What the agent is told of it, with what is known by stage of those that have been `sent`."""
        stages = [{**job.entry, **sent.get(job.stage, {})} for job in self.jobs]
        return {"workflow": self.workflow, "strategy": self.strategy, "stages": stages}


def held(workflow: Workflow, strategy: str, partitions: Sequence[Partition], token: str) -> HeldWorkflow:
    """The jobs that a strategy makes of it; `token` makes their names its own. Raises UserError for what no partition
    would start."""
    rules = strategy_named(strategy)
    plan = rules.plan(workflow, Outlook(lambda _geometry: 0.0, scripts=False))
    units = place_units(workflow, plan.cut)
    default = next((p.name for p in partitions if p.default), None)
    check_units(workflow, units, check_against(workflow, {p.name: p for p in partitions}, default), strategy)
    # What cuts stages into jobs, which has been done by now, lets each go when those before it have ended.
    cuts = rules.tie is Tie.NONE and not rules.ahead and plan.by is None
    known = {unit.name for unit in units}
    jobs = tuple(_job(workflow, unit, known, token) for unit in units)
    return HeldWorkflow(workflow.name, PerStage.name if cuts else strategy, jobs)


def _job(workflow: Workflow, unit: Stage, known: set[str], token: str) -> HeldJob:
    spec = job_spec(workflow, unit, token, 1, ())
    # The agent may have to put back what was started too early; when a stage fails, those after it must stay.
    words = spec_words(replace(spec, requeue=True), spec.workdir)
    after = tuple(name for name in unit.after if name in known)
    script = with_exports(spec.script, spec.environment)
    return HeldJob(unit.name, after, unit.run_time, words, script, spec.name)
