"""Moves an application's state from the ranks before a resize to those after it, over a `dmr.bridge.Bridge`.

    moved = move(bridge, {                                  # on every old rank
        "field": (block, Block()),                          # this rank's rows
        "matrix": (csr, Block()),                           # rows of a CSR matrix
        "cells": (values, Explicit(my_cells)),              # any index sets
        "bodies": (list_of_objects, Cyclic()),              # Python objects
        "particles": (records, Keyed(owner, key="cell")),   # each to its owner
        "table": (table, Cyclic(), Block(axis=1)),          # dealt otherwise afterwards
        "step": (7, Replicated()),                          # old rank 0's
    })
    moved = move(bridge)                                    # on ranks that are only new
    moved.values["field"], moved.distributions["field"]     # on every new rank; None on those that leave

`move` is collective over the bridge, whose ranks may all be new (an intercommunicator) or may stay (then what stays
with a rank is copied, not sent). New ranks learn names, shapes, dtypes and distributions from the old ones. Moved are:

- numpy arrays with at least one axis and of any dtype without Python objects, contiguous or not, as `distribution`
  deals them. If all blocks are in Fortran order, so are the new ones, else they are in C order; always in one piece.
- arrays on a GPU, see `dmr.device`.
- CSR matrices by rows (scipy's, or anything with data, indices, indptr, shape): arrives as scipy's where it came as
  such and scipy can be imported, else as `dmr.sparse.CSRMatrix`.
- lists of Python objects, element by element, by pickle 5 with the objects' buffers beside it. Those that stay with a
  rank are not copied.
- anything that pickles as `Replicated()`.

A rank needs memory for its new blocks and at most `max_extra_memory` bytes (default: the environment variable
DMR_MAX_EXTRA_MEMORY, say 64M, else 16 MiB) for buffers, but at least one element for each rank it exchanges with;
blocks that are exchanged in one piece each need none. On top come pickled objects, and the sets of `Explicit`.

If the ranks disagree, or a block has not the shape that its distribution gives, ValueError is raised on all ranks
alike, old and new, before any data moved; its message begins with the name of the part. `check` finds the same among
the old ranks alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dmr.agreement import ARRAY, CSR, LIST, VALUE, Description, Item, Part, describe, judge
from dmr.bridge import Bridge
from dmr.distributions import Distribution, Keyed
from dmr.patience import Patient

if TYPE_CHECKING:
    from mpi4py import MPI

    from dmr.route import Route

    Parts = Mapping[str, Part | tuple[Any, ...]]

__all__ = ["Moved", "Part", "check", "deal_anew", "move"]

logger = logging.getLogger("dmr")

DEFAULT_ROOM: Final = 16 << 20
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Moved:
    """The state of a new rank: by name, its blocks and values, and how they are dealt."""

    values: dict[str, Any]
    distributions: dict[str, Distribution]


def load() -> None:
    """Imports what `move` needs, for those who have the time for it before others wait for them."""
    import dmr.arrays
    import dmr.objects
    import dmr.sparse  # noqa: F401


def move(
    bridge: Bridge,
    parts: Parts | None = None,
    *,
    max_extra_memory: int | None = None,
    look: Callable[[], None] = lambda: None,
    settled: Mapping[str, Distribution] | None = None,
    anew: bool = False,
) -> Moved | None:
    """Moves the state; collective over the bridge. See the module's text.

    Args:
        bridge: old and new ranks.
        parts: on old ranks, by name, (value, distribution) or (value, distribution, becomes): see `Part`.
        max_extra_memory: bytes for buffers on each rank; old rank 0's counts.
        look: called about once a second while this rank waits; what it raises ends the waiting, see `dmr.patience`.
        settled: how the new ranks hold parts, by name, where `check` has said so already; old rank 0's counts.
        anew: the ranks stay the same, and each says by an `Explicit` that a part becomes which indices it will hold.

    Returns:
        What this rank has from now on; None if it has no new rank.

    Raises:
        ValueError: on all ranks, if the parts do not fit together.
        MemoryError: on all ranks, if one cannot have its new block. The old blocks are still there.
    """
    from dmr.route import Route

    with _together(bridge, look) as (comm, old, new):
        told, owners = _told(parts or {}, len(new), anew=anew) if bridge.old_rank is not None else ({}, {})
        everyone = comm.gather(told, root=old[0])
        verdict: tuple[str, list[Item], int] | None = None
        if everyone is not None:
            try:
                room = _room(max_extra_memory)
                items = judge([everyone[rank] for rank in old], parts or {}, len(new), settled, anew=anew)
                verdict = ("", items, room)
            except ValueError as error:
                verdict = (str(error), [], 0)
        problem, items, room = comm.bcast(verdict, root=old[0])
        if problem:
            raise ValueError(problem)
        route = Route(comm, old, new, bridge.old_rank, bridge.new_rank, room, owners)
        mine = {name: Part(*part).value for name, part in (parts or {}).items()} if told else {}
        values = _carry(route, items, mine)
        if bridge.new_rank is None:
            return None
        return Moved(values, {item.name: item.new.on(bridge.new_rank) for item in items})


def check(comm: MPI.Intracomm, parts: Parts, new_size: int) -> list[Item]:
    """What `move` would find wrong with the parts, before there are new ranks; collective over the old ones.

    Raises:
        ValueError: on all ranks.
    """
    everyone = comm.gather(_told(parts, new_size)[0])
    verdict: str | list[Item] = ""
    if everyone is not None:
        try:
            verdict = judge(everyone, parts, new_size)
        except ValueError as error:
            verdict = str(error)
    verdict = comm.bcast(verdict)
    if isinstance(verdict, str):
        raise ValueError(verdict)
    return verdict


def deal_anew(comm: MPI.Intracomm, parts: Parts) -> Moved:
    """Moves parts among the same ranks to the distributions that they become; collective.

    A part may become an `Explicit` with the indices that each rank is to hold.

    Raises:
        ValueError, MemoryError: on all ranks; all is as it was.
    """
    everybody = tuple(range(comm.size))
    own = comm.Dup()  # the program's own messages may be under way
    try:
        moved = move(Bridge(own, everybody, everybody, comm.rank, comm.rank), parts, anew=True)
    finally:
        own.Free()
    assert moved is not None, "all ranks stay"
    return moved


def _told(parts: Parts, new_size: int, *, anew: bool = False) -> tuple[dict[str, Description], dict[str, Any]]:
    """What this rank says of its parts; and for those that are to be with their owners, the owners of its records."""
    told, owners = {}, {}
    for name, part in parts.items():
        told[name] = describe(part)
        if told[name].problem:
            continue
        kind = Part(*part).becomes or Part(*part).distribution
        if anew:
            told[name] = replace(told[name], anew=kind.mine)
        if isinstance(kind, Keyed) and kind.by_owner and told[name].kind != VALUE:
            try:
                owners[name] = kind.owners(Part(*part).value, new_size)
            except ValueError as error:
                told[name] = Description(str(error))
            except Exception as error:  # the application's own function; all ranks must hear of it
                told[name] = Description(f"who owns its records: {type(error).__name__}: {error}")
    return told, owners


def _carry(route: Route, items: list[Item], mine: Mapping[str, Any]) -> dict[str, Any]:
    """Moves one item after another; this rank's new blocks and values."""
    from dmr.arrays import carry_array
    from dmr.objects import carry_list, carry_values
    from dmr.sparse import carry_csr

    carriers: dict[str, Callable[[Route, Item, Any], Any]] = {ARRAY: carry_array, LIST: carry_list, CSR: carry_csr}
    replicated = [item.name for item in items if item.kind == VALUE]
    moved = {}
    if replicated:
        moved = carry_values(route, {name: mine[name] for name in replicated} if route.old_rank == 0 else None)
    for item in items:
        if item.kind in carriers:
            moved[item.name] = carriers[item.kind](route, item, mine.get(item.name))
    return {item.name: moved.get(item.name) for item in items}


