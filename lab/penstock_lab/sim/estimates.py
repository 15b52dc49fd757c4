"""What users say how long their jobs will run: the estimates that the policies plan by.

actual    the run time itself
user      what the log says (a workload model has nobody to ask)
times:F   the run time times F
f:F       between the run time and F + 1 times it, all equally likely: the f-model of Mu'alem and Feitelson
          (IEEE TPDS 12(6), 2001)
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import UserError
from penstock_lab.sim.trace import Trace

__all__ = ["FORMS", "MAX_FACTOR", "Estimates", "parse_estimates"]

FORMS: Final = "actual, user, times:F or f:F with a number F, such as times:2 or f:4"
MAX_FACTOR: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Estimates:
    """A rule; `factor` is the F of times and f."""

    rule: str
    factor: float = 1.0

    def __str__(self) -> str:
        return f"{self.rule}:{self.factor:g}" if self.rule in ("times", "f") else self.rule

    @property
    def random(self) -> bool:
        """Whether a seed makes a difference."""
        return self.rule == "f"

    def of(self, trace: Trace, seed: int) -> array[int]:
        """The estimates (seconds, rounded up) of the trace's jobs; `user` keeps those that it has."""
        if self.rule == "user":
            return trace.estimate
        if self.rule == "actual":
            return trace.run[:]
        run = np.frombuffer(trace.run, dtype=np.int64)
        if self.rule == "times":
            seconds = run * self.factor
        else:
            seconds = run * np.random.default_rng([seed, 0xF]).uniform(1.0, self.factor + 1.0, len(run))
        column = array("q")
        column.frombytes(np.maximum(np.ceil(seconds), run).astype(np.int64).tobytes())
        return column


def parse_estimates(text: str) -> Estimates:
    """The rule that `text` names; UserError says which there are."""
    rule, colon, number = text.partition(":")
    if not colon and rule in ("actual", "user"):
        return Estimates(rule)
    least = {"times": 1.0, "f": 0.0}.get(rule)
    try:
        factor = float(number)
    except ValueError:
        least = None
        factor = 0.0
    if least is None or not least <= factor <= MAX_FACTOR:
        raise UserError(f"estimates are {FORMS} up to {MAX_FACTOR:g}, not {text[:40]!r}")
    return Estimates(rule, factor)
