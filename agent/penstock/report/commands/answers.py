"""The report. Instants are seconds since 1970, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.answers import Answer, AnswerPart

__all__ = ["ANSWERS", "Report"]


class Figure(AnswerPart):
    """One number with its unit ("" for a count) and how it was found."""

    name: str
    title: str
    value: float
    unit: str
    how: str


class Comparison(AnswerPart):
    """Completed workflows beside plain chains (sbatch --dependency=afterok): `gain` of waiting for each (s, below 0:
    lost) with its interval of 95 %, from `low` to `high`; null where too little is known. `verdict` is gain, loss, none
    (seen), or unknown."""

    verdict: str
    workflows: int
    gain: float | None
    low: float | None
    high: float | None
    text: str


class Report(Answer):
    """What the agent was good for between two instants."""

    since: float
    until: float
    figures: list[Figure]
    comparison: Comparison


ANSWERS: Final[Mapping[str, Any]] = {"report": Report}
