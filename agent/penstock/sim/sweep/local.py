"""Computes combinations in processes of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from penstock.sim.sweep.grid import Combination
from penstock.sim.sweep.one import Row, compute, failed
from penstock.sim.sweep.parts import Parts

__all__ = ["compute_all"]


def compute_all(
    combinations: Sequence[Combination], result: Path, processes: int, done: Callable[[], None] = lambda: None
) -> None:
    """Compute each and write its part; `done` is called after each. Interrupted, what is complete stays.

    OSError when a part cannot be written.
    """
    if processes == 1:
        for one in combinations:
            _compute(one, result)
            done()
        return
    # A process of its own from the beginning, not a copy of this one with its threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context)
    try:
        waiting = {pool.submit(_compute, one, result): one for one in combinations}
        for future in as_completed(waiting):
            try:
                future.result()
            except BrokenProcessPool:
                one = waiting[future]
                Parts(result).write(one, failed(one, "a process ended without a result (killed, or out of memory)"))
            done()
    finally:
        pool.shutdown(cancel_futures=True)


def _compute(combination: Combination, result: Path) -> None:
    row: Row = compute(combination)
    Parts(result).write(combination, row)
