"""Carries streams between the ranks of one communicator in parts, with a bound on the memory that takes.

Every two ranks that exchange something do so at their own pace, by messages of at most the same number of items, up to
two of which are under way in each direction: while one travels the next is got ready, and what a rank has to do besides
(copy what stays with it) is done while it would wait. What lies in one piece in a rank's block is sent from there, or
received into it. So is a rectangle of the block: MPI is told where its rows lie (a derived datatype, MPI 4.1, 5.1), and
gathers them while it copies anyway. All else is copied part by part through a buffer.

MPI's own Alltoallv is no better for it: its libraries carry long ones as the same messages between pairs, and whoever
calls it one round after another waits in each for the slowest. This module imports numpy and mpi4py; `dmr.redistribute`
imports it when data moves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from dmr import quirks
from dmr.patience import Patient
from dmr.streams import Array, Stream

__all__ = ["Port", "agree", "broadcast", "copy", "exchange"]

# What a message may hold in bytes: not every transport below MPI takes more.
LIMIT: Final = 2**31 - 1
_TAG: Final = 0x646D
_SLOTS: Final = 2  # messages under way between two ranks in one direction
_LOCAL: Final = 1 << 18  # a copy within a rank goes through the cache in such parts
_SLICE: Final = 4 << 20  # one within a rank that needs no buffer, between two looks at the messages under way
_SHORT: Final = 512  # bytes of a run in memory that are worth telling MPI of
_END: Final = object()


@dataclass(frozen=True)
class Port:
    """All that one rank sends, or all that it receives.

    Args:
        streams: by the other's rank in the communicator; not the rank's own.
        memory: the bytes of the block to which the streams' offsets refer, if it has them in one piece.
    """

    streams: Mapping[int, Stream]
    memory: Any = None

    def offset(self, other: int) -> int | None:
        """Where the stream begins in the memory, bytes, if it lies there in one piece."""
        return None if self.memory is None else self.streams[other].offset


def agree(comm: Patient, values: Sequence[int]) -> list[int]:
    """The largest of all ranks' values, one by one; collective."""
    largest = np.array(values, np.int64)
    comm.Allreduce(MPI.IN_PLACE, largest, op=MPI.MAX)
    return [int(value) for value in largest]


