"""Figure 5 of the ASA paper: 1000 waits whose level changes at 0, 200, 400, 600 and 800, and who follows how fast.

Levels are drawn from the 53 alternatives, alike, never twice in a row; a wait is its level times exp(noise * N(0, 1)).
A learner's estimate costs 0 if it is nearest to the same alternative as the true wait, else 1 (equation 3); beside it
stands the mean of |log10(estimate / wait)|. Every learner meets the same waits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.values.waits import Observation
from penstock.waits.learners.alternatives import ALTERNATIVES, log_error, nearest
from penstock.waits.learners.learners import make
from penstock_lab.intervals import Interval, mean_of

__all__ = ["ITERATIONS", "NOISES", "ROWS", "SEEDS", "Outcome", "run", "waits"]

ITERATIONS: Final = 1000
LEVELS: Final = 5
SEEDS: Final = 50
NOISES: Final = (0.0, 0.2, 0.5, 1.0)
ROWS: Final = ("asa-default", "asa-greedy", "asa-tuned", "share", "share-mix", "last", "median")

_LEARNER_SEED: Final = 1_000_003
"""Set apart from the waits' seeds: a learner's draws must not be those that made the waits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One learner under one noise. `losses` are cumulative at the end, `errors` the mean |log10 error|, one a seed;
    `curve` is the mean loss by iteration; `estimates` (s) are those of the first seed."""

    predictor: str
    noise: float
    losses: tuple[float, ...]
    errors: tuple[float, ...]
    curve: NDArray[np.float64]
    estimates: NDArray[np.float64]

    @property
    def loss(self) -> Interval:
        """The mean over the seeds."""
        return mean_of(self.losses)

    @property
    def error(self) -> Interval:
        """The mean over the seeds."""
        return mean_of(self.errors)

    def row(self) -> dict[str, float | str]:
        """The table's row: means over the seeds, and their 95 % intervals."""
        loss, error = self.loss, self.error
        return {
            "predictor": self.predictor,
            "noise": self.noise,
            "loss_mean": loss.value,
            "loss_low": loss.low,
            "loss_high": loss.high,
            "log10_error": error.value,
            "log10_error_low": error.low,
            "log10_error_high": error.high,
        }


def waits(seed: int, noise: float, iterations: int = ITERATIONS) -> NDArray[np.float64]:
    """One seed's true waits in seconds. The levels depend on the seed alone."""
    rng = np.random.default_rng(seed)
    levels: list[int] = []
    while len(levels) < LEVELS:
        level = int(rng.integers(len(ALTERNATIVES)))
        if not levels or levels[-1] != level:
            levels.append(level)
    true = np.repeat(np.array(ALTERNATIVES)[levels], iterations // LEVELS)
    return np.asarray(true * np.exp(noise * rng.standard_normal(len(true))), dtype=np.float64)


def measure(predictor: str, noise: float, seeds: int, iterations: int = ITERATIONS) -> Outcome:
    """One learner under one noise, over the first `seeds` seeds."""
    wrong = np.zeros((seeds, iterations))
    estimates = np.zeros(iterations)
    errors = [0.0] * seeds
    for seed in range(seeds):
        learner, rng = make(predictor, ALTERNATIVES), np.random.default_rng([seed, _LEARNER_SEED])
        for i, wait in enumerate(waits(seed, noise, iterations).tolist()):
            estimate = learner.predict(rng)
            wrong[seed, i] = nearest(ALTERNATIVES, estimate.seconds) != nearest(ALTERNATIVES, wait)
            errors[seed] += log_error(estimate.seconds, wait) / iterations
            if seed == 0:
                estimates[i] = estimate.seconds
            learner.update(Observation(wait), estimate, rng)
    total = wrong.cumsum(axis=1)
    losses = tuple(float(x) for x in total[:, -1])
    return Outcome(predictor, noise, losses, tuple(errors), total.mean(axis=0), estimates)


def run(
    seeds: int = SEEDS,
    noises: Sequence[float] = NOISES,
    predictors: Sequence[str] = ROWS,
    processes: int | None = None,
) -> list[Outcome]:
    """All learners under all noises, by noise, then in the order given; spread over processes (default: the CPUs)."""
    cases = [(predictor, noise) for noise in noises for predictor in predictors]
    # The dear ones first, so that no process is left alone with one of them at the end.
    order = sorted(range(len(cases)), key=lambda i: cases[i][0] not in ("share-mix", "asa-tuned"))
    with ProcessPoolExecutor(processes or len(os.sched_getaffinity(0))) as pool:
        futures = {i: pool.submit(measure, *cases[i], seeds) for i in order}
        return [futures[i].result() for i in range(len(cases))]
