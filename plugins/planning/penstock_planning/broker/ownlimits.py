"""Limits of QOS and associations that no job of a bag could ever keep, whatever else its owner runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.api import Limit, OwnerLimits
from penstock.core.ownlimits import binding, said
from penstock_planning.broker.shape import JobShape

__all__ = ["beyond", "longest"]

_AT_ONCE: Final = frozenset({"MaxTRESPerJob", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"})
"""What a single job has to fit into."""


def beyond(known: OwnerLimits, shape: JobShape, cpus: int, enforced: Collection[str]) -> str | None:
    """Why Slurm would never run such a job for its owner; None: nothing is known against it. `cpus` are a node's.

    `enforced` is the site's AccountingStorageEnforce: without limits in it Slurm holds nobody to them.
    """
    if not {"limits", "safe"} & set(enforced):
        return None
    taken = {
        "node": shape.nodes,
        "cpu": shape.nodes * (cpus if shape.whole else shape.per * shape.cores),
        "gres/gpu": shape.nodes * shape.per * sum(shape.gpus.values()),
    }
    for holder, limit in binding(known):
        needed = _needed(limit, shape, taken)
        if needed is not None:
            return f"{said(holder, limit)}, {needed}"
    return None


def longest(known: OwnerLimits) -> float | None:
    """The longest time limit (s) that the owner's jobs may have; None: no limit is known."""
    return min((limit.value for _, limit in binding(known) if limit.name == "MaxWall"), default=None)


def _needed(limit: Limit, shape: JobShape, taken: dict[str, int]) -> str | None:
    """What a job needs more than the limit lets it have."""
    if limit.name == "MaxWall":
        return f"a job asks for {shape.limit / 60:g} min" if shape.limit > limit.value else None
    if limit.name not in _AT_ONCE or taken.get(limit.tres, 0) <= limit.value:
        return None
    return f"a job needs {limit.tres}={taken[limit.tres]}"
