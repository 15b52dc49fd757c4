"""How Slurm's answers are read: dependencies, holds, and which part of a wait there is to learn from. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.api import Job
from penstock.waits.base import Observation
from penstock.workflow.state import StageRun

__all__ = ["Site", "is_held", "names_parent", "observed_wait"]


_TERMS: Final = re.compile(r"[,?]")
_IDS: Final = re.compile(r":(\d+)")


@dataclass(frozen=True, slots=True)
class Site:
    """The site's rules that matter here; see `Runner` for the two."""

    accrues: bool
    cycle: float


def names_parent(dependency: str, parent: int) -> bool:
    """Whether a Dependency as Slurm prints it ("afterok:12(unfulfilled),afterany:3") has `afterok` on `parent`."""
    return any(
        term.strip().startswith("afterok:") and str(parent) in _IDS.findall(term) for term in _TERMS.split(dependency)
    )


def is_held(job: Job) -> bool:
    """Whether a pending job waits for somebody to release it."""
    return job.priority == 0 or job.reason.startswith("JobHeld")


def observed_wait(site: Site, stage: StageRun, ready_at: float | None) -> Observation | None:
    """The wait to learn from, None as long as it is not known. `ready_at` is when its last parent ended, if known.

    Without a dependency, or where dependent jobs do not age: start - eligible. A dependent job that ages waits from its
    submission (its release, if that was seen: held jobs do not wait): exact if it started later than one cycle after
    the last end of its parents, else at most the time up to that end.
    """
    if stage.start is None:
        return None
    if not stage.depends_on or not site.accrues:
        return None if stage.eligible is None else Observation(max(stage.start - stage.eligible, 0.0))
    if stage.submitted is None or ready_at is None:
        return None
    since = max(stage.submitted, stage.released or stage.submitted)
    if since < ready_at and abs(stage.start - ready_at) <= site.cycle:
        return Observation.at_most(ready_at - since)
    return Observation(max(stage.start - since, 0.0))
