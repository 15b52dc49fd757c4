"""Computes combinations in processes of this machine."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from penstock_lab.sim.sweep.grid import Combination
from penstock_lab.sim.sweep.one import Row, compute, failed
from penstock_lab.sim.sweep.parts import Parts

__all__ = ["compute_all"]

_DIED = "a process ended without a result (killed, or out of memory), and with it the sweep"


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
    # Processes that begin anew and are no copies of this one with its threads; Ctrl-C ends them without a word.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, signal.signal, (signal.SIGINT, signal.SIG_DFL))
    waiting: set[Future[None]] = set()
    try:
        # Few at a time: the longest sweep costs no more memory than the shortest, and a pool that broke is left early.
        for one in combinations:
            waiting.add(pool.submit(_compute, one, result))
            if len(waiting) >= 2 * processes:
                _finish(waiting, done, FIRST_COMPLETED)
        _finish(waiting, done, ALL_COMPLETED)
    except BrokenProcessPool:
        for one in combinations:
            if Parts(result).read(one) is None:
                Parts(result).write(one, failed(one, _DIED))
    finally:
        pool.shutdown(cancel_futures=True)


def _finish(waiting: set[Future[None]], done: Callable[[], None], until: str) -> None:
    """Wait and forget those that are ready; raises what went wrong in them."""
    for future in wait(waiting, return_when=until).done:
        future.result()
        waiting.remove(future)
        done()


def _compute(combination: Combination, result: Path) -> None:
    row: Row = compute(combination)
    Parts(result).write(combination, row)
