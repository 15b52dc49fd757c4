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
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.api import Job, JobSpec, JobState
from penstock.errors import Infeasible
from penstock.slurm.base import Backend, NotOffered
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock.slurm.parse import parse_version
from penstock.values.rest_address import RestAddress
from penstock_lab.cluster import Cluster, ClusterSpec, restd, up
from penstock_lab.cluster.programs import PATH
from penstock_lab.mock import control
from penstock_lab.mock.backend import VirtualClock, virtual_cluster
from penstock_lab.mock.client import MockClient
from penstock_lab.mock.model import ClusterConfig, NodeLimits, PartitionConfig
from penstock_pyslurm.backend import PyslurmBackend
from penstock_pyslurm.link import Versions, misfit
from penstock_rest.backend import RestBackend
from penstock_rest.link import RestLink

# The installed Slurm, and those of other releases of Debian in file systems of their own. Bringing one up has limits of
# its own; building its file system takes longer than a test may.
REAL = [
    pytest.param(release, id=name, marks=[pytest.mark.slurm, *more])
    for release, name, more in (
        (None, "slurm", []),
        ("trixie", "slurm-24.11", [pytest.mark.release, pytest.mark.timeout(180, func_only=True)]),
        ("sid", "slurm-26.05", [pytest.mark.release, pytest.mark.timeout(180, func_only=True)]),
    )
]
# The installed Slurm again, through pyslurm, where that is installed (test_contract_pyslurm says where not).
PYSLURM = [pytest.param("pyslurm", marks=pytest.mark.slurm)] if find_spec("pyslurm") else []
# Those releases again, through slurmrestd alone: no command of Slurm is run.
REST = [
    pytest.param(f"rest {release}", id=name, marks=[pytest.mark.slurm, pytest.mark.long, *more])
    for release, name, more in (
        ("trixie", "rest-24.11", [pytest.mark.release, pytest.mark.timeout(180, func_only=True)]),
        ("sid", "rest-26.05", [pytest.mark.release, pytest.mark.timeout(180, func_only=True)]),
    )
]
NODES = tuple(f"n{i}" for i in range(1, 9))
LICENSES = {"matlab": 4}

Predicate = Callable[[], Awaitable[bool]]


class World(ABC):
    """Eight idle nodes, four licences and three users: two ordinary ones, `backend` and `other`, and an operator.

    `far`, in the tests of several clusters, is the site's second cluster as this one shows it.
    """

    backend: Backend
    other: Backend
    admin: Backend
    far: "World"

    async def plant(self, name: str) -> int | None:
        """Have `other` submit a held job of any name, past Penstock's own checks; None where such a name cannot be."""
        try:
            return await self.other.submit(JobSpec(name, "#!/bin/sh\n", 1, 60.0, hold=True, workdir="/tmp"))
        except Infeasible:
            return None

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let so much of the cluster's time pass."""

    async def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """Called at the end of the test, in its event loop."""

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


_FAR = ClusterConfig(cluster="far", nodes=2, version=(22, 5, 8))
_MOCK = ClusterConfig(nodes=8, version=(22, 5, 8), licenses=LICENSES, siblings=(_FAR,))


# What holds in the worlds of `enforcing`; `_set_limits` says the same to a real one.
_ENFORCING = replace(
    _MOCK,
    siblings=(),
    enforced=frozenset({"associations", "limits", "qos"}),
    members={"penstock": ("alice", "bob", "nobody", "daemon")},
    qos={"normal": 0, "part": 0},
    partitions=(PartitionConfig("batch"), PartitionConfig("limited", max_nodes=5, max_time=7200.0, qos="part")),
    qos_limits={
        "normal": NodeLimits(max_wall=3600.0, max_nodes=3, per_user=4),
        "part": NodeLimits(max_nodes=2),
    },
    account_limits={"penstock": NodeLimits(group=6, max_nodes=7), "root": NodeLimits(group=100)},
)


def _set_limits(cluster: Cluster) -> None:
    def administer(*words: str) -> None:
        cluster.administer(*words)

    administer("add", "qos", "part")
    administer("modify", "qos", "normal", "set", "MaxWall=60", "MaxTRESPerJob=node=3", "MaxTRESPerUser=node=4")
    administer("modify", "qos", "part", "set", "MaxTRESPerJob=node=2")
    administer("modify", "account", "root", "set", "GrpTRES=node=100")
    administer("modify", "account", "penstock", "set", "GrpTRES=node=6", "MaxTRESPerJob=node=7")
    new = ["PartitionName=limited", "Nodes=n[1-8]", "MaxNodes=5", "MaxTime=120", "QOS=part"]
    cluster.run_as("root", ["scontrol", "create", *new], check=True)


