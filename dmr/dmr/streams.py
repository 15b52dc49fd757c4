"""What goes from one rank to another as a stream of items that can be read and written in bounded parts.

Both ends know the same pieces in the same order, so a stream needs no header. Items are numbered in C order of the part
of the array that the two ranks share. This module imports numpy; `dmr.redistribute` imports it when data moves.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dmr import plan
from dmr.plan import IndexSet, Points, Strip

__all__ = ["ArrayStream", "BytesStream", "Stream", "as_bytes", "plain", "rectangles"]

Array = np.ndarray[Any, np.dtype[Any]]

# Strips of less than so many bytes on average are not copied one by one, but many at a time, through an index array of
# at most so many positions (32 KiB, and 64 KiB of data).
_SMALL_STRIP: Final = 1024
_BATCH: Final = 4096


class Stream(Protocol):
    """The items that this rank gives to, or gets from, one other; all `item` bytes long."""

    items: int
    item: int
    row: int  # items with one position on the first axis of what the two ranks share; both know that

    @property
    def offset(self) -> int | None:
        """Where in the memory of the whole block they lie in one piece, bytes; None if they do not."""

    @property
    def view(self) -> Array | None:
        """The part of the block that they are, if that is one rectangle."""

    def read(self, low: int, high: int, out: Array) -> None:
        """Copies the items [low, high) into bytes."""

    def write(self, low: int, high: int, data: Array) -> None:
        """Copies bytes onto the items [low, high)."""


def plain(array: Array) -> Array:
    """The same memory as numbers or raw bytes: a copy never converts, and MPI need not know the dtype."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def as_bytes(block: Array) -> Array:
    """The memory of a contiguous array as bytes."""
    return block.reshape(-1).view(np.uint8)


class BytesStream:
    """Some buffers one after another, as bytes."""

    item = row = 1

    def __init__(self, buffers: Sequence[Array]) -> None:
        self._buffers = buffers
        self._starts = [0, *itertools.accumulate(len(buffer) for buffer in buffers)]
        self.items = self._starts[-1]

    @property
    def offset(self) -> int | None:
        """See `Stream`."""
        return None

    @property
    def view(self) -> Array | None:
        """See `Stream`."""
        return None

    def read(self, low: int, high: int, out: Array) -> None:
        """See `Stream`."""
        for buffer, start, stop, at in self._parts(low, high):
            out[at : at + stop - start] = buffer[start:stop]

    def write(self, low: int, high: int, data: Array) -> None:
        """See `Stream`."""
        for buffer, start, stop, at in self._parts(low, high):
            buffer[start:stop] = data[at : at + stop - start]

    def _parts(self, low: int, high: int) -> Iterator[tuple[Array, int, int, int]]:
        for buffer, (first, last) in zip(self._buffers, itertools.pairwise(self._starts), strict=True):
            start, stop = max(low, first), min(high, last)
            if start < stop:
                yield buffer, start - first, stop - first, start - low


class ArrayStream:
    """The product of some positions along each axis of a block.

    Args:
        block: any strides; axes in the order of the wire; see `plain`.
        axes: for each axis the positions, in the order of the wire.
    """

    def __init__(self, block: Array, axes: Sequence[IndexSet]) -> None:
        self._block = block
        self._axes = axes
        self._starts = [list(itertools.accumulate((plan.length((part,)) for part in axis), initial=0)) for axis in axes]
        self._shape = [starts[-1] for starts in self._starts]
        self.items = math.prod(self._shape)
        self.row = math.prod(self._shape[1:])
        self.item = block.dtype.itemsize

    @property
    def offset(self) -> int | None:
        """See `Stream`."""
        part = self.view
        if part is None or not self._block.flags.c_contiguous or not part.flags.c_contiguous:
            return None
        starts = (_range_from(axis) or 0 for axis in self._axes)
        return sum(start * stride for start, stride in zip(starts, self._block.strides, strict=True))

    @property
    def view(self) -> Array | None:
        """See `Stream`."""
        where = []
        for axis, n in zip(self._axes, self._shape, strict=True):
            start = _range_from(axis)
            if start is None:
                return None
            where.append(slice(start, start + n))
        return self._block[tuple(where)]

    def read(self, low: int, high: int, out: Array) -> None:
        """See `Stream`."""
        for block, wire, axis, chosen in self._pairs(low, high, out):
            wire[...] = block if chosen is None else block.take(chosen, axis)

    def write(self, low: int, high: int, data: Array) -> None:
        """See `Stream`."""
        for block, wire, axis, chosen in self._pairs(low, high, data):
            block[(slice(None),) * axis + (slice(None) if chosen is None else chosen,)] = wire

    def _pairs(self, low: int, high: int, data: Array) -> Iterator[tuple[Array, Array, int, Array | None]]:
        """Views of the block and of the wire's bytes that belong to each other.

        Where the last member is not None, only those positions along that axis of the view of the block are meant.
        """
        wire = data[: (high - low) * self.item].view(self._block.dtype)
        at = 0
        for ranges in rectangles(self._shape, low, high):
            extents = [stop - start for start, stop in ranges]
            size = math.prod(extents)
            part = wire[at : at + size].reshape(extents)
            at += size
            sets = [self._cut(axis, *bounds) for axis, bounds in enumerate(ranges)]
            # Of the axes at most one is read through an index array: the most scattered one.
            scattered = [sum(len(part) if isinstance(part, Points) else 1 for part in held) for held in sets]
            worst = scattered.index(max(scattered))
            width = size // extents[worst] * self.item
            small = scattered[worst] > 1 and extents[worst] * width < _SMALL_STRIP * scattered[worst]
            small = small or plan.scattered(sets[worst])
            choices = [
                list(_batches(held, width)) if small and axis == worst else list(_one_by_one(held))
                for axis, held in enumerate(sets)
            ]
            for choice in itertools.product(*choices):
                yield _views(self._block, part, choice)

    def _cut(self, axis: int, low: int, high: int) -> IndexSet:
        starts = self._starts[axis]
        first, last = bisect.bisect_right(starts, low) - 1, bisect.bisect_left(starts, high)
        return plan.cut(self._axes[axis][first:last], low - starts[first], high - starts[first])


