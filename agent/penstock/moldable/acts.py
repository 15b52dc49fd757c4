"""What is asked of Slurm for a moldable job: written here, and done by the executor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.moldable.model import MoldShape
from penstock.slurm.base import Changer

__all__ = ["MoldRequest", "put_back", "saved", "shaped"]

MoldRequest = Callable[[Changer], Awaitable[None]]


def shaped(job: int, shape: MoldShape) -> MoldRequest:
    """A waiting job is to have this shape."""

    async def request(slurm: Changer) -> None:
        await slurm.update(job, nodes=shape.nodes, time_limit=shape.limit)

    return request


def saved(job: int, signal: int) -> MoldRequest:
    """A running job's script is told to save its state."""

    async def request(slurm: Changer) -> None:
        await slurm.signal(job, signal)

    return request


def put_back(job: int) -> MoldRequest:
    """A running job is to wait again."""

    async def request(slurm: Changer) -> None:
        await slurm.requeue(job)

    return request