@contextlib.contextmanager
def _together(bridge: Bridge, look: Callable[[], None]) -> Iterator[tuple[Any, list[int], list[int]]]:
    """One communicator of all, and the ranks in it of the old and of the new ranks.

    Two groups are merged for the time of the move: between groups there is no way for the old ranks to hear of each
    other.
    """
    comm: Any = bridge.comm
    if not comm.Is_inter():
        yield Patient(comm, look), list(bridge.old), list(bridge.new)
        return
    is_old = bridge.old_rank is not None
    olds = comm.size if is_old else comm.remote_size
    Patient(comm, look).meet()
    merged = comm.Merge(high=not is_old)
    try:
        yield Patient(merged, look), list(bridge.old), [olds + rank for rank in bridge.new]
    except (ValueError, MemoryError):  # on all ranks; there are only so many communicators
        merged.Free()
        raise
    merged.Free()  # not when `look` has raised: that would wait for the dead


def _room(wanted: int | None) -> int:
    if wanted is not None:
        if wanted < 1:
            raise ValueError(f"max_extra_memory must be a number of bytes from 1 on, not {wanted!r}")
        return wanted
    text = os.environ.get("DMR_MAX_EXTRA_MEMORY", "").strip().upper()
    number = text.rstrip("KMG")
    unit = text[len(number) :]
    if number.isascii() and number.isdigit() and int(number) and unit in _UNITS:
        return int(number) * _UNITS[unit]
    if text:
        logger.warning("DMR_MAX_EXTRA_MEMORY=%s is not a number of bytes like 64M; using 16M", text)
    return DEFAULT_ROOM
