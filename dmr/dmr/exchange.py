"""Carries streams between the ranks of one communicator in rounds, with a bound on the memory that takes.

In each round every pair of ranks exchanges at most the same number of items. A rank whose streams all lie in one piece
in its block sends from it, or receives into it, and needs no other memory; one whose do not copies each round's part
through a buffer. This module imports numpy and mpi4py; `dmr.redistribute` imports it when data moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from dmr.patience import Patient
from dmr.streams import Array, Stream

__all__ = ["Port", "agree", "broadcast", "copy", "exchange"]

# What a count or a displacement may be before MPI 4, and what a message may hold in bytes: not every transport below
# MPI takes more.
LIMIT: Final = 2**31 - 1
_TAG: Final = 0x646D
_LOCAL: Final = 1 << 18  # a copy within a rank goes through the cache in such parts


@dataclass(frozen=True)
class Port:
    """All that one rank sends, or all that it receives.

    Args:
        streams: by the other's rank in the communicator; not the rank's own.
        memory: the bytes of the block to which the streams' offsets refer, if it has them in one piece.
    """

    streams: Mapping[int, Stream]
    memory: Any = None

    def offsets(self, item: int) -> dict[int, int] | None:
        """Where each stream begins, in items, if all can be sent from where they are; else None."""
        found: dict[int, int] = {}
        for other, stream in self.streams.items():
            offset = stream.offset
            if self.memory is None or offset is None or offset // item + stream.items > LIMIT:
                return None
            found[other] = offset // item
        return found


def agree(comm: Patient, values: Sequence[int]) -> list[int]:
    """The largest of all ranks' values, one by one; collective."""
    largest = np.array(values, np.int64)
    comm.Allreduce(MPI.IN_PLACE, largest, op=MPI.MAX)
    return [int(value) for value in largest]


def exchange(comm: Patient, item: int, send: Port, receive: Port, room: int, pairs: bool) -> None:
    """Carries everything; collective over `comm`.

    Args:
        comm: of all who have a part in it, and maybe others.
        item: bytes of an item, the same everywhere.
        send: streams with as many items as those that receive them have.
        receive: what this rank gets.
        room: bytes that this rank may use for buffers; at least one item for each stream is.
        pairs: by non-blocking messages between pairs, not by Alltoallv.
    """
    ends = [_End(send, item), _End(receive, item)]
    longest, staged = agree(
        comm, [max((end.longest for end in ends), default=0), sum(len(end.streams) for end in ends if end.staged)]
    )
    if longest == 0:
        return
    part = LIMIT // item
    if staged:
        part = min(part, min(room, LIMIT) // (staged * item))
    part = max(1, min(part, longest))
    for end in ends:
        end.prepare(part)
    kind = MPI.BYTE.Create_contiguous(item).Commit()
    try:
        for low in range(0, longest, part):
            for end in ends:
                end.turn(low, part)
            ends[0].fill()
            if pairs:
                _by_pairs(comm, *ends)
            else:
                comm.Alltoallv(ends[0].specification(comm.size, kind), ends[1].specification(comm.size, kind))
            ends[1].empty()
    finally:
        kind.Free()


def broadcast(comm: Patient, root: int, items: int, item: int, port: Port, room: int) -> None:
    """Carries one stream, which the root gives, to all who have one; collective.

    Args:
        comm: of all.
        root: the rank that gives.
        items: how many, known to all.
        item: bytes of an item.
        port: the stream under the key of the root; without it the rank looks on.
        room: bytes that this rank may use for a buffer.
    """
    stream = port.streams.get(root)
    memory, offset = (None, None) if stream is None else (port.memory, stream.offset)
    part = max(1, min(room, LIMIT) // item)
    buffer = np.empty(min(part, items) * item if memory is None or offset is None else 0, np.uint8)
    for low in range(0, items, part):
        high = min(low + part, items)
        if memory is not None and offset is not None:
            comm.Bcast([memory[offset + low * item : offset + high * item], MPI.BYTE], root)
            continue
        taken = buffer[: (high - low) * item]
        if stream is not None and comm.rank == root:
            stream.read(low, high, taken)
        comm.Bcast([taken, MPI.BYTE], root)
        if stream is not None and comm.rank != root:
            stream.write(low, high, taken)


def copy(source: Stream, source_memory: Array | None, target: Stream, target_memory: Array | None, room: int) -> None:
    """What stays with a rank, without MPI, by a buffer of at most `room` bytes where need be."""
    start, end = source.offset, target.offset
    if source_memory is not None and target_memory is not None and start is not None and end is not None:
        size = source.items * source.item
        target_memory[end : end + size] = source_memory[start : start + size]
        return
    part = max(1, min(_LOCAL, room) // source.item)
    buffer = np.empty(min(part, source.items) * source.item, np.uint8)
    for low in range(0, source.items, part):
        high = min(low + part, source.items)
        source.read(low, high, buffer)
        target.write(low, high, buffer)


class _End:
    """A port in use: what part of it takes part in the present round."""

    def __init__(self, port: Port, item: int) -> None:
        self.streams = port.streams
        self.item = item
        self.longest = max((stream.items for stream in port.streams.values()), default=0)
        self._offsets = port.offsets(item)
        self.staged = self._offsets is None
        self._memory = np.empty(0, np.uint8) if port.memory is None or self.staged else port.memory
        self._ranges: dict[int, tuple[int, int]] = {}
        self._places: dict[int, int] = {}

    def prepare(self, part: int) -> None:
        if self.staged:
            items = sum(min(part, stream.items) for stream in self.streams.values())
            self._memory = np.empty(items * self.item, np.uint8)

    def turn(self, low: int, part: int) -> None:
        self._ranges = {
            other: (low, min(low + part, stream.items)) for other, stream in self.streams.items() if low < stream.items
        }
        at = 0
        for other, (start, stop) in self._ranges.items():
            self._places[other] = at if self._offsets is None else self._offsets[other] + start
            at += stop - start

    def buffer(self, other: int) -> Any:  # noqa: ANN401 (an array, or what stands for one on a device)
        start, stop = self._ranges[other]
        at = self._places[other]
        return self._memory[at * self.item : (at + stop - start) * self.item]

    def fill(self) -> None:
        for other in self._ranges if self.staged else ():
            self.streams[other].read(*self._ranges[other], self.buffer(other))

    def empty(self) -> None:
        for other in self._ranges if self.staged else ():
            self.streams[other].write(*self._ranges[other], self.buffer(other))

    def others(self) -> list[int]:
        return list(self._ranges)

    def specification(self, size: int, kind: MPI.Datatype) -> list[Any]:
        counts, places = [0] * size, [0] * size
        for other, (start, stop) in self._ranges.items():
            counts[other], places[other] = stop - start, self._places[other]
        return [self._memory, counts, places, kind]


def _by_pairs(comm: Patient, send: _End, receive: _End) -> None:
    requests = [comm.Irecv([receive.buffer(other), MPI.BYTE], other, _TAG) for other in receive.others()]
    requests += [comm.Isend([send.buffer(other), MPI.BYTE], other, _TAG) for other in send.others()]
    comm.waitall(requests)
