"""Isolated nodes: each is a host of its own, MPI and resizes cross them, their network breaks, and nothing stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from leftovers import once_free
from malleable import PYTHON, Agent, Jacobi, assert_nothing_left, until

from penstock.errors import PenstockError, UserError
from penstock_lab.cli.cluster import cluster as command
from penstock_lab.cluster import Cluster, ClusterSpec, down, up
from penstock_lab.cluster.network import link_name

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180, func_only=True)]

# A process's host name, network namespace and address.
WHERE = "echo $(hostname) $(readlink /proc/self/ns/net) $(ip -br -4 address show eth0)"
MPI_PROGRAM = """
import json, os, socket
from mpi4py import MPI
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank)
rows = comm.gather((socket.gethostname(), os.readlink("/proc/self/ns/net"), total))
if rows:
    print(json.dumps(rows))
"""


def traces(folder: Path) -> list[str]:
    """Links and mounts on this machine that an isolated cluster in this folder could have left."""
    links = [name for _, name in socket.if_nameindex() if name == link_name(folder)]
    return links + [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]


@pytest.fixture
def folder(new_folder) -> Iterator[Path]:
    path = new_folder("y")
    yield path
    down(path)
    assert not path.exists()
    assert not traces(path)


def on_node(it: Cluster, node: str, script: str, who: str = "alice", **more) -> str:
    words = ["srun", "-t5", "-w", node, "--overlap", "sh", "-c", script]
    return it.run_as(who, words, check=True, **more).stdout


def test_every_node_is_a_host_of_its_own(isolated):
    said = isolated.run_as("alice", ["srun", "-N8", "-t5", "sh", "-c", WHERE], check=True).stdout
    rows = sorted(line.split() for line in said.splitlines())
    assert [row[0] for row in rows] == list(isolated.nodes)
    namespaces = {row[1] for row in rows}
    assert len(namespaces) == len({row[-1] for row in rows}) == 8
    assert str(Path("/proc/self/ns/net").readlink()) not in namespaces
    here = socket.gethostname().split(".")[0]
    # Names mean the same on every node and beside them.
    ask = f"getent hosts {here} n1 n8 | tr -s ' '"
    known = f"{isolated.address} {here}\n"
    for answer in (on_node(isolated, "n3", ask), isolated.run_as("alice", ["sh", "-c", ask], check=True).stdout):
        assert answer.startswith(known)
        assert [line.split()[1] for line in answer.splitlines()] == [here, "n1", "n8"]


def test_a_node_reaches_slurm_and_its_jobs_their_output(isolated):
    """Inside a job on a node: one more allocation, a step in it, the queue and accounting."""
    out = isolated.home("alice") / "out"
    script = "salloc -Q -N2 -t5 srun hostname; squeue -h -o %j -j $SLURM_JOB_ID"
    script += "; until sacct -n -X -o jobname -j $SLURM_JOB_ID | grep outer; do sleep 0.1; done"
    words = ["sbatch", "--wait", "-N1", "-t5", "-J", "outer", "-o", str(out), "--wrap", script]
    isolated.run_as("alice", words, check=True)
    lines = out.read_text().split()
    assert len(set(lines[:2])) == 2 and set(lines[:2]) <= set(isolated.nodes)
    assert lines[2:] == ["outer", "outer"]


@pytest.mark.mpi
def test_mpi_crosses_hosts(isolated):
    (isolated.home("alice") / "where.py").write_text(MPI_PROGRAM)
    script = f"exec {PYTHON} -m dmr.launch -n 4 -ppn 2 {PYTHON} where.py"
    out = isolated.home("alice") / "where.out"
    words = ["sbatch", "--wait", "-N2", "-t5", "-o", str(out), "--wrap", script]
    isolated.run_as("alice", words, check=True)
    rows = json.loads(out.read_text())
    hosts = [row[0] for row in rows]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3] and set(hosts) <= set(isolated.nodes)
    assert len({row[1] for row in rows}) == 2
    assert {row[2] for row in rows} == {6}


@pytest.fixture
def agent(isolated: Cluster) -> Iterator[Agent]:
    it = Agent(isolated, malleable={"backend": "merge"})
    yield it
    it.stop()
    print(it.log.read_text()[-6000:])
    shutil.rmtree(it.folder, ignore_errors=True)


@pytest.mark.mpi
def test_a_job_grows_and_shrinks_across_hosts(agent, isolated):
    agent.start()
    assert agent.ask("env")["DMR_AGENT"].startswith(isolated.address + ":")
    jacobi = Jacobi(agent)
    until("it has grown", lambda: agent.resizes("expand", jacobi.id))
    assert jacobi.nodes() == 4
    words = ["sbatch", "--parsable", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 1"]
    isolated.run_as("bob", words, check=True)
    until("it has shrunk", lambda: agent.resizes("shrink", jacobi.id))
    jacobi.assert_exact()
    assert jacobi.sizes()[:3] == [2, 4, 2]
    assert_nothing_left(isolated)


CONNECT = f"{PYTHON} -c 'import socket; socket.create_connection((\"n2\", 1), timeout=0.3)' 2>&1 | tail -1"


def test_a_node_is_cut_off_and_mended(isolated):
    """Asked of n1: nobody listens there while n2 lives, so it refuses; cut off, it says nothing."""
    out = isolated.home("alice") / "cut.out"
    script = f"while :; do {CONNECT}; sleep 0.1; done >{out}"
    words = ["sbatch", "--parsable", "-w", "n1", "-t5", "-o", "/dev/null", "--wrap", script]
    isolated.run_as("alice", words, check=True)

    def next_answer() -> str:
        seen = len(out.read_text().splitlines()) if out.exists() else 0
        # One attempt may have begun before.
        until("n1 has tried", lambda: out.exists() and len(out.read_text().splitlines()) > seen + 1)
        return out.read_text().splitlines()[-1]

    assert "refused" in next_answer()
    isolated.cut_node("n2")
    try:
        until("it is gone", lambda: "timed out" in next_answer() or "No route" in next_answer(), 20)
    finally:
        isolated.mend_node("n2")
    until("it is back", lambda: "refused" in next_answer(), 20)
    isolated.run_as("root", ["scancel", "--partition=batch"])


SEND = """
import socket, sys, time
listener = socket.create_server(("0.0.0.0", 0))
listener.settimeout(20)
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
total = 0
while data := peer.recv(65536):
    total += len(data)
