"""What keeps a job of the pool from being placed: a hold, a begin time, other jobs, its array's limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from penstock_pool.terms import AfterJob, JobTerms, WaitReason

__all__ = ["ConditionVerdict", "OtherJob", "dependency_text", "dependency_verdict", "wait_reason"]

_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class OtherJob:
    """A job that another one waits for: `started` and `ended` (seconds since 1970; None: not yet, or never), and
    whether it `completed` with exit code 0. A job of which nothing is known any more has ended, and not well."""

    started: float | None = None
    ended: float | None = None
    completed: bool = False


Find = Callable[[AfterJob], list[OtherJob]]
"""The jobs that a condition names: several of an array; none of those that are not known yet."""


class ConditionVerdict(Enum):
    """On a condition."""

    MET = auto()
    OPEN = auto()
    NEVER = auto()


def wait_reason(terms: JobTerms, *, held: bool, find: Find, running: int, now: float) -> WaitReason:
    """Why it has to wait, NONE if it may be placed; `running`: tasks of its array that are placed or run."""
    if held:
        return WaitReason.HELD
    if now < terms.begin:
        return WaitReason.BEGIN
    verdict = dependency_verdict(terms, find, now)
    if verdict is not ConditionVerdict.MET:
        return WaitReason.NEVER if verdict is ConditionVerdict.NEVER else WaitReason.DEPENDENCY
    if terms.array is not None and terms.array.most and running >= terms.array.most:
        return WaitReason.ARRAY
    return WaitReason.NONE


def dependency_verdict(terms: JobTerms, find: Find, now: float) -> ConditionVerdict:
    """On all conditions together."""
    found = [_condition(after, find, now) for after in terms.after]
    if not found:
        return ConditionVerdict.MET
    best, worst = (
        (ConditionVerdict.MET, ConditionVerdict.NEVER) if terms.one else (ConditionVerdict.NEVER, ConditionVerdict.MET)
    )
    if best in found:
        return best
    return worst if all(verdict is worst for verdict in found) else ConditionVerdict.OPEN


def dependency_text(terms: JobTerms, find: Find, now: float, is_array: Callable[[AfterJob], bool]) -> str:
    """What Slurm would show as its dependency: the conditions that are not met yet, "" for none. `is_array`: whether
    one that names no task means those of an array."""
    shown = []
    for after in terms.after:
        verdict = _condition(after, find, now)
        if verdict is ConditionVerdict.MET:
            continue
        state = "failed" if verdict is ConditionVerdict.NEVER else "unfulfilled"
        task = ("_*" if is_array(after) else "") if after.task is None else f"_{after.task}"
        job = "" if after.job is None else f":{after.job}{task}"
        delay = f"+{after.delay / _MINUTE:.0f}" if after.delay else ""
        shown.append(f"{after.kind}{job}{delay}({state})")
    return ("?" if terms.one else ",").join(shown)


def _condition(after: AfterJob, find: Find, now: float) -> ConditionVerdict:
    jobs = find(after)
    if after.kind == "after":
        begun = [math.inf if job.started is None else job.started for job in jobs]
        # One that was cancelled before it began counts as begun, as Slurm has it.
        begun = [ended if start == math.inf and (ended := job.ended) is not None else start
                 for start, job in zip(begun, jobs, strict=True)]  # fmt: skip
        return ConditionVerdict.MET if all(start + after.delay <= now for start in begun) else ConditionVerdict.OPEN
    if any(job.ended is None for job in jobs):
        return ConditionVerdict.OPEN
    if after.kind in ("afterany", "singleton"):
        return ConditionVerdict.MET
    if after.kind == "afternotok":
        return ConditionVerdict.MET if any(not job.completed for job in jobs) else ConditionVerdict.NEVER
    return ConditionVerdict.MET if all(job.completed for job in jobs) else ConditionVerdict.NEVER
