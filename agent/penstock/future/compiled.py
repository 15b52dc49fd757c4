"""`replay` by the compiled kernel (`penstock.kernel`): the same spans, some thirty times sooner. Pure."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import numpy as np

from penstock.future.columns import Counts, Floats, counts, floats, node_counts
from penstock.future.drawn import Drawn, OwnJob, children_of
from penstock.future.present import Present
from penstock.kernel.futures import BREATH, DONE, Futures

__all__ = ["CompiledReplay"]

_SOONER: Final = 40
"""How many units of work the kernel does in the time that the reference takes for one."""
_BEGIN: Final = 100
"""Units of the reference that drawing a future and handing it over take."""


class CompiledReplay:
    """One replay; `follow` are the jobs whose spans are asked for, counted from those that run on."""

    def __init__(
        self, present: Present, drawn: Drawn, jobs: Sequence[OwnJob], follow: Sequence[int], **options: float
    ) -> None:
        self._drawn = drawn
        queue = present.arrays
        children = children_of(jobs)
        known = len(present.running) + len(present.waiting) + len(jobs)
        if len(drawn.ends) != len(present.running) or len(drawn.runs) != len(present.waiting):
            raise ValueError("a future is of as many jobs as its present")
        if not all(0 <= job < known for job in follow):
            raise ValueError(f"there are {known} jobs, and none of these numbers: {list(follow)}")
        arrays = vars(queue) | {
            "ends": np.maximum(drawn.ends, queue.kept),
            "runs": np.ascontiguousarray(drawn.runs, dtype=np.float64),
            "own_nodes": node_counts(job.nodes for job in jobs),
            "own_limit": floats(job.limit for job in jobs),
            "own_run": floats(job.run for job in jobs),
            "own_missing": counts(len(job.after) for job in jobs),
            "children_begin": counts(np.cumsum([0, *map(len, children)])),
            "children": counts(child for of in children for child in of),
            "followed": counts(follow),
        }
        del arrays["kept"]
        numbers = {
            "now": present.now,
            "areas": len(present.areas),
            "cells": len(present.cells),
            "running": len(present.running),
            "waiting": len(present.waiting),
            "own": len(jobs),
            "shut": len(queue.shut_when),
            "follow": len(follow),
        }
        self._world = arrays | numbers | options
        self._areas = len(present.areas)
        self._starts, self._ends = np.empty(len(follow)), np.empty(len(follow))

    def run(self, part: int) -> Generator[int, None, tuple[list[float], list[float]]]:
        """When each starts and ends (s). Yields the work done since the last time, at least `part` at a time but for
        the last one, in the units of the reference: of the time that it takes. Raises MemoryError."""
        rest, number = _BEGIN * _SOONER, 0
        with Futures(self._world) as futures:
            said = BREATH
            while said != DONE:
                said, done = futures.go(part * _SOONER)
                if said in (BREATH, DONE):
                    units, rest = divmod(done + rest, _SOONER)
                    yield units
                else:
                    futures.tell(self._who_comes(number))
                    number += 1
            futures.spans(self._starts, self._ends)
        return self._starts.tolist(), self._ends.tolist()

    def _who_comes(self, number: int) -> dict[str, Floats | Counts] | None:
        come = self._drawn.arrivals(number)
        if come is None:
            return None
        found: dict[str, Floats | Counts] = {"nodes": node_counts(come.nodes), "area": counts(come.area)}
        found["submit"], found["limit"], found["run"] = (
            np.ascontiguousarray(one, dtype=np.float64) for one in (come.submit, come.limit, come.run)
        )
        area = found["area"]
        there = not len(area) or 0 <= area.min() <= area.max() < self._areas
        if not there or len({len(one) for one in found.values()}) > 1:
            raise ValueError("who comes is told by five arrays of one length, and asks for an area that there is")
        return found
