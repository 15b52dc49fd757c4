"""Which elements a process holds, and which of them two processes have in common. Pure arithmetic on one axis.

An *index set* lists the elements of one axis that a rank holds, in the order in which it keeps them, as few strips: a
strip is `runs` runs of `length` consecutive indices, one every `period`. So every usual way to deal an axis (blocks,
cyclic, blocks dealt in turn) takes one or two strips per rank whatever its length, and so do the pieces two ranks
exchange. What has no regularity is an array of the numbers themselves (`Points`; `dmr.points` works with them). Arrays
of more axes are products of such sets, see `dmr.distributions`; the DMR paper, section 6.2, shows the homogeneous case
only, where one size divides the other.

Importing this module needs no numpy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = [
    "IndexSet",
    "Piece",
    "Points",
    "Strip",
    "block_bounds",
    "common",
    "cut",
    "deal",
    "everything",
    "indices",
    "length",
    "reachable",
    "regular",
    "scattered",
    "strips",
]


class Strip(NamedTuple):
    """`runs` runs of `length` consecutive numbers, the first at `start`, the others every `period` >= length.

    The numbers are global indices of an axis, or positions in a rank's own block.
    """

    start: int
    length: int
    period: int
    runs: int


class Points:
    """Numbers without regularity, in their order: an array of int32 or int64 with one axis, which nobody changes."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Any) -> None:  # noqa: ANN401 - an array; this module knows no numpy
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and self.numbers.tobytes() == other.numbers.tobytes()

    def __hash__(self) -> int:
        return hash(self.numbers.tobytes())

    def __repr__(self) -> str:
        return f"Points({self.numbers!r})"


IndexSet = tuple[Strip | Points, ...]


class Piece(NamedTuple):
    """What two ranks share: the same elements, in the same order, as positions in either's block.

    Both are strips of the same length and as many runs, or points of the same number.
    """

    source: Strip | Points
    target: Strip | Points


def block_bounds(n: int, p: int, r: int) -> tuple[int, int]:
    """The global rows [start, stop) of rank `r` of `p` when `n` rows are dealt in contiguous blocks.

    Sizes differ by at most one: the first n % p ranks hold one row more. n below p and n = 0 are allowed.

    Raises:
        ValueError: n < 0, p < 1 or r outside 0..p-1.
    """
    if n < 0 or p < 1 or not 0 <= r < p:
        raise ValueError(f"no block {r} of {p} over {n} rows")
    size, extra = divmod(n, p)
    start = r * size + min(r, extra)
    return start, start + size + (r < extra)


def reachable(size: int, new: int, factor: int) -> bool:
    """Whether `new` is `size` times or divided by a power of `factor`; factor 1 reaches everything (section 5.1)."""
    if factor == 1 or size == new:
        return True
    small, large = min(size, new), max(size, new)
    while small < large:
        small *= factor
    return small == large


def everything(start: int, stop: int) -> IndexSet:
    """The contiguous range [start, stop)."""
    return (Strip(start, stop - start, stop - start, 1),) if stop > start else ()


def deal(n: int, block: int, p: int, r: int) -> IndexSet:
    """What rank `r` of `p` holds when `n` elements are dealt in turn, `block` at a time (block 1: cyclic).

    Raises:
        ValueError: n < 0, block < 1, p < 1 or r outside 0..p-1.
    """
    if n < 0 or block < 1 or p < 1 or not 0 <= r < p:
        raise ValueError(f"no share {r} of {p} over {n} elements in blocks of {block}")
    full, rest = divmod(n, block)
    count = len(range(r, full, p))
    dealt = (Strip(r * block, block, p * block, count),) if count else ()
    return dealt + (everything(full * block, n) if full % p == r and rest else ())


def strips(numbers: Iterable[int]) -> IndexSet:
    """Any numbers, in their order, as strips: runs of consecutive numbers, and equal runs at equal distances."""
    if isinstance(numbers, range) and numbers.step > 0:
        if numbers.step == 1:
            return everything(numbers.start, numbers.stop)
        return (Strip(numbers.start, 1, numbers.step, len(numbers)),) if numbers else ()
    return regular(_runs_of(numbers))


