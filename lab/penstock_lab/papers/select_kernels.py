"""Small programs that really run: on processors, on memory, and on both, by as many workers as they are told.

    python -m penstock_lab.papers.select_kernels KIND WORK WORKERS CORES [--beside]

divides WORK among WORKERS on the cores (by commas) and prints the seconds that it took, and the CPU seconds of all.
`--beside` has as many others of the kind busy on the same cores, so that each worker has half a core.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Final

import numpy as np

__all__ = ["KINDS"]

_BYTES: Final = 48 * 2**20
"""More than a cache holds, twice."""


def _compute(pieces: int) -> None:
    for _ in range(pieces):
        hashlib.pbkdf2_hmac("sha256", b"penstock", b"penstock", 10_000)


def _stream(pieces: int) -> None:
    ours, theirs = np.zeros(_BYTES // 8), np.ones(_BYTES // 8)
    for _ in range(pieces):
        np.add(ours, theirs, out=ours)


def _both(pieces: int) -> None:
    ours, theirs = np.zeros(_BYTES // 16), np.ones(_BYTES // 16)
    for _ in range(pieces):
        hashlib.pbkdf2_hmac("sha256", b"penstock", b"penstock", 5_000)
        np.add(ours, theirs, out=ours)


KINDS: Final[Mapping[str, Callable[[int], None]]] = {"compute": _compute, "memory": _stream, "mixed": _both}


def _worker(kind: str, pieces: int, cores: set[int], ready: Barrier, used: SimpleQueue[float]) -> None:
    os.sched_setaffinity(0, cores)
    KINDS[kind](1)
    ready.wait()
    before = time.process_time()
    KINDS[kind](pieces)
    used.put(time.process_time() - before)


def _other(kind: str, cores: set[int], ready: Barrier) -> None:
    os.sched_setaffinity(0, cores)
    KINDS[kind](1)
    ready.wait()
    while True:
        KINDS[kind](1)


def main(kind: str, work: int, workers: int, cores: set[int], *, beside: bool) -> None:
    """See the module."""
    fork = get_context("fork")
    ready, used = fork.Barrier(1 + workers * (2 if beside else 1)), fork.SimpleQueue()
    share = [work // workers + (n < work % workers) for n in range(workers)]
    mine = [fork.Process(target=_worker, args=(kind, pieces, cores, ready, used)) for pieces in share]
    others = [fork.Process(target=_other, args=(kind, cores, ready), daemon=True) for _ in mine if beside]
    for each in (*mine, *others):
        each.start()
    ready.wait()
    before = time.monotonic()
    cpu = sum(used.get() for _ in mine)
    print(time.monotonic() - before, cpu)
    for each in others:
        each.kill()
    for each in mine:
        each.join()


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        {int(core) for core in sys.argv[4].split(",")},
        beside="--beside" in sys.argv[5:],
    )
