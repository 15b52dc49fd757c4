"""The gamma distribution's cumulative distribution function, which numpy does not have."""

from __future__ import annotations

from math import exp, lgamma, log

__all__ = ["gamma_cdf"]


def gamma_cdf(x: float, shape: float, scale: float) -> float:
    """P(X <= x) for X ~ gamma(shape, scale).

    By the power series of the lower incomplete gamma function (Abramowitz and Stegun 6.5.29), all of whose terms are
    positive, so that nothing cancels; good to about 12 digits for the shapes used here.
    """
    if x <= 0:
        return 0.0
    z = x / scale
    term = total = 1.0
    n = shape
    while term > total * 1e-17:
        n += 1
        term *= z / n
        total += term
        if total > 1e280:  # far beyond the mean: all of it
            return 1.0
    return min(1.0, exp(shape * log(z) - z - lgamma(shape + 1) + log(total)))
