"""The learners by the names that the configuration knows them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.waits.learners.asa import AsaLearner
from penstock.waits.learners.base import Learner
from penstock.waits.learners.hinted import Hinted
from penstock.waits.learners.history import Last, Median
from penstock.waits.learners.qbets import Qbets
from penstock.waits.learners.share import ShareLearner
from penstock.waits.learners.share_mix import ShareMix

__all__ = ["DEFAULT", "PREDICTORS", "make"]

DEFAULT: Final = "share-mix"

PREDICTORS: Final[Mapping[str, Callable[[Sequence[float], str], Learner]]] = {
    "share-mix": lambda alternatives, gamma: ShareMix(alternatives),
    "asa-default": lambda alternatives, gamma: AsaLearner(alternatives, gamma),
    "asa-greedy": lambda alternatives, gamma: AsaLearner(alternatives, gamma, "greedy"),
    "asa-tuned": lambda alternatives, gamma: AsaLearner(alternatives, gamma, "tuned"),
    "share": lambda alternatives, gamma: ShareLearner(alternatives),
    "qbets": lambda alternatives, gamma: Qbets(),
    "slurm": lambda alternatives, gamma: Hinted("slurm"),
    "queue": lambda alternatives, gamma: Hinted("queue"),
    "last": lambda alternatives, gamma: Last(),
    "median": lambda alternatives, gamma: Median(),
}
"""From alternatives and gamma to a learner that knows nothing."""


def make(name: str, alternatives: Sequence[float], gamma: str = "constant") -> Learner:
    """A fresh learner. ValueError for an unknown name, alternatives that do not ascend and an unknown gamma."""
    if name not in PREDICTORS:
        raise ValueError(f"predictor must be one of {', '.join(PREDICTORS)}, not {name!r}")
    return PREDICTORS[name](alternatives, gamma)
