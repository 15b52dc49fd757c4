"""Moves Python objects: by pickle 5, with the memory that they hold beside it and not copied into it.

This module imports numpy and mpi4py; `dmr.redistribute` imports it when data moves.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from dmr import plan
from dmr.agreement import Item
from dmr.exchange import Port, agree, broadcast, exchange
from dmr.pickles import objection
from dmr.route import Route, allocate, ways
from dmr.streams import Array, BytesStream, Stream

__all__ = ["carry_list", "carry_values"]

_T = TypeVar("_T")


def carry_values(route: Route, values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Replicated values, from old rank 0, which passes them, to all new ranks.

    Raises:
        ValueError: on all ranks, if one of them does not pickle, or cannot be made again from its pickle.
    """
    root = route.old[0]
    takes = route.new_rank is not None or route.old_rank == 0
    buffers: list[Array] = []
    news: tuple[str, list[int]] | None = None
    if values is not None:
        try:
            buffers = _pickled(dict(values))
            news = "", [len(buffer) for buffer in buffers]
        except Exception:
            news = _first_objection(values) or "the values do not pickle together", []
    problem, sizes = route.comm.bcast(news, root=root)
    if problem:
        raise ValueError(problem)
    if values is None:
        buffers = [np.empty(size if takes else 0, np.uint8) for size in sizes]
    for size, buffer in zip(sizes, buffers, strict=True):
        streams: dict[int, Stream] = {root: BytesStream([buffer])} if takes else {}
        broadcast(route.comm, root, size, 1, Port(streams, buffer if takes else None), route.room)
    loaded, problem = _tried((lambda: _loaded(buffers)) if route.new_rank is not None else dict)
    if problem := _any(route, problem):
        # Who has the values finds out which of them it is.
        problem = route.comm.bcast(_first_objection(values) or problem if values is not None else None, root=root)
        raise ValueError(problem)
    return loaded or {}


def carry_list(route: Route, item: Item, values: list[Any] | None) -> list[Any] | None:
    """A list of objects, element by element.

    Raises:
        ValueError: on all ranks, if an element does not pickle, or cannot be made again from its pickle.
    """
    comm = route.comm
    gives, gets = ways(route, item)
    block = allocate(route, item.name, lambda: [None] * sum(plan.length(axes[0]) for axes in gets.values()))
    kept = comm.rank in gives and comm.rank in gets
    if kept and values is not None and block is not None:
        for source, target in zip(*(plan.indices(way[comm.rank][0]) for way in (gives, gets)), strict=True):
            block[target] = values[source]
    sent: dict[int, list[Array]] = {}
    problem = ""
    try:
        for other, (positions,) in gives.items():
            if other != comm.rank and values is not None:
                sent[other] = _pickled([values[position] for position in plan.indices(positions)])
    except Exception:
        objections = (objection(item.name, value) for value in values or ())
        problem = next(filter(None, objections), f"{item.name}: does not pickle")
        sent = {}
    problem = next((p for p in comm.allgather(problem) if p), "")
    if problem:
        raise ValueError(problem)
    sizes = comm.alltoall([[len(buffer) for buffer in sent.get(other, ())] for other in range(comm.size)])
    arrived = {other: [np.empty(size, np.uint8) for size in sizes[other]] for other in gets if other != comm.rank}
    send, receive = (Port({other: BytesStream(buffers) for other, buffers in way.items()}) for way in (sent, arrived))
    exchange(comm, 1, send, receive, route.room)
    loaded, problem = _tried(lambda: {other: _loaded(buffers) for other, buffers in arrived.items()})
    if problem := _any(route, problem and f"{item.name}: {problem}"):
        raise ValueError(problem)
    for other, elements in (loaded or {}).items():
        for position, value in zip(plan.indices(gets[other][0]), elements, strict=True):
            assert block is not None
            block[position] = value
    return block


def _pickled(value: object) -> list[Array]:
    """The pickle, and the memory of what it refers to, without a copy."""
    beside: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=beside.append)
    return [np.frombuffer(pickled, np.uint8), *(np.frombuffer(buffer.raw(), np.uint8) for buffer in beside)]


def _loaded(buffers: list[Array]) -> Any:  # noqa: ANN401
    # Only what this application's own ranks sent gets here.
    return pickle.loads(buffers[0].data, buffers=buffers[1:])  # noqa: S301


def _first_objection(values: Mapping[str, Any]) -> str:
    return next(filter(None, map(objection, values, values.values())), "")


def _tried(load: Callable[[], _T]) -> tuple[_T | None, str]:
    """What was loaded, or why it could not be: an object may raise anything when it is made again."""
    try:
        return load(), ""
    except Exception as error:
        return None, f"cannot be made again from its pickle: {type(error).__name__}: {error}"


def _any(route: Route, problem: str) -> str:
    """One of the problems of all ranks; collective. Words are only exchanged if there is one."""
    if not agree(route.comm, [bool(problem)])[0]:
        return ""
    said: list[str] = route.comm.allgather(problem)
    return next(filter(None, said))
