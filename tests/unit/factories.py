"""Short ways to make the agent's values in tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.acts import KnownJob
from penstock.core.executor import Executor
from penstock.slurm.base import Backend
from penstock.state.store import Store


def hand(backend: Backend) -> Executor:
    """What changes this cluster, with a journal of its own."""
    return Executor(Store(":memory:"), backend, backend)


class ManualClock:
    """A clock that moves when it is told to."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


@dataclass
class Doing:
    """An act of the executor that does as a test says."""

    work: Callable[[Any], Awaitable[Any]]
    verb: str = "submit"
    job: KnownJob | None = None
    wish: None = None
    companions: tuple[int, ...] = ()

    async def carry_out(self, slurm: Any) -> Any:
        return await self.work(slurm)
