"""Windows of a history: the jobs of each with what they found, ready to be simulated.

A window begins with the jobs that ran and waited at its instant: those that ran go on for the rest of their time. Then
come a lead, in which the simulated queue becomes its own, the jobs that are judged, and a tail, so that the last ones
judged are overtaken and held up as they would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UserError
from penstock_lab.backtest.past import narrow
from penstock_lab.backtest.plain import ran
from penstock_lab.backtest.sampled import machine_size
from penstock_lab.history.history import History

__all__ = ["Arrival", "Length", "Site", "Window", "site_of", "windows_of"]

_WHOLE: Final = 0.9
"""Jobs have whole nodes if so much of the processors' time went to jobs that filled theirs."""
_UNITS: Final = 2048
_NO_END: Final = 365 * 86400


@dataclass(frozen=True, slots=True)
class Site:
    """The machine in units that are handed out: `units` of them, of `cpus` processors each; `whole`: a unit is a node.

    Where jobs share nodes units are processors, or some of them together on large machines, wherever they lie.
    """

    units: int
    cpus: int
    whole: bool

    def of(self, cpus: int) -> int:
        """How many units so many processors take."""
        return max(-(-cpus // self.cpus), 1)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job: when it is submitted, may start, and did (s from the window's beginning; None: it ran then already), for
    how long it runs and may run (s), and its units. `number` is its place in the history."""

    number: int
    submit: float
    eligible: float
    start: float | None
    run: float
    limit: float
    units: int
    judged: bool


@dataclass(frozen=True, slots=True)
class Length:
    """So many jobs: of the lead, judged, and of the tail."""

    lead: int = 300
    judged: int = 300
    tail: int = 150

    @property
    def jobs(self) -> int:
        """All of them."""
        return self.lead + self.judged + self.tail


@dataclass(frozen=True, slots=True)
class Window:
    """One window, its jobs in order of submission."""

    number: int
    arrivals: tuple[Arrival, ...]


def site_of(history: History, partition: int | None = None) -> Site:
    """The machine, as far as the history tells."""
    cpus = machine_size(history, partition)
    each = int(history.about["machine"]["cpus_per_node"])
    choose = ran(history, partition)
    held, nodes = history.column("cpus")[choose].astype(np.int64), history.column("nodes")[choose]
    spent = held * (history.column("end")[choose] - history.column("start")[choose])
    filled = float(spent[held == nodes * each].sum()) / max(float(spent.sum()), 1.0)
    if filled >= _WHOLE:
        return Site(max(-(-cpus // each), 1), each, True)
    unit = max(-(-cpus // _UNITS), 1)
    return Site(max(-(-cpus // unit), 1), unit, False)


def windows_of(
    history: History, count: int, length: Length, site: Site, least: int, partition: int | None = None
) -> Iterator[Window]:
    """So many windows, evenly spread; fewer where the history is short. Left out are jobs that never started, and those
    of more than `least` units, which the smaller of the two machines has. UserError where there is not one window."""
    table = _Table(history, partition, site, least)
    jobs = len(table.at)
    count = min(count, jobs // length.jobs)
    if not count:
        what = f"{jobs} jobs can be simulated, a window needs {length.jobs}"
        raise UserError(f"{history.path}: {what}: judge fewer (--judged)")
    gap = (jobs - count * length.jobs) / count
    for number in range(count):
        yield Window(number, tuple(table.window(int(number * (length.jobs + gap) + gap / 2), length)))


class _Table:
    """The jobs that can be simulated, in order of eligibility."""

    def __init__(self, history: History, partition: int | None, site: Site, least: int) -> None:
        choose = ran(history, partition) & (-(-history.column("cpus") // site.cpus) <= least)
        submit, end = history.column("submit"), history.column("end")
        kind = narrow(int(submit[-1] - submit[0]) + int(end.max()) + 1)
        submit = (submit - submit[0]).astype(kind)[choose]
        eligible = submit + history.column("eligible")[choose]
        order = np.argsort(eligible, kind="stable")
        self.at: NDArray[Any] = eligible[order]
        del eligible
        self._places = np.flatnonzero(choose)[order]
        self._start = (submit + history.column("start")[choose])[order]
        self._end = (submit + end[choose])[order]
        self._submit = submit[order]
        self._units = np.maximum(-(-history.column("cpus")[choose][order] // site.cpus), 1)
        limit = history.column("limit")[choose][order]
        known = limit[limit > 0]
        limit[limit == 0] = int(known.max()) if len(known) else _NO_END
        self._limit = limit

    def window(self, first: int, length: Length) -> Iterator[Arrival]:
        zero = int(self.at[first])
        there = np.flatnonzero(self._end[:first] > zero)
        running = there[self._start[there] <= zero]
        # As they were started, so that all have their nodes at once.
        for place in running[np.argsort(self._start[running], kind="stable")].tolist():
            yield self._running(place, zero)
        waiting = there[self._start[there] > zero]
        for place in waiting[np.argsort(self._submit[waiting], kind="stable")].tolist():
            yield self._waiting(place, zero, judged=False)
        judged = range(first + length.lead, first + length.lead + length.judged)
        come = np.arange(first, first + length.jobs)
        for place in come[np.argsort(np.maximum(self._submit[come], zero), kind="stable")].tolist():
            yield self._waiting(place, zero, place in judged)

    def _running(self, place: int, zero: int) -> Arrival:
        left = max(int(self._end[place]) - zero, 1)
        limit = max(int(self._start[place]) + int(self._limit[place]) - zero, left)
        return Arrival(int(self._places[place]), 0.0, 0.0, None, left, limit, int(self._units[place]), False)

    def _waiting(self, place: int, zero: int, judged: bool) -> Arrival:
        run = max(int(self._end[place] - self._start[place]), 1)
        return Arrival(
            int(self._places[place]),
            float(max(int(self._submit[place]) - zero, 0)),
            float(max(int(self.at[place]) - zero, 0)),
            float(int(self._start[place]) - zero),
            float(run),
            float(max(int(self._limit[place]), run)),
            int(self._units[place]),
            judged,
        )
