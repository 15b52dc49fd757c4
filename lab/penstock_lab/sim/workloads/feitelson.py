"""Feitelson's workload model of 1996 (Packing Schemes for Gang Scheduling, JSSPP 1996): rigid jobs that are run again.

Size. Harmonic of order 1.5: size n has a weight of n^-1.5, and small sizes and powers of two more. The paper tailors
the latter by hand, size by size; here it is two factors, chosen so that on 128 processors some three quarters of the
programs have a power of two, as in the logs behind the model.

Run time. Hyperexponential of two stages whose means are 1 and 7 units: the first with probability 0.95 - 0.2 n/N on a
machine of N processors, so that large jobs tend to run longer. The unit is an hour here; the paper has none.

Repetition. A program is run k times with a probability in proportion to k^-2.5 (k up to 1,000), each time of the same
size and run time, and again as soon as it has ended. In the workload the next run is submitted when the one before it
would end without a wait, and names it as preceding job.

The constants (orders, means, the probability's slope) are the paper's as remembered, not checked against its text or
program: take the model for its shape, not for exact figures.

Arrivals of programs (their first runs) are a Poisson process; a wanted load changes nothing but this process.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock_lab.sim.workloads.base import Floats, Workload, assemble, stretch_for

__all__ = ["MEANS", "UNIT", "feitelson", "first_stage", "repetitions", "size_weights"]

UNIT: Final = 3600.0
"""Seconds that the means of the run times are counted in."""
MEANS: Final = (1.0, 7.0)
_GAP: Final = 1200.0  # mean seconds between programs, where no load is asked for
_SIZE_ORDER: Final = 1.5
_SMALL: Final = 10
_SMALL_FACTOR: Final = 1.5
_POWER_FACTOR: Final = 2.5
_REPEAT_ORDER: Final = 2.5
_MOST_RUNS: Final = 1000


def size_weights(procs: int) -> Floats:
    """The probabilities of the sizes 1 to `procs`."""
    size = np.arange(1, procs + 1)
    weight = size**-_SIZE_ORDER
    weight[(size > 1) & (size < _SMALL)] *= _SMALL_FACTOR
    weight[(size > 1) & (size & (size - 1) == 0)] *= _POWER_FACTOR
    return np.asarray(weight / weight.sum())


def repetitions() -> Floats:
    """The probabilities of 1, 2, … runs of a program."""
    weight = np.arange(1, _MOST_RUNS + 1) ** -_REPEAT_ORDER
    return np.asarray(weight / weight.sum())


def first_stage(size: np.ndarray[tuple[int, ...], np.dtype[np.int64]], procs: int) -> Floats:
    """The probability that a job of this size is one of the short ones."""
    return 0.95 - 0.2 * size / procs


def feitelson(jobs: int, procs: int, seed: int, load: float | None = None) -> Workload:
    """So many jobs (runs of programs) for a machine of so many processors; None for `load` keeps a gap of 20 minutes.

    UserError for a load that cannot be had.
    """
    of_sizes, of_runs, of_repeats, of_gaps = np.random.default_rng(seed).spawn(4)
    runs = of_repeats.choice(np.arange(1, _MOST_RUNS + 1), size=jobs, p=repetitions())
    programs = int(np.searchsorted(np.cumsum(runs), jobs)) + 1
    program = np.repeat(np.arange(programs), runs[:programs])[:jobs]
    size = of_sizes.choice(np.arange(1, procs + 1), size=programs, p=size_weights(procs))[program]
    short = of_runs.random(programs)[program] < first_stage(size, procs)
    run = of_runs.exponential(size=programs)[program] * UNIT * np.where(short, *MEANS)
    run = np.floor(np.maximum(run, 1.0))
    first = np.cumsum(of_gaps.exponential(_GAP, programs))[program]
    begins = np.flatnonzero(np.diff(program, prepend=-1))  # each program's first job
    nth = np.arange(jobs) - begins[program]  # runs of the same program ahead of this one

    stretch = 1.0
    if load is not None:
        stretch = stretch_for(load, lambda by: np.asarray(first * by), float(np.dot(run, size)), procs)
    submit = np.asarray(first * stretch + nth * run)
    preceding = np.where(nth > 0, np.arange(jobs) - 1, -1)
    return assemble(submit, run, size, np.zeros(jobs, dtype=np.int64), ("batch",), program + 1, preceding)
