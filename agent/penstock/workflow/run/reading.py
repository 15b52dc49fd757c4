"""How Slurm's answers are read: dependencies, and which part of a wait there is to learn from. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.values.waits import Observation
from penstock.workflow.model import Stage
from penstock.workflow.phases import Kept
from penstock.workflow.state import StageRun
from penstock.workflow.ties import Tie

__all__ = ["SiteRules", "names_parent", "observed_wait", "parents_named"]


_JOB: Final = re.compile(r":([0-9]+)", re.ASCII)
_FAILED_ON: Final = re.compile(r":([0-9]+)[^,?(]*\(failed\)", re.ASCII)
_HEARD: Final = 90.0
"""Seconds after which a request that Slurm was sent is surely answered, or lost."""
_MARGIN: Final = 1.1
"""Work that takes a tenth longer than expected still ends within the limit of a job that has idled before."""


@dataclass(frozen=True, slots=True)
class SiteRules:
    """The site's rules that matter here; see `Runner`."""

    accrues: bool
    cycle: float
    grace: float = 300.0
    whole_nodes: bool = False
    ages_from_release: bool = False
    remembers: float = 0.0
    may_age: bool = False

    def ages(self, kept: Kept) -> bool:
        """Whether a job that was kept back so, and depends on others, ages from its release on."""
        return self.accrues or (self.ages_from_release and kept is Kept.BEGIN)

    def remembers_since(self, look: float, now: float) -> bool:
        """Whether a job that a look at that instant showed alive is still in Slurm's memory when a request sent now is
        heard, however it has ended meanwhile: then a dependency on it is not dropped without a word."""
        return now - look <= self.remembers - _HEARD

    def grace_of(self, unit: Stage) -> float:
        """How long (s) this job may idle before its work: the time limit has to cover both."""
        return min(self.grace, max(unit.time_limit - _MARGIN * unit.run_time, 0.0))


def parents_named(dependency: str) -> frozenset[str]:
    """The numbers of all jobs on which a Dependency as Slurm prints it ("afterok:12(unfulfilled),afterany:3") has
    `afterok`."""
    terms = (term.strip() for term in dependency.replace("?", ",").split(","))
    return frozenset(number for term in terms if term.startswith("afterok:") for number in _JOB.findall(term))


def failed_on(dependency: str) -> frozenset[int]:
    """The jobs whose end Slurm takes for a failure, by which this Dependency is never satisfied
    ("afterok:12(failed)")."""
    return frozenset(int(number) for number in _FAILED_ON.findall(dependency))


def names_parent(dependency: str, parent: int) -> bool:
    """Whether it has `afterok` on this job."""
    return str(parent) in parents_named(dependency)


def observed_wait(site: SiteRules, stage: StageRun, ready_at: float | None) -> Observation | None:
    """The wait to learn from, None as long as it is not known. `ready_at` is when its last parent ended, if known.

    Without a dependency, or where dependent jobs do not age: start - eligible. A job that ages while it waits for its
    parents waits from its submission (its release, if that was seen: held jobs do not wait), one tied to nodes of
    theirs from when it was eligible: exact if it started later than one cycle after the last end of its parents, else
    at most the time up to that end.
    """
    if stage.start is None:
        return None
    if stage.tie is Tie.NODES:
        since = stage.eligible
    elif _ages_behind_parents(site, stage):
        since = _let_go_at(stage)
    else:
        return None if stage.eligible is None else Observation(max(stage.start - stage.eligible, 0.0))
    if since is None or ready_at is None:
        return None
    if since < ready_at and abs(stage.start - ready_at) <= site.cycle:
        return Observation.at_most(ready_at - since)
    return Observation(max(stage.start - since, 0.0))


def _ages_behind_parents(site: SiteRules, stage: StageRun) -> bool:
    if stage.own is not None:
        return bool(stage.after) and site.ages(stage.own.kept)
    return bool(stage.depends_on) and (stage.tie is Tie.AGED or (stage.tie is Tie.AFTEROK and site.accrues))


def _let_go_at(stage: StageRun) -> float | None:
    """Since when it has aged; None: nobody knows, or it waited for more than its parents."""
    own = stage.own
    if stage.submitted is None or (own is not None and own.base):
        return None
    if own is not None and own.kept is Kept.BEGIN and stage.released is None:
        return None
    return max(stage.submitted, stage.released or stage.submitted)
