"""How an array is dealt to the ranks: blocks, blocks in turn, cyclic, any index sets, two axes at once, by what is in
its elements, or replicated.

    app.register("field", field, distribution=Block(axis=0))

A distribution says what each of any number of ranks holds; `dmr.redistribute` moves an array from the distribution over
the old ranks to that over the new ones, which may be of another kind. Blocks are passed without halo rows.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dmr import plan
from dmr.plan import IndexSet, Strip

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Block",
    "Block2D",
    "BlockCyclic",
    "BlockCyclic2D",
    "Cyclic",
    "Distribution",
    "Explicit",
    "Grid",
    "Keyed",
    "Replicated",
    "Shape",
]

Shape = tuple[int, ...]

Cut = Callable[[int, int], Sequence[Iterable[int]]]
Owner = Callable[[Any, int], Any]


class Distribution:
    """What every kind has in common. Shapes are those of the whole array unless said otherwise."""

    def sets(self, shape: Shape, size: int, rank: int) -> tuple[IndexSet, ...]:
        """For each axis, what rank `rank` of `size` holds; its block is the product of these.

        Raises:
            ValueError: the array has no such axis.
        """
        raise NotImplementedError

    def sends(self, shape: Shape, size: int, rank: int) -> tuple[IndexSet, ...]:
        """What of it that rank gives away when the array moves, so that everything is given once."""
        return self.sets(shape, size, rank)

    def whole(self, shapes: Sequence[Shape]) -> Shape:
        """The whole array's shape from those of all ranks' blocks, which are of equally many axes.

        Raises:
            ValueError: there is no such axis, or the distribution is not for that many ranks.
        """
        raise NotImplementedError

    @property
    def mine(self) -> IndexSet | None:
        """What this rank alone knows of the distribution, if anything."""
        return None

    def before(self, mine: Sequence[IndexSet | None], shapes: Sequence[Shape] = ()) -> Distribution:
        """The same with what each of the ranks knew, whose blocks have these shapes.

        Raises:
            ValueError: that does not fit together.
        """
        return self

    def after(self, shape: Shape, size: int, old: Distribution, old_size: int) -> Distribution:
        """The distribution of this kind over another number of ranks, for an array that was dealt as `old` says.

        Raises:
            ValueError: there is none.
        """
        return self

    def on(self, rank: int) -> Distribution:
        """As rank `rank` would have given it."""
        return self

    def bare(self) -> Distribution:
        """The kind alone, without what was said of one array on one rank."""
        return self


def block_shape(distribution: Distribution, shape: Shape, size: int, rank: int) -> Shape:
    """The shape of that rank's block."""
    return tuple(map(plan.length, distribution.sets(shape, size, rank)))


class _OneAxis(Distribution):
    axis: int

    def share(self, n: int, size: int, rank: int) -> IndexSet:
        """What the rank holds of the dealt axis, whose length is `n`."""
        raise NotImplementedError

    def sets(self, shape: Shape, size: int, rank: int) -> tuple[IndexSet, ...]:
        """See `Distribution`."""
        dealt = _axis(self.axis, len(shape))
        return tuple(
            self.share(n, size, rank) if axis == dealt else plan.everything(0, n) for axis, n in enumerate(shape)
        )

    def whole(self, shapes: Sequence[Shape]) -> Shape:
        """See `Distribution`."""
        dealt = _axis(self.axis, len(shapes[0]))
        n = sum(shape[dealt] for shape in shapes)
        return (*shapes[0][:dealt], n, *shapes[0][dealt + 1 :])


@dataclass(frozen=True)
class Block(_OneAxis):
    """Contiguous blocks along one axis, whose lengths differ by at most one: `dmr.plan.block_bounds`."""

    axis: int = 0

    def share(self, n: int, size: int, rank: int) -> IndexSet:
        """See `Distribution`."""
        return plan.everything(*plan.block_bounds(n, size, rank))


@dataclass(frozen=True)
class BlockCyclic(_OneAxis):
    """Blocks of `block` elements along one axis, dealt to the ranks in turn, as ScaLAPACK does it."""

    block: int
    axis: int = 0

    def __post_init__(self) -> None:
        if type(self.block) is not int or self.block < 1:
            raise ValueError(f"block must be an integer from 1 on, not {self.block!r}")

    def share(self, n: int, size: int, rank: int) -> IndexSet:
        """See `Distribution`."""
        return plan.deal(n, self.block, size, rank)


