"""The Protocol of a backend, and what every call guarantees. `tests/contract/` holds each sentence to it.

All calls are coroutines. Each either returns, or raises within the backend's time limit:
`Infeasible` (never repeat), `NotFound`, `NotPermitted`, `SlurmUnavailable` (nothing was changed, or the call only
read), `OutcomeUnknown` (a changing call whose answer was lost: read back before repeating).
A backend acts as one user (`whoami`); Slurm itself decides what that user may do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from penstock.api import AccountingRecord, Allocation, Job, JobSpec, Node, Partition, SiteConfig, Step

__all__ = ["Backend"]


class Backend(Protocol):
    """One cluster, seen and acted on as one user."""

    name: str

    def now(self) -> float:
        """The cluster's clock: real time, or the simulation's."""
        ...

    def whoami(self) -> str:
        """The user name that requests are made as."""
        ...

    async def site(self) -> SiteConfig:
        """The cluster's settings. Cheap to call once; callers keep the answer until reload."""
        ...

    async def jobs(self) -> Sequence[Job]:
        """Every job in the controller's memory, all users, one request. A job that ended a moment ago is listed with
        its final state until Slurm forgets it (MinJobAge); a job that is not listed may have ended or never existed."""
        ...

    async def nodes(self) -> Sequence[Node]:
        """Every node, one request."""
        ...

    async def partitions(self) -> Sequence[Partition]:
        """Every partition with its limits, one request."""
        ...

    async def steps(self, job: int) -> Sequence[Step]:
        """The running steps of a job, `batch` and `extern` included. No steps, or an ended job: empty."""
        ...

    async def find(self, name: str) -> Sequence[int]:
        """Ids of the caller's own jobs with exactly this name in the controller's memory, any state, ascending."""
        ...

    async def history(
        self, *, ids: Collection[int] = (), name: str | None = None, since: float | None = None
    ) -> Sequence[AccountingRecord]:
        """Accounting records, one per job (the latest where a job was requeued), of the given ids, or of the caller's
        jobs with a name and/or submitted or alive after `since`. Records may lag by some seconds. RESIZING as a state
        means that the job lives, or was merged into another; such a record is no source of waits or run times."""
        ...

    async def submit(self, spec: JobSpec) -> int:
        """Submit a batch job; its id. Not idempotent: after `OutcomeUnknown` look for `spec.name` with `find`."""
        ...

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """Ask for nodes without a script and wait up to `patience` seconds until they are granted; the granted
        job's id. If time runs out the request is withdrawn and `NotNow` raised. Found again by `find(spec.name)`."""
        ...

    async def merge(self, resizer: int, into: int) -> None:
        """Move all nodes of the granted allocation `resizer` into the running job `into`, which ends `resizer`.
        Idempotent: when `resizer` has gone and its nodes are with `into` already, it returns. `NotNow` while `resizer`
        is still pending. A resizer merged into another job than `into` earlier is not told apart: its id is spent."""
        ...

    async def shrink(self, job: int, keep: Collection[str]) -> None:
        """Take every node not in `keep` from the running job; processes there are killed at once. Idempotent.
        `Infeasible` when `keep` is not a part of the job's nodes or leaves out the host of its batch script."""
        ...

    async def cancel(self, job: int) -> None:
        """Cancel a job. Idempotent: an ended job is no error; `NotFound` for an id that Slurm does not know."""
        ...

    async def release(self, job: int) -> None:
        """Release a held job. Idempotent."""
        ...

    async def update(
        self,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
    ) -> None:
        """Change what is given, leave the rest. An empty `dependency` removes it."""
        ...

    async def close(self) -> None:
        """Release sockets and processes. The backend is not used afterwards."""
        ...
