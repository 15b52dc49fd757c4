"""Job dependencies as sbatch has them: `afterok:1:2,afterany:3_7`, `after:4+10`, `expand:5`; `?` for `,` means any one.

A clause that is fulfilled disappears from the job, as in Slurm; one that can never be stays and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.api import JobState
from penstock.errors import Infeasible

__all__ = ["Clause", "Dependency", "Lookup", "Parent", "parse"]

_KINDS = frozenset({"after", "afterany", "afterok", "afternotok", "expand"})
_TARGET = re.compile(r"(\d+)(?:_(\d+))?(?:\+(\d+))?\Z", re.ASCII)


class Parent(Protocol):
    """What a clause wants to know of a job that it names."""

    state: JobState
    start: float | None
    end: float | None


Lookup = Callable[["Clause"], Sequence[Parent]]
"""The jobs that a clause names, tasks of an array one by one; none when the controller has forgotten them."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One parent, a job, an array, or one `task` of an array: `delay` in seconds counts from its start and belongs to
    `after` alone."""

    kind: str
    job: int
    delay: float = 0.0
    task: int | None = None

    def render(self, failed: bool) -> str:
        """As squeue prints it."""
        task = f"_{self.task}" if self.task is not None else ""
        delay = f"+{self.delay / 60:.0f}" if self.delay else ""
        return f"{self.kind}:{self.job}{task}{delay}({'failed' if failed else 'unfulfilled'})"

    def judge(self, parents: Sequence[Parent], now: float) -> tuple[bool | None, float | None]:
        """True when fulfilled, False when it never will be, None while open; and when to look again, if time decides.

        Parents that the controller has forgotten count as fulfilled: such clauses are dropped. How the tasks of an
        array have ended is judged when all of them have.
        """
        if not parents:
            return True, None
        ended = all(p.state.ended for p in parents)
        match self.kind:
            case "after":
                return self._after(parents, now)
            case "afterany":
                return (True if ended else None), None
            case "afterok":
                return (all(p.state is JobState.COMPLETED for p in parents) if ended else None), None
            case "afternotok":
                return (any(p.state is not JobState.COMPLETED for p in parents) if ended else None), None
            case _:  # expand
                running = all(p.state is JobState.RUNNING for p in parents)
                return (False if ended else True if running else None), None

    def _after(self, parents: Sequence[Parent], now: float) -> tuple[bool | None, float | None]:
        """Counts from the last start, and from the cancellation of a job that never started."""
        last = 0.0
        for parent in parents:
            since = parent.start if parent.start is not None else parent.end
            if since is None or not (parent.state.ended or parent.state.holds_nodes):
                return None, None
            last = max(last, since)
        due = last + self.delay
        return (True, None) if now >= due else (None, due)


@dataclass(slots=True)
class Dependency:
    """What a job still waits for: all of `clauses`, or `any_of` them."""

    clauses: list[Clause] = field(default_factory=list)
    any_of: bool = False
    failed: set[Clause] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.clauses)

    @property
    def never(self) -> bool:
        """Whether it can never be fulfilled."""
        return bool(self.failed) and (not self.any_of or len(self.failed) == len(self.clauses))

    def render(self) -> str:
        """As squeue prints it, empty when nothing is open."""
        return ("?" if self.any_of else ",").join(c.render(c in self.failed) for c in self.clauses)

    def refresh(self, lookup: Lookup, now: float) -> float | None:
        """Drop what is fulfilled and mark what has failed; when to look again if only time has to pass."""
        wake: float | None = None
        for clause in [c for c in self.clauses if c not in self.failed]:
            verdict, due = clause.judge(lookup(clause), now)
            if verdict is True:
                if self.any_of:
                    self.clauses.clear()
                    self.failed.clear()
                    return None
                self.clauses.remove(clause)
            elif verdict is False:
                self.failed.add(clause)
            elif due is not None:
                wake = due if wake is None else min(wake, due)
        return wake


def parse(text: str | None) -> Dependency:
    """Parse sbatch's `--dependency`; empty text is no dependency. Infeasible when it makes no sense."""
    if not text:
        return Dependency()
    any_of = "?" in text
    if any_of and "," in text:
        raise Infeasible(f"Job dependency problem: {text!r} mixes ',' and '?'")
    clauses: list[Clause] = []
    for part in text.split("?" if any_of else ","):
        kind, *targets = part.strip().split(":")
        kind = kind.lower()
        if kind not in _KINDS or not targets:
            raise Infeasible(f"Job dependency problem: {part!r} is not understood")
        for target in targets:
            match = _TARGET.match(target)
            if match is None or (match[3] and kind != "after"):
                raise Infeasible(f"Job dependency problem: {part!r} is not understood")
            task = None if match[2] is None else int(match[2])
            clauses.append(Clause(kind, int(match[1]), 60.0 * int(match[3] or 0), task))
    return Dependency(clauses, any_of)
