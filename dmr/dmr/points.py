"""Index sets without regularity: many numbers at once, by numpy, for sets with `dmr.plan.Points`.

Wherever one of two sets has points, what both share is in the order of the source: whoever gives and whoever gets
finds the same order, each from its own side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dmr import plan
from dmr.plan import IndexSet, Piece, Points, Strip

__all__ = ["Finder", "as_set", "common", "numbers", "partition_problem", "shared_by", "shared_with", "spans"]

Numbers = np.ndarray[Any, np.dtype[Any]]

# From so many numbers for each run on, a set is kept as strips: one takes the memory of as many numbers.
_WORTH: Final = 16
_FEW: Final = 16  # strips that are looked through one by one
_LARGEST: Final = 2**31 - 1


def as_set(array: Numbers) -> IndexSet:
    """Whole numbers in their order, as strips where they are regular, else as a copy of 4 or 8 bytes for each."""
    n = len(array)
    if not n:
        return ()
    wide = array.astype(np.int64, copy=False)
    breaks = np.flatnonzero(np.diff(wide) != 1) + 1
    runs = len(breaks) + 1
    starts = wide[np.concatenate([[0], breaks])]
    lengths = np.diff(np.concatenate([[0], breaks, [n]]))
    if runs * _WORTH <= n or runs <= max(1, _FEW):
        return plan.regular(zip(starts.tolist(), lengths.tolist(), strict=True))
    period, size = int(starts[1] - starts[0]), int(lengths[0])
    if period >= size and lengths[-1] <= size and (lengths[:-1] == size).all() and (np.diff(starts) == period).all():
        whole = runs if lengths[-1] == size else runs - 1
        rest = plan.everything(int(starts[-1]), int(starts[-1] + lengths[-1])) if whole < runs else ()
        return (Strip(int(starts[0]), size, period, whole), *rest)
    return (_points(array),)


def numbers(held: IndexSet) -> Numbers:
    """All numbers of a set, in their order."""
    return np.concatenate([np.empty(0, np.int32), *(_expand(part) for part in held)])


def spans(starts: Numbers, lengths: Numbers) -> Numbers:
    """The numbers of many runs, one run after another."""
    before = np.cumsum(lengths) - lengths
    result: Numbers = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return result


class Finder:
    """Where numbers are in index sets of one axis, whose length is `n`.

    For sets with points it keeps a table of the whole axis, 4 or 8 bytes for each of its elements; without `n`, or
    where that would be much more than the sets themselves take, it searches.
    """

    def __init__(self, n: int = 0, sets: Sequence[IndexSet] = ()) -> None:
        scattered = sum(len(part) for held in sets for part in held if isinstance(part, Points))
        self._n = n if n <= 4 * scattered else 0
        self._table: Numbers | None = None
        self._held: IndexSet = ()
        self._filled = np.empty(0, np.int64)

    def places(self, held: IndexSet, wanted: Numbers) -> Numbers:
        """The position of each wanted number in the set, -1 where it is not there."""
        if not plan.scattered(held) and len(held) <= _FEW:
            return _by_arithmetic(held, wanted)
        if not self._n:
            return _by_search(held, wanted)
        if self._table is None:
            self._table = np.full(self._n, -1, np.int32 if self._n <= _LARGEST else np.int64)
        if self._held is not held:
            self._table[self._filled] = -1
            self._held, self._filled = held, numbers(held)
            self._table[self._filled] = np.arange(len(self._filled))
        return self._table[wanted]


def common(source: IndexSet, target: IndexSet, finder: Finder | None = None) -> list[Piece]:
    """What two sets share; in the order of the source where one of them has points."""
    if not plan.scattered(source) and not plan.scattered(target):
        return plan.common(source, target)
    finder = finder or Finder()
    if plan.scattered(source):
        places = finder.places(target, numbers(source))
        ours = np.flatnonzero(places >= 0)
        theirs = places[ours]
    else:
        places = finder.places(source, numbers(target))
        theirs = np.flatnonzero(places >= 0)
        order = np.argsort(places[theirs], kind="stable")
        theirs = theirs[order]
        ours = places[theirs]
    return [Piece(_points(ours), _points(theirs))] if len(ours) else []


def shared_with(source: IndexSet, targets: Sequence[IndexSet], n: int) -> list[list[Piece]]:
    """What one set has in common with each of others, over an axis of `n` elements: `common` for many at once."""
    finder = Finder(n, [source, *targets])
    return [common(source, target, finder) for target in targets]


def shared_by(sources: Sequence[IndexSet], target: IndexSet, n: int) -> list[list[Piece]]:
    """What each of others has in common with one set, seen from the other side."""
    finder = Finder(n, [*sources, target])
    return [common(source, target, finder) for source in sources]


def partition_problem(sets: Sequence[IndexSet], n: int) -> str:
    """Why the sets do not together hold each of 0..n-1 once, or ""."""
    if _all_there(sets, n):
        return ""
    runs = [_runs(held) for held in sets]
    starts, stops = (np.concatenate([run[i] for run in runs]) for i in (0, 1))
    ranks = np.repeat(np.arange(len(sets)), [len(run[0]) for run in runs])
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], stops[order]
    expected = np.concatenate([[0], stops])
    wrong = np.flatnonzero(starts != expected[:-1])
    if len(wrong):
        first = wrong[0]
        start = int(starts[first])
        if start > expected[first]:
            return f"no rank holds index {expected[first]}"
        return f"index {start} of rank {ranks[order[first]]} is " + ("negative" if start < 0 else "held twice")
    return "" if expected[-1] == n else f"the index sets hold {expected[-1]} elements of {n}"


def _all_there(sets: Sequence[IndexSet], n: int) -> bool:
    """The quick way to find that nothing is wrong, where that needs no more memory than the sets themselves."""
    scattered = sum(len(part) for held in sets for part in held if isinstance(part, Points))
    if sum(map(plan.length, sets)) != n or n > 4 * scattered:
        return False
    seen = np.zeros(n, np.bool_)
    for held in sets:
        for part in held:
            held_here = _expand(part)
            if len(held_here) and (held_here.min() < 0 or held_here.max() >= n):
                return False
            seen[held_here] = True
    return bool(seen.all())


def _points(array: Numbers) -> Points:
    small = not len(array) or (array.max() <= _LARGEST and array.min() >= -_LARGEST)
    return Points(array.astype(np.int32 if small else np.int64))


def _expand(part: Strip | Points) -> Numbers:
    if isinstance(part, Points):
        held: Numbers = part.numbers
        return held
    start, size, period, count = part
    return (start + np.arange(count)[:, None] * period + np.arange(size)).reshape(-1)


def _by_arithmetic(held: IndexSet, wanted: Numbers) -> Numbers:
    places = np.full(len(wanted), -1, np.int64)
    at = 0
    for part in held:
        assert isinstance(part, Strip), "sets with points are searched"
        start, size, period, count = part
        run, offset = np.divmod(wanted.astype(np.int64, copy=False) - start, period)
        inside = (run >= 0) & (run < count) & (offset < size)
        places[inside] = at + run[inside] * size + offset[inside]
        at += size * count
    return places


def _by_search(held: IndexSet, wanted: Numbers) -> Numbers:
    starts, stops, at = _runs(held)
    order = np.argsort(starts, kind="stable")
    nearest = np.searchsorted(starts, wanted, "right", sorter=order) - 1
    run = order[nearest]
    inside = (nearest >= 0) & (wanted < stops[run])
    return np.where(inside, at[run] + wanted - starts[run], -1)


def _runs(held: IndexSet) -> tuple[Numbers, Numbers, Numbers]:
    """First number, one past the last, and the position of the first, of each run."""
    parts: list[tuple[Numbers, Numbers, Numbers]] = [(np.empty(0, np.int64),) * 3]
    at = 0
    for part in held:
        if isinstance(part, Points):
            first = part.numbers.astype(np.int64)
            size, places = 1, np.arange(len(first))
        else:
            size, places = part.length, np.arange(part.runs) * part.length
            first = part.start + np.arange(part.runs) * part.period
        parts.append((first, first + size, at + places))
        at += plan.length((part,))
    starts, stops, positions = (np.concatenate(column) for column in zip(*parts, strict=True))
    return starts, stops, positions
