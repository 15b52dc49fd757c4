"""Short ways to make the agent's values in tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock.api import Job, JobState, Node, Partition, Snapshot
from penstock.core.acts import KnownJob
from penstock.core.executor import Executor
from penstock.slurm.base import Backend
from penstock.state.store import Store

NODES = tuple(f"n{i}" for i in range(1, 9))


def make_job(number: int, *nodes: str, **changes: object) -> Job:
    """A running job on these nodes, or a pending one when there are none."""
    job = Job(
        id=number,
        uid=1000,
        user="alice",
        account="science",
        partition="batch",
        qos="normal",
        state=JobState.RUNNING if nodes else JobState.PENDING,
        reason="None" if nodes else "Resources",
        submit=0.0,
        eligible=0.0,
        start=0.0 if nodes else None,
        end=3600.0 if nodes else None,
        time_limit=3600.0,
        num_nodes=max(1, len(nodes)),
        num_cpus=max(1, len(nodes)),
        nodes=nodes,
        priority=100,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def make_snapshot(jobs: Iterable[Job] = (), at: float = 0.0, down: Iterable[str] = (), nodes=NODES) -> Snapshot:
    """A cluster of eight nodes in one partition."""
    broken = set(down)
    return Snapshot(
        taken_at=at,
        jobs={j.id: j for j in jobs},
        nodes={n: Node(n, "DOWN" if n in broken else "IDLE", 2, n not in broken, ("batch",)) for n in nodes},
        partitions={"batch": Partition("batch", tuple(nodes), True, True, None, 600.0, None)},
    )


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
