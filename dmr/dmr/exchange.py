"""Carries streams between the ranks of one communicator in parts, with a bound on the memory that takes.

Every two ranks that exchange something do so at their own pace, by messages of at most the same number of items, up to
two of which are under way in each direction: while one travels the next is got ready, and what a rank has to do besides
(copy what stays with it) is done while it would wait. A rank whose streams all lie in one piece in its block sends from
it, or receives into it, and needs no other memory; one whose do not copies each part through a buffer.

MPI's own Alltoallv is no better for it: its libraries carry long ones as the same messages between pairs, and whoever
calls it one round after another waits in each for the slowest. This module imports numpy and mpi4py; `dmr.redistribute`
imports it when data moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from dmr.patience import Patient
from dmr.streams import Array, Stream

__all__ = ["Port", "agree", "broadcast", "copy", "exchange"]

# What a message may hold in bytes: not every transport below MPI takes more.
LIMIT: Final = 2**31 - 1
_TAG: Final = 0x646D
_SLOTS: Final = 2  # messages under way between two ranks in one direction
_LOCAL: Final = 1 << 18  # a copy within a rank goes through the cache in such parts
_SLICE: Final = 4 << 20  # one within a rank that needs no buffer, between two looks at the messages under way
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

    def offsets(self, item: int) -> dict[int, int] | None:
        """Where each stream begins, in items, if all can be sent from where they are; else None."""
        found: dict[int, int] = {}
        for other, stream in self.streams.items():
            offset = stream.offset
            if self.memory is None or offset is None:
                return None
            found[other] = offset // item
        return found


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
    ports = [(send, send.offsets(item)), (receive, receive.offsets(item))]
    longest, staged = agree(
        comm,
        [
            max((stream.items for port, _ in ports for stream in port.streams.values()), default=0),
            sum(len(port.streams) for port, offsets in ports if offsets is None),
        ],
    )
    part, slots = LIMIT // item, _SLOTS
    if staged:
        slots = min(_SLOTS, max(1, room // (staged * item)))
        part = min(part, room // (slots * staged * item))
    part = max(1, min(part, longest))
    lanes = [
        _Lane(comm, port, other, offsets, item, part, slots, sends=port is send)
        for port, offsets in ports[::-1]  # what is to arrive first
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
    order the slots become free.
    """

    def __init__(
        self,
        comm: Patient,
        port: Port,
        other: int,
        offsets: Mapping[int, int] | None,
        item: int,
        part: int,
        slots: int,
        *,
        sends: bool,
    ) -> None:
        self._stream = port.streams[other]
        self._comm, self._other, self._sends = comm, other, sends
        self._item, self._part, self._slots = item, part, slots
        self.messages = -(-self._stream.items // part)
        self._next = list(range(slots))  # the part that each slot takes up next
        self._memory, self._offset = port.memory, None if offsets is None else offsets[other]
        self._buffers: list[Array] = []
        if self._offset is None:
            size = min(part, self._stream.items) * item
            self._buffers = [np.empty(size, np.uint8) for _ in range(min(slots, self.messages))]

    def begin(self, slot: int) -> MPI.Request:
        """Sends, or is ready to receive, the slot's next part; a request of nothing if there is none."""
        number = self._next[slot]
        if number >= self.messages:
            return MPI.REQUEST_NULL
        low, high = self._bounds(number)
        if self._offset is None:
            place = self._buffers[slot][: (high - low) * self._item]
            if self._sends:
                self._stream.read(low, high, place)
        else:
            place = self._memory[(self._offset + low) * self._item : (self._offset + high) * self._item]
        call = self._comm.Isend if self._sends else self._comm.Irecv
        request: MPI.Request = call([place, MPI.BYTE], self._other, _TAG + slot)
        return request

    def end(self, slot: int) -> None:
        """The slot's message has gone, or has come."""
        if self._offset is None and not self._sends:
            self._stream.write(*self._bounds(self._next[slot]), self._buffers[slot])
        self._next[slot] += self._slots

    def _bounds(self, number: int) -> tuple[int, int]:
        return number * self._part, min((number + 1) * self._part, self._stream.items)
