"""The paper's workloads (section 7.1, 7.5): so many jobs of three applications, in random order, one after the other.

As many of each application as possible (the remainder goes to CG, then Jacobi), shuffled; times between submissions are
exponential. The same number and seed give the same jobs at the same times, whatever version of them is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from penstock.api import JobSpec
from penstock_lab.papers.dmr.models import Kind, Model, models
from penstock_lab.papers.dmr.paper import FACTOR, INTERARRIVAL

__all__ = ["SEED", "Entry", "Version", "workload"]

SEED: Final = 1
_LIMIT: Final = 12 * 3600.0
"""Everybody's time limit: the paper sets none, and as Slurm plans with limits, none shall differ."""


@dataclass(frozen=True, slots=True)
class Version:
    """What a workload's users do. `size` they submit: the application's "maximum" or "preferred". `share` of the jobs
    is malleable, at random, and can be resized by `factor`. `moldable`: the malleable ones (all, where there are none)
    are submitted as a range of nodes that begins with the minimum; that of malleable ones ends with `up_to`."""

    size: Literal["maximum", "preferred"] = "maximum"
    moldable: bool = False
    share: float = 0.0
    factor: int = FACTOR
    up_to: Literal["maximum", "preferred"] = "maximum"


@dataclass(frozen=True, slots=True)
class Entry:
    """A job of a workload and when it is submitted."""

    submit: float
    spec: JobSpec
    model: Model
    malleable: bool
    factor: int


def workload(jobs: int, version: Version, seed: int = SEED, kind: Kind = "fitted") -> list[Entry]:
    """The jobs in order of submission, the first one at 0."""
    of_order, of_times, of_shares = np.random.default_rng([seed, jobs]).spawn(3)
    known = list(models(kind).values())
    order = of_order.permutation(np.arange(jobs) % len(known))
    submits = np.cumsum(of_times.exponential(INTERARRIVAL, jobs))
    malleable = set(of_shares.permutation(jobs)[: round(version.share * jobs)].tolist())
    found = []
    for number in range(jobs):
        model = known[order[number]]
        app = model.application
        ranged = version.moldable and (number in malleable or not version.share)
        size = version.up_to if ranged and number in malleable else version.size
        nodes = app.maximum if size == "maximum" else app.preferred
        name = f"{app.name}-{number}"
        fewest = app.minimum if ranged and app.minimum < nodes else None
        spec = JobSpec(name, "#!/bin/sh\n", nodes, _LIMIT, min_nodes=fewest)
        found.append(Entry(float(submits[number] - submits[0]), spec, model, number in malleable, version.factor))
    return found
