"""What the old ranks say of the state that is to move, whether they agree, and what follows for everybody.

Pure: it looks at values and at what all ranks told, and does not communicate. `dmr.redistribute` carries it about.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dmr import device
from dmr.distributions import Distribution, Keyed, Replicated, Shape, block_shape
from dmr.plan import IndexSet

__all__ = ["ARRAY", "CSR", "LIST", "VALUE", "Description", "Item", "Part", "describe", "judge"]

# How a value moves.
ARRAY: Final = "array"
LIST: Final = "list"
CSR: Final = "CSR matrix"
VALUE: Final = "value"


class Part(NamedTuple):
    """One piece of state on an old rank.

    Args:
        value: this rank's block: an array of any dtype without Python objects, a list of Python objects, or a CSR
            matrix (scipy's, or anything with data, indices, indptr and shape), dealt by rows; anything at all if it is
            replicated.
        distribution: how it is dealt.
        becomes: how it is dealt to the new ranks; None: in the same way.
    """

    value: Any
    distribution: Distribution
    becomes: Distribution | None = None


@dataclass(frozen=True)
class Description:
    """What one rank says of one part; `problem` instead of all else when it cannot move."""

    problem: str = ""
    kind: str = VALUE
    shape: Shape = ()
    dtypes: tuple[Any, ...] = ()
    fortran: bool | None = None  # None: its memory would do for either order
    like: str = ""
    distribution: Distribution = field(default_factory=Replicated)
    becomes: str = ""
    anew: IndexSet | None = None  # what this rank says that it will hold, where the ranks stay the same


@dataclass(frozen=True)
class Item:
    """What all ranks know of one part before it moves.

    `shape` is that of the whole, `dtypes` those of the array or of data, indices and indptr; `like` names the library
    that holds it where that is not numpy.
    """

    name: str
    kind: str
    shape: Shape
    dtypes: tuple[Any, ...]
    fortran: bool
    like: str
    old: Distribution
    new: Distribution


def describe(given: Part | tuple[Any, ...]) -> Description:
    """What this rank says of its part; never raises."""
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        return Description("must be (value, distribution) or (value, distribution, becomes)")
    part = Part(*given)
    for kind in part[1:]:
        if not isinstance(kind, Distribution) and kind is not None:
            return Description(f"{kind!r} is not a distribution; Block(axis=0) is one")
    try:
        return _describe(part)
    except Exception as error:  # whatever an array-like of somebody's does; all ranks must hear of it
        return Description(f"cannot be looked at: {type(error).__name__}: {error}")


def _describe(part: Part) -> Description:
    value, distribution, becomes = part
    said: dict[str, Any] = {"distribution": distribution, "becomes": repr(becomes or distribution)}
    if isinstance(distribution, Replicated) and not _is_plain_array(value):
        if becomes not in (None, Replicated()):
            return Description("only arrays can be dealt out once they are replicated")
        return Description(kind=VALUE, **said)
    if isinstance(value, list):
        return Description(kind=LIST, shape=(len(value),), **said)
    # "indptr" first: some arrays raise ValueError when asked for their "data".
    if all(hasattr(value, name) for name in ("indptr", "indices", "data", "shape")):
        return _describe_csr(value, said)
    return _describe_array(value, said)


def judge(
    told: Sequence[Mapping[str, Description]],
    given: Mapping[str, Part | tuple[Any, ...]],
    new_size: int,
    settled: Mapping[str, Distribution] | None = None,
    *,
    anew: bool = False,
) -> list[Item]:
    """What follows from the descriptions of all old ranks.

    Args:
        told: by old rank.
        given: the parts of old rank 0, whose order and whose functions count.
        new_size: number of ranks afterwards.
        settled: how parts are dealt to these, by name, where that is known already and not to be found out again.
        anew: the ranks stay the same, so that each may have said what it will hold.

    Raises:
        ValueError: the ranks disagree; the message begins with the name of the part.
    """
    for rank, one in enumerate(told):
        for name in [*one, *given]:
            if (name in one) != (name in given):
                raise ValueError(f"{name}: rank {rank if name in given else 0} does not pass it, others do")
    known = settled or {}
    return [
        _judge(name, [one[name] for one in told], part, new_size, known.get(name), anew=anew)
        for name, part in given.items()
    ]


def _judge(
    name: str,
    told: Sequence[Description],
    given: Part | tuple[Any, ...],
    new_size: int,
    settled: Distribution | None,
    *,
    anew: bool,
) -> Item:
    for rank, one in enumerate(told):
        if one.problem:
            raise ValueError(f"{name}: {one.problem} (rank {rank})")
    part, first = Part(*given), told[0]
    for rank, one in enumerate(told):
        for what, mine, theirs in (
            ("kind of value", one.kind, first.kind),
            ("dtype", one.dtypes, first.dtypes),
            ("number of axes", len(one.shape), len(first.shape)),
            ("distribution", repr(one.distribution), repr(first.distribution)),
            ("distribution afterwards", one.becomes, first.becomes),
        ):
            if mine != theirs:
                raise ValueError(
                    f"{name}: the ranks differ in {what}: {_text(mine)} on rank {rank}, {_text(theirs)} on rank 0"
                )
    try:
        shapes = [one.shape for one in told]
        old = first.distribution.before([one.distribution.mine for one in told], shapes)
        shape = old.whole(shapes)
        _check_blocks(old, shape, shapes)
        new, wanted = settled, part.becomes or part.distribution
        if new is None and anew and any(one.anew is not None for one in told):
            new = wanted.before([one.anew for one in told])
            found = new.whole([block_shape(new, shape, new_size, rank) for rank in range(new_size)])
            if found != shape:
                raise ValueError(f"the index sets of all ranks are those of a whole {found}, not {shape}")
        if isinstance(new, Keyed):  # who settled it may have known who owns the records, and who has them now does not
            new, wanted = None, wanted if isinstance(wanted, Keyed) else Keyed()
        if new is None:
            new = wanted.after(shape, new_size, old, len(told))
        for rank in range(new_size if not isinstance(new, Keyed) else 0):
            new.sets(shape, new_size, rank)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    except Exception as error:
        # The application's own function that cuts index sets: its mistake must reach all ranks, too.
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from error
    fortran = {one.fortran for one in told} - {None} == {True}
    return Item(name, first.kind, shape, first.dtypes, fortran, first.like, old, new)


def _check_blocks(old: Distribution, shape: Shape, shapes: Sequence[Shape]) -> None:
    for rank, passed in enumerate(shapes):
        expected = block_shape(old, shape, len(shapes), rank)
        if passed != expected:
            raise ValueError(
                f"rank {rank} of {len(shapes)} passes a block of shape {passed}, but {old} of the whole {shape} gives "
                f"it {expected} (blocks are passed without halo, and all ranks must agree on the other axes)"
            )


def _describe_array(value: Any, said: dict[str, Any]) -> Description:  # noqa: ANN401
    import numpy as np

    if device.on_device(value):
        shape, dtype = device.shape_and_dtype(value)
        return Description(kind=ARRAY, shape=shape, dtypes=(dtype,), like=device.library(value), **said)
    masked = sys.modules.get("numpy.ma")  # imported by whoever made one, and only then
    if masked is not None and isinstance(value, masked.MaskedArray):
        return Description("is a masked array; pass its data and its mask as two arrays")
    if isinstance(value, tuple | range | np.matrix | np.recarray):
        listed = "a list or " if isinstance(value, tuple | range) else ""
        kind = type(value).__name__
        return Description(f"is a {kind}, which would come back as a plain array; pass {listed}np.asarray(...) of it")
    array = np.asarray(value)
    if not array.ndim or array.dtype.hasobject:
        return Description("must be an array with at least one dimension and no Python objects in it, or a list")
    return Description(kind=ARRAY, shape=array.shape, dtypes=(array.dtype,), fortran=_fortran(array), **said)


def _describe_csr(value: Any, said: dict[str, Any]) -> Description:  # noqa: ANN401
    import numpy as np

    if getattr(value, "format", "csr") != "csr":
        return Description(f"is a sparse matrix in the format {value.format}; only CSR can be dealt by rows")
    data, indices, indptr = (np.asarray(a) for a in (value.data, value.indices, value.indptr))
    rows = value.shape[0]
    if data.ndim != 1 or data.shape != indices.shape or indptr.shape != (rows + 1,) or data.dtype.hasobject:
        return Description("is not a CSR matrix: its data, indices and indptr do not fit together")
    if indptr[0] != 0 or indptr[-1] > len(data) or (np.diff(indptr) < 0).any():
        return Description("is not a CSR matrix: its indptr does not ascend from 0 to at most the length of its data")
    if getattr(said["distribution"], "axis", None) not in (0, -2):
        return Description("is a CSR matrix, which can only be dealt by rows (axis 0)")
    dtypes = (data.dtype, indices.dtype, indptr.dtype)
    like = "" if type(value).__module__.split(".")[0] != "scipy" else type(value).__name__
    return Description(kind=CSR, shape=(rows, value.shape[1]), dtypes=dtypes, like=like, **said)


def _is_plain_array(value: object) -> bool:
    import numpy as np

    if device.on_device(value):
        return True
    return type(value) is np.ndarray and value.ndim > 0 and not value.dtype.hasobject


def _fortran(array: Any) -> bool | None:  # noqa: ANN401
    """Whether the first axis is the one whose neighbours are nearest in memory, also for a part of a larger array."""
    strides = [abs(stride) for stride, n in zip(array.strides, array.shape, strict=True) if n > 1]
    if len(strides) < 2 or array.size == 0:
        return None
    return strides == sorted(strides) and strides[0] < strides[-1]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
