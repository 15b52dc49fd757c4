"""The worlds that the contract is held against: the simulated Slurm in virtual time, and a real one.

A test is a coroutine that takes `world`. It says what it waits for with `world.settle(predicate)`: the simulation jumps
to its next event, the real cluster is polled, and both give up at a deadline.
"""

import asyncio
import inspect
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from penstock.api import Job, JobState
from penstock.cluster import Cluster, ClusterSpec, up
from penstock.cluster.programs import PATH, check_programs
from penstock.errors import UserError
from penstock.slurm.base import Backend
from penstock.slurm.cli import CliBackend
from penstock.slurm.mock import control
from penstock.slurm.mock.backend import VirtualClock, virtual_cluster
from penstock.slurm.mock.client import MockClient
from penstock.slurm.mock.model import ClusterConfig

NODES = tuple(f"n{i}" for i in range(1, 9))

Predicate = Callable[[], Awaitable[bool]]


class World(ABC):
    """Eight idle nodes and two ordinary users: `backend` acts as one, `other` as another."""

    backend: Backend
    other: Backend

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let so much of the cluster's time pass."""

    async def settle(self, predicate: Predicate, deadline: float = 40.0) -> None:
        """Let time pass until the predicate holds; fails after `deadline` seconds of the cluster's time."""
        end = self.backend.now() + deadline
        while not await predicate():
            assert self.backend.now() < end, f"not so within {deadline:g} s: {inspect.getsource(predicate).strip()}"
            await self.advance(0.2)

    async def look(self, job: int) -> Job:
        return next(j for j in await self.backend.jobs() if j.id == job)

    async def until(self, job: int, *states: JobState, deadline: float = 40.0) -> Job:
        """Wait until the job is in one of the states."""
        found: list[Job] = []

        async def there() -> bool:
            found[:] = [await self.look(job)]
            return found[0].state in states

        await self.settle(there, deadline)
        return found[0]


class MockWorld(World):
    def __init__(self) -> None:
        # Real Slurm's clock never shows 0, and that release is the one the real tests run against.
        self.mock = virtual_cluster(ClusterConfig(nodes=8, version=(22, 5, 8)), "alice", start=1_700_000_000.0)
        assert isinstance(self.mock.driver, VirtualClock)
        self.backend = self.mock
        self.other = self.mock.as_user("bob")

    async def advance(self, seconds: float) -> None:
        self.mock.clock.advance(seconds)


class ServerWorld(World):
    """The simulated Slurm as a process of its own, whose jobs really run."""

    def __init__(self, handle: control.Handle) -> None:
        client, root = MockClient(handle.socket), os.geteuid() == 0
        self.backend = client.as_user("nobody") if root else client
        self.other = client.as_user("daemon" if root else "bob")

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SlurmWorld(World):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.backend = self.backend_of("alice")
        self.other = self.backend_of("bob")

    def backend_of(self, who: str, **options: object) -> CliBackend:
        """A backend that acts as a user of the cluster. setpriv becomes the command, so signals reach it directly."""
        user = self.cluster.user(who)
        environment = {"PATH": PATH, **options.pop("environment", {})}
        return CliBackend(
            prefix=["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", "--"],
            user=user.name,
            slurm_conf=self.cluster.env["SLURM_CONF"],
            environment=environment,
            **options,
        )

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _no_real_slurm() -> str | None:
    try:
        check_programs()
    except UserError as error:
        return str(error)
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "only root can act as several users of a real Slurm"
    return None


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[Cluster]:
    reason = _no_real_slurm()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    cluster = up(ClusterSpec(nodes=8, folder=Path("/var/tmp") / f"pst-test-c-{os.getpid()}"))
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def slurm_world(real_cluster: Cluster) -> Iterator[SlurmWorld]:
    """The real cluster, its queue empty before and after."""
    _empty(real_cluster)
    yield SlurmWorld(real_cluster)
    real_cluster.start_controller()
    _empty(real_cluster)


@pytest.fixture
def server_world() -> Iterator[ServerWorld]:
    folder = Path(tempfile.mkdtemp(prefix="pst-c-"))
    folder.chmod(0o755)
    try:
        yield ServerWorld(control.start(folder, ClusterConfig(nodes=8, version=(22, 5, 8)), kill_wait=0.2))
    finally:
        control.stop(folder)
        shutil.rmtree(folder)


@pytest.fixture(params=["mock", "server", pytest.param("slurm", marks=pytest.mark.slurm)])
def world(request: pytest.FixtureRequest) -> World:
    return MockWorld() if request.param == "mock" else request.getfixturevalue(f"{request.param}_world")


def _empty(cluster: Cluster) -> None:
    deadline = time.monotonic() + 40.0
    while cluster.run_as("root", ["squeue", "-h", "-o", "%A"]).stdout.strip():
        assert time.monotonic() < deadline, "the queue does not become empty"
        cluster.run_as("root", ["scancel", "--partition=batch"])
        time.sleep(0.1)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines in an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
