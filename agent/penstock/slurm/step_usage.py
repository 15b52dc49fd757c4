"""What accounting knows of the memory that jobs used: rows of sacct, steps included, as values. Pure.

sacct gives MaxRSS, the largest resident set of any task, for each step, and nothing for a job. What a node of the job
held at most is not recorded. It is no more than the sum, over steps that ran at once, of the tasks of a node times that
(tasks spread evenly), or of all that the step's tasks used (TRESUsageInTot), whichever is less.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.slurm.parse import ParseError, parse_count, parse_time, parse_tres

__all__ = ["STEP_FIELDS", "JobMemory", "memory_of", "step_rows"]

STEP_FIELDS: Final = ("JobIDRaw", "Start", "End", "NNodes", "NTasks", "MaxRSS", "TRESUsageInTot", "ReqTRES")
_BYTES: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTP]?)", re.ASCII)
_IN_TOTAL: Final = re.compile(r"(?:^|,)mem=([^,]*)")
_MEBIBYTE: Final = 1024.0**2
_NO_WORK: Final = ("extern", "interactive")
"""Steps that Slurm itself starts, in which nothing of the job's own need run."""


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Of one job, in bytes a node: what it asked for (None: not known), and what a node held at most (None: accounting
    does not say it for every step)."""

    asked: float | None
    used: float | None


@dataclass(frozen=True, slots=True)
class _Step:
    start: float
    end: float
    used: float | None


def step_rows(text: str, separator: str) -> list[list[str]]:
    """The rows that `sacct -p --delimiter=separator` printed, without the heading. Raises ParseError."""
    rows = [line.split(separator)[:-1] for line in text.splitlines()[1:] if line]
    for row in rows:
        if len(row) != len(STEP_FIELDS):
            raise ParseError(f"not a row of {len(STEP_FIELDS)} fields", separator.join(row)[:80])
    return rows


def memory_of(rows: Iterable[Sequence[str]]) -> dict[int, JobMemory]:
    """By the jobs' numbers, from rows of STEP_FIELDS. Raises ParseError."""
    asked: dict[int, float | None] = {}
    steps: defaultdict[int, list[_Step]] = defaultdict(list)
    for row in rows:
        cell = dict(zip(STEP_FIELDS, row, strict=True))
        word, _, step = cell["JobIDRaw"].partition(".")
        if not (word.isascii() and word.isdigit()):
            raise ParseError("not a job or step", cell["JobIDRaw"])
        if not step:
            asked[int(word)] = _asked(cell["ReqTRES"])
        elif step not in _NO_WORK:
            steps[int(word)].append(_step(cell))
    return {job: JobMemory(amount, _at_once(steps[job])) for job, amount in asked.items()}


def _asked(tres: str) -> float | None:
    found = parse_tres(tres)
    if not found.get("mem"):
        return None
    return found["mem"] * _MEBIBYTE / max(1.0, found.get("node", 1.0))


def _step(cell: dict[str, str]) -> _Step:
    start, end = parse_time(cell["Start"]), parse_time(cell["End"])
    largest, total = _amount(cell["MaxRSS"]), _IN_TOTAL.search(cell["TRESUsageInTot"])
    used = None
    if largest:  # 0 is what accounting has of a step that ended before it was looked at
        tasks, nodes = (max(1, parse_count(cell[name])) if cell[name] else 1 for name in ("NTasks", "NNodes"))
        used = largest * math.ceil(tasks / nodes)
        if total is not None and (in_all := _amount(total[1])):
            used = max(largest, min(used, in_all))
    return _Step(start or 0.0, math.inf if end is None else end, used)


def _amount(text: str) -> float:
    """Bytes; 0 where nothing is said."""
    if not text.strip():
        return 0.0
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ParseError("not an amount of memory", text)
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ")


def _at_once(steps: Sequence[_Step]) -> float | None:
    """The largest sum over steps that ran at the same time; None if one of them is not known."""
    if not steps or any(step.used is None for step in steps):
        return None
    return max(
        sum(other.used or 0.0 for other in steps if other is step or other.start <= step.start < other.end)
        for step in steps
    )
