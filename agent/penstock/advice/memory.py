"""Less memory, where a user's own runs say so: a job that asks for less fits beside others sooner. Pure.

The risk is that of `advice`: of n runs and the next one any may have used the most. Accounting samples, every 30 s
unless the site says otherwise, and may miss a peak: a tenth is put on top of what it saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.advice.advice import JobKind, by_kind, latest_of
from penstock.advice.overrun import overrun_probability
from penstock.api import AccountingRecord, JobState

__all__ = ["MemoryAdvice", "PastMemory", "advise_memory", "past_memory"]

_TOP: Final = 1.1
_STEP: Final = 64 * 1024.0**2
_WORTH: Final = 0.9
_COUNTS: Final = frozenset({JobState.COMPLETED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY})


@dataclass(frozen=True, slots=True)
class PastMemory:
    """What the latest runs of a kind used (bytes a node, at most, in any order), infinite where a run was ended for
    lack of memory, and what the last one asked for (bytes a node, None: not known); of `unknown` runs nothing is said.
    """

    kind: JobKind
    used: tuple[float, ...]
    asked: float | None
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class MemoryAdvice:
    """The memory (bytes a node) that a kind of job could ask for, None: what it asks for now, and the probability that
    a run uses more than the runs that it was taken from, or than all of them where nothing is suggested."""

    past: PastMemory
    memory: float | None
    risk: float


def past_memory(
    records: Iterable[AccountingRecord],
    memory: Mapping[int, tuple[float | None, float | None]],
    named: Callable[[str], str] = str,
) -> list[PastMemory]:
    """The ended jobs by their kind, those with the most runs first. `memory` has by job what it asked for and what it
    used (bytes a node, None: not known)."""
    out = []
    for kind, jobs in by_kind(records, _COUNTS, named).items():
        latest = latest_of(jobs)
        used = []
        for job in latest:
            seen = memory.get(job.id, (None, None))[1]
            used.append(math.inf if job.state is JobState.OUT_OF_MEMORY else seen)
        known = tuple(each for each in used if each is not None)
        out.append(PastMemory(kind, known, memory.get(latest[-1].id, (None, None))[0], len(used) - len(known)))
    return sorted(out, key=lambda past: (-len(past.used), past.kind))


def advise_memory(past: PastMemory, risk: float) -> MemoryAdvice:
    """The least memory of which a run needs more with at most this probability, if it is worth it."""
    most = max((used for used in past.used if used < math.inf), default=0.0)
    asked = 0.0 if past.asked is None else past.asked
    for used in sorted(set(past.used)):
        memory = _STEP * math.ceil(used * _TOP / _STEP) if used < math.inf else math.inf
        if memory > _WORTH * asked:
            break
        if (over := overrun_probability(past.used, used)) <= risk:
            return MemoryAdvice(past, memory, over)
    return MemoryAdvice(past, None, overrun_probability(past.used, most))
