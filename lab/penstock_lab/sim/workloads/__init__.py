"""Workload models: jobs that nobody submitted, but that look as if somebody had.

    lublin     Lublin and Feitelson 2003, batch and interactive jobs with a daily cycle
    feitelson  Feitelson 1996, programs that are run again and again
    base       what a model gives, and how it is brought to a load
    gamma      the gamma distribution's cumulative distribution function

The same seed gives the same jobs (with the same release of numpy, whose draws may change with releases), and a load
changes nothing of them but when they are submitted.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import UserError
from penstock_lab.sim.workloads.base import Workload
from penstock_lab.sim.workloads.feitelson import feitelson
from penstock_lab.sim.workloads.lublin import KINDS, lublin

__all__ = ["KINDS", "LOADS", "MAX_JOBS", "MAX_LOAD", "MODELS", "Workload", "generate"]

MODELS: Final = ("feitelson", "lublin")
MAX_JOBS: Final = 20_000_000
MAX_LOAD: Final = 100
LOADS: Final = f"greater than 0 and at most {MAX_LOAD}, such as 0.8"
"""What an offered load may be, in words."""


def generate(model: str, jobs: int, procs: int, seed: int, load: float | None = None, kinds: str = "both") -> Workload:
    """A workload by the model's name; `kinds` is for lublin alone. UserError for what cannot be generated."""
    if not 1 <= jobs <= MAX_JOBS:
        raise UserError(f"a model makes 1 to {MAX_JOBS} jobs, not {jobs}")
    if not 1 <= procs <= 1_000_000:
        raise UserError(f"a model's machine has 1 to 1000000 processors, not {procs}")
    if load is not None and not 0 < load <= MAX_LOAD:
        raise UserError(f"a load is {LOADS} (80 % of the machine), not {load:g}")
    if kinds != "both" and model in MODELS and model != "lublin":
        raise UserError(f"kinds of jobs are for the model lublin, not {model}")
    if model == "lublin":
        made = lublin(jobs, procs, seed, load, kinds)
    elif model == "feitelson":
        made = feitelson(jobs, procs, seed, load)
    else:
        raise UserError(f"the models are {', '.join(MODELS)}, not {model!r}")
    asked = "the model's own load" if load is None else f"load {load:g}"
    of = f" ({kinds})" if model == "lublin" else ""
    made.notes.append(f"model {model}{of}: {jobs} jobs for {procs} processors, {asked}, seed {seed}")
    return made
