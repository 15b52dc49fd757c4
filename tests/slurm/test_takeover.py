"""The agent's host dies while MPI programs run, and another login node takes over: they find it, and go on.

Each "host" has an address and process numbers of its own, so that only the beat of the lease tells one of the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from malleable import PYTHON, Agent, Jacobi, assert_nothing_left, until

from outside import need_program
from penstock.errors import PenstockError
from penstock.ipc.client import ask
from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]

ADDRESSES = ("127.0.0.2", "127.0.0.3")
_LEASE = 6


class LoginNode(Agent):
    """An agent of alice's on one of two hosts that see her state folder."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        home = cluster.home("alice")
        self._socket = home / f"{address}.sock"
        where = {"listen": f"{address}:0", "hosts": list(ADDRESSES)}
        agent = {"shared": "yes", "lease": _LEASE, "listen": f"{address}:0", "socket": str(self._socket)}
        super().__init__(cluster, "alice", agent=agent, dmr=where)
        self._config = self._config.rename(home / f"{address}.yaml")
        self.log = home / f"{address}.log"

    @property
    def socket(self) -> Path:
        return self._socket

    def launch(self) -> subprocess.Popen[str]:
        """Its process, which may find that the other one has the state."""
        user = self.cluster.user("alice")
        become = [f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "setpriv", *become]
        environment = {**self.cluster.user_env("alice", None), "PENSTOCK_CONFIG": str(self._config)}
        with self.log.open("a") as log:
            words = [*apart, PYTHON, "-c", "from penstock.cli import main; main()", "agent"]
            self._process = self.cluster.popen_as("root", words, env=environment, stdout=log, stderr=log)
        return self._process

    def kill(self) -> None:
        """As its host dies: whatever runs there is gone, and gives nothing back."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if not self.dead():
            self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        assert self._process is not None
        for child in psutil.Process(self._process.pid).children():  # a change of user has made it deaf to unshare's end
            child.send_signal(number)
        self._process.wait(60)

    def serves(self) -> bool:
        with suppress(PenstockError):
            return bool(ask(self.socket, "ping", timeout=2))
        return False

    def let_in(self) -> None:
        """As its service does: started again and again, until the lease is its own."""

        def tried() -> bool:
            if self._process is None or self._process.poll() is not None:
                assert self._process is None or self._process.returncode == 6, self.log.read_text()[-2000:]
                self.launch()
            return self.serves()

        until("it is let in", tried, 120, 0.5)


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[tuple[LoginNode, LoginNode]]:
    need_program("unshare", "util-linux")
    if os.geteuid() != 0:
        pytest.skip("only root can give a process numbers of its own")
    first, second = (LoginNode(cluster, address) for address in ADDRESSES)
    try:
        yield first, second
    finally:
        for node in (first, second):
            node.stop()
            print(node.log.name, node.log.read_text()[-4000:] if node.log.exists() else "")
        subprocess.run(["rm", "-rf", str(first.folder)], check=True)


@pytest.mark.parametrize("phase", ["idle", "resizing"])
def test_programs_find_the_agent_on_the_other_host(
    cluster: Cluster, nodes: tuple[LoginNode, LoginNode], phase: str
) -> None:
    first, second = nodes
    first.let_in()
    here, others = (first.ask("env")[name] for name in ("DMR_AGENT", "DMR_AGENT_OTHERS"))
    port = here.removeprefix(f"{ADDRESSES[0]}:")
    assert others == f"{ADDRESSES[1]}:{port}"
    jacobi = Jacobi(first, sweeps=1200, hold=0.0 if phase == "idle" else 1.5)
    if phase == "idle":
        until("it has grown", lambda: first.resizes("expand", jacobi.id))
    else:
        until("it takes the nodes up", lambda: first.phase(jacobi.id) == phase, every=0.05)
    first.kill()

    second.let_in()
    assert second.ask("env")["DMR_AGENT"] == f"{ADDRESSES[1]}:{port}"
    until("the growth is known to it", lambda: second.resizes("expand", jacobi.id), 90)
    assert f"the agent at {ADDRESSES[0]}:{port}" in jacobi.output(), "it says once that it was away"
    words = ["sbatch", "--parsable", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 2"]
    cluster.run_as("bob", words, check=True)
    until("it has shrunk, as the other one wanted", lambda: second.resizes("shrink", jacobi.id), 120)
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]
    assert_nothing_left(cluster)
