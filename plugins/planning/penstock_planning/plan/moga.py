"""The multi-objective genetic algorithm of Fonseca and Fleming (1993) as Singh 2008 uses it (section 4.5).

A plan is a bit per slot. Three things are left open there: cost and makespan of an infeasible plan are infinite, which
would spoil the normalisation of (11), so such plans are left out of it and ranked last; every pair of the mating pool
is crossed; and sigma_share stays a parameter (its 0.041 suits a front of 50 points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock_planning.plan.front import Evaluation, Genome, ParetoPoint

__all__ = ["Fitness", "MogaSettings", "assign_fitness", "moga"]

Floats = NDArray[np.float64]
Bits = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MogaSettings:
    """The paper's values. `start`: plans that the first population holds; the rest of it is random."""

    population: int = 100
    iterations: int = 10
    sigma: float = 0.041
    start: tuple[Genome, ...] = ()


class Fitness(NamedTuple):
    """Per plan: its rank (8), raw fitness (10), niche count (11), fitness after sharing and scaling (12, 13), and the
    probability of being drawn (14)."""

    rank: NDArray[np.int64]
    raw: Floats
    niche: Floats
    shared: Floats
    scaled: Floats
    probability: Floats


def moga(evaluate: Evaluation, seed: int, settings: MogaSettings | None = None) -> tuple[ParetoPoint, ...]:
    """The Pareto set that the search finds; the same for the same seed."""
    settings = settings or MogaSettings()
    rng = np.random.default_rng(seed)
    bits = rng.random((settings.population, evaluate.size)) < 0.5
    for row, genome in enumerate(settings.start[: settings.population]):
        bits[row] = genome
    for _ in range(settings.iterations):
        values = _values(evaluate, bits)
        fitness = assign_fitness(values[:, 0], values[:, 1], settings.sigma)
        pool = bits[rng.choice(len(bits), size=len(bits), p=fitness.probability)]
        bits = _mutate(_cross(pool[rng.permutation(len(pool))], rng), rng)
    _values(evaluate, bits)
    return evaluate.archive.points


def _values(evaluate: Evaluation, bits: Bits) -> Floats:
    points = [evaluate(tuple(row)) for row in bits.tolist()]
    return np.array([(p.cost, p.makespan) for p in points])


def assign_fitness(cost: Sequence[float] | Floats, makespan: Sequence[float] | Floats, sigma: float) -> Fitness:
    """(8) to (14) for a population; infinite makespan: infeasible."""
    ac, sc = np.asarray(cost, dtype=float), np.asarray(makespan, dtype=float)
    size, real = len(ac), np.isfinite(sc)
    no_worse = (ac[:, None] <= ac) & (sc[:, None] <= sc)
    better = (ac[:, None] < ac) | (sc[:, None] < sc)
    dominates = np.where(real[:, None] & real, no_worse & better, real[:, None] & ~real)
    rank = 1 + dominates.sum(axis=0)
    _, group, mu = np.unique(rank, return_inverse=True, return_counts=True)
    before = np.concatenate(([0], np.cumsum(mu)[:-1]))
    raw = size - before[group] - 0.5 * (mu[group] - 1)
    niche = _niche(ac, sc, real, group, sigma)
    shared = raw / niche
    sums = np.bincount(group, weights=shared)
    scaled = shared * raw * mu[group] / sums[group]
    return Fitness(rank, raw, niche, shared, scaled, scaled / scaled.sum())


def _niche(ac: Floats, sc: Floats, real: NDArray[np.bool_], group: NDArray[np.int64], sigma: float) -> Floats:
    out = np.ones(len(ac))
    if not real.any() or sigma <= 0:
        return out
    a, s = ac[real], sc[real]
    a = (a - a.min()) / (np.ptp(a) or 1.0)
    s = (s - s.min()) / (np.ptp(s) or 1.0)
    distance = np.hypot(a[:, None] - a, s[:, None] - s)
    share = np.where(distance <= sigma, 1 - distance / sigma, 0.0)
    share[group[real][:, None] != group[real]] = 0.0
    out[real] = share.sum(axis=1)
    return out


def _cross(pool: Bits, rng: np.random.Generator) -> Bits:
    """Two-point crossover of the plans 0 and 1, 2 and 3…: the bits between two cuts change sides."""
    pairs, size = len(pool) // 2, pool.shape[1]
    cuts = np.sort(rng.integers(0, size + 1, (pairs, 2)), axis=1)
    place = np.arange(size)
    swap = (place >= cuts[:, :1]) & (place < cuts[:, 1:])
    first, second = pool[0 : 2 * pairs : 2], pool[1 : 2 * pairs : 2]
    out = pool.copy()
    out[0 : 2 * pairs : 2] = np.where(swap, second, first)
    out[1 : 2 * pairs : 2] = np.where(swap, first, second)
    return out


def _mutate(bits: Bits, rng: np.random.Generator) -> Bits:
    """Turn each bit with probability 1/n."""
    turned: Bits = bits ^ (rng.random(bits.shape) < 1 / max(bits.shape[1], 1))
    return turned
