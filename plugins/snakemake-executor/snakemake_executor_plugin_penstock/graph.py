"""What of the graph of jobs comes next. Snakemake's graph is not meant to be read by executors: whatever of it is not
as expected ends in `UnknownGraph`, and then nothing is foreseen. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["SOONEST", "Foreseen", "UnknownGraph", "foreseen", "parents_of", "told_as", "upcoming"]

_NEEDED: Final = ("needrun_jobs", "finished", "needrun", "dependencies", "depending")
_ROUND: Final = 10.0  # seconds: jobs that are due within them are told together
_MOST: Final = 200  # groups that are told
SOONEST: Final = 1.0  # seconds: what is due now is no longer foreseen


class UnknownGraph(Exception):
    """This release of Snakemake has another graph."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A job that will be: what it asks for, how long (s) it is thought to run, and in how many seconds it may start."""

    cores: float
    memory: int | None
    seconds: float | None
    after: float


def parents_of(dag: Any, job: Any) -> list[Any]:  # noqa: ANN401
    """The jobs that have to end before this one can start. Raises UnknownGraph."""
    try:
        return [p for p in dag.dependencies[job] if dag.needrun(p) and not dag.finished(p)]
    except (AttributeError, KeyError, TypeError) as e:
        raise UnknownGraph(str(e)) from e


def upcoming(dag: Any) -> dict[Any, list[Any]]:  # noqa: ANN401
    """Every job that has not ended, with the jobs that have to end before it, which come first. Raises UnknownGraph."""
    if missing := [name for name in _NEEDED if not hasattr(dag, name)]:
        raise UnknownGraph(f"it has no {', '.join(missing)}")
    try:
        before = {job: parents_of(dag, job) for job in dag.needrun_jobs()}
    except (AttributeError, TypeError) as e:
        raise UnknownGraph(str(e)) from e
    found: dict[Any, list[Any]] = {}
    open_parents = {job: {p for p in parents if p in before} for job, parents in before.items()}
    children: dict[Any, list[Any]] = {}
    for job, parents in open_parents.items():
        for parent in parents:
            children.setdefault(parent, []).append(job)
    ready = [job for job, parents in open_parents.items() if not parents]
    while ready:
        job = ready.pop()
        found[job] = before[job]
        for child in children.get(job, ()):
            open_parents[child].discard(job)
            if not open_parents[child]:
                ready.append(child)
    return found


def foreseen(
    before: Mapping[Any, Sequence[Any]],
    given: Callable[[Hashable], bool],
    seconds: Callable[[Hashable], float | None],
    needs: Callable[[Hashable], tuple[float, int | None] | None],
    unknown: float,
) -> list[Foreseen]:
    """The jobs that nobody has been given yet, and when they may start if each starts as soon as its parents have
    ended. `given` jobs count with their whole time; `seconds` None: `unknown` is taken to find those after it. `needs`
    None: the job is not told.
    """
    ends: dict[Any, float] = {}
    found = []
    for job, parents in before.items():
        start = max((ends.get(p, 0.0) for p in parents), default=0.0)
        length = seconds(job)
        ends[job] = start + (unknown if length is None else length)
        if not given(job) and (asked := needs(job)) is not None:
            found.append(Foreseen(asked[0], asked[1], length, start))
    return found


def told_as(jobs: Sequence[Foreseen]) -> list[dict[str, Any]]:
    """As the pool is told: those that are alike together, the soonest first, at most some hundred groups."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for job in jobs:
        groups.setdefault((job.after // _ROUND, job.cores, job.memory, job.seconds), []).append(job.after)
    soonest = sorted(groups.items(), key=lambda group: group[0][0])[:_MOST]
    return [
        {
            "cores": cores,
            "memory": memory,
            "seconds": seconds,
            "count": len(times),
            "after": max(min(times), SOONEST),
        }
        for (_round, cores, memory, seconds), times in soonest
    ]
