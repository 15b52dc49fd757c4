"""An agent that has slurmrestd and no command of Slurm: workflows, a resize, and its death at each of its acts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import SlurmAgent
from malleable import Agent, Jacobi, an_agent, assert_nothing_left, until
from rest_proxy import RestProxy

from conftest import empty
from penstock_lab.cluster import Cluster, ClusterSpec, restd, up

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.release,
    pytest.mark.long,
    pytest.mark.timeout(600, func_only=True),
]
SETTINGS = {"PrologFlags": "Contain", "AccountingStorageEnforce": "none"}  # what slurmrestd of 24.11 does not tell


@pytest.fixture(scope="module", params=["trixie", "sid"])
def release(request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None]) -> str:
    need_slurm(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def module_cluster(release: str, new_folder: Callable[[str], Path]) -> Iterator[Cluster]:
    it = up(ClusterSpec(nodes=8, folder=new_folder(f"rest{release}"), release=release, contain=True))
    yield it
    it.down()


@pytest.fixture
def cluster(module_cluster: Cluster) -> Iterator[Cluster]:
    empty(module_cluster)
    yield module_cluster
    empty(module_cluster)


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[RestProxy]:
    with restd.serving(cluster, "alice") as server, RestProxy(server.url) as it:
        yield it


def settings(proxy: RestProxy) -> dict[str, dict[str, object]]:
    return {
        "slurm": {"backend": "rest"},
        "rest": {"url": proxy.url, "commands": "never", "settings": SETTINGS},
    }


@pytest.fixture
def agent(cluster: Cluster, proxy: RestProxy) -> Iterator[SlurmAgent]:
    it = SlurmAgent(cluster, "alice", **settings(proxy))
    yield it
    it.down()


@pytest.fixture
def resizing(cluster: Cluster, proxy: RestProxy) -> Iterator[Agent]:
    with an_agent(cluster, "alice", **settings(proxy)) as it:
        yield it


def chain(*seconds: int) -> str:
    lines = [f"  - {{name: s{i}, nodes: 2, time: 60, expect: {n}, run: sleep {n}}}" for i, n in enumerate(seconds)]
    return "name: t\nstages:\n" + "\n".join(lines) + "\n"


def run_once(agent: SlurmAgent, since: float, stages: int) -> None:
    """Each stage was one job, which completed."""
    rows: list[dict[str, str]] = []

    def told() -> bool:
        rows[:] = agent.accounting(since)
        return len(rows) >= stages and all(row["State"] == "COMPLETED" for row in rows)

    agent.until(told, "accounting", 30)
    assert len(rows) == stages


@pytest.mark.parametrize("strategy", ["asa", "perstage"])
def test_a_workflow_end_to_end(agent: SlurmAgent, proxy: RestProxy, strategy: str) -> None:
    since = time.time()
    agent.start()
    number = agent.submit(chain(2, 1, 1), strategy)
    assert agent.finish(number)["phase"] == "completed"
    run_once(agent, since, 3)
    assert sum(path.endswith("/job/submit") for _, path in proxy.seen) == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_agent_killed_at_each_submission_leaves_one_job_per_stage(
    agent: SlurmAgent, proxy: RestProxy, when: str
) -> None:
    """Before slurmrestd hears of it, or after Slurm has taken the job and before the agent hears of that."""
    since, killed = time.time(), []

    def kill(method: str, path: str) -> bool:
        if not path.endswith("/job/submit") or (when == "before" and len(killed) % 2):
            killed.extend(["let through"] * path.endswith("/job/submit"))
            return False
        killed.append(path)
        assert agent.process is not None
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait(10)
        return True

    setattr(proxy, when, kill)
    agent.start()
    agent.run("alice", "submit", agent.write(chain(3, 3, 1)), "--strategy", "perstage")
    for _ in range(3):
        assert agent.process is not None
        assert agent.process.wait(90) == -signal.SIGKILL
        agent.launch()
    agent.until(agent.answers, "the agent")
    assert agent.finish(1)["phase"] == "completed"
    run_once(agent, since, 3)


def test_a_slurmrestd_that_fails_and_hangs_makes_the_agent_hold(agent: SlurmAgent, proxy: RestProxy) -> None:
    since = time.time()
    agent.start()
    number = agent.submit(chain(4, 1), "perstage")
    over = threading.Event()
    proxy.before = lambda *_: True
    agent.until(lambda: "hold" in agent.run("alice", "explain", "agent").stdout, "the hold", 60)
    proxy.before = lambda *_: not over.wait(1.0)
    agent.until(lambda: "hold" in agent.run("alice", "explain", "agent").stdout, "the hold", 60)
    over.set()
    proxy.before = lambda *_: False
    assert agent.finish(number, 120)["phase"] == "completed"
    run_once(agent, since, 2)


# -- resizes -----------------------------------------------------------------------------------------------------


@pytest.mark.mpi
def test_an_mpi_job_grows_and_shrinks(resizing: Agent, cluster: Cluster, proxy: RestProxy) -> None:
    resizing.start()
    jacobi = Jacobi(resizing, pause=0.15)
    until("it has grown", lambda: resizing.resizes("expand", jacobi.id), 200)
    cluster.run_as("bob", ["sbatch", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 3"], check=True)
    until("it has shrunk", lambda: resizing.resizes("shrink", jacobi.id), 200)
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]
    assert any(path.endswith("/job/allocate") for _, path in proxy.seen)
    assert_nothing_left(cluster)


@pytest.mark.mpi
@pytest.mark.parametrize("point", ["before it is asked for", "while it is asked for", "after the grant"])
def test_an_agent_killed_while_it_gets_a_companion(
    resizing: Agent, cluster: Cluster, proxy: RestProxy, point: str
) -> None:
    def kill() -> None:
        proxy.before = proxy.after = lambda *_: False
        resizing.kill()

    def at_allocation(method: str, path: str) -> bool:
        if not path.endswith("/job/allocate"):
            return False
        if point == "while it is asked for":
            threading.Timer(0.3, kill).start()
            return False
        kill()
        return True

    setattr(proxy, "after" if point == "after the grant" else "before", at_allocation)
    resizing.start()
    jacobi = Jacobi(resizing, pause=0.25)
    until("the agent is dead", resizing.dead)
    resizing.start()
    until("it has grown in the end", lambda: resizing.resizes("expand", jacobi.id), 200)
    jacobi.assert_exact()
    assert jacobi.sizes() == [2, 4]
    assert_nothing_left(cluster)


@pytest.mark.mpi
@pytest.mark.parametrize("phase", ["joining", "offered", "resizing", "proposed", "leaving", "releasing"])
def test_an_agent_killed_in_a_phase(resizing: Agent, cluster: Cluster, phase: str) -> None:
    resizing.start()
    jacobi = Jacobi(resizing, pause=0.25, hold=1.0)
    if phase in ("proposed", "leaving", "releasing"):
        until("it has grown", lambda: resizing.resizes("expand", jacobi.id))
        cluster.run_as("bob", ["sbatch", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 3"], check=True)
    until(f"the resize is {phase}", lambda: resizing.phase(jacobi.id) == phase)
    resizing.kill()
    assert jacobi.state() == "RUNNING", "the application goes on without the agent"
    resizing.start()
    until("it has come through", lambda: resizing.phase(jacobi.id) == "idle", 300)
    jacobi.assert_exact()
    assert_nothing_left(cluster)
