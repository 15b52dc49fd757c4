"""The batch script of an elastic job. Pure."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict

from dmr.elastic.words import ElasticPlan
from penstock.resize.recipes.model import ElasticJob

__all__ = ["batch_script", "options"]

_END = "END_OF_PLAN"


def options(job: ElasticJob) -> list[str]:
    """What sbatch is asked for: as many nodes as the job has at least, which are the base that it keeps.

    Whole nodes (`--exclusive`), as those are that the agent gets for it; the file's own `sbatch` words come last.
    """
    found = [f"--job-name={job.name}", f"--nodes={job.plan.minimum}"]
    if job.time is not None:
        found.append(f"--time={max(1, math.ceil(job.time / 60))}")
    for name in ("partition", "account", "qos", "output"):
        if (value := getattr(job, name)) is not None:
            found.append(f"--{name}={value}")
    if job.exclusive:
        found.append("--exclusive")
    return [*found, *job.sbatch]


def batch_script(plan: ElasticPlan, words: Sequence[str], python: str) -> str:
    """The script; `python` is one that has `dmr`, as the nodes see it."""
    lines = ["#!/bin/bash", *(f"#SBATCH {shlex.quote(word)}" for word in words)]
    told = json.dumps({k: v for k, v in asdict(plan).items() if v not in (None, "")}, indent=1)
    return "\n".join([*lines, f"exec {shlex.quote(python)} -m dmr.elastic --plan - <<'{_END}'", told, _END, ""])