def regular(runs: Iterable[tuple[int, int]]) -> IndexSet:
    """Runs of consecutive numbers, as (first, how many), as strips: equal ones at equal distances are one strip."""
    return _regular((run, run) for run in runs)[0]


def indices(held: IndexSet) -> Iterator[int]:
    """The numbers themselves, in order."""
    for part in held:
        if isinstance(part, Points):
            yield from part.numbers.tolist()
            continue
        start, size, period, count = part
        for first in range(start, start + count * period, period):
            yield from range(first, first + size)


def length(held: IndexSet) -> int:
    """How many elements there are."""
    return sum(len(part) if isinstance(part, Points) else part.length * part.runs for part in held)


def scattered(held: IndexSet) -> bool:
    """Whether some of it has no regularity."""
    return any(isinstance(part, Points) for part in held)


def cut(held: IndexSet, low: int, high: int) -> IndexSet:
    """The elements number `low` up to but not `high` of the set, counted in its order."""
    found: list[Strip | Points] = []
    at = 0
    for part in held:
        size = length((part,))
        first, last = max(low - at, 0), min(high - at, size)
        if first < last:
            found += [Points(part.numbers[first:last])] if isinstance(part, Points) else _cut(part, first, last)
        at += size
    return tuple(found)


def common(source: IndexSet, target: IndexSet) -> list[Piece]:
    """The elements that are in both sets without points; each index is at most once in either; see `dmr.points`."""
    if len(source) * len(target) <= _FEW:
        pairs = itertools.product(_placed(source), _placed(target))
        return [piece for mine, yours in pairs for piece in _meet(*mine, *yours)]
    ours, theirs = _regular(_sweep(_sorted_runs(source), _sorted_runs(target)))
    return [Piece(a, b) for a, b in zip(ours, theirs, strict=True)]


# Up to here sets are compared strip by strip; beyond it, run by run in ascending order.
_FEW = 16

_Run = tuple[int, int]  # first number, how many


def _placed(held: IndexSet) -> Iterator[tuple[Strip, int]]:
    """Each strip with the position of its first element in the block; for sets without points."""
    at = 0
    for strip in held:
        assert isinstance(strip, Strip), "a set with points is none of strips"
        yield strip, at
        at += strip.length * strip.runs


def _cut(strip: Strip, low: int, high: int) -> Iterator[Strip]:
    """Elements [low, high) of one strip: the end of a run, whole runs, the beginning of a run."""
    start, size, period, count = strip
    if count == 1:
        yield Strip(start + low, high - low, high - low, 1)
        return
    run, offset = divmod(low, size)
    if offset and low < high:
        stop = min(high, (run + 1) * size)
        yield Strip(start + run * period + offset, stop - low, stop - low, 1)
        low, run = stop, run + 1
    whole = (high - low) // size
    if whole > 0:
        yield Strip(start + run * period, size, period, whole)
        low, run = low + whole * size, run + whole
    if low < high:
        yield Strip(start + run * period, high - low, high - low, 1)


def _below(strip: Strip, number: int) -> int:
    """How many elements of the strip are smaller than `number`."""
    start, size, period, count = strip
    run, offset = divmod(number - start, period)
    if run < 0:
        return 0
    return min(run, count) * size + (min(offset, size) if run < count else 0)


def _meet(a: Strip, a_at: int, b: Strip, b_at: int) -> Iterator[Piece]:
    """What two strips share, whose first elements are at the positions `a_at` and `b_at` of their blocks."""
    if a.runs == 1:
        for ours, theirs in _inside(a, a_at, b, b_at):
            yield Piece(ours, theirs)
    elif b.runs == 1:
        for theirs, ours in _inside(b, b_at, a, a_at):
            yield Piece(ours, theirs)
    else:
        yield from _periodic(a, a_at, b, b_at)


