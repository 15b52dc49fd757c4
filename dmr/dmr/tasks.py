"""Hands a function call with its data from an old process to a new one: the paper's offloading (003, section 6)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dmr.patience import Patient

if TYPE_CHECKING:
    from dmr.bridge import Bridge

__all__ = ["Task", "assignment", "packed", "receive", "send"]

# Not every transport below MPI takes longer messages.
_LONGEST: Final = 1 << 30
_TAG: Final = 0x7461


@dataclass(frozen=True)
class Task:
    """A call packed for new rank `onto`: the pickle, and the memory of its arrays, which is not copied."""

    onto: int
    head: bytes
    buffers: tuple[memoryview, ...]


def packed(function: Callable[..., Any], arguments: tuple[Any, ...], onto: int) -> Task:
    """Packs a call.

    Raises:
        ValueError: the function or an argument cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        head = pickle.dumps((function, arguments), protocol=5, buffer_callback=buffers.append)
    except Exception as error:  # whatever an argument's own __reduce__ raises
        raise ValueError(
            f"cannot hand {getattr(function, '__qualname__', function)!r} on: {error} "
            "(it must be a function of a module or of the program itself, and its arguments must pickle)"
        ) from error
    return Task(onto, head, tuple(buffer.raw() for buffer in buffers))


def assignment(onto: Iterable[Iterable[int]], size: int) -> list[int]:
    """For each new rank, the old rank that hands it its task.

    Args:
        onto: for each old rank, the new ranks that it handed tasks to.
        size: number of new ranks.

    Raises:
        ValueError: a new rank has no task, or two; or there is no such rank.
    """
    sources: dict[int, int] = {}
    for source, targets in enumerate(onto):
        for target in targets:
            if not 0 <= target < size:
                raise ValueError(f"rank {source} hands a task to rank {target} of {size} new ones")
            if target in sources:
                raise ValueError(f"new rank {target} gets two tasks, from ranks {sources[target]} and {source}")
            sources[target] = source
    missing = [rank for rank in range(size) if rank not in sources]
    if missing:
        raise ValueError(f"new rank {missing[0]} of {size} gets no task: use handler.mapping")
    return [sources[rank] for rank in range(size)]


def send(bridge: Bridge, tasks: Iterable[Task], look: Callable[[], None]) -> None:
    """Old side: sends the tasks of this rank, and returns when they are gone; `look` as in `dmr.patience`."""
    from mpi4py import MPI

    requests = []
    for task in tasks:
        to = bridge.new[task.onto]
        lengths = [len(task.head), *(len(buffer) for buffer in task.buffers)]
        requests.append(bridge.comm.isend(lengths, to, _TAG))
        for memory in (memoryview(task.head), *task.buffers):
            requests += [bridge.comm.Isend([part, MPI.BYTE], to, _TAG) for part in _parts(memory)]
    Patient(bridge.comm, look).waitall(requests)


def receive(bridge: Bridge, source: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """New side: the function and its arguments from old rank `source`; arrays can be written to."""
    from mpi4py import MPI

    at = bridge.old[source]
    memories = [bytearray(length) for length in bridge.comm.recv(None, at, _TAG)]
    for memory in memories:
        for part in _parts(memoryview(memory)):
            bridge.comm.Recv([part, MPI.BYTE], at, _TAG)
    function, arguments = pickle.loads(memories[0], buffers=memories[1:])  # noqa: S301 - from this very program
    return function, arguments


def _parts(memory: memoryview) -> list[memoryview]:
    return [memory[start : start + _LONGEST] for start in range(0, len(memory), _LONGEST)]
