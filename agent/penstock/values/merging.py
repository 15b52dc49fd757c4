"""On which releases of Slurm a resizer may be merged into a job: where that was tried, and nowhere else. Pure.

The merging update (`scontrol update jobid=RESIZER NumNodes=0`) ends slurmctld on 25.11 and on 26.05.0 to 26.05.3: it
looks through the list of licences of jobs that have none (`_valid_license_job_expansion` in job_mgr.c). Whoever sends
it asks here first: the choice of the way (`malleable.ways`), and, last, the back end itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from penstock.api import Reason, SiteConfig, release_name

__all__ = [
    "TESTED",
    "Version",
    "added",
    "kills",
    "obstacle_to_merge",
    "obstacles_to_merge",
    "shrinks",
    "why_not",
]

Version = tuple[int, ...]

TESTED: Final[tuple[Version, ...]] = ((22, 5, 8), (24, 11, 5), (26, 5, 5))
"""Releases on which merging was tried and works; later patches of these count as tried, too."""

_KILLS: Final[tuple[tuple[Version, Version], ...]] = (((25, 11), (25, 11, 9999)), ((26, 5), (26, 5, 3)))
_CRASH: Final = "one merge ends slurmctld there (a SIGSEGV in _valid_license_job_expansion)"


def kills(version: Version) -> bool:
    """Whether the merging update is known to end slurmctld of that release. Without its patch it may be any."""
    return any(first <= version <= last for first, last in _KILLS)


def why_not(version: Version, added: Collection[Version] = ()) -> str | None:
    """Why nothing may be merged on that release, None where it may. `added`: releases that the site has tried itself
    (`malleable.merge_releases`); those that are known to end are not among them, whoever says so."""
    if kills(version):
        return f"Slurm is {release_name(version)}, and {_CRASH}"
    if version in added or any(version[:2] == tried[:2] and version >= tried for tried in TESTED):
        return None
    return f"Slurm is {release_name(version)}, and merging was tried on {_tested()} only"


def shrinks(site: SiteConfig) -> bool:
    """Whether jobs may give back nodes of their own here."""
    return "disable_job_shrink" not in site.scheduler_parameters


def obstacle_to_merge(site: SiteConfig, *, gres: bool, added: Collection[Version] = ()) -> str | None:
    """Why no resizer can be merged into a job, None when it can. `gres`: the job has some; `added`: releases on which
    the site has tried it."""
    return next((obstacle.text for obstacle in obstacles_to_merge(site, gres=gres, added=added)), None)


def obstacles_to_merge(site: SiteConfig, *, gres: bool, added: Collection[Version] = ()) -> tuple[Reason, ...]:
    """All that keeps a resizer from being merged into a job here, each under a code of its own."""
    found = []
    if (why := why_not(site.version, added)) is not None:
        found.append(Reason("merge-release", why))
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


def added(release: object) -> Version:
    """A release that a site names in its configuration, such as `25.05.3`. Raises ValueError with what is wrong."""
    if not isinstance(release, str) or not re.fullmatch(r"[0-9]{2}\.[0-9]{2}\.[0-9]{1,4}", release, re.ASCII):
        raise ValueError("must be a release of Slurm with its patch, such as 25.05.3, as `scontrol version` writes it")
    version = tuple(int(part) for part in release.split("."))
    if kills(version):
        raise ValueError(f"cannot be of 25.11, or 26.05.0 to 26.05.3, as {_CRASH}")
    return version


def _tested() -> str:
    return f"{', '.join(release_name(v) for v in TESTED)} and later patches of these"