@dataclass(frozen=True)
class Cyclic(_OneAxis):
    """Element i along one axis belongs to rank i % size."""

    axis: int = 0

    def share(self, n: int, size: int, rank: int) -> IndexSet:
        """See `Distribution`."""
        return plan.deal(n, 1, size, rank)


@dataclass(frozen=True)
class Replicated(Distribution):
    """Every rank holds everything; what moves is old rank 0's."""

    def sets(self, shape: Shape, size: int, rank: int) -> tuple[IndexSet, ...]:
        """See `Distribution`."""
        return tuple(plan.everything(0, n) for n in shape)

    def sends(self, shape: Shape, size: int, rank: int) -> tuple[IndexSet, ...]:
        """See `Distribution`."""
        return self.sets(shape, size, rank) if rank == 0 else tuple(() for _ in shape)

    def whole(self, shapes: Sequence[Shape]) -> Shape:
        """See `Distribution`."""
        return shapes[0]


class Grid(Distribution):
    """Two axes at once, each dealt to the rows or columns of a grid of ranks."""

    grid: tuple[int, int] | None
    axes: tuple[int, int]

    def _check(self) -> None:
        if self.grid is not None:
            self._two("grid", self.grid, 1)
        if len(self.axes) != 2:
            raise ValueError(f"axes must be two axes, not {self.axes!r}")

    @staticmethod
    def _two(name: str, given: Sequence[int], least: int) -> None:
        if len(given) != 2 or any(type(g) is not int or g < least for g in given):
            raise ValueError(f"{name} must be two integers from {least} on, not {given!r}")

    def grid_of(self, size: int) -> tuple[int, int]:
        """The grid for so many ranks.

        Raises:
            ValueError: the grid that was given has another size.
        """
        if self.grid is None:
            columns = next(c for c in range(math.isqrt(size), 0, -1) if size % c == 0)
            return size // columns, columns
        if math.prod(self.grid) != size:
            raise ValueError(f"the grid {self.grid[0]} x {self.grid[1]} is not one of {size} ranks")
        return self.grid

    def place(self, size: int, rank: int) -> tuple[int, int]:
        """Row and column of a rank in the grid."""
        return divmod(rank, self.grid_of(size)[1])

    def share(self, which: int, n: int, size: int, place: int) -> IndexSet:
        """What row (`which` 0) or column (1) `place` of `size` holds of its axis, whose length is `n`."""
        raise NotImplementedError

    def sets(self, shape: Shape, size: int, rank: int) -> tuple[IndexSet, ...]:
        """See `Distribution`."""
        sets = [plan.everything(0, n) for n in shape]
        grid, place = self.grid_of(size), self.place(size, rank)
        for which, axis in enumerate(self._axes(len(shape))):
            sets[axis] = self.share(which, shape[axis], grid[which], place[which])
        return tuple(sets)

    def whole(self, shapes: Sequence[Shape]) -> Shape:
        """See `Distribution`."""
        places = [self.place(len(shapes), rank) for rank in range(len(shapes))]
        shape = list(shapes[0])
        for which, axis in enumerate(self._axes(len(shape))):
            shape[axis] = sum(part[axis] for part, place in zip(shapes, places, strict=True) if not place[1 - which])
        return tuple(shape)

    def _axes(self, ndim: int) -> tuple[int, int]:
        first, second = (_axis(axis, ndim) for axis in self.axes)
        if first == second:
            raise ValueError(f"axes must be two axes, not {self.axes!r}")
        return first, second


@dataclass(frozen=True)
class Block2D(Grid):
    """Blocks along two axes: the ranks stand in a grid, row by row as MPI's Cartesian communicators have them.

    Args:
        grid: ranks along the first and along the second of the axes; None, and after a resize every size that is not
            its product: as near to a square as possible, like MPI_Dims_create.
        axes: the two axes.
    """

    grid: tuple[int, int] | None = None
    axes: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        self._check()

    def share(self, which: int, n: int, size: int, place: int) -> IndexSet:
        """See `Grid`."""
        return plan.everything(*plan.block_bounds(n, size, place))

    def after(self, shape: Shape, size: int, old: Distribution, old_size: int) -> Distribution:
        """See `Distribution`."""
        return self if self.grid is None or math.prod(self.grid) == size else replace(self, grid=None)


