"""Moves arrays from the old processes to the new ones over the intercommunicator between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dmr import plan

if TYPE_CHECKING:
    import numpy as np
    from mpi4py import MPI

    Array = np.ndarray[Any, np.dtype[Any]]

    # By name: the shape of the whole array and its dtype.
    Shapes = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]

__all__ = ["receive_blocks", "receive_replicated", "send_blocks", "send_replicated", "whole_shapes"]


def whole_shapes(comm: MPI.Intracomm, arrays: Mapping[str, Array]) -> Shapes:
    """Shape and dtype of the whole arrays of which each rank passes its block; collective over `comm`.

    All ranks must agree on names, dtypes and trailing dimensions, and the rows must be dealt as `dmr.plan.block_bounds`
    says.

    Raises:
        ValueError: on all ranks, when they do not.
    """
    import numpy as np

    mine = {name: (np.shape(a)[:1], np.shape(a)[1:], np.asarray(a).dtype) for name, a in arrays.items()}
    everyone = comm.allgather(mine)
    if any(list(other) != list(everyone[0]) for other in everyone):
        raise ValueError("the ranks pass different arrays (or the same in another order)")
    return {name: _whole_shape(name, [other[name] for other in everyone]) for name in everyone[0]}


def send_blocks(intercomm: MPI.Intercomm, comm: MPI.Intracomm, arrays: Mapping[str, Array], shapes: Shapes) -> None:
    """Old side: sends this rank's blocks of arrays of the given shapes; collective with `receive_blocks`."""
    import numpy as np

    _from_old(intercomm, comm, shapes)
    for name, (shape, dtype) in shapes.items():
        block = np.ascontiguousarray(arrays[name])
        counts, displacements = plan.layout(shape[0], comm.size, intercomm.remote_size, comm.rank)
        nothing = [0] * intercomm.remote_size
        _alltoallv(intercomm, shape, dtype, (block, counts, displacements), (None, nothing, nothing))


def receive_blocks(intercomm: MPI.Intercomm, comm: MPI.Intracomm) -> dict[str, Array]:
    """New side: this rank's new block of each array, C-ordered; collective with `send_blocks`."""
    import numpy as np

    arrays: dict[str, Array] = {}
    for name, (shape, dtype) in intercomm.bcast(None, root=0).items():
        counts, displacements = plan.layout(shape[0], comm.size, intercomm.remote_size, comm.rank)
        block = np.empty((sum(counts), *shape[1:]), dtype)
        nothing = [0] * intercomm.remote_size
        _alltoallv(intercomm, shape, dtype, (None, nothing, nothing), (block, counts, displacements))
        arrays[name] = block
    return arrays


def send_replicated(intercomm: MPI.Intercomm, comm: MPI.Intracomm, values: Mapping[str, Any]) -> None:
    """Old side: sends rank 0's values (anything that pickles) to every new rank."""
    _from_old(intercomm, comm, dict(values))


def receive_replicated(intercomm: MPI.Intercomm) -> dict[str, Any]:
    """New side: what old rank 0 sent."""
    values: dict[str, Any] = intercomm.bcast(None, root=0)
    return values


def _from_old(intercomm: MPI.Intercomm, comm: MPI.Intracomm, value: object) -> None:
    from mpi4py import MPI

    # In a broadcast between groups the root names itself ROOT and its own side looks on.
    intercomm.bcast(value, root=MPI.ROOT if comm.rank == 0 else MPI.PROC_NULL)


def _whole_shape(name: str, parts: list[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    _, trailing, dtype = parts[0]
    if any(not part[0] or part[2].hasobject for part in parts):
        raise ValueError(f"{name}: must be an array with at least one dimension and no Python objects in it")
    if any(part[1:] != (trailing, dtype) for part in parts):
        raise ValueError(f"{name}: dtype or trailing dimensions differ between ranks")
    lengths = [part[0][0] for part in parts]
    n = sum(lengths)
    for rank, length in enumerate(lengths):
        start, stop = plan.block_bounds(n, len(lengths), rank)
        if length != stop - start:
            raise ValueError(
                f"{name}: rank {rank} of {len(lengths)} passes {length} rows of {n}, its block has {stop - start} "
                "(pass the block without halo rows)"
            )
    return (n, *trailing), dtype


_Part = tuple["Array | None", list[int], list[int]]


def _alltoallv(
    intercomm: MPI.Intercomm, shape: tuple[int, ...], dtype: np.dtype[Any], send: _Part, receive: _Part
) -> None:
    """One row is one element, so counts and displacements are rows and stay small for arrays of any size in bytes."""
    from mpi4py import MPI

    row_bytes = dtype.itemsize
    for length in shape[1:]:
        row_bytes *= length
    if row_bytes == 0 or shape[0] == 0:  # both sides know, and skip it together
        return
    row = MPI.BYTE.Create_contiguous(row_bytes).Commit()
    try:
        intercomm.Alltoallv(
            [_bytes(send[0]), send[1], send[2], row],
            [_bytes(receive[0]), receive[1], receive[2], row],
        )
    finally:
        row.Free()


def _bytes(block: Array | None) -> Array | None:
    """The block's memory as bytes: mpi4py does not know every dtype (float16, datetime64, records)."""
    import numpy as np

    return None if block is None else block.reshape(-1).view(np.uint8)
