"""Runs a command and measures what it uses up: cycles, instructions, time, memory, bytes read and written."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.errors import PenstockError, UserError
from penstock.values.lines import split_lines
from penstock_planning.broker.clock import base_clock, current_clock
from penstock_planning.broker.counters import Counters

__all__ = ["Run", "measure"]

_PERIOD = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Seconds, bytes; `cycles` are those of all its processes, `instructions` None without counters, `clock`
    (Hz) the mean one while it ran."""

    wall: float
    cpu: float
    cycles: float
    instructions: float | None
    clock: float | None
    memory: float
    read: float
    written: float


def measure(command: Sequence[str], *, counted: bool) -> Run:
    """Run the command once, its output where ours goes; `counted`: by hardware counters, else CPU time x clock.

    Raises `UserError` when it cannot be started, `PenstockError` when it fails, `counters.Unavailable`.
    """
    counters = Counters() if counted else None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    try:
        try:
            process = subprocess.Popen(list(command))
        except OSError as e:
            raise UserError(f"{command[0]}: cannot be run: {e.strerror}") from None
        watch = _Watch(process.pid)
        watch.start()
        try:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            wall = time.monotonic() - begin
            read, written = _io(process.pid)  # of one that has ended and is not yet forgotten
            code = process.wait()
        finally:
            watch.stop()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = counters.read() if counters is not None else {}
    finally:
        if counters is not None:
            counters.close()
    if code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        raise PenstockError(f"{command[0]} {how}: a run that fails is no profile")
    seconds = after.ru_utime - before.ru_utime
    cpu = seconds + after.ru_stime - before.ru_stime
    clock = watch.clock or base_clock()
    if counters is not None:
        cycles = float(found["cycles"])
        clock = cycles / seconds if seconds > 0.1 else clock
    elif clock is None:
        raise PenstockError("neither hardware counters nor the processor's clock can be had here")
    else:
        cycles = cpu * clock
    instructions = float(found["instructions"]) if found else None
    return Run(wall, cpu, cycles, instructions, clock, watch.memory, read, written)


def _io(pid: int) -> tuple[float, float]:
    """Bytes that a process, and those it has waited for, have read and written."""
    with contextlib.suppress(OSError, ValueError):
        lines = split_lines(Path(f"/proc/{pid}/io").read_text(encoding="ascii"))
        pairs = dict(line.split(": ") for line in lines)
        return float(pairs["rchar"]), float(pairs["wchar"])
    return 0.0, 0.0


class _Watch(threading.Thread):
    """Looks now and then at the memory of a process and all its children, and at the clock."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._over = threading.Event()
        self.memory = 0.0
        self._clocks: list[float] = []

    @property
    def clock(self) -> float | None:
        """The mean clock (Hz) that was seen."""
        return sum(self._clocks) / len(self._clocks) if self._clocks else None

    def run(self) -> None:
        """Look until `stop`, at first often: a short command has its peak soon."""
        period = _PERIOD / 16
        while True:
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(self._pid)
                total = 0.0
                for one in (process, *process.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        total += one.memory_info().rss
                self.memory = max(self.memory, total)
            seen = current_clock()
            if seen is not None:
                self._clocks.append(seen)
            if self._over.wait(period):
                return
            period = min(1.1 * period, _PERIOD)

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()