ROW, COLUMN = "row", "column"


@dataclass(frozen=True)
class BlockCyclic2D(Grid):
    """Blocks dealt in turn along two axes over a grid of ranks, as ScaLAPACK's array descriptors have it.

    Element (i, j) is of the rank in row (first[0] + i // block[0]) % grid[0] and column (first[1] + j // block[1]) %
    grid[1] of the grid; a rank's block has NUMROC's shape and ScaLAPACK's order (ScaLAPACK Users' Guide, section 4.3;
    `order="F"` of numpy gives its local storage, which is kept when data moves).

    Args:
        block: rows and columns of a block, MB and NB.
        grid: rows and columns of ranks; None, and after a resize every size that is not its product: as near to a
            square as possible.
        axes: the two axes.
        first: row and column of the grid that hold the first block, RSRC and CSRC; the remainder counts after a resize.
        order: whether ranks are numbered along the grid's rows ("row", as BLACS does by default) or its columns.
    """

    block: tuple[int, int]
    grid: tuple[int, int] | None = None
    axes: tuple[int, int] = (0, 1)
    first: tuple[int, int] = (0, 0)
    order: str = ROW

    def __post_init__(self) -> None:
        self._check()
        self._two("block", self.block, 1)
        self._two("first", self.first, 0)
        if self.order not in (ROW, COLUMN):
            raise ValueError(f'order must be "row" or "column", not {self.order!r}')

    def place(self, size: int, rank: int) -> tuple[int, int]:
        """See `Grid`."""
        rows, columns = self.grid_of(size)
        return divmod(rank, columns) if self.order == ROW else (rank % rows, rank // rows)

    def share(self, which: int, n: int, size: int, place: int) -> IndexSet:
        """See `Grid`."""
        return plan.deal(n, self.block[which], size, (place - self.first[which]) % size)

    def after(self, shape: Shape, size: int, old: Distribution, old_size: int) -> Distribution:
        """See `Distribution`."""
        return self if self.grid is None or math.prod(self.grid) == size else replace(self, grid=None)


class Keyed(Distribution):
    """Records that belong to ranks by what is in them: particles by their place, keys by their hash.

    The records are the elements along axis 0 of an array, of a list, or the rows of a CSR matrix. Any rank may hold any
    number of them, in any order, whoever their owners are, until the data moves: then each goes to its owner, where
    they stand by their former ranks, and of each of these in the order in which it had them. No rank has to know of
    more records than it holds.

    Args:
        owner: called as owner(keys, size) on each rank that holds records, gives for each of them the rank of `size`
            to which it belongs, as whole numbers. None: only where records are counts, as in what `Moved` says of them;
            to move to it means contiguous parts of nearly equal length.
        key: the field of a structured array that holds the keys; None: `owner` gets the rank's whole block.
    """

    axis = 0

    def __init__(self, owner: Owner | None = None, key: str | None = None) -> None:
        self._owner = owner
        self._key = key
        self._counts: tuple[int, ...] | None = None
        self.strayed = False

    def __repr__(self) -> str:
        return f"Keyed({'' if self._owner else 'None, '}key={self._key!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and (repr(self), self._counts) == (repr(other), other._counts)

    def __hash__(self) -> int:
        return hash((repr(self), self._counts))

    def __reduce__(self) -> tuple[object, ...]:
        # Without the function: the process that gets this need not have it. Whether there is one counts.
        return _keyed, (_elsewhere if self._owner else None, self._key, self._counts, self.strayed)

    @property
    def by_owner(self) -> bool:
        """Whether it is for `owner` to say where records go; false where it is known already who holds how many."""
        return self._owner is not None and self._counts is None

    def owners(self, block: Any, size: int) -> np.ndarray[Any, Any]:  # noqa: ANN401
        """For each record of a rank's block, the rank of `size` to which it belongs.

        Raises:
            ValueError: the function gives no ranks, or not one for each record.
        """
        import numpy as np

        assert self._owner is not None, "asked only where there is a function"
        records = block.shape[0] if hasattr(block, "shape") else len(block)
        found = np.asarray(self._owner(block if self._key is None else block[self._key], size))
        if found.shape != (records,):
            raise ValueError(f"the owners of {records} records are an array of shape {found.shape}")
        if records and (found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= size):
            wrong = next(one for one in found.tolist() if type(one) is not int or not 0 <= one < size)
            raise ValueError(f"a record's owner is one of the ranks 0 to {size - 1}, not {wrong!r}")
        return found

    def sets(self, shape: Shape, size: int, rank: int) -> tuple[IndexSet, ...]:
        """See `Distribution`; records are counted from old rank 0's first on."""
        if self._counts is None or len(self._counts) != size:
            raise ValueError("how many records a rank will hold is not known before they have moved")
        start = sum(self._counts[:rank])
        return (plan.everything(start, start + self._counts[rank]), *(plan.everything(0, n) for n in shape[1:]))

    def whole(self, shapes: Sequence[Shape]) -> Shape:
        """See `Distribution`."""
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def before(self, mine: Sequence[IndexSet | None], shapes: Sequence[Shape] = ()) -> Distribution:
        """See `Distribution`."""
        return _keyed(self._owner, self._key, tuple(shape[0] for shape in shapes), strayed=False)

    def after(self, shape: Shape, size: int, old: Distribution, old_size: int) -> Distribution:
        """See `Distribution`."""
        if self._owner is None:
            bounds = (plan.block_bounds(shape[0], size, rank) for rank in range(size))
            return _keyed(None, self._key, tuple(stop - start for start, stop in bounds), strayed=True)
        for rank in range(old_size):
            held = old.sets(shape, old_size, rank)
            if held[0] and any(plan.length(part) != n for part, n in zip(held[1:], shape[1:], strict=True)):
                raise ValueError(f"the owner of a record must be asked where all of it is, which {old} does not have")
        return _keyed(self._owner, self._key, None, strayed=False)

    def on(self, rank: int) -> Distribution:
        """See `Distribution`."""
        return _keyed(None, self._key, None, strayed=self.strayed)

    def bare(self) -> Distribution:
        """See `Distribution`."""
        return _keyed(self._owner, self._key, None, strayed=False)


def _keyed(owner: Owner | None, key: str | None, counts: tuple[int, ...] | None, strayed: bool) -> Keyed:
    made = Keyed(owner, key)
    made._counts, made.strayed = counts, strayed
    return made


def ownerless(distribution: Distribution) -> Distribution:
    """The same for processes that do not know who owns a record."""
    return distribution.on(0) if isinstance(distribution, Keyed) else distribution


def _elsewhere(keys: object, size: int) -> object:
    """Stands for a function of another process."""
    raise ValueError("the function that says who owns a record is not known in this process; register the part with it")


class Explicit(_OneAxis):
    """Any index sets along one axis: meshes cut by a partitioner, rows of equal work, and whatever is not regular.

    Every rank comes to know all sets during a move, which takes memory of its own: as little as a range for a
    contiguous set; 4 bytes for each of the axis's indices where there is no regularity, or 8 from 2**31 elements on,
    for the old and for the new sets, and as much again for a table. Give numpy arrays of integers if there are many.

    Args:
        mine: the global indices that this rank holds, in the order in which it holds them; all ranks' together are
            0..n-1, each once. None: a distribution to move to, not one that is.
        cut: what each rank of a new size holds: called as cut(n, size) on one rank, gives `size` such sequences. None:
            the old order, old rank 0's elements first, is cut into contiguous parts whose lengths differ by at most 1.
        axis: the axis.
    """

    def __init__(self, mine: Iterable[int] | None = None, cut: Cut | None = None, axis: int = 0) -> None:
        self._mine = None if mine is None else _as_set(mine)
        self._sets: tuple[IndexSet, ...] = ()
        self._cut = cut
        self.axis = axis

    def __repr__(self) -> str:
        return f"Explicit(axis={self.axis})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explicit) and (self.axis, self._mine, self._sets) == (
            other.axis,
            other._mine,
            other._sets,
        )

    def __hash__(self) -> int:
        return hash((self.axis, self._mine, self._sets))

    def __reduce__(self) -> tuple[object, ...]:
        # Without the function: the process that gets this need not have it, and the sets for it are made already.
        return _explicit, (self.axis, self._mine, self._sets)

    @property
    def mine(self) -> IndexSet | None:
        """See `Distribution`."""
        return self._mine

    @property
    def indices(self) -> list[int]:
        """The global indices that this rank holds, in its order."""
        return list(plan.indices(self._mine or ()))

    def share(self, n: int, size: int, rank: int) -> IndexSet:
        """See `Distribution`."""
        return self._sets[rank]

    def before(self, mine: Sequence[IndexSet | None], shapes: Sequence[Shape] = ()) -> Distribution:
        """See `Distribution`."""
        known = [held for held in mine if held is not None]
        if len(known) < len(mine):
            raise ValueError(f"rank {mine.index(None)} does not say which indices it holds")
        _check_partition(known, sum(map(plan.length, known)))
        return _explicit(self.axis, None, tuple(known))

    def after(self, shape: Shape, size: int, old: Distribution, old_size: int) -> Distribution:
        """See `Distribution`."""
        n = shape[_axis(self.axis, len(shape))]
        if self._cut is not None:
            sets = tuple(map(_as_set, self._cut(n, size)))
            if len(sets) != size:
                raise ValueError(f"cut({n}, {size}) gives {len(sets)} index sets")
            try:
                _check_partition(sets, n)
            except ValueError as error:
                raise ValueError(f"cut({n}, {size}): {error}") from None
        else:
            order = plan.everything(0, n)
            if isinstance(old, Explicit) and _axis(old.axis, len(shape)) == _axis(self.axis, len(shape)):
                order = tuple(strip for rank in range(old_size) for strip in old._sets[rank])
            sets = tuple(plan.cut(order, *plan.block_bounds(n, size, rank)) for rank in range(size))
        return _explicit(self.axis, None, sets)

    def on(self, rank: int) -> Distribution:
        """See `Distribution`."""
        return _explicit(self.axis, self._sets[rank], ())

    def bare(self) -> Distribution:
        """See `Distribution`."""
        return Explicit(cut=self._cut, axis=self.axis)


