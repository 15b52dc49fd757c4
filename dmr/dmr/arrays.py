"""Moves one array, in the memory of the host or of a GPU.

This module imports numpy and mpi4py; `dmr.redistribute` imports it when data moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dmr import device, plan
from dmr.agreement import Item
from dmr.distributions import Replicated
from dmr.exchange import Port, broadcast, copy, exchange
from dmr.route import Axes, Route, Ways, allocate, new_shape, ways
from dmr.streams import Array, ArrayStream, Stream, as_bytes, plain

__all__ = ["NOTHING", "Side", "carry_array", "carry_block", "on_host"]


def carry_array(route: Route, item: Item, value: Any) -> Any:  # noqa: ANN401
    """An array in the memory of the host or of a GPU."""
    dtype = item.dtypes[0]
    direct = bool(item.like) and device.mpi_takes_it(route.comm.comm)
    gives, gets = ways(route, item)
    old = new = NOTHING
    if route.old_rank is not None:
        old = (_on_device(value, gives) if direct else None) or on_host(value, item.fortran)

    def make() -> tuple[Any, Side]:
        shape = new_shape(route, item, gets)
        block = device.empty(shape, dtype, item.like) if direct else None
        side = None if block is None else _on_device(block, gets)
        if side is not None:
            return block, side
        block = np.empty(shape, dtype, "F" if item.fortran else "C")
        return block, on_host(block, item.fortran)

    block, new = allocate(route, item.name, make) or (None, new)
    if dtype.itemsize and math.prod(item.shape):
        # A GPU's block goes to each by itself: nothing here could copy it where it stays.
        if isinstance(item.old, Replicated) and isinstance(item.new, Replicated) and not item.like:
            _carry_copies(route, dtype.itemsize, math.prod(item.shape), old, new)
        else:
            order = slice(None, None, -1 if item.fortran else 1)
            gives, gets = ({rank: axes[order] for rank, axes in way.items()} for way in (gives, gets))
            carry_block(route, dtype.itemsize, old, new, (gives, gets))
    return device.from_host(block, item.like) if item.like and isinstance(block, np.ndarray) else block


class Side(NamedTuple):
    """A rank's block as the streams see it: axes in the order of the wire, and its bytes if in one piece.

    `hidden`: only MPI can touch the elements.
    """

    wire: Array
    memory: Any
    hidden: bool = False


NOTHING = Side(np.empty(0, np.uint8), None)


def on_host(value: Any, fortran: bool) -> Side:  # noqa: ANN401
    """For an array in the host's memory, or a copy there of one that is not."""
    array = plain(device.to_host(value) if device.on_device(value) else np.asarray(value))
    wire = array.T if fortran else array
    return Side(wire, as_bytes(wire) if wire.flags.c_contiguous else None)


def _on_device(value: Any, ways: Mapping[int, Axes]) -> Side | None:  # noqa: ANN401
    """None unless MPI alone can do all with the block, since nothing here can touch its elements."""
    if not device.on_device(value):
        return None
    shape, dtype = device.shape_and_dtype(value)
    strides = [dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    # The array is only to compute with.
    side = Side(as_strided(plain(np.empty(1, dtype)), shape, strides), device.memory(value), hidden=True)
    port = _port(side, ways)
    return None if any(port.offset(other) is None for other in port.streams) else side


def _port(side: Side, ways: Mapping[int, Axes]) -> Port:
    return Port({rank: ArrayStream(side.wire, axes) for rank, axes in ways.items()}, side.memory)


def carry_block(route: Route, item: int, old: Side, new: Side, ways: Ways) -> None:
    """Moves what the positions of the blocks say; collective. `item` is the size of an element, bytes."""
    send, receive = (dict(_port(side, way).streams) for side, way in zip((old, new), ways, strict=True))
    kept: tuple[Stream | None, Stream | None] = None, None
    if not old.hidden and not new.hidden:  # else MPI carries that, too, by messages of the rank to itself
        kept = send.pop(route.comm.rank, None), receive.pop(route.comm.rank, None)
    own: Iterator[None] = iter(())
    spare = route.room // 8  # for what stays, which is copied while the rest is under way
    if kept[0] is not None and kept[1] is not None:
        own = copy(kept[0], old.memory, kept[1], new.memory, spare)
    exchange(route.comm, item, Port(send, old.memory), Port(receive, new.memory), route.room - spare, own)


def _carry_copies(route: Route, item: int, items: int, old: Side, new: Side) -> None:
    """From old rank 0 to all new ranks."""
    root = route.old[0]
    side = old if route.comm.rank == root else new
    streams: dict[int, Stream] = {}
    if side is not NOTHING:
        streams = {root: ArrayStream(side.wire, [plan.everything(0, n) for n in side.wire.shape])}
    broadcast(route.comm, root, items, item, Port(streams, side.memory), route.room)
    if route.comm.rank == root and new is not NOTHING:
        new.wire[...] = old.wire
