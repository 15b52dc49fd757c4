"""The jobs to replay, as columns of integers: 40 bytes a job, so that logs of many millions of jobs fit in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from penstock.errors import UserError

__all__ = ["MAX_TIME", "Trace"]

MAX_TIME: Final = 1 << 60
"""Seconds; no replay may last longer, so that every time fits into 64 bits."""


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Trace:
    """Rigid jobs in order of submission; jobs submitted in the same second keep the order of the log.

    `ids` are the log's job numbers, each one once; `submit`, `run`, `estimate` are seconds and `procs` processors.
    1 <= run <= estimate: a job is killed at its estimate, so none runs longer. `ids` may be in any order.
    """

    ids: array[int] = field(default_factory=_column)
    submit: array[int] = field(default_factory=_column)
    run: array[int] = field(default_factory=_column)
    procs: array[int] = field(default_factory=_column)
    estimate: array[int] = field(default_factory=_column)

    @classmethod
    def of(cls, jobs: Iterable[tuple[int, int, int, int, int]]) -> Trace:
        """From (id, submit, run, procs, estimate) in any order."""
        trace = cls()
        for job in jobs:
            trace.append(*job)
        trace.sort()
        return trace

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, number: int, submit: int, run: int, procs: int, estimate: int) -> None:
        """Add one job; call `sort` when the jobs did not come in order of submission."""
        self.ids.append(number)
        self.submit.append(submit)
        self.run.append(run)
        self.procs.append(procs)
        self.estimate.append(estimate)

    def sort(self) -> None:
        """Into order of submission; jobs of the same second keep their order."""
        if all(earlier <= later for earlier, later in pairwise(self.submit)):  # most logs
            return
        order = sorted(range(len(self.submit)), key=self.submit.__getitem__)
        for name in ("ids", "submit", "run", "procs", "estimate"):
            column = getattr(self, name)
            setattr(self, name, array("q", [column[i] for i in order]))

    def check(self, procs: int) -> None:
        """UserError when the jobs cannot be replayed on so many processors; names the first that cannot."""
        last = 0
        for number, submit, run, width, estimate in zip(
            self.ids, self.submit, self.run, self.procs, self.estimate, strict=True
        ):
            if width > procs:
                raise UserError(f"job {number} needs {width} processors and the machine has {procs}")
            if width < 1 or not 1 <= run <= estimate:
                raise UserError(
                    f"job {number}: {width} processors, run {run} s, estimate {estimate} s cannot be replayed"
                )
            if submit < last:
                raise UserError(f"job {number}: submitted at {submit} s, before the one ahead of it or before 0")
            last = submit
        if last + sum(self.estimate) >= MAX_TIME:
            raise UserError(f"the times of the {len(self)} jobs add up to more than {MAX_TIME} s")
