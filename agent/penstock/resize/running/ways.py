"""Which way a job gets more nodes on this site, and why. Pure.

*companion*: a second job of the same user holds the added nodes. It works on every site, and what is added is charged
to the job's owner, as Slurm itself enforces. The application must be able to use nodes of a second job, and only the
job's own user can start anything in that one: an agent that is somebody else has the application's launcher ask for it
(`malleable.launcher_requests`).

*merge* moves a resizer's nodes into the job. It is done on releases on which it was tried only (`merging`), and
for jobs of the agent's own user only: what a resizer brings is charged to who asked for it, not to the job's owner.
Slurm allows it with `SchedulerParameters=permit_job_expansion` only, and refuses it when the resizer has any step: with
`PrologFlags=Contain` or `X11` every job has one, called extern. Under select/cons_tres a job with GRES cannot take
nodes, and Slurm says so when the resizer is half gone. What was merged can only be given back where shrinking is
allowed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from penstock.api import Job, Offer, Reason, SiteConfig
from penstock.resize.running.words import Way
from penstock.values import merging
from penstock.values.merging import Version, obstacle_to_merge

__all__ = [
    "GrowthChoice",
    "Preference",
    "choose",
    "needs_gres",
    "never_merged",
]

Preference = Literal["auto", "merge", "companion"]


@dataclass(frozen=True, slots=True)
class GrowthChoice:
    """How the job can grow, None when it cannot; `reason` says why it is this way."""

    way: Way | None
    reason: Reason


def needs_gres(site: SiteConfig, added: Collection[Version] = ()) -> bool:
    """Whether it depends on the GRES of the job if something can be merged into it."""
    return obstacle_to_merge(site, gres=False, added=added) is None and "linear" not in site.select_type


def never_merged(site: SiteConfig | None, job: Job, agent: str, added: Collection[Version] = ()) -> str | None:
    """Why nothing may be merged into this job, whatever was begun before (Slurm may be another release by now, and an
    older agent merged into jobs of others); None where it may. `agent` is the user that the agent acts as."""
    if site is None:
        return "the agent does not know the site's settings yet"
    if job.user != agent:
        return f"nodes merged into it would be charged to {agent}, past the limits of {job.user}"
    return merging.why_not(site.version, added)


def choose(
    preference: Preference,
    site: SiteConfig,
    offer: Offer,
    job: Job,
    agent: str,
    *,
    gres: bool,
    added: Collection[Version] = (),
) -> GrowthChoice:
    """The way for `job`, whose application made `offer`; `agent` is the user that the agent acts as."""
    merge = never_merged(site, job, agent, added) or obstacle_to_merge(site, gres=gres, added=added)
    companion = None
    if not offer.companion:
        companion = "the application cannot use nodes of a second job"
    elif job.user != agent and not offer.requests_nodes:
        companion = f"a second job of {agent} is of no use to {job.user}, and no launcher can submit one as {job.user}"
    if preference != "merge" and companion is None:
        return GrowthChoice(
            Way.COMPANION, Reason("by-companion", "a second job of the same user holds the added nodes")
        )
    if preference == "companion":
        return GrowthChoice(None, Reason("no-expansion", f"`malleable.backend: companion`, but {companion}"))
    if merge is None:
        why = "`malleable.backend` says so" if preference == "merge" else companion
        return GrowthChoice(Way.MERGE, Reason("by-merge", f"the added nodes become the job's own: {why}"))
    if preference == "merge":
        return GrowthChoice(None, Reason("no-expansion", f"`malleable.backend: merge`, but {merge}"))
    return GrowthChoice(
        None, Reason("no-expansion", f"this job cannot grow by a second job ({companion}) nor by merging ({merge})")
    )
