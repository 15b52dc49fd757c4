"""A window in which some jobs are malleable, under the whole agent: what they gain, and what others do.

Nobody knows which jobs of a log could be resized, so a share of those that run for ten minutes or more is drawn, the
same ones each time. They may have a quarter to four times their size (half of the machine at most), in powers of two,
and run by Amdahl's law with a serial part of 2 %. The agent, its policy and the programs' protocol are those of
production (`papers.dmr.drive`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.api import JobSpec
from penstock.host import logs
from penstock_lab.papers.dmr.drive import Site, drive
from penstock_lab.papers.dmr.models import Model
from penstock_lab.papers.dmr.paper import Application
from penstock_lab.papers.dmr.workload import Entry
from penstock_lab.whatif.simulate import Setup
from penstock_lab.whatif.windows import Arrival, Window
from penstock_planning.select.speedup import Amdahl

__all__ = ["driven"]

_SERIAL: Final = 0.02
_FACTOR: Final = 4
_SHORTEST: Final = 600.0
_LOOK: Final = 60.0
_STEP: Final = 10.0  # s of a program between two checks
_STEPS: Final = 1440
_SLACK: Final = 600.0
"""Seconds more than its limit that a job may run: one that ends by itself must be able to, on another size as well."""
_POLICY: Final = "throughput"


def driven(window: Window, setup: Setup, share: float) -> list[tuple[float, float]] | None:
    """When each job of a window starts and ends (s from its beginning) if this share is malleable (0: none is). None
    where a job did not complete, as when it is cut off at its limit on fewer nodes: nothing to compare then."""
    logs.configure("critical", "text")
    site = Site(
        replace(setup.config(), cycle=_LOOK),
        {"agent": {"interval": _LOOK, "idle_interval": _LOOK}, "slurm": {"min_interval": _LOOK}},
    )
    try:
        ran = asyncio.run(drive(list(_entries(window, setup.units, share)), _POLICY, site=site)).ran
    except RuntimeError:
        return None
    by_name = {one.name: (one.start, one.end) for one in ran}
    return [by_name[f"j{at}"] for at in range(len(window.arrivals))]


def _entries(window: Window, units: int, share: float) -> Iterator[Entry]:
    for at, arrival in enumerate(window.arrivals):
        drawn = float(np.random.default_rng([arrival.number, 0x77]).random()) < share
        elastic = drawn and arrival.start is not None and arrival.run >= _SHORTEST
        yield _entry(f"j{at}", arrival, units, elastic)


def _entry(name: str, arrival: Arrival, units: int, elastic: bool) -> Entry:
    size = arrival.units
    least, most = max(size // _FACTOR, 1), max(min(size * _FACTOR, units // 2), size)
    speedup = Amdahl(_SERIAL if elastic else 1.0)
    steps = int(min(max(arrival.run / _STEP, 1), _STEPS))
    program = Application(name, steps, least, most, size, _LOOK)
    spec = JobSpec(name, "#!/bin/sh\n", size, arrival.limit + _SLACK)
    return Entry(arrival.eligible, spec, Model(program, arrival.run * speedup.at(size), speedup), elastic, 2)
