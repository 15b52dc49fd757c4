"""What a longer time limit costs in Slurm's plan by nodes: it finds its hole later. Pure.

A plan that counts nodes (`replay`) is too hopeful of long jobs: enough free nodes at every instant need not be the same
ones throughout, and those that idle now may be what a wide job was promised for later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.future.cluster import TASKS, Cluster
from penstock.future.profile import place

__all__ = ["Longer", "delays"]

_DEPTH: Final = 100
"""Places that are given out before; Slurm's default of bf_max_job_test."""


class Longer(NamedTuple):
    """So many nodes for `long` seconds instead of `short`."""

    nodes: int
    short: float
    long: float


def delays(cluster: Cluster, partition: str, wishes: Sequence[Longer]) -> list[float]:
    """How much later (s) each of these would start in the partition, submitted now, than if it asked for the short
    time; infinity: it never would. All who wait are placed before it by limits, where each can start first."""
    if not wishes:
        return []
    mine, now, profile = cluster.nodes_of(partition), cluster.now, cluster.free()
    left = _DEPTH
    for entry in cluster.waiting:
        for _ in range(min(max(entry.job.tasks, 1), TASKS, left) if entry.within & mine else 0):
            place(profile, entry.ask, now)
            left -= 1
    found = []
    for nodes, *times in wishes:
        short, long = (profile.earliest(nodes, time, now, mine) for time in times)
        found.append(math.inf if long is None or short is None else long[0] - short[0])
    return found
