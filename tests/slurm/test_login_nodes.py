"""docs/login-nodes.md, typed on two hosts that share a folder, over real Slurm: one dies while an MPI program runs."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from booted import Booted
from malleable import Jacobi, assert_nothing_left, until
from test_install import free_ports

from guide import blocks
from penstock_lab.cluster import Cluster
from places import PROJECT

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(1800)]

PAGE = (PROJECT / "docs" / "login-nodes.md").read_text(encoding="utf-8")
ADDRESSES = ("127.0.0.2", "127.0.0.3")


class Node:
    """A login node as the package leaves it, but that its service user is the cluster's operator."""

    def __init__(self, cluster: Cluster, folder: Path, address: str, ports: int) -> None:
        self.cluster, self.address = cluster, address
        shared = dict.fromkeys([cluster.folder, folder, PROJECT, Path(sys.prefix)])
        self.machine = Booted(*shared)
        user = cluster.user("operator")
        self.names = {"-o penstock": f"-o {user.name}", "-g penstock": f"-g {user.gid}"}
        # The mount that the guide takes for granted.
        self.machine.run(
            "bash", "-ec", 'mkdir -p /srv/penstock; mount --bind "$0" /srv/penstock', str(folder), check=True
        )
        systemd = PROJECT / "systemd"
        self.machine.write("/etc/systemd/system/penstock.service", (systemd / "penstock.service").read_text())
        drop_in = (systemd / "penstock-shared.conf").read_text()
        self.machine.write("/usr/share/penstock/systemd/penstock-shared.conf", drop_in)
        lines = [
            "[Service]",
            f"User={user.name}",
            f"Group={user.gid}",
            f"Environment=SLURM_CONF={cluster.env['SLURM_CONF']}",
        ]
        lines += [f"BindReadOnlyPaths={each}" for each in (cluster.folder, PROJECT, sys.prefix)]
        self.machine.write("/etc/systemd/system/penstock.service.d/test.conf", "\n".join(lines) + "\n")
        self.machine.run("ln", "-s", f"{sys.prefix}/bin/penstock", "/usr/bin/penstock", check=True)
        self._configure(ports)

    def _configure(self, ports: int) -> None:
        """What the guide says, over the package's file. This machine's ports and addresses are shared with others."""
        (text,) = PAGE.split("```yaml\n")[1:]
        settings = yaml.safe_load((PROJECT / "deploy" / "penstock-system.yaml").read_text())
        for section, values in yaml.safe_load(text.partition("```")[0]).items():
            settings[section] = {**settings.get(section, {}), **values}
        assert settings["dmr"]["listen"] == "0.0.0.0:9342" and settings["agent"]["listen"] == "0.0.0.0:9343"
        settings["dmr"] |= {
            "listen": f"{self.address}:{ports}",
            "hosts": list(ADDRESSES),
            "munge_socket": str(self.cluster.munge_socket),
            "policy": "wide",
            "cooldown": "1s",
        }
        settings["agent"] |= {"listen": f"{self.address}:{ports + 1}", "interval": "1s", "idle_interval": "1s"}
        settings["slurm"] = {"min_interval": 0.5, "requests_per_second": 20}
        settings["metrics"]["listen"] = f"127.0.0.1:{ports + 2}"
        settings["limits"]["dry_run"] = False
        self.machine.write("/etc/penstock/penstock.yaml", yaml.safe_dump(settings))

    def type(self, way: str) -> str:
        """The commands of the guide that are marked so."""
        said = ""
        for block in blocks(PAGE):
            if way in block.ways:
                text = block.text
                for ours, theirs in self.names.items():
                    text = text.replace(ours, theirs)
                uid = 0 if block.root else self.cluster.user("alice").uid
                done = self.machine.run("bash", "-ec", text, uid=uid)
                assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}{self.journal()}"
                said += done.stdout
        return said

    def state(self) -> str:
        return " ".join(self.machine.show("penstock", "ActiveState", "StatusText"))

    def journal(self) -> str:
        return self.machine.journal("penstock")

    def told(self) -> dict[str, object]:
        done = self.machine.run("penstock", "status", "--json")
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {}

    def resizes(self, kind: str, job: int) -> list[object]:
        return [
            r for r in self.told().get("resizes", []) if (r["kind"], r["job"], r["outcome"]) == (kind, job, "completed")
        ]


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[tuple[Node, Node]]:
    folder = Path(tempfile.mkdtemp(prefix="pst-nodes-", dir="/var/tmp"))
    folder.chmod(0o755)
    ports, made = free_ports(3), []
    try:
        for address in ADDRESSES:
            made.append(Node(cluster, folder, address, ports))
        yield made[0], made[1]
    finally:
        for node in made:
            if node.machine.outer.poll() is None:
                print(node.address, node.journal())
            node.machine.down()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_new_administrator_has_two_login_nodes_and_loses_one(cluster: Cluster, nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    first.type("once")
    first.type("host")
    until("the first one serves", lambda: first.state() == "active serving", 180, 0.5)
    second.type("host")
    until("the second one waits", lambda: "has the state" in second.journal(), 60, 0.5)
    for node in nodes:
        node.type("anywhere")

    # A program that is started on the login node that does not serve.
    exports = second.machine.run("penstock", "env", uid=cluster.user("alice").uid, check=True).stdout
    words = dict(line.removeprefix("export ").split("=", 1) for line in exports.splitlines())
    assert words["DMR_AGENT"].startswith(ADDRESSES[0]) and words["DMR_AGENT_OTHERS"].startswith(ADDRESSES[1])
    known = SimpleNamespace(cluster=cluster, who="operator", ask=lambda _op: words)
    jacobi = Jacobi(known, who="alice", sweeps=1000, pause=0.25)
    until("it has grown", lambda: first.resizes("expand", jacobi.id), 120, 0.5)

    first.machine.down()
    until("the second one serves", lambda: second.state() == "active serving", 240, 0.5)
    second.type("anywhere")
    assert second.resizes("expand", jacobi.id), "it knows what was"
    cluster.run_as("bob", ["sbatch", "-N6", "-t1", "-o", "/dev/null", "--wrap", "sleep 2"], check=True)
    until("the program has found it, and has shrunk", lambda: second.resizes("shrink", jacobi.id), 180, 0.5)
    jacobi.assert_exact()
    assert_nothing_left(cluster)
