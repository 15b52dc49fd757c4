"""A `Backend` over the socket of a simulated Slurm that runs as a process of its own (`server`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.api import (
    AccountingRecord,
    Allocation,
    Job,
    JobSpec,
    JobTexts,
    License,
    Node,
    NodeNeeds,
    Owner,
    OwnerLimits,
    Partition,
    Reservation,
    ReservationSpec,
    SiteConfig,
    StartEstimate,
    Step,
)
from penstock.config import Config
from penstock.errors import ConfigError, NotNow, OutcomeUnknown, SlurmUnavailable
from penstock.host.logins import login
from penstock_lab.mock.codec import CHANGING, decode, decode_error, encode, result_type

__all__ = ["MockClient", "connect"]

_LINE_LIMIT = 64 * 2**20  # a snapshot of a long queue is one line


def connect(config: Config) -> MockClient:
    """The backend `mock`: the simulated Slurm that `slurm.mock_socket` names. Raises ConfigError without one."""
    if config.slurm.mock_socket is None:
        raise ConfigError("`slurm.mock_socket` must be set for `slurm.backend: mock`")
    return MockClient(config.slurm.mock_socket)


class MockClient:
    """The cluster at `socket` as the user of this process. Every call has `time_limit` seconds and its own connection.

    A call that could not be sent, or only reads, fails with SlurmUnavailable; a changing call whose answer does not
    come fails with OutcomeUnknown. A cancelled `allocate` takes its request back.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str],
        *,
        time_limit: float = 10.0,
        name: str = "mock",
        user: str | None = None,
        cluster: str | None = None,
    ) -> None:
        self.name = cluster or name
        self._cluster = cluster
        self._socket = Path(socket)
        self._time_limit = time_limit
        self._user = user

    def as_user(self, user: str) -> MockClient:
        """The same cluster as another user sees it: for root and the user whose cluster it is, that is for tests."""
        return MockClient(self._socket, time_limit=self._time_limit, name=self.name, user=user, cluster=self._cluster)

    def on(self, cluster: str) -> MockClient:
        """Another cluster of the site as the same user sees it."""
        return MockClient(self._socket, time_limit=self._time_limit, user=self._user, cluster=cluster)

    def now(self) -> float:
        """Real time."""
        return time.time()

    def whoami(self) -> str:
        """The user of this process, or whom it acts for."""
        return self._user if self._user is not None else login(os.geteuid())

    async def site(self) -> SiteConfig:
        """The cluster's settings."""
        found: SiteConfig = await self._call("site")
        return found

    async def operators(self) -> frozenset[str]:
        """See `Backend.operators`."""
        found: frozenset[str] = await self._call("operators")
        return found

    async def jobs(self) -> Sequence[Job]:
        """Every job in the controller's memory."""
        found: Sequence[Job] = await self._call("jobs")
        return found

    async def nodes(self) -> Sequence[Node]:
        """Every node."""
        found: Sequence[Node] = await self._call("nodes")
        return found

    async def partitions(self) -> Sequence[Partition]:
        """Every partition."""
        found: Sequence[Partition] = await self._call("partitions")
        return found

    async def reservations(self) -> Sequence[Reservation]:
        """Every reservation."""
        found: Sequence[Reservation] = await self._call("reservations")
        return found

    async def licenses(self) -> Sequence[License]:
        """Every licence."""
        found: Sequence[License] = await self._call("licenses")
        return found

    async def shares(self) -> Mapping[str, float]:
        """Fair-share factors by account."""
        found: Mapping[str, float] = await self._call("shares")
        return found

    async def limits(self, owners: Sequence[Owner]) -> Sequence[OwnerLimits]:
        """See `Reader.limits`."""
        found: Sequence[OwnerLimits] = await self._call("limits", owners=list(owners))
        return found

    async def charges(self, jobs: Collection[int]) -> Mapping[int, Mapping[str, float]]:
        """See `Reader.charges`."""
        found: Mapping[int, Mapping[str, float]] = await self._call("charges", jobs=list(jobs))
        return found

    async def clusters(self) -> Sequence[str]:
        """The clusters of the site."""
        found: Sequence[str] = await self._call("clusters")
        return found

    async def texts(self, ids: Collection[int]) -> Mapping[int, JobTexts]:
        """What users wrote."""
        found: Mapping[int, JobTexts] = await self._call("texts", ids=list(ids))
        return found

    async def estimate(self, spec: JobSpec) -> StartEstimate:
        """When a job would start."""
        found: StartEstimate = await self._call("estimate", spec=spec)
        return found

    async def steps(self, job: int) -> Sequence[Step]:
        """The running steps of a job."""
        found: Sequence[Step] = await self._call("steps", job=job)
        return found

    async def holds_gres(self, job: int) -> bool:
        """None are simulated."""
        found: bool = await self._call("holds_gres", job=job)
        return found

    async def node_needs(self, job: int) -> NodeNeeds:
        """All nodes are alike."""
        found: NodeNeeds = await self._call("node_needs", job=job)
        return found

    async def find(self, name: str, uid: int | None = None) -> Sequence[int]:
        """The caller's jobs of this name, or those of user `uid`."""
        found: Sequence[int] = await self._call("find", name=name, uid=uid)
        return found

    async def history(
        self, *, ids: Collection[int] = (), name: str | None = None, since: float | None = None
    ) -> Sequence[AccountingRecord]:
        """Accounting records."""
        found: Sequence[AccountingRecord] = await self._call("history", ids=list(ids), name=name, since=since)
        return found

    async def submit(self, spec: JobSpec) -> int:
        """Submit a batch job."""
        return int(await self._call("submit", spec=spec))

    async def allocate(self, spec: Allocation, patience: float) -> int:
        """Nodes without a script."""
        return int(await self._call("allocate", self._time_limit + patience, spec=spec, patience=patience))

    async def merge(self, resizer: int, into: int) -> None:
        """Move the resizer's nodes."""
        await self._call("merge", resizer=resizer, into=into)

    async def shrink(self, job: int, keep: Collection[str]) -> None:
        """Take nodes from a running job."""
        await self._call("shrink", job=job, keep=list(keep))

    async def cancel(self, job: int, tasks: Collection[int] = ()) -> None:
        """Cancel a job, or tasks of an array."""
        await self._call("cancel", job=job, tasks=list(tasks))

    async def hold(self, job: int) -> None:
        """Keep a job from starting."""
        await self._call("hold", job=job)

    async def requeue(self, job: int) -> None:
        """Put a job back into the queue."""
        await self._call("requeue", job=job)

    async def reserve(self, spec: ReservationSpec) -> Reservation:
        """Create a reservation."""
        made: Reservation = await self._call("reserve", spec=spec)
        return made

    async def move_reservation(
        self, name: str, start: float, duration: float, nodelist: Collection[str]
    ) -> Reservation:
        """Have a reservation begin at another time."""
        nodes = list(nodelist)
        moved: Reservation = await self._call(
            "move_reservation", name=name, start=start, duration=duration, nodelist=nodes
        )
        return moved

    async def unreserve(self, name: str) -> None:
        """Delete a reservation."""
        await self._call("unreserve", name=name)

    async def release(self, job: int) -> None:
        """Release a held job."""
        await self._call("release", job=job)

    async def signal(self, job: int, number: int) -> None:
        """To a running job's batch script."""
        await self._call("signal", job=job, number=number)

    async def update(
        self,
        job: int,
        *,
        time_limit: float | None = None,
        dependency: str | None = None,
        priority: int | None = None,
        begin: str | None = None,
        nodelist: Collection[str] | None = None,
        reset_age: bool = False,
        nice: int | None = None,
        nodes: int | None = None,
        reservation: str | None = None,
    ) -> None:
        """Change a job."""
        await self._call(
            "update",
            job=job,
            time_limit=time_limit,
            dependency=dependency,
            priority=priority,
            begin=begin,
            nodelist=None if nodelist is None else list(nodelist),
            reset_age=reset_age,
            nice=nice,
            nodes=nodes,
            reservation=reservation,
        )

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    async def _call(self, method: str, limit: float | None = None, /, **params: object) -> Any:  # noqa: ANN401 (decoded)
        limit = self._time_limit if limit is None else limit
        silent: type[NotNow] = OutcomeUnknown if method in CHANGING else SlurmUnavailable
        try:
            async with asyncio.timeout(limit):
                reader, writer = await asyncio.open_unix_connection(self._socket, limit=_LINE_LIMIT)
        except (OSError, TimeoutError) as e:
            raise SlurmUnavailable(f"no simulated Slurm answers at {self._socket}: {e or 'time limit'}") from None
        try:
            async with asyncio.timeout(limit):
                request = {"method": method, "params": encode(params), "as": self._user, "cluster": self._cluster}
                writer.write(json.dumps(request).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
            if not line.endswith(b"\n"):
                raise silent(f"{method}: the connection was closed without an answer")
            answer = json.loads(line)
            if "error" in answer:
                raise decode_error(answer["error"])
            return decode(result_type(method), answer["result"])
        except TimeoutError:
            raise silent(f"{method}: no answer within {limit:g} s") from None
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise silent(f"{method}: {e}") from None
        except asyncio.CancelledError:
            if method == "allocate":
                writer.write(b"{}\n")  # any line: take it back; without one the request would outlive us
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(self._time_limit):
                        await reader.read()  # the server hangs up when it is withdrawn
            raise
        finally:
            writer.close()
