"""Who owns which rows, and who sends which rows to whom when the number of processes changes. Pure arithmetic.

Rows 0..n-1 are dealt to p ranks in contiguous blocks whose sizes differ by at most one: the first n % p ranks hold one
row more. Any sizes are allowed, n below p and n = 0 too (paper 003, section 6.2, shows the homogeneous case only, where
one size divides the other).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Layout", "Transfer", "block_bounds", "layout", "reachable", "transfers"]


class Transfer(NamedTuple):
    """Old rank `source` sends the global rows [start, stop) to new rank `target`."""

    source: int
    target: int
    start: int
    stop: int


class Layout(NamedTuple):
    """One rank's part of a transfer: rows exchanged with each rank of the other side, and where in its own block."""

    counts: list[int]
    displacements: list[int]


def block_bounds(n: int, p: int, r: int) -> tuple[int, int]:
    """The global rows [start, stop) of rank `r` of `p` when `n` rows are dealt in blocks.

    Raises:
        ValueError: n < 0, p < 1 or r outside 0..p-1.
    """
    if n < 0 or p < 1 or not 0 <= r < p:
        raise ValueError(f"no block {r} of {p} over {n} rows")
    size, extra = divmod(n, p)
    start = r * size + min(r, extra)
    return start, start + size + (r < extra)


def transfers(n: int, p_old: int, p_new: int) -> list[Transfer]:
    """All transfers, ordered by row; every row is in exactly one. Empty transfers are left out.

    Raises:
        ValueError: n < 0 or a size < 1.
    """
    block_bounds(n, p_old, 0), block_bounds(n, p_new, 0)
    moves = []
    row = source = target = 0
    while row < n:
        old_stop, new_stop = block_bounds(n, p_old, source)[1], block_bounds(n, p_new, target)[1]
        stop = min(old_stop, new_stop)
        if stop > row:
            moves.append(Transfer(source, target, row, stop))
        row = stop
        source += stop == old_stop
        target += stop == new_stop
    return moves


def layout(n: int, mine: int, theirs: int, rank: int) -> Layout:
    """What rank `rank` of `mine` exchanges with each of the `theirs` ranks of the other side; the same for both sides.

    Raises:
        ValueError: n < 0, a size < 1 or a rank outside its side.
    """
    low, high = block_bounds(n, mine, rank)
    counts, displacements = [], []
    for other in range(theirs):
        start, stop = block_bounds(n, theirs, other)
        start, stop = max(start, low), min(stop, high)
        counts.append(max(0, stop - start))
        # An empty part still needs a position inside the block: MPI may look at it.
        displacements.append(start - low if stop > start else 0)
    return Layout(counts, displacements)


def reachable(size: int, new: int, factor: int) -> bool:
    """Whether `new` is `size` times or divided by a power of `factor`; factor 1 reaches everything (section 5.1)."""
    if factor == 1 or size == new:
        return True
    small, large = min(size, new), max(size, new)
    while small < large:
        small *= factor
    return small == large
