"""Writes logs in Standard Workload Format: what a replay made of a log, what a model made up, what became of jobs.

A log is complete under its name or not there, and compressed if the name ends with .gz.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from penstock.errors import UserError
from penstock.host.files import replacing
from penstock_lab.sim.swf import FIELDS, SwfReader, kept
from penstock_lab.sim.workloads.base import Workload

__all__ = ["Fate", "whole_file", "write_outcome", "write_workload"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a job of a trace. Seconds; -1 for a wait or run time that is not known, as in a log.

    `status` is that of logs: 1 completed, 0 failed, 5 cancelled (killed, or never started); None leaves what the log
    had.
    """

    wait: int
    run: int
    procs: int
    status: int | None


def write_outcome(
    path: Path, source: Path, fates: Mapping[int, Fate], procs: int, keep: str = "strong", notes: Iterable[str] = ()
) -> None:
    """Write the jobs of the log `source` with what became of each (by job number): its header, notes, and its lines.

    `procs` and `keep` are those that the log was loaded with. Wait, run time, allocated processors and status are those
    of the fates; everything else stays. UserError when it cannot be written.
    """
    left = dict(fates)

    def lines() -> Iterator[bytes]:
        reader = SwfReader(source, skip_bad=True)
        headed = False
        for job in kept(reader, procs, keep):
            if not headed:
                headed = True
                yield from _header(reader.header, notes)
            fate = left.pop(job.number, None)
            if fate is None:  # a job number that was there before
                continue
            fields = job.raw.split()[:FIELDS]
            fields[2:5] = (b"%d" % value for value in (fate.wait, fate.run, fate.procs))
            if fate.status is not None:
                fields[10] = b"%d" % fate.status
            yield b" ".join(fields) + b"\n"

    _write(path, lines())


def write_workload(
    path: Path, workload: Workload, procs: int, fates: Sequence[Fate] | None = None, notes: Iterable[str] = ()
) -> None:
    """Write a model's jobs as a log, with what became of them if that is known. UserError when it cannot be written.

    Time 0 is a midnight. The requested time is the estimate; a preceding job has a think time of 0.
    """
    trace = workload.trace
    header = [
        "; Version: 2.2",
        "; Computer: none (made by a workload model)",
        "; Information: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html",
        f"; MaxJobs: {len(trace)}",
        f"; MaxRecords: {len(trace)}",
        "; Preemption: No",
        "; UnixStartTime: 0",
        "; TimeZoneString: UTC",
        f"; MaxNodes: {procs}",
        f"; MaxProcs: {procs}",
        f"; MaxRuntime: {max(trace.run)}",
        f"; MaxQueues: {len(workload.queues)}",
        *(f"; Queue: {number} {name}" for number, name in enumerate(workload.queues)),
    ]

    def lines() -> Iterator[bytes]:
        yield from _header(header, (*workload.notes, *notes))
        columns = zip(
            trace.ids, trace.submit, trace.run, trace.procs, trace.estimate,
            workload.executable.tolist(), workload.queue.tolist(), workload.preceding.tolist(), strict=True,
        )  # fmt: skip
        for at, (number, submit, run, width, estimate, program, queue, before) in enumerate(columns):
            fate = fates[at] if fates is not None else Fate(-1, run, width, 1)
            after = f"{before} 0" if before else "-1 -1"
            yield (
                f"{number} {submit} {fate.wait} {fate.run} {fate.procs} -1 -1 {width} {estimate} -1 {fate.status or 0} "
                f"-1 -1 {program or -1} {queue} -1 {after}\n"
            ).encode()

    _write(path, lines())


def _header(header: Iterable[str], notes: Iterable[str]) -> Iterator[bytes]:
    for text in (*header, *(f"; Note: {note}" for note in notes)):
        yield text.encode() + b"\n"


def _write(path: Path, lines: Iterator[bytes]) -> None:
    try:
        with whole_file(path) as file:
            file.writelines(lines)
    except OSError as e:
        raise UserError(f"{path} cannot be written: {e.strerror or e}") from None


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete; compressed if the name ends with .gz. OSError."""
    with replacing(path, mode=None, durable=False) as plain:
        if path.suffix == ".gz":
            # Without a name and a time in it, equal logs are equal files.
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=plain, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        else:
            yield plain