def rectangles(shape: Sequence[int], low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """The elements number [low, high) of an array in C order as blocks of (start, stop) per axis, few and in order."""
    if low >= high:
        return
    if not shape:
        yield []
        return
    inner = math.prod(shape[1:])
    first, last = -(-low // inner), high // inner
    if first > last:  # all in one row
        row = last
        for rest in rectangles(shape[1:], low - row * inner, high - row * inner):
            yield [(row, row + 1), *rest]
        return
    for rest in rectangles(shape[1:], low - (first - 1) * inner, inner) if low < first * inner else ():
        yield [(first - 1, first), *rest]
    if first < last:
        yield [(first, last), *((0, n) for n in shape[1:])]
    for rest in rectangles(shape[1:], 0, high - last * inner):
        yield [(last, last + 1), *rest]


_Choice = tuple[int, int, "Strip | Array"]  # where on the wire, how many, and which positions of the block


def _is_range(strip: Strip) -> bool:
    return strip.runs == 1 or strip.length == strip.period


def _range_from(held: IndexSet) -> int | None:
    """Where it begins, if it is one range."""
    first = held[0] if len(held) == 1 else None
    return first.start if isinstance(first, Strip) and _is_range(first) else None


def _one_by_one(held: IndexSet) -> Iterator[_Choice]:
    at = 0
    for part in held:
        for strip in (Strip(n, 1, 1, 1) for n in plan.indices((part,))) if isinstance(part, Points) else (part,):
            n = strip.length * strip.runs
            yield at, n, strip
            at += n


def _batches(held: IndexSet, width: int) -> Iterator[_Choice]:
    """Positions in arrays of at most _BATCH, and of few bytes: `width` is what lies at one position."""
    most = max(1, min(_BATCH, _BATCH * 16 // width))
    at = 0
    for points, parts in itertools.groupby(held, lambda part: isinstance(part, Points)):
        for batch in _slices(parts, most) if points else _listed(plan.indices(tuple(parts)), most):
            yield at, len(batch), batch
            at += len(batch)


def _slices(parts: Iterable[Strip | Points], most: int) -> Iterator[Array]:
    for part in parts:
        assert isinstance(part, Points)
        for low in range(0, len(part), most):
            yield part.numbers[low : low + most]


def _listed(numbers: Iterator[int], most: int) -> Iterator[Array]:
    while batch := list(itertools.islice(numbers, most)):
        yield np.array(batch, np.intp)


def _views(block: Array, wire: Array, choice: Sequence[_Choice]) -> tuple[Array, Array, int, Array | None]:
    """The two views for one choice on each axis; a strip of several runs splits its axis in two, in both."""
    fancy, positions = 0, None
    for axis in reversed(range(len(choice))):  # the last first, so that splitting one does not move the others
        at, n, chosen = choice[axis]
        before = (slice(None),) * axis
        wire = wire[(*before, slice(at, at + n))]
        if not isinstance(chosen, Strip):
            fancy, positions = axis, chosen
        elif _is_range(chosen):
            block = block[(*before, slice(chosen.start, chosen.start + n))]
        elif chosen.length == 1:
            block = block[(*before, slice(chosen.start, chosen.start + (n - 1) * chosen.period + 1, chosen.period))]
        else:
            block = block[(*before, slice(chosen.start, None))]
            runs, size, step = (chosen.runs, chosen.length), block.strides[axis], chosen.period
            block = as_strided(
                block,
                (*block.shape[:axis], *runs, *block.shape[axis + 1 :]),
                (*block.strides[:axis], size * step, size, *block.strides[axis + 1 :]),
            )
            wire = wire.reshape((*wire.shape[:axis], *runs, *wire.shape[axis + 1 :]))
            fancy += positions is not None
    return block, wire, fancy, positions
