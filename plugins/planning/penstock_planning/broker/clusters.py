"""One look at every cluster of a site, for choosing among them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

from penstock.api import SiteConfig, Snapshot
from penstock.core.observe import Observer
from penstock.errors import PenstockError, SlurmUnavailable, UserError
from penstock.future.turns import believed
from penstock.slurm.base import Reader

__all__ = ["ClusterView", "view_clusters"]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as it is now, without estimated starts that are too old to be believed. `addressed`: by its name, as it
    is not the one that is asked when none is named."""

    cluster: str
    site: SiteConfig
    snapshot: Snapshot
    backend: Reader
    addressed: bool = False


async def view_clusters(backend: Reader, only: Collection[str] = ()) -> tuple[list[ClusterView], list[str]]:
    """The clusters that answer (`only` these, if any are named), and of the others what is wrong with them.

    Raises `UserError` for a cluster that there is not, `SlurmUnavailable` when none answers.
    """
    problems = []
    try:
        names: Sequence[str] = await backend.clusters()
    except PenstockError as e:
        problems.append(f"other clusters are not known: {e}")
        names = [(await backend.site()).cluster]
    for name in only:
        if name not in names:
            raise UserError(f"-M: there is no cluster {name!r} (clusters: {', '.join(sorted(names))})")
    wanted = [name for name in names if not only or name in only]
    own = names[0] if len(names) == 1 else None
    found = await asyncio.gather(
        *(_view(backend, None if name == own else name) for name in wanted), return_exceptions=True
    )
    views = []
    for name, one in zip(wanted, found, strict=True):
        if isinstance(one, PenstockError):
            problems.append(f"cluster {name} is left out: {one}")
        elif isinstance(one, BaseException):
            raise one
        else:
            views.append(one)
    if not views:
        raise SlurmUnavailable("; ".join(problems))
    return views, problems


async def _view(asked: Reader, name: str | None) -> ClusterView:
    backend = asked if name is None else asked.on(name)
    site = await backend.site()
    snapshot = await Observer(backend, backend, min_interval=0.0, stale_after=inf).look()
    if snapshot.problems:
        raise SlurmUnavailable("; ".join(snapshot.problems))
    return ClusterView(site.cluster, site, believed(snapshot), backend, name is not None)
