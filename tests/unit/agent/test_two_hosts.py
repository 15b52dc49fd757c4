"""Two hosts with one state folder on a network file system: one acts, the other's commands reach it or step back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from two_hosts import LIMIT, Host, inner, obstacle, two_hosts, until

from penstock_lab.mock import control
from penstock_lab.mock.model import ClusterConfig

pytestmark = pytest.mark.timeout(900)
FLOW = """
name: shared
shell: strict
stages:
  - {name: a, nodes: 1, time: 600, expect: 1, run: "until [ -e %s ]; do sleep 0.2; done"}
  - {name: b, nodes: 2, time: 60, expect: 1, run: "true", after: a}
  - {name: c, nodes: 1, time: 60, expect: 1, run: "true", after: b}
"""


class Site:
    """A simulated Slurm that both hosts reach, and a workflow whose first stage waits for `go`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = control.start(folder / "slurm", ClusterConfig(nodes=4), kill_wait=0.3, timeout=LIMIT)
        settings: dict[str, Any] = {
            "agent": {"interval": 0.3, "idle_interval": 0.3, "seed": 7, "lease": 20},
            "slurm": {"backend": "mock", "mock_socket": str(self.cluster.socket), "min_interval": 0.1},
            "asa": {"alternatives": [0.5, 1.0]},
        }
        self.started: list[subprocess.Popen[bytes]] = []
        try:
            self.a, self.b = two_hosts(folder, settings)
        except BaseException:
            self.cluster.stop()
            raise
        (folder / "w.yaml").write_text(FLOW % (folder / "go"))

    def agent(self, host: Host) -> int:
        """Start an agent and wait until it answers; its process number, outside."""
        self.started.append(host.start("agent"))
        until(lambda: host.run("status").returncode == 0, host.said)
        return inner(self.started[-1])

    def submissions(self) -> Counter[str]:
        rows = control.call(self.cluster.folder, "history", ids=[], name=None, since=None)
        return Counter(r["name"].split(".")[0] for r in rows)

    def phase(self, host: Host) -> str:
        """Empty where an agent under load has not answered in time, and its state cannot be read meanwhile."""
        done = host.run("status", "--json")
        assert done.returncode in (0, 7), done.stderr
        return "" if done.returncode else str(json.loads(done.stdout)["workflows"][0]["phase"])

    def down(self) -> None:
        for host in (self.a, self.b):
            host.end()
        for process in self.started:
            process.wait(LIMIT)
        self.cluster.stop(LIMIT)


@pytest.fixture
def site() -> Iterator[Site]:
    if (reason := obstacle()) is not None:
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="p2-"))
    folder.chmod(0o755)
    it = Site(folder)
    try:
        yield it
    finally:
        it.down()
        assert str(folder) not in Path("/proc/self/mounts").read_text()
        shutil.rmtree(folder)


def test_commands_reach_the_agent_from_either_host_and_the_other_takes_over_when_it_is_killed(site):
    first = site.agent(site.a)
    submitted = site.b.run("submit", "w.yaml", "--strategy", "perstage")
    assert (submitted.stdout, submitted.stderr) == ("Submitted workflow 1\n", "")
    until(lambda: site.submissions() == {"a": 1}, site.a.said)
    assert site.phase(site.b) == "active"

    # While it lives, nobody else does anything.
    ticked = site.b.run("tick", "-v")
    assert ticked.returncode == 0
    assert "an agent on host-a (pid " in ticked.stdout
    assert ticked.stdout.endswith(": nothing was done\n")
    assert json.loads(site.b.run("tick", "--json").stdout)["ran"] is False
    second = site.b.run("agent")
    assert second.returncode == 6
    assert "an agent on host-a (pid " in second.stderr
    shown = json.loads((site.folder / "served" / "agent" / "agent.lease").read_text())
    assert (shown["host"], shown["address"].partition(":")[0]) == ("host-a", "192.0.2.1")

    os.kill(first, signal.SIGKILL)
    left = site.b.run("explain", "w1")
    assert left.returncode == 0 and "workflow 1/a  submit" in left.stdout, "what the state file has"
    gone = site.b.run("cancel", "w1")
    assert gone.returncode == 3
    assert "an agent on host-a" in gone.stderr
    # As its service would: again and again, until it is let in.
    until(lambda: ran(site.b), site.b.said)
    site.agent(site.b)
    (site.folder / "go").touch()
    until(lambda: site.phase(site.a) == "completed", site.b.said)
    assert site.submissions() == {"a": 1, "b": 1, "c": 1}


def ran(host: Host) -> bool:
    """Whether a tick of this host was let in; one that cannot have the state just now (7) says so, and comes again."""
    done = host.run("tick", "--json")
    if done.returncode == 7:
        print(done.stderr)
        return False
    return bool(json.loads(done.stdout)["ran"])


@pytest.mark.long
def test_one_that_was_stopped_while_the_other_took_over_ends_without_doing_anything(site):
    first = site.agent(site.a)
    assert site.a.run("submit", "w.yaml", "--strategy", "perstage").returncode == 0
    until(lambda: site.submissions() == {"a": 1}, site.a.said)
    os.kill(first, signal.SIGSTOP)
    until(lambda: ran(site.b), site.b.said)
    site.started[0].send_signal(signal.SIGCONT)  # nsenter, which stops when its child does
    os.kill(first, signal.SIGCONT)
    (site.folder / "go").touch()
    assert site.started[0].wait(LIMIT) == 7
    assert "another host has taken over" in site.a.said()
    until(lambda: ran(site.b) and site.submissions()["c"] == 1, site.b.said)
    until(lambda: ran(site.b) and site.phase(site.a) == "completed", site.b.said)
    assert site.submissions() == {"a": 1, "b": 1, "c": 1}
