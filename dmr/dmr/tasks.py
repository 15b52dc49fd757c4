"""Hands calls with their data from old processes to new ones: offloading, as in the DMR paper (section 6). Pure.

The calls are the elements of a list over all old ranks, each at the place of the new rank that goes on with it. So what
moves lists (`dmr.redistribute`) moves them, the memory of their arrays beside the pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from dmr.distributions import Block, Explicit
from dmr.redistribute import Part

__all__ = ["Task", "as_part", "objection", "problem"]


class Task(NamedTuple):
    """A call that new rank `onto` goes on with."""

    onto: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def objection(task: Task) -> str:
    """Why the call cannot be handed on, or ""."""
    try:
        pickle.dumps((task.function, task.arguments), protocol=5, buffer_callback=lambda buffer: None)
    except Exception as error:  # whatever an argument's own __reduce__ raises
        return (
            f"cannot hand {getattr(task.function, '__qualname__', task.function)!r} on: {error} "
            "(it must be a function of a module or of the program itself, and its arguments must pickle)"
        )
    return ""


def problem(onto: Iterable[Iterable[int]], size: int) -> str:
    """Why the calls are not one for each new rank, or "".

    Args:
        onto: for each old rank, the new ranks that it handed calls to.
        size: number of new ranks.
    """
    sources: dict[int, int] = {}
    for source, targets in enumerate(onto):
        for target in targets:
            if not 0 <= target < size:
                return f"rank {source} hands a call to rank {target} of {size} new ones"
            if target in sources:
                return f"new rank {target} gets two calls, from ranks {sources[target]} and {source}"
            sources[target] = source
    missing = next((rank for rank in range(size) if rank not in sources), None)
    return "" if missing is None else f"new rank {missing} of {size} gets no call: use handler.mapping"


def as_part(tasks: Sequence[Task]) -> Part:
    """The calls of one old rank, as what moves: each new rank has one element afterwards, its own."""
    calls = [(task.function, task.arguments) for task in tasks]
    return Part(calls, Explicit([task.onto for task in tasks]), Block())
