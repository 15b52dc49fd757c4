"""Records that are one job: the sizes of a resized one, the components of a heterogeneous one. Pure.

sacct -D has a row for every size of a job and for every component. Those of one job may stand anywhere: with other jobs
between them, in an earlier slice of time, the later ones first. The reader that the agent has (`penstock.slurm.runs`)
says which of them are one run.

Records are rows of an array with the columns of a history, `part_of` and `place`; times count from `submit`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.api import JobState
from penstock.slurm.runs import Period, runs_of
from penstock_lab.history.rows import NEVER, Flag, Reason, Report

__all__ = ["join_components", "join_sizes"]

_STATES: Final = tuple(JobState)
_RESIZING: Final = _STATES.index(JobState.RESIZING)
_FAR: Final = 2**31 - 1
_OF_THE_LAST: Final = ("limit", "user", "account", "partition", "qos", "name", "state")


def join_sizes(records: NDArray[Any], report: Report) -> NDArray[np.bool_]:
    """Make the first size of each run the whole of it. Which records still count comes back."""
    kept = np.ones(len(records), bool)
    for group in _groups(records["id"]):
        for run in runs_of(group, lambda at: _period(records, at)):
            why = _why_not(records, run)
            if why:
                kept[run] = False
                report.leave(why, int(records["place"][run].min()), len(run))
                continue
            first, last = records[run[0]], records[run[-1]]
            first["end"] += last["submit"] + last["end"] - first["submit"] - first["end"]
            for name in _OF_THE_LAST:
                first[name] = last[name]
            if len(run) > 1:
                first["flags"] = (last["flags"] | Flag.RESIZED) & ~Flag.EARLY
            for _ in run[1:]:
                report.join("another size of a resized job")
            kept[run[1:]] = False
    return kept


def _period(records: NDArray[Any], at: int) -> Period:
    submit, start, end, state = (int(records[name][at]) for name in ("submit", "start", "end", "state"))
    return Period(_STATES[state], submit, None if start == NEVER else submit + start, submit + end)


def _why_not(records: NDArray[Any], run: list[int]) -> str:
    """Why the sizes are no whole job; empty if they are."""
    first, last = records[run[0]], records[run[-1]]
    if last["state"] == _RESIZING:
        return Reason.HALF_RESIZED
    if first["flags"] & Flag.EARLY:  # its own first size is missing, or the times are wrong
        return Reason.DISORDER
    return Reason.TOO_FAR if int(last["submit"]) + int(last["end"]) - int(first["submit"]) > _FAR else ""


def join_components(records: NDArray[Any], report: Report) -> NDArray[np.bool_]:
    """Make the first component of each heterogeneous job the whole of it. Which records still count comes back."""
    kept = np.ones(len(records), bool)
    for group in _groups(records["part_of"]):
        for at in _groups(records["submit"][group]):
            parts = np.array(group)[at]
            parts = parts[np.argsort(records["id"][parts], kind="stable")]
            first = records[parts[0]]
            sums = {name: int(records[name][parts].sum(dtype=np.int64)) for name in ("nodes", "cpus", "memory")}
            kept[parts[1:]] = False
            if max(sums["nodes"], sums["cpus"]) > _FAR:
                kept[parts] = False
                report.leave(Reason.TOO_FAR, int(records["place"][parts].min()), len(parts))
                continue
            first["start"], first["end"] = records["start"][parts].min(), records["end"][parts].max()
            first["nodes"], first["cpus"], first["memory"] = sums["nodes"], sums["cpus"], min(sums["memory"], _FAR)
            for _ in parts[1:]:
                report.join("a component of a heterogeneous job")
    return kept


def _groups(keys: NDArray[Any]) -> Iterator[list[int]]:
    """The places of equal keys, each group in the order in which they stand."""
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    for group in np.split(order, ends) if len(keys) else ():
        yield group.tolist()
