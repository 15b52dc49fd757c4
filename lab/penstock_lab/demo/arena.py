"""Where the demo plays: an agent and a cluster, in virtual time in this process, or in real time as real processes.

The script sees neither: it submits workflows to the agent and rival jobs to the cluster, and lets time pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock.api import Job, JobSpec, JobState
from penstock.app import App
from penstock.config import Config
from penstock.ipc.client import ask
from penstock.slurm.base import Backend
from penstock.state.store import Store
from penstock.workflow.documents import run_from_dict
from penstock.workflow.model import Workflow, workflow_to_dict
from penstock.workflow.part import WorkflowPart
from penstock.workflow.state import WorkflowRun
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig

__all__ = ["Arena", "LiveArena", "VirtualArena"]


class Arena(Protocol):
    """An agent, a cluster, and a clock."""

    def now(self) -> float:
        """The cluster's time."""
        ...

    async def submit(self, workflow: Workflow, strategy: str) -> int:
        """Hand a workflow to the agent; its number."""
        ...

    async def runs(self) -> dict[int, WorkflowRun]:
        """All workflow runs by number."""
        ...

    async def own(self, spec: JobSpec) -> int:
        """Submit a job of the user's own, past the agent."""
        ...

    async def rival(self, spec: JobSpec) -> int:
        """Submit a job of somebody else."""
        ...

    async def cancel_rival(self, job: int) -> None:
        """Cancel a job of somebody else."""
        ...

    async def look(self) -> tuple[float, Sequence[Job]]:
        """When the agent last saw the queue, and what it saw."""
        ...

    async def tick(self) -> None:
        """Let at most a second pass."""
        ...


class VirtualArena:
    """Agent and simulated cluster in this process; time jumps from event to event."""

    def __init__(self, config: Config, nodes: int, start: float) -> None:
        cluster = ClusterConfig(nodes=nodes, weight_age=100_000, max_age=600.0)
        self._backend = virtual_cluster(cluster, user="alice", start=start)
        self._rivals = self._backend.as_user("bob")
        self._app = App(config, self._backend, self._backend.clock, Store(":memory:"))

    async def start(self) -> None:
        """Join the agent's parts."""
        await self._app.start()

    def now(self) -> float:
        """The simulation's time."""
        return self._backend.clock.now()

    async def submit(self, workflow: Workflow, strategy: str) -> int:
        """Hand a workflow to the agent."""
        return await self._app.part(WorkflowPart).controller.submissions.submit(0, workflow, strategy)

    async def runs(self) -> dict[int, WorkflowRun]:
        """All runs."""
        return {number: run_from_dict(state) for number, _uid, state in self._app.store.runs.latest() if state}

    async def own(self, spec: JobSpec) -> int:
        """Submit as the agent's user."""
        return await self._backend.submit(spec)

    async def rival(self, spec: JobSpec) -> int:
        """Submit as another user."""
        return await self._rivals.submit(spec)

    async def cancel_rival(self, job: int) -> None:
        """Cancel as another user."""
        await self._rivals.cancel(job)

    async def look(self) -> tuple[float, Sequence[Job]]:
        """The simulated queue as it is now."""
        return self.now(), await self._backend.jobs()

    async def tick(self) -> None:
        """One pass of the loop, then on to what comes next."""
        loop, clock = self._app.loop, self._backend.clock
        assert loop is not None
        await loop.one_pass()
        clock.advance_to(min(max(loop.next_pass(), clock.now() + 0.01), clock.now() + 1.0))


class LiveArena:
    """A running agent behind its socket, and a cluster that its user submits to by `mine`, others by `rivals`."""

    def __init__(self, socket: Path, mine: Backend, rivals: Backend, pause: float = 0.5) -> None:
        self.socket = socket
        self.mine = mine
        self.rivals = rivals
        self._pause = pause

    async def ask(self, op: str, **arguments: object) -> Any:  # noqa: ANN401
        """One request to the agent."""
        return await asyncio.to_thread(ask, self.socket, op, arguments)

    def now(self) -> float:
        """Real time."""
        return self.rivals.now()

    async def submit(self, workflow: Workflow, strategy: str) -> int:
        """Hand a workflow to the agent."""
        answer = await self.ask("submit", workflow=workflow_to_dict(workflow), strategy=strategy)
        return int(answer["run"])

    async def runs(self) -> dict[int, WorkflowRun]:
        """All runs."""
        answer = await self.ask("status")
        return {w["id"]: run_from_dict(w) for w in answer["workflows"]}

    async def own(self, spec: JobSpec) -> int:
        """Submit as the agent's user."""
        return await self.mine.submit(spec)

    async def rival(self, spec: JobSpec) -> int:
        """Submit as another user."""
        return await self.rivals.submit(spec)

    async def cancel_rival(self, job: int) -> None:
        """Cancel as another user."""
        await self.rivals.cancel(job)

    async def look(self) -> tuple[float, Sequence[Job]]:
        """What the agent saw last: the demo adds no load of its own to Slurm."""
        answer = await self.ask("queue")
        jobs = [Job(**{**j, "state": JobState(j["state"]), "nodes": tuple(j["nodes"])}) for j in answer["jobs"]]
        return self.now() if answer["at"] is None else float(answer["at"]), jobs

    async def tick(self) -> None:
        """Wait a moment."""
        await asyncio.sleep(self._pause)
