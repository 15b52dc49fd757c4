"""What a user's jobs could ask for instead. Durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.answers import Answer, AnswerPart

__all__ = ["ANSWERS", "Advice", "AdvisedJob", "AdvisedMemory"]


class AdvisedMemory(AnswerPart):
    """Bytes a node: what was `asked` for last and what a run `used` at most (null: not known). `suggested` (null: none
    is) is more than runs use but for the probability `risk`; of `unknown` runs accounting does not say it."""

    runs: int
    unknown: int
    asked: float | None
    used: float | None
    suggested: float | None
    risk: float


class AdvisedJob(AnswerPart):
    """A kind of job with its last `limit` (s). `suggested` (null: none is) is exceeded with probability `risk`, or the
    longest run so far is. `sooner`: by how many seconds it would start earlier now; null: not known. `time_min` is for
    `--time-min` beside `limit` (null: none), likewise. `memory`: null where accounting does not say what was used."""

    job: str
    nodes: int
    partition: str
    runs: int
    limit: float
    suggested: float | None
    risk: float
    sooner: float | None
    time_min: float | None
    time_min_risk: float
    memory: AdvisedMemory | None


class Advice(Answer):
    """Those with the most runs first; for the `risk` that was asked for there must be `runs_needed`. `no_memory`: why
    of memory nothing is known; `memory_unscheduled`: why asking for less would start no job sooner; `no_time_min`: why
    that would do nothing here. Empty where that is not so."""

    risk: float
    time_min_risk: float
    runs_needed: int
    no_memory: str
    memory_unscheduled: str
    no_time_min: str
    jobs: list[AdvisedJob]


ANSWERS: Final[Mapping[str, Any]] = {"advise": Advice}
"""By the words after `penstock`."""