def _inside(run: Strip, run_at: int, strip: Strip, strip_at: int) -> Iterator[tuple[Strip, Strip]]:
    """The part of `strip` that lies inside a single run, as positions in the run's block and in the strip's."""
    low, high = _below(strip, run.start), _below(strip, run.start + run.length)
    for part in _cut(strip, low, high) if low < high else ():
        yield (
            part._replace(start=run_at + part.start - run.start),
            Strip(strip_at + low, part.length, part.length, part.runs),
        )
        low += part.length * part.runs


def _periodic(a: Strip, a_at: int, b: Strip, b_at: int) -> Iterator[Piece]:
    """What two strips of many runs share.

    The pattern of their overlaps repeats with the least common multiple of their periods. Each overlap that has none a
    pattern earlier is found by walking along the runs, the others follow from it.
    """
    pattern = math.lcm(a.period, b.period)
    a_turn, b_turn = pattern // a.period, pattern // b.period
    i = max(0, (b.start - a.start - a.length) // a.period + 1)
    j = max(0, (a.start - b.start - b.length) // b.period + 1)
    while i < a.runs and j < b.runs and (i < a_turn or j < b_turn):
        a_start, b_start = a.start + i * a.period, b.start + j * b.period
        a_stop, b_stop = a_start + a.length, b_start + b.length
        low, high = max(a_start, b_start), min(a_stop, b_stop)
        if low < high:
            count = min((a.runs - 1 - i) // a_turn, (b.runs - 1 - j) // b_turn) + 1
            yield Piece(
                Strip(a_at + i * a.length + low - a_start, high - low, a_turn * a.length, count),
                Strip(b_at + j * b.length + low - b_start, high - low, b_turn * b.length, count),
            )
        i, j = i + (a_stop <= b_stop), j + (b_stop <= a_stop)


def _sorted_runs(held: IndexSet) -> list[tuple[int, int, int]]:
    """First number, one past the last, and the position of the first, of each run, ascending."""
    return sorted(
        (strip.start + k * strip.period, strip.start + k * strip.period + strip.length, at + k * strip.length)
        for strip, at in _placed(held)
        for k in range(strip.runs)
    )


def _sweep(ours: Sequence[tuple[int, int, int]], theirs: Sequence[tuple[int, int, int]]) -> Iterator[tuple[_Run, _Run]]:
    """The overlaps of two ascending lists of runs, as runs of positions."""
    i = j = 0
    while i < len(ours) and j < len(theirs):
        (a_start, a_stop, a_at), (b_start, b_stop, b_at) = ours[i], theirs[j]
        low, high = max(a_start, b_start), min(a_stop, b_stop)
        if low < high:
            yield (a_at + low - a_start, high - low), (b_at + low - b_start, high - low)
        i, j = i + (a_stop <= b_stop), j + (b_stop <= a_stop)


def _runs_of(numbers: Iterable[int]) -> Iterator[_Run]:
    start = stop = 0
    for number in numbers:
        if number != stop or start == stop:
            if stop > start:
                yield start, stop - start
            start = number
        stop = number + 1
    if stop > start:
        yield start, stop - start


def _regular(pairs: Iterable[tuple[_Run, _Run]]) -> tuple[IndexSet, IndexSet]:
    """Gathers runs of equal length that follow each other at equal distances, in both members alike, into strips."""
    ours: list[Strip] = []
    theirs: list[Strip] = []
    for (a, size), (b, _) in pairs:
        if ours and ours[-1].length == size:
            one, two = ours[-1], theirs[-1]
            if one.runs == 1:
                steps = a - one.start, b - two.start
            else:
                steps = one.period, two.period
                if (a, b) != (one.start + one.runs * one.period, two.start + two.runs * two.period):
                    steps = 0, 0
            if min(steps) >= size:
                ours[-1] = Strip(one.start, size, steps[0], one.runs + 1)
                theirs[-1] = Strip(two.start, size, steps[1], two.runs + 1)
                continue
        ours.append(Strip(a, size, size, 1))
        theirs.append(Strip(b, size, size, 1))
    return tuple(ours), tuple(theirs)
