"""The records of a log in Standard Workload Format as jobs of a history.

Processors are the log's; a node has one. Times count from the header's UnixStartTime. The queue stands for the QOS and
the executable for the job's name. Status 5 with a run time of 0 or less is a job that was cancelled while it waited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from penstock.api import JobState
from penstock_lab.history.rows import NEVER, NONE, Reason, Row
from penstock_lab.sim.swf import Record, SwfReader, header_number

__all__ = ["rows_of"]

_WAIT, _MEMORY, _STATUS, _USER, _GROUP, _PROGRAM, _QUEUE, _PARTITION = 2, 9, 10, 11, 12, 13, 14, 15
_STATES: Final = {b"1": JobState.COMPLETED, b"0": JobState.FAILED, b"5": JobState.CANCELLED}
_FAR: Final = 1e12


def rows_of(reader: SwfReader) -> Iterator[tuple[int, Row | str]]:
    """Each sound record with its line: a job, or a `Reason`."""
    epoch: int | None = None
    for record in reader:
        if epoch is None:
            epoch = header_number(reader.header, "UnixStartTime") or 0
        yield record.line, _row(record, epoch)


def _row(record: Record, epoch: int) -> Row | str:
    fields = record.raw.split()
    wait = float(fields[_WAIT])
    cpus = record.allocated if record.allocated > 0 else record.requested
    if record.submit < 0:
        return Reason.NO_SUBMIT
    if cpus <= 0:
        return Reason.NO_SIZE
    if not 0 <= wait < _FAR:
        return Reason.NO_WAIT
    submit, start = epoch + record.submit, epoch + record.submit + int(wait)
    memory = float(fields[_MEMORY])
    state = _STATES.get(fields[_STATUS], JobState.COMPLETED if record.run > 0 else JobState.CANCELLED)
    ran = record.run > 0
    return Row(
        record.number,
        submit,
        submit,
        start if ran else NEVER,
        start + record.run if ran else start,
        record.limit if record.limit > 0 else NONE,
        cpus,
        cpus,
        int(memory * cpus / 1024) if 0 < memory < math.inf else 0,
        _name(fields[_USER]),
        _name(fields[_GROUP]),
        _name(fields[_PARTITION]),
        _name(fields[_QUEUE]),
        _name(fields[_PROGRAM]),
        state,
        0,
    )


def _name(field: bytes) -> str:
    text = field.decode()
    return "" if text.startswith("-") else text