class MockWorld(World):
    def __init__(self, config: ClusterConfig = _MOCK) -> None:
        # Real Slurm's clock never shows 0, and that release is the one the real tests run against.
        self.mock = virtual_cluster(config, "alice", start=1_700_000_000.0)
        assert isinstance(self.mock.driver, VirtualClock)
        self.backend = self.mock
        self.other = self.mock.as_user("bob")
        self.admin = self.mock.as_user("root")

    async def advance(self, seconds: float) -> None:
        self.mock.clock.advance(seconds)


def with_far(near: World, far: World) -> World:
    """The near world, whose `far` acts through it."""
    far.backend, far.other = near.backend.on("far"), near.other.on("far")
    near.far = far
    return near


class ServerWorld(World):
    """The simulated Slurm as a process of its own, whose jobs really run."""

    def __init__(self, handle: control.Handle) -> None:
        client, root = MockClient(handle.socket), os.geteuid() == 0
        self.backend = client.as_user("nobody") if root else client
        self.other = client.as_user("daemon" if root else "bob")
        self.admin = client.as_user("root")

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SlurmWorld(World):
    make = CliBackend

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.backend = self.backend_of("alice")
        self.other = self.backend_of("bob")
        self.admin = self.backend_of("operator")

    async def plant(self, name: str) -> int | None:
        argv = ["sbatch", "--parsable", "-H", "-N1", "-t1", "-o", "/dev/null", "-J", name, f"--comment={name}"]
        return int(self.cluster.run_as("bob", [*argv, "--wrap", "true"], check=True).stdout)

    def backend_of(self, who: str, **options: object) -> CliBackend:
        """A backend that acts as a user of the cluster."""
        environment = {"PATH": PATH, **options.pop("environment", {})}
        return self.make(
            prefix=self.cluster.prefix(who),
            user=self.cluster.user(who).name,
            slurm_conf=self.cluster.env["SLURM_CONF"],
            environment=environment,
            budget=RequestBudget(BudgetLimits(1000, 1000.0, 100_000)),
            **options,
        )

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class PyslurmWorld(SlurmWorld):
    """The same cluster through pyslurm, whose process acts as the user, as commands do; `plain` uses those."""

    make = PyslurmBackend

    def __init__(self, cluster: Cluster) -> None:
        self._opened: list[PyslurmBackend] = []
        super().__init__(cluster)
        self.plain = SlurmWorld(cluster).backend

    def backend_of(self, who: str, **options: object) -> CliBackend:
        """A backend that acts as a user of the cluster."""
        self._opened.append(super().backend_of(who, **options))
        return self._opened[-1]

    async def close(self) -> None:
        for backend in self._opened:
            await backend.close()


class RestWorld(SlurmWorld):
    """The same cluster through slurmrestd, one for each user; `plain` uses the commands.

    What slurmrestd cannot do skips the test, and says so: `commands` false.
    """

    make = RestBackend
    commands = False
    counts = False

    def __init__(self, cluster: Cluster, servers: "Servers", version: str | None = None) -> None:
        self._opened: list[RestBackend] = []
        self._servers, self._only = servers, version
        self.enforces = cluster.spec.enforce
        super().__init__(cluster)
        self.plain = SlurmWorld(cluster).backend

    def backend_of(self, who: str, **options: object) -> CliBackend:
        """A backend that acts as a user of the cluster."""
        server = self._servers.of(self.cluster, who, self._only)
        link = RestLink(RestAddress.parse(server.url), self.cluster.user(who).name)
        settings = {**REST_SETTINGS, "AccountingStorageEnforce": "associations,limits,qos" if self.enforces else "none"}
        options = {"link": link, "commands": self.commands, "settings": settings, **options}
        self._opened.append(super().backend_of(who, **options))
        return self._opened[-1]

    async def close(self) -> None:
        for backend in self._opened:
            await backend.close()


# What the administrator of a host without Slurm's commands says of the clusters here; slurmrestd of 26.05 tells itself.
REST_SETTINGS = {"PrologFlags": "", "SchedulerParameters": "permit_job_expansion"}


class Servers:
    """The session's slurmrestd, by cluster, user and data version; started at their first use."""

    def __init__(self) -> None:
        self._running: dict[tuple[Path, str, str | None], restd.RestServer] = {}

    def of(self, cluster: Cluster, who: str, version: str | None = None) -> restd.RestServer:
        key = (cluster.folder, who, version)
        if key not in self._running or self._running[key].process.poll() is not None:
            self._running[key] = restd.start(cluster, who, versions=version)
        return self._running[key]

    def stop(self) -> None:
        for server in self._running.values():
            server.stop()


