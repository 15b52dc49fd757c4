"""A real Slurm for the tests in this folder: one cluster per session, each test finds and leaves it without jobs."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from agents import SlurmAgent

from emptied import empty
from penstock.errors import NotNow, UserError
from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from site_limits import SiteLimits
from waiting import until

# The number of the pytest process ends the name, so that sessions run side by side and those that were killed
# are cleaned by the next one.
PREFIX = "pst-test-"
FOLDERS = Path("/var/tmp")


def folder_of(name: str) -> Path:
    """The folder of a cluster of this session's own; ordinary users can reach it, unlike pytest's tmp_path."""
    return FOLDERS / f"{PREFIX}{name}-{os.getpid()}"


@pytest.fixture(scope="session", autouse=True)
def sweep() -> Iterator[None]:
    """Take down what killed sessions left before, and what a test of this one left after."""
    for folder in FOLDERS.glob(f"{PREFIX}*-*"):
        pid = folder.name.rsplit("-", 1)[1]
        if not pid.isdigit() or not psutil.pid_exists(int(pid)):
            try:
                down(folder)
            except NotNow:
                pass  # another session that begins now does it
            except (UserError, FileNotFoundError):
                if not folder.exists():
                    continue  # that one was just through with it
                if folder.stat().st_uid == os.geteuid():
                    raise
                # Not a cluster: a user's last command came after its end and made its home again.
                shutil.rmtree(folder, ignore_errors=True)
    yield
    for folder in FOLDERS.glob(f"{PREFIX}*-{os.getpid()}"):
        down(folder)


@pytest.fixture(scope="session")
def session_cluster(sweep: None) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=8, folder=folder_of("s")))
    yield it
    it.down()


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """The session's cluster of 8 nodes, n1 to n8, all idle and with an empty queue.

    `cluster.run_as("alice", [...])` runs a command as one of its users: alice, bob, operator, or root.
    """
    empty(session_cluster)
    yield session_cluster
    empty(session_cluster)


@pytest.fixture
def make_agent(cluster: Cluster) -> Iterator[Callable[..., SlurmAgent]]:
    """`make_agent("operator", section={...})` makes an agent, of alice's unless said otherwise, not started yet."""
    made: list[SlurmAgent] = []

    def make(who: str = "alice", **sections: dict[str, Any]) -> SlurmAgent:
        made.append(SlurmAgent(cluster, who, **sections))
        return made[-1]

    yield make
    cluster.start_controller()  # a test may have stopped it
    for agent in made:
        agent.down()


@pytest.fixture(scope="session")
def session_isolated(sweep: None) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=8, folder=folder_of("i"), isolated=True))
    yield it
    it.down()


@pytest.fixture
def isolated(session_isolated: Cluster) -> Iterator[Cluster]:
    """One more cluster of 8 nodes for the session; each has a host name, an address and a network of its own."""
    empty(session_isolated)
    yield session_isolated
    empty(session_isolated)


@pytest.fixture(scope="session")
def session_contained(sweep: None) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=8, folder=folder_of("p"), contain=True))
    yield it
    it.down()


@pytest.fixture
def contained(session_contained: Cluster) -> Iterator[Cluster]:
    """One more cluster of 8 nodes for the session, with PrologFlags=Contain as most sites have it."""
    empty(session_contained)
    yield session_contained
    empty(session_contained)


@pytest.fixture(scope="session")
def session_enforcing(sweep: None) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=8, folder=folder_of("e"), enforce=True))
    yield it
    it.down()


@pytest.fixture
def enforcing(session_enforcing: Cluster) -> Iterator[Cluster]:
    """One more cluster of 8 nodes for the session, which enforces associations, limits and QOS; none is set."""
    empty(session_enforcing)
    yield session_enforcing
    empty(session_enforcing)


@pytest.fixture
def site_limits(enforcing: Cluster) -> Iterator[SiteLimits]:
    """What sets limits on `enforcing`; they are gone at the end of the test."""
    it = SiteLimits(enforcing)
    yield it
    it.restore()


@pytest.fixture(scope="session")
def new_folder() -> Callable[[str], Path]:
    """`new_folder("x")` names a folder for one more cluster, taken down at the end of the session at the latest."""
    return folder_of


@pytest.fixture(scope="module", params=[None, *(pytest.param(r, marks=pytest.mark.release) for r in ("trixie", "sid"))])
def another(request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None], sweep: None) -> Iterator[Cluster]:
    """A small cluster of each release for a module; what is to be different about it stands in the module's `ANOTHER`,
    by the names of `ClusterSpec`."""
    need_slurm(request.param)
    wanted = {"nodes": 4, **getattr(request.module, "ANOTHER", {})}
    it = up(ClusterSpec(folder=folder_of(f"r{request.param or ''}"), release=request.param, **wanted))
    yield it
    it.down()


@pytest.fixture
def wait_for_state() -> Callable[..., None]:
    """`wait_for_state(cluster, job, "RUNNING", limit=30.0)` waits for a state in squeue's long word."""
    return _wait_for_state


def _wait_for_state(it: Cluster, job: int, state: str, limit: float = 30.0) -> None:
    def said() -> str:
        return it.run_as("root", ["squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T"]).stdout.strip()

    until(lambda: said() == state, lambda: f"job {job}, which is {said()!r}, to be {state!r}", limit)
