"""What jobs are expected to wait in the queue. Instants are seconds since 1970, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from penstock.console.answers import Answer, AnswerPart

__all__ = ["ANSWERS", "Waits"]


class Calibration(AnswerPart):
    """How right predictions were: the mean |log10(estimate / wait)|, the shares that were off by at most one and ten
    minutes, the share of waits within their bound, and what the bounds cost (pinball loss in log10)."""

    predictions: int
    log10_error: float | None
    within_1_min: float | None
    within_10_min: float | None
    bounded: int
    coverage_95: float | None
    pinball_95: float | None


class Class(Calibration):
    """Jobs that are alike: nodes from and to, limits up to so many seconds (null: any), and their waits in seconds."""

    cluster: str
    partition: str
    qos: str
    account: str
    user: str
    nodes: tuple[int, int]
    time_limit: float | None
    gres: str
    memory_gb: float | None
    features: str
    fair_share_band: int | None
    waits: int
    last: float
    median: float


class Outlook(AnswerPart):
    """The wait to expect of one job. `experts` say what the estimate was made of, in seconds; `trust` are shares."""

    predictor: str
    partition: str
    nodes: int
    time_limit: float
    estimate: float
    quantiles: dict[Literal["50", "75", "95"], float]
    known_waits: int
    like_geometries: int
    experts: dict[str, float]
    trust: dict[str, float]
    calibration: Calibration


class Accuracy(Calibration):
    """How right `who` was: of the jobs that were predicted, or of all jobs of the queue. `beside`: on those alone of
    which that one said something, too."""

    jobs: Literal["predicted", "all"]
    who: Literal["penstock", "sbatch --test-only", "squeue --start"]
    beside: Literal["penstock", "sbatch --test-only", "squeue --start"] | None


class Waits(Answer):
    """`outlook` is null where no job was asked for. `live`: an agent answered, with a look at the queue."""

    live: bool
    calibration: Calibration
    geometries: list[Class]
    accuracy: list[Accuracy]
    outlook: Outlook | None


ANSWERS: Final[Mapping[str, Any]] = {"waits": Waits}
"""By the words after `penstock`."""