@pytest.fixture(scope="session")
def servers(real_cluster: Callable[[str | None], Cluster]) -> Iterator[Servers]:
    found = Servers()
    yield found
    found.stop()


@pytest.fixture
def rest_world(
    request: pytest.FixtureRequest, real_cluster: Callable[[str | None], Cluster], servers: Servers
) -> Iterator[RestWorld]:
    """A real cluster through slurmrestd alone: of the release that the test names, or 24.11."""
    yield from _rest_emptied(real_cluster(getattr(request, "param", "trixie")), servers)


def _rest_emptied(cluster: Cluster, servers: Servers) -> Iterator[RestWorld]:
    yield from _emptied(cluster, lambda cluster: RestWorld(cluster, servers))


def _no_pyslurm(cluster: Cluster) -> str | None:
    """Why the installed Slurm cannot be asked through the pyslurm that is installed."""
    slurm = cluster.run_as("root", ["sinfo", "-V"]).stdout.split()[-1]
    version = metadata.version("pyslurm")
    return misfit(Versions(version, version), parse_version(slurm))


_LICENSES = f"Licenses={','.join(f'{name}:{count}' for name, count in LICENSES.items())}"


@pytest.fixture(scope="session")
def real_cluster(need_slurm: Callable[[str | None], None]) -> Iterator[Callable[[str | None], Cluster]]:
    """Gives the session's cluster of one release, brought up at its first use; skips or fails where it cannot be."""
    found: dict[str | None, Cluster] = {}

    def give(release: str | None) -> Cluster:
        need_slurm(release)
        if release not in found:
            folder = Path("/var/tmp") / f"pst-test-c{release or ''}-{os.getpid()}"
            found[release] = up(ClusterSpec(nodes=8, folder=folder, release=release, extra=(_LICENSES,)))
        return found[release]

    try:
        yield give
    finally:
        for cluster in found.values():
            cluster.down()


@pytest.fixture(params=REAL)
def slurm_world(request: pytest.FixtureRequest, real_cluster: Callable[[str | None], Cluster]) -> Iterator[SlurmWorld]:
    """A real cluster through its commands, its queue empty before and after."""
    yield from _emptied(real_cluster(request.param))


@pytest.fixture
def pyslurm_world(real_cluster: Callable[[str | None], Cluster]) -> Iterator[PyslurmWorld]:
    """The installed Slurm through pyslurm; skipped where there is none that fits."""
    if find_spec("pyslurm") is None:
        pytest.skip("NO PYSLURM: it is not installed beside penstock")
    cluster = real_cluster(None)
    if (why := _no_pyslurm(cluster)) is not None:
        pytest.skip(f"NO PYSLURM: {why}")
    yield from _emptied(cluster, PyslurmWorld)


@pytest.fixture(params=[*REAL, *PYSLURM, *REST])
def real_world(request: pytest.FixtureRequest, real_cluster: Callable[[str | None], Cluster]) -> Iterator[SlurmWorld]:
    """A real cluster, through its commands, through pyslurm and through slurmrestd."""
    if request.param == "pyslurm":
        yield request.getfixturevalue("pyslurm_world")
    elif (rest := _rest_release(request.param)) is not None:
        yield from _rest_emptied(real_cluster(rest), request.getfixturevalue("servers"))
    else:
        yield from _emptied(real_cluster(request.param))


def _emptied(cluster: Cluster, kind: Callable[[Cluster], SlurmWorld] = SlurmWorld) -> Iterator[SlurmWorld]:
    _empty(cluster)
    yield kind(cluster)
    cluster.start_controller()
    _empty(cluster)


@pytest.fixture(scope="module")
def far_cluster(real_cluster: Callable[[str | None], Cluster]) -> Iterator[Callable[[str | None], Cluster]]:
    """Gives a second cluster, small, that joined the session's one of a release; it ends with the module."""
    found: dict[str | None, Cluster] = {}

    def give(release: str | None) -> Cluster:
        if release not in found:
            near = real_cluster(release)
            folder = near.folder.with_name(near.folder.name.replace("-test-c", "-test-far"))
            found[release] = up(ClusterSpec(nodes=2, folder=folder, name="far", join=near.folder, release=release))
        return found[release]

    try:
        yield give
    finally:
        for cluster in found.values():
            cluster.down()


@pytest.fixture(params=REAL)
def slurm_several(
    request: pytest.FixtureRequest,
    real_cluster: Callable[[str | None], Cluster],
    far_cluster: Callable[[str | None], Cluster],
) -> Iterator[SlurmWorld]:
    """A real cluster, and `far`, another of its site."""
    yield from _two_emptied(real_cluster(request.param), far_cluster(request.param))