def _explicit(axis: int, mine: IndexSet | None, sets: tuple[IndexSet, ...]) -> Explicit:
    made = Explicit(axis=axis)
    made._mine, made._sets = mine, sets
    return made


# More numbers than these are worth an array.
_MANY = 64


def _as_set(numbers: Iterable[int]) -> IndexSet:
    if isinstance(numbers, range):
        return plan.strips(numbers)
    if not hasattr(numbers, "dtype"):
        numbers = list(numbers)
    with contextlib.suppress(ImportError, OverflowError, ValueError):  # what is wrong with one is said below
        if len(numbers) > _MANY:  # type: ignore[arg-type]
            import numpy as np

            from dmr import points

            array = np.asarray(numbers)
            if array.ndim == 1 and array.dtype.kind in "iu" and array.dtype != np.uint64:
                return points.as_set(array)
    return plan.strips([_whole(number) for number in (numbers.tolist() if hasattr(numbers, "tolist") else numbers)])


def _whole(number: object) -> int:
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"an index set holds whole numbers, not {number!r}") from None


def _check_partition(sets: Sequence[IndexSet], n: int) -> None:
    """Raises ValueError unless the sets together hold each of 0..n-1 once."""
    if any(map(plan.scattered, sets)):
        from dmr import points

        if problem := points.partition_problem(sets, n):
            raise ValueError(problem)
        return
    expected = 0
    for start, stop, rank in sorted(
        (first, first + strip.length, rank)
        for rank, held in enumerate(sets)
        for strip in held
        if isinstance(strip, Strip)
        for first in range(strip.start, strip.start + strip.runs * strip.period, strip.period)
    ):
        if start < expected:
            raise ValueError(f"index {start} of rank {rank} is " + ("negative" if start < 0 else "held twice"))
        if start > expected:
            raise ValueError(f"no rank holds index {expected}")
        expected = stop
    if expected != n:
        raise ValueError(f"the index sets hold {expected} elements of {n}")


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"it has {ndim} axes, so there is no axis {axis}")
    return axis % ndim
