"""What workflows have waited, beside what a plain chain (`sbatch --dependency=afterok`, all at once) would have. Pure.

A job that depends on others is not planned by Slurm before they have ended, and where it does not age by then, it
waits from then on like one that is submitted at that moment. Of such jobs the state has both what was predicted and
what came of it: of first stages, and of those that were submitted when it was their turn. What their predictions have
been off by, on average, is added to the predictions of the stages that were in the queue before, and what these have
waited is taken off. A stage that depended on others from the beginning of its wait is a link of a plain chain itself:
nothing is gained by it. The agent's reaction is taken off of all. Where jobs keep their place while they depend on
others, a plain chain waits less than that, nobody knows how much: then the figure is the most that the gain can have
been.

Of a workflow whose stages share jobs because forecasts said so, the gain is what these said: of the same drawn futures,
with and without.

The interval is of 95 %, by a bootstrap over workflows, so that what is uncertain of the predictions is in it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from penstock.texts import plural
from penstock.workflow.metrics import waited
from penstock.workflow.phases import RunPhase
from penstock.workflow.state import WorkflowRun
from penstock.workflow.ties import Tie

__all__ = ["LEAST", "ChainComparison", "ChainTerms", "Verdict", "compared", "terms_of"]

LEAST: Final = 10
"""Of fewer workflows, or fewer predictions to learn their error from, nothing is claimed."""
_RESAMPLED: Final = 2000
_LEVEL: Final = 95.0


class Verdict(StrEnum):
    """What there is to say: a gain, a loss, that none is seen, or that it cannot be known here."""

    GAIN = "gain"
    LOSS = "loss"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ChainComparison:
    """`gain` of waiting per workflow (s, below 0: lost) with its interval from `low` to `high`; None where too little
    is known. `text` says it for people."""

    verdict: Verdict
    workflows: int
    gain: float | None
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ChainTerms:
    """Of one workflow: `ahead` stages that were in the queue before their turn, `spared` the sum of their predictions
    less what they have waited, `late` the agent's reactions (s). `errors` is the sum of what the predictions of
    `judged` stages fell short by (s). `foreseen`: `spared` is what forecasts said of stages that share jobs."""

    ahead: int
    spared: float
    late: float
    judged: int
    errors: float
    foreseen: bool = False


def terms_of(run: WorkflowRun) -> ChainTerms | None:
    """The terms of a workflow; None where it cannot be compared: it has not completed, has slots, its stages were put
    together into other jobs without a forecast, or there is no prediction of a stage that was ahead."""
    if run.phase is not RunPhase.COMPLETED or run.in_slots:
        return None
    if any(len(stage.covers) > 1 for stage in run.stages):
        if run.gain is None:
            return None
        late = sum(found.reaction for i in range(len(run.stages)) if (found := waited(run, i)) is not None)
        return ChainTerms(0, run.gain, late, 0, 0.0, foreseen=True)
    ahead = judged = 0
    spared = late = errors = 0.0
    for i, stage in enumerate(run.stages):
        found, ready = waited(run, i), run.ready_at(i)
        if found is None or ready is None or stage.submitted is None:
            return None
        late += found.reaction
        if stage.hindered is not None:  # nobody's wait for a turn
            continue
        early = bool(stage.after) and max(stage.submitted, stage.released or 0.0) < ready
        if early and (stage.own is not None or stage.tie is not Tie.AFTEROK):
            if stage.estimate is None:
                return None
            ahead += 1
            spared += stage.estimate - found.perceived
        elif not early and stage.estimate is not None:
            judged += 1
            errors += found.perceived - stage.estimate
    return ChainTerms(ahead, spared, late, judged, errors)


def compared(terms: Iterable[ChainTerms], keeps_place: bool | None) -> ChainComparison:
    """All of them together. `keeps_place`: whether jobs keep their place here while they depend on others."""
    known = tuple(terms)
    n, over = len(known), plural(len(known), "workflow")
    if not known:
        return ChainComparison(Verdict.NONE, 0, None, None, None, "no gain seen: no workflow to compare has completed")
    judged = sum(one.judged for one in known)
    if n < LEAST or (judged < LEAST and any(one.ahead for one in known)):
        why = over if n < LEAST else plural(judged, "prediction")
        text = f"no gain seen over {over}: it takes {LEAST} at least, and there are {why}"
        return ChainComparison(Verdict.NONE, n, None, None, None, text)
    gain, low, high = _interval(known)
    # Instants are exact to some 1e-7 s: what is no gain may not be 0. Below half a second nothing is said.
    gained, lost = round(low) > 0, round(high) < 0
    span = f"95 % interval {_minutes(low)} to {_minutes(high)}"
    foreseen = sum(one.foreseen for one in known)
    if foreseen:
        over += f" ({foreseen} of them by the forecasts that they were submitted on)"
    if not (gained or lost) or (gained and keeps_place is not False and foreseen < n):
        if gained:
            why = (
                "jobs keep their place in the queue here while they depend on others"
                if keeps_place
                else "it is not known whether jobs keep their place in the queue here while they depend on others"
            )
            most = f"at most {_minutes(gain)} each"
            text = f"not known over {over}: {why}, and what a plain chain waits then is not ({most})"
            return ChainComparison(Verdict.UNKNOWN, n, gain, low, high, text)
        text = f"no gain seen over {over} ({_minutes(gain)} each, {span})"
        return ChainComparison(Verdict.NONE, n, gain, low, high, text)
    if gained:
        text = f"gain {_minutes(gain)} of waiting for each workflow ({span}) over {over}"
        return ChainComparison(Verdict.GAIN, n, gain, low, high, text)
    span = f"95 % interval {_minutes(-high)} to {_minutes(-low)}"
    text = f"loss {_minutes(-gain)} of waiting for each workflow ({span}) over {over}"
    return ChainComparison(Verdict.LOSS, n, gain, low, high, text)


def _interval(known: Sequence[ChainTerms]) -> tuple[float, float, float]:
    columns = np.array([(t.ahead, t.spared - t.late, t.judged, t.errors) for t in known])
    rng, n = np.random.default_rng(1), len(known)
    drawn = [_gain(columns[rng.integers(n, size=n)].sum(axis=0), n) for _ in range(_RESAMPLED)]
    low, high = np.percentile(drawn, [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2])
    return _gain(columns.sum(axis=0), n), float(low), float(high)


def _gain(sums: np.ndarray[tuple[int], np.dtype[np.float64]], n: int) -> float:
    ahead, spared, judged, errors = sums
    return float((spared + (ahead * errors / judged if judged else 0.0)) / n)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if abs(seconds) < 120 else f"{seconds / 60:.1f} min"