def _two_emptied(near: Cluster, far: Cluster) -> Iterator[SlurmWorld]:
    with contextmanager(_emptied)(near) as world, contextmanager(_emptied)(far) as beside:
        with_far(world, beside)
        yield world


@pytest.fixture(params=["mock", "server", *REAL])
def several(request: pytest.FixtureRequest) -> Iterator[World]:
    """Every world that can have a second cluster, which is `far`."""
    if request.param in ("mock", "server"):
        near = MockWorld() if request.param == "mock" else request.getfixturevalue("server_world")
        yield with_far(near, copy(near))
    else:
        near, far = (request.getfixturevalue(name)(request.param) for name in ("real_cluster", "far_cluster"))
        yield from _two_emptied(near, far)


@pytest.fixture(scope="module")
def enforcing_cluster(need_slurm: Callable[[str | None], None]) -> Iterator[Callable[[str | None], Cluster]]:
    """Gives a cluster of one release that enforces limits; it ends with the module."""
    found: dict[str | None, Cluster] = {}

    def give(release: str | None) -> Cluster:
        need_slurm(release)
        if release not in found:
            folder = Path("/var/tmp") / f"pst-test-l{release or ''}-{os.getpid()}"
            found[release] = up(ClusterSpec(nodes=8, folder=folder, release=release, enforce=True))
            _set_limits(found[release])
        return found[release]

    try:
        yield give
    finally:
        for cluster in found.values():
            cluster.down()


@pytest.fixture(params=["mock", "server", *REAL, *PYSLURM, *REST])
def enforcing(request: pytest.FixtureRequest, enforcing_cluster: Callable[[str | None], Cluster]) -> Iterator[World]:
    """Every world, with limits that it holds its users to (see `_ENFORCING`)."""
    if request.param == "mock":
        yield MockWorld(_ENFORCING)
    elif request.param == "server":
        with _server(_ENFORCING) as world:
            yield world
    elif request.param == "pyslurm":
        if (why := _no_pyslurm(enforcing_cluster(None))) is not None:
            pytest.skip(f"NO PYSLURM: {why}")
        yield from _emptied(enforcing_cluster(None), PyslurmWorld)
    elif (rest := _rest_release(request.param)) is not None:
        yield from _rest_emptied(enforcing_cluster(rest), request.getfixturevalue("servers"))
    else:
        yield from _emptied(enforcing_cluster(request.param))


@contextmanager
def _server(config: ClusterConfig) -> Iterator[ServerWorld]:
    folder = Path(tempfile.mkdtemp(prefix="pst-c-"))
    folder.chmod(0o755)
    try:
        yield ServerWorld(control.start(folder, config, kill_wait=0.2))
    finally:
        control.stop(folder)
        shutil.rmtree(folder)


@pytest.fixture
def server_world() -> Iterator[ServerWorld]:
    with _server(_MOCK) as world:
        yield world


def _rest_release(param: str | None) -> str | None:
    return param.removeprefix("rest ") if param is not None and param.startswith("rest ") else None


@pytest.fixture(params=["mock", "server", *REAL, *PYSLURM, *REST])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Every world there is, one after the other."""
    if request.param == "mock":
        yield MockWorld()
    elif request.param == "server":
        yield request.getfixturevalue("server_world")
    elif request.param == "pyslurm":
        yield request.getfixturevalue("pyslurm_world")
    elif (rest := _rest_release(request.param)) is not None:
        cluster = request.getfixturevalue("real_cluster")(rest)
        yield from _rest_emptied(cluster, request.getfixturevalue("servers"))
    else:
        yield from _emptied(request.getfixturevalue("real_cluster")(request.param))


def _empty(cluster: Cluster) -> None:
    deadline = time.monotonic() + 90.0
    while cluster.run_as("root", ["squeue", "-h", "-o", "%A"]).stdout.strip():
        assert time.monotonic() < deadline, "the queue does not become empty"
        cluster.run_as("root", ["scancel", "--partition=batch"])
        time.sleep(0.1)
    shown = cluster.run_as("root", ["scontrol", "-o", "show", "reservations"]).stdout
    for line in shown.splitlines():
        if line.startswith("ReservationName="):
            cluster.run_as("root", ["scontrol", "delete", line.split()[0]], check=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines in an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def run() -> None:
        try:
            await pyfuncitem.obj(**arguments)
        except NotOffered as why:
            pytest.skip(f"NO REST: {why}")
        finally:
            for world in arguments.values():
                if isinstance(world, World):
                    await world.close()

    asyncio.run(run())
    return True