def exchange(comm: Patient, item: int, send: Port, receive: Port, room: int, meanwhile: Iterable[None] = ()) -> None:
    """Carries everything; collective over `comm`.

    Args:
        comm: of all who have a part in it, and maybe others.
        item: bytes of an item, the same everywhere.
        send: streams with as many items as those that receive them have.
        receive: what this rank gets.
        room: bytes that every rank may use for buffers, the same everywhere; at least one item for each stream is.
        meanwhile: what this rank has to do besides, in small parts; done while it would wait, or afterwards.
    """
    ports = (receive, send)  # what is to arrive first
    streams = [port.streams[other] for port in ports for other in port.streams if port.offset(other) is None]
    told = [stream for stream in streams if _Rows.of(stream.view)]
    longest, staged, buffered, widest = agree(
        comm,
        [
            max((stream.items for port in ports for stream in port.streams.values()), default=0),
            len(streams),
            len(streams) - len(told),
            max((stream.row for stream in told), default=0),
        ],
    )
    # MPI takes no memory for rectangles that was seen; should it, it is that of messages which are no longer than this.
    part, slots = _part(item, room, buffered, room // item if widest else LIMIT)
    rows = part >= widest
    if not rows:  # some rank would have to send pieces of rows
        part, slots = _part(item, room, staged, LIMIT)
    part = max(1, min(part, longest))
    lanes = [
        _Lane(comm, port, other, part, slots, sends=port is send, rows=rows)
        for port in ports
        for other in sorted(port.streams, key=lambda other: (other - comm.rank) % comm.size)
        if port.streams[other].items
    ]
    # All that MPI reads from or writes to while it is under way stands in the lanes.
    pace = comm.pace(lanes)
    requests = [lane.begin(slot) for lane in lanes for slot in range(slots)]
    besides = iter(meanwhile)
    left = sum(lane.messages for lane in lanes)
    while left:
        done = MPI.Request.Testsome(requests)
        for number in done or ():
            lane, slot = lanes[number // slots], number % slots
            lane.end(slot)
            requests[number] = lane.begin(slot)
            left -= 1
        if done or next(besides, _END) is not _END:
            pace.worked()
        else:
            pace.rest()
    for _ in besides:
        pass
    for lane in lanes:
        lane.close()


def _part(item: int, room: int, buffered: int, most: int) -> tuple[int, int]:
    """How many items a message has, and how many messages between two ranks are under way, with so many buffered."""
    part, slots = min(most, LIMIT // item), _SLOTS
    if buffered:
        slots = min(_SLOTS, max(1, room // (buffered * item)))
        part = min(part, room // (slots * buffered * item))
    return part, slots


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


def copy(
    source: Stream, source_memory: Array | None, target: Stream, target_memory: Array | None, room: int
) -> Iterator[None]:
    """What stays with a rank, without MPI, part after part; by a buffer of at most `room` bytes where need be."""
    start, end = source.offset, target.offset
    if source_memory is not None and target_memory is not None and start is not None and end is not None:
        size = source.items * source.item
        for low in range(0, size, _SLICE):
            high = min(low + _SLICE, size)
            target_memory[end + low : end + high] = source_memory[start + low : start + high]
            yield
        return
    ours, theirs = source.view, target.view
    if ours is not None and theirs is not None and ours.ndim:
        rows = max(1, _SLICE * len(ours) // max(1, ours.nbytes))
        for low in range(0, len(ours), rows):
            theirs[low : low + rows] = ours[low : low + rows]
            yield
        return
    part = max(1, min(_LOCAL, room) // source.item)
    buffer = np.empty(min(part, source.items) * source.item, np.uint8)
    for low in range(0, source.items, part):
        high = min(low + part, source.items)
        source.read(low, high, buffer)
        target.write(low, high, buffer)
        yield


class _Lane:
    """What goes to one other rank, or comes from it, part after part.

    Part k is in slot k % slots, and its message has a tag of the slot: so both ends mean the same one, in whatever
    order the slots become free. Parts are whole rows where that is possible: both ends know the shape of what they
    share, and not whether it is a rectangle at the other one.
    """

    def __init__(
        self, comm: Patient, port: Port, other: int, part: int, slots: int, *, sends: bool, rows: bool
    ) -> None:
        self._stream = stream = port.streams[other]
        self._comm, self._other, self._sends = comm, other, sends
        self._part = part - part % stream.row if part > stream.row else part
        self._slots = slots
        self.messages = -(-stream.items // self._part)
        self._next = list(range(slots))  # the part that each slot takes up next
        self._memory, self._offset = port.memory, port.offset(other)
        self._rows = _Rows.of(stream.view) if rows and self._offset is None else None
        self._buffers: list[Array] = []
        if self._offset is None and self._rows is None:
            size = min(self._part, stream.items) * stream.item
            self._buffers = [np.empty(size, np.uint8) for _ in range(min(slots, self.messages))]

    def begin(self, slot: int) -> MPI.Request:
        """Sends, or is ready to receive, the slot's next part; a request of nothing if there is none."""
        number = self._next[slot]
        if number >= self.messages:
            return MPI.REQUEST_NULL
        low, high = self._bounds(number)
        item, row = self._stream.item, self._stream.row
        if self._rows is not None:
            message = self._rows.message(low // row, high // row)
        elif self._offset is not None:
            message = [self._memory[self._offset + low * item : self._offset + high * item], MPI.BYTE]
        else:
            place = self._buffers[slot][: (high - low) * item]
            if self._sends:
                self._stream.read(low, high, place)
            message = [place, MPI.BYTE]
        call = self._comm.Isend if self._sends else self._comm.Irecv
        request: MPI.Request = call(message, self._other, _TAG + slot)
        return request

    def end(self, slot: int) -> None:
        """The slot's message has gone, or has come."""
        if self._buffers and not self._sends:
            self._stream.write(*self._bounds(self._next[slot]), self._buffers[slot])
        self._next[slot] += self._slots

    def close(self) -> None:
        """All of it has gone, or has come."""
        if self._rows is not None:
            self._rows.free()

    def _bounds(self, number: int) -> tuple[int, int]:
        return number * self._part, min((number + 1) * self._part, self._stream.items)


class _Rows:
    """A rectangle of a block in the host's memory as MPI is told of it: runs of bytes at equal distances, nested.

    Args:
        view: with two axes or more.
        run: bytes that lie in one piece: the last axes, all but the first `axes`.
        axes: 1 or more.
    """

    def __init__(self, view: Array, run: int, axes: int) -> None:
        self._view, self._run, self._axes = view, run, axes
        self._address = view.__array_interface__["data"][0]
        self._types: dict[int, MPI.Datatype] = {}  # by how many rows

    @classmethod
    def of(cls, view: Array | None) -> _Rows | None:
        """None where numpy copies them quicker: short rows, or pieces of rows, and some libraries."""
        if view is None or view.ndim < 2 or not view.size or any(stride < 0 for stride in view.strides):
            return None
        if not quirks.gathers_quickly(MPI.Get_library_version(), os.environ):
            return None
        run, axes = view.itemsize, view.ndim
        while axes > 1 and view.strides[axes - 1] == run:
            axes -= 1
            run *= view.shape[axes]
        return cls(view, run, axes) if run >= _SHORT else None

    def message(self, low: int, high: int) -> list[Any]:
        """The rows [low, high), for a call of MPI."""
        rows, stride = high - low, self._view.strides[0]
        if rows not in self._types:
            self._types[rows] = self._type(rows)
        kind = self._types[rows]
        return [MPI.buffer.fromaddress(self._address + low * stride, kind.Get_extent()[1]), 1, kind]

    def free(self) -> None:
        """After the last message."""
        for kind in self._types.values():
            kind.Free()

    def _type(self, rows: int) -> MPI.Datatype:
        kind = MPI.BYTE.Create_contiguous(self._run)
        counts = (rows, *self._view.shape[1 : self._axes])
        for count, stride in zip(reversed(counts), reversed(self._view.strides[: self._axes]), strict=True):
            whole = kind.Create_hvector(count, 1, stride)
            kind.Free()
            kind = whole
        return kind.Commit()