peer.sendall(str(total).encode())
"""


@pytest.mark.parametrize("direction", ["to the node", "from the node"])
def test_a_slow_node(isolated, direction):
    """5 megabit take 5 s at 1 Mbit/s, whose time is bounded from below only; both ways."""
    slow = "n2" if direction == "to the node" else "n1"
    isolated.slow_node(slow, 1e6)
    try:
        server = isolated.popen_as(
            "alice", ["srun", "-Q", "-t5", "-w", "n2", PYTHON, "-c", SEND], stdout=subprocess.PIPE
        )
        port = server.stdout.readline().strip()
        client = (
            f'import socket, time; s = socket.create_connection(("n2", {port}), 10); t = time.monotonic(); '
            f"s.sendall(bytes(400_000)); s.shutdown(1); assert s.recv(99) == b'400000'; print(time.monotonic() - t)"
        )
        took = float(
            isolated.run_as("alice", ["srun", "-Q", "-t5", "-w", "n1", PYTHON, "-c", client], check=True).stdout
        )
        server.wait(20)
    finally:
        isolated.mend_node(slow)
    assert took > 2.0  # 3.2 s, less the bucket's 32 KiB


def test_a_shared_host_has_no_network_to_break(cluster):
    with pytest.raises(UserError, match="--isolated"):
        cluster.cut_node("n1")
    assert cluster.address == "127.0.0.1"


def test_a_node_dies_and_comes_back_as_the_same_host(isolated):
    before = on_node(isolated, "n4", WHERE)
    isolated.kill_node("n4")
    isolated.start_node("n4")
    assert on_node(isolated, "n4", WHERE) == before


def test_another_one_beside_it_and_nothing_stays(isolated, folder):
    result = CliRunner().invoke(command, ["up", "--isolated", "--nodes", "2", "--dir", str(folder)])
    assert result.exit_code == 0, result.output
    it = Cluster.load(folder)
    assert f"the nodes reach this machine at {it.address}" in result.output
    assert it.address != isolated.address
    for one in (it, isolated):
        assert on_node(one, "n2", "hostname").strip() == "n2"
    os.kill(it.daemons.state.processes["network"].pid, signal.SIGKILL)
    until("its end is seen", lambda: not it.status().daemons["network"])
    with pytest.raises(PenstockError, match="bring it up again"):
        it.start("network")
    again = up(ClusterSpec(nodes=2, folder=folder, isolated=True))
    assert not again.already_up
    assert on_node(again, "n1", "hostname").strip() == "n1"
    again.down()
    assert not traces(folder)
    assert on_node(isolated, "n2", "hostname").strip() == "n2"


@pytest.mark.parametrize("moment", ["the link is there", pytest.param("a node is there", marks=pytest.mark.long)])
def test_what_a_killed_up_leaves_goes_with_down(folder, moment):
    words = ["up", "--isolated", "--nodes", "20", "--dir", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from penstock_lab.cli.cluster import cluster; cluster()", *words]
    )
    deadline = time.monotonic() + 90
    while not (traces(folder) if moment == "the link is there" else (folder / "log" / "n1.log").exists()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait(10)
    assert once_free(lambda: down(folder))
    assert not traces(folder) and not folder.exists()


@pytest.mark.long
def test_missing_programs_and_rights_are_named(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("penstock_lab.cluster.network.PATH", "/nonexistent")
        with pytest.raises(UserError, match="--isolated: missing ip,") as caught:
            up(ClusterSpec(nodes=1, folder=folder, isolated=True))
        assert "apt-get install iproute2" in str(caught.value)
    # As in a container without the right to administer networks.
    words = ["up", "--isolated", "--nodes", "1", "--dir", str(folder)]
    script = "from penstock.cli import main; main()"
    bounds = ["setpriv", "--bounding-set=-sys_admin", "--"]
    done = subprocess.run([*bounds, sys.executable, "-c", script, "cluster", *words], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "--isolated: here root may not" in done.stderr and done.stderr.count("\n") == 1
    assert not folder.exists()


@pytest.mark.release
@pytest.mark.parametrize("release", ["trixie", pytest.param("sid", marks=pytest.mark.long)])
def test_with_another_release_of_slurm(release, need_slurm, folder):
    need_slurm(release)
    it = up(ClusterSpec(nodes=2, folder=folder, isolated=True, release=release))
    said = it.run_as(
        "alice", ["srun", "-N2", "-t5", "sh", "-c", "hostname; getent hosts n1; srun --version"], check=True
    )
    lines = said.stdout.splitlines()
    assert sorted(lines[:1] + [line for line in lines[1:] if line in it.nodes]) == ["n1", "n2"]
    assert sum(line.split()[-1] == "n1" and line != "n1" for line in lines) == 2
    assert sum(it.slurm_version in line for line in lines) == 2
    it.down()
