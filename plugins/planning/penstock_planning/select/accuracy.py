"""How good the model's predictions are: Eqs. 3 to 6 of Ha et al., errors, and whether resources are ranked right."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import nan

__all__ = ["amount_of", "epsilon", "over", "p2a", "ranked_right"]


def amount_of(cycles: float, rate: float) -> float:
    """The cycles that a task takes without instruction-level parallelism: cycles x instructions a cycle (Eqs. 3, 5)."""
    return cycles * rate


def p2a(predicted: float, actual: float) -> float:
    """p2a_cy: predicted over actual cycles (Eq. 4)."""
    return predicted / actual


def epsilon(ratio: float, rate: float) -> float:
    """The per cent of `ratio` (p2a_cy) that the actual instruction rate does not explain (Eq. 6)."""
    return abs(ratio - rate) / ratio * 100


def over(predicted: float, actual: float) -> float:
    """By how many per cent a prediction is too high; negative: too low."""
    return (predicted / actual - 1) * 100


def ranked_right(predicted: Mapping[str, float], actual: Mapping[str, float]) -> float:
    """The share of pairs of resources whose predicted run times are in the order of the actual ones.

    A pair that is predicted equal is not told apart, and wrong. nan without a pair whose actual times differ.
    """
    pairs = [(a, b) for a, b in combinations(sorted(actual), 2) if actual[a] != actual[b]]
    right = sum((predicted[a] - predicted[b]) * (actual[a] - actual[b]) > 0 for a, b in pairs)
    return right / len(pairs) if pairs else nan
