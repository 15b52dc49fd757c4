"""Which way a job gets more nodes on this site, and why. Pure.

*merge* moves a resizer's nodes into the job. Slurm allows it with `SchedulerParameters=permit_job_expansion` only, and
refuses it when the resizer has any step: with `PrologFlags=Contain` or `X11` every job has one, called extern. Under
select/cons_tres a job with GRES cannot take nodes, and Slurm says so when the resizer is half gone. What was merged can
only be given back where shrinking is allowed. *companion* works on every site, but the application must be able to use
nodes of a second job, and only the job's own user can start anything in that one: an agent that is somebody else has
the application's launcher ask for it (`malleable.errands`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.api import Job, Offer, Reason, SiteConfig
from penstock.malleable.words import Way

__all__ = ["Choice", "Preference", "choose", "needs_gres", "obstacle_to_merge", "obstacles_to_merge", "shrinks"]

Preference = Literal["auto", "merge", "companion"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How the job can grow, None when it cannot; `reason` says why it is this way."""

    way: Way | None
    reason: Reason


def shrinks(site: SiteConfig) -> bool:
    """Whether jobs may give back nodes of their own here."""
    return "disable_job_shrink" not in site.scheduler_parameters


def needs_gres(site: SiteConfig) -> bool:
    """Whether the choice depends on the GRES of the job."""
    return obstacle_to_merge(site, gres=False) is None and "linear" not in site.select_type


def obstacle_to_merge(site: SiteConfig, *, gres: bool) -> str | None:
    """Why no resizer can be merged into a job, None when it can. `gres`: the job has some."""
    return next((obstacle.text for obstacle in obstacles_to_merge(site, gres=gres)), None)


def obstacles_to_merge(site: SiteConfig, *, gres: bool) -> tuple[Reason, ...]:
    """All that keeps a resizer from being merged into a job here, each under a code of its own."""
    found = []
    if "permit_job_expansion" not in site.scheduler_parameters:
        found.append(Reason("job-expansion", "SchedulerParameters lacks permit_job_expansion"))
    if flags := sorted(site.prolog_flags & {"CONTAIN", "X11"}):
        text = f"PrologFlags={','.join(flags)} gives every job a step that forbids the merge"
        found.append(Reason("extern-step", text))
    if not shrinks(site):
        text = "SchedulerParameters has disable_job_shrink: what was merged could not be given back"
        found.append(Reason("job-shrink", text))
    if gres and "linear" not in site.select_type:
        found.append(Reason("merge-gres", f"the job has GRES, and {site.select_type} cannot merge them"))
    return tuple(found)


def choose(preference: Preference, site: SiteConfig, offer: Offer, job: Job, agent: str, *, gres: bool) -> Choice:
    """The way for `job`, whose application made `offer`; `agent` is the user that the agent acts as."""
    merge = obstacle_to_merge(site, gres=gres)
    companion = None
    if not offer.companion:
        companion = "the application cannot use nodes of a second job"
    elif job.user != agent and not offer.errands:
        companion = (
            f"a second job would belong to {agent}, and only {job.user} could use it; no launcher can ask for it"
        )
    if preference == "merge" or (preference == "auto" and merge is None):
        if merge is None:
            return Choice(Way.MERGE, Reason("by-merge", "the added nodes become the job's own"))
        return Choice(None, Reason("no-expansion", f"`malleable.backend: merge`, but {merge}"))
    if preference == "companion" or companion is None:
        if companion is None:
            why = merge if preference == "auto" else "`malleable.backend` says so"
            return Choice(Way.COMPANION, Reason("by-companion", f"a second job holds the added nodes: {why}"))
        return Choice(None, Reason("no-expansion", f"`malleable.backend: companion`, but {companion}"))
    return Choice(None, Reason("no-expansion", f"this job cannot grow: {merge}, and {companion}"))
