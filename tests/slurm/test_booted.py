"""penstock.service under a real systemd, in its whole sandbox, over real Slurm."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from booted import Booted
from malleable import until

from penstock_lab.cluster import Cluster
from places import PROJECT

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(900)]

PENSTOCK = f"{sys.prefix}/bin/penstock"

# Rank 0 of a malleable job, known by munge: offers itself, asks Slurm for a companion when it is told to, takes up what
# it gets, and says that it is done.
RANK_0 = """
import os, subprocess, sys, threading, time
from dmr import node_requests, wire
from dmr.client import Client
job, port = int(sys.argv[1]), int(sys.argv[2])
client = Client(("127.0.0.1", port), 20.0)
def say(request, **fields):
    return client.request(request(job=job, time=time.time(), **fields), urgent=True)
def told(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
def launch(wanted):
    threading.Thread(target=lambda: subprocess.run(node_requests.command(wanted), timeout=100), daemon=True).start()
while not (nodes := told("squeue", "-h", "-t", "RUNNING", "-j", str(job), "-o", "%N")):
    time.sleep(0.3)
nodes = tuple(told("scontrol", "show", "hostnames", *nodes))
can = {"nodes": nodes, "per_node": 1, "method": "merge", "companion": True, "requests_nodes": True}
reply, launched = None, set()
while getattr(reply, "action", "") != "expand":
    reply = say(wire.Check, epoch=0, size=2, minimum=2, maximum=4, factor=2, **can)
    assert getattr(reply, "error", "") in ("", "unavailable", "busy"), reply
    wanted = getattr(reply, "node_request", None)
    if wanted is not None and wanted.name not in launched:
        launched.add(wanted.name)
        launch(wanted)
    time.sleep(0.3)
assert say(wire.Accept, epoch=reply.epoch) == wire.Done()
assert say(wire.Finished, epoch=reply.epoch, size=4, nodes=reply.nodes) == wire.Done()
"""


class Site:
    """A booted machine with the unit installed, whose service user is the cluster's operator."""

    def __init__(self, cluster: Cluster, watchdog: int) -> None:
        self.cluster = cluster
        shared = dict.fromkeys([cluster.folder, PROJECT, Path(sys.prefix)])
        self.machine = Booted(*shared)
        user = cluster.user("operator")
        self.dmr, self.metrics = _free_port(), _free_port()
        settings = yaml.safe_load((PROJECT / "deploy" / "penstock-system.yaml").read_text())
        settings["agent"] |= {"interval": "1s", "idle_interval": "1s"}
        settings["slurm"] = {"min_interval": 0.5, "requests_per_second": 20}
        settings["dmr"] = {
            "listen": f"127.0.0.1:{self.dmr}",
            "munge_socket": str(cluster.munge_socket),
            "policy": "wide",
            "cooldown": "1s",
        }
        settings["limits"]["dry_run"] = False
        settings["metrics"]["listen"] = f"127.0.0.1:{self.metrics}"
        self.config = yaml.safe_dump(settings)
        self.machine.write("/etc/penstock/penstock.yaml", self.config)
        self.machine.write(
            "/etc/systemd/system/penstock.service", (PROJECT / "systemd" / "penstock.service").read_text()
        )
        # What differs from a site: who serves, where Slurm and the program are, and how long a test can wait.
        lines = [
            "[Service]",
            f"User={user.name}",
            f"Group={user.gid}",
            f"Environment=SLURM_CONF={cluster.env['SLURM_CONF']}",
            *(f"BindReadOnlyPaths={folder}" for folder in shared),
            "RestartSec=1",
            f"WatchdogSec={watchdog}",
            "TimeoutAbortSec=1",
        ]
        self.machine.write("/etc/systemd/system/penstock.service.d/test.conf", "\n".join(lines) + "\n")
        self.machine.run("ln", "-s", PENSTOCK, "/usr/bin/penstock", check=True)
        self.machine.run("systemctl", "daemon-reload", check=True)

    def told(self) -> dict[str, float]:
        """The agent's metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=20) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def start(self) -> None:
        done = self.machine.run("systemctl", "start", "penstock")
        assert done.returncode == 0, done.stderr + self.machine.journal("penstock")

    def penstock(self, who: str, *words: str) -> tuple[int, str]:
        """A command of a user: its exit code, and what it said."""
        done = self.machine.run("penstock", *words, uid=self.cluster.user(who).uid)
        return done.returncode, done.stdout + done.stderr


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@pytest.fixture
def site(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Site]:
    it = Site(cluster, request.param)
    try:
        yield it
    finally:
        it.machine.down()


@pytest.mark.parametrize("site", [300], indirect=True)
def test_the_sandboxed_service_knows_users_resizes_jobs_and_comes_back(site: Site, cluster: Cluster) -> None:
    machine = site.machine
    site.start()
    names = ("ActiveState", "StatusText", "NRestarts")
    assert machine.show("penstock", *names) == ["active", "serving", "0"]
    (pid,) = machine.show("penstock", "MainPID")
    status = dict(
        line.split(":\t", 1) for line in machine.run("cat", f"/proc/{pid}/status", check=True).stdout.splitlines()
    )
    assert (status["NoNewPrivs"], status["Seccomp"], status["CapBnd"]) == ("1", "2", "0" * 16)

    # Who is at the socket: everybody is known, and may do what is theirs.
    alice = cluster.users["alice"]
    assert site.penstock("alice", "pause")[0] == 4
    code, text = site.penstock("alice", "pause", "--user", alice)
    assert code == 0 and f"paused by {alice}" in text, text
    assert site.penstock("bob", "resume", "--user", alice)[0] == 4
    assert site.penstock("alice", "resume", "--user", alice)[0] == 0
    code, text = site.penstock("root", "pause", "--feature", "workflows")
    assert code == 0 and "paused by root" in text, text

    # All that it does for a job of somebody else: Slurm's commands and munge work in the sandbox.
    words = ["sbatch", "--parsable", "-N2", "-t9", "-o", "/dev/null", "--wrap", "sleep 400"]
    job = int(cluster.run_as("alice", words, check=True).stdout)
    more = {"DMR_MUNGE_SOCKET": str(cluster.munge_socket)}
    cluster.run_as("alice", [sys.executable, "-c", RANK_0, str(job), str(site.dmr)], env=more, timeout=200, check=True)
    until("it counts", lambda: site.told()['penstock_resizes_total{kind="expand",outcome="completed"}'] == 1, 90)
    words = ["squeue", "-h", "-t", "RUNNING", "-u", alice, "-o", "%D"]
    assert cluster.run_as("root", words).stdout.split() == ["2", "2"], "the job, and its companion of the same user"
    told = site.told()
    assert told["penstock_store_errors_total"] == told['penstock_passes_total{verdict="failed"}'] == 0
    assert sum(v for k, v in told.items() if "requests_total" in k and "unanswered" in k) == 0

    # Reload, and death: it comes back with what it knew.
    assert machine.run("systemctl", "reload", "penstock").returncode == 0
    until("it serves again", lambda: machine.show("penstock", *names) == ["active", "serving", "0"], 60)
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "penstock", check=True)
    until("it is back", lambda: machine.show("penstock", *names) == ["active", "serving", "1"], 180)
    assert "paused by root" in site.penstock("root", "status")[1]

    # Who did what is on record, in the file and by the kernel's word in the journal; they agree.
    code, text = site.penstock("root", "audit", "--verify")
    assert (code, "compared with the journal, the state file: " in text) == (0, True), text
    bob = cluster.users["bob"]
    of_bob = ["journalctl", "-o", "json", f"PENSTOCK_AUDIT_USER={bob}"]
    (line,) = machine.run(*of_bob, check=True).stdout.splitlines()
    said = json.loads(line)
    assert (said["PRIORITY"], said["PENSTOCK_AUDIT_VERB"], said["PENSTOCK_AUDIT_OUTCOME"]) == ("4", "resume", "refused")
    assert (said["SYSLOG_IDENTIFIER"], said["_UID"]) == ("penstock-audit", str(cluster.user("operator").uid))
    acts = [r["verb"] for r in json.loads(site.penstock("root", "audit", "--json", "--job", str(job))[1])["records"]]
    assert {"check", "ask the launcher", "accept", "done"} <= set(acts), acts
    machine.run("systemctl", "stop", "penstock", check=True)
    machine.run("bash", "-c", 'text=$(head -n -1 "$0"); echo "$text" >"$0"', "/var/lib/penstock/audit.log", check=True)
    code, text = site.penstock("root", "audit", "--verify")
    assert (code, "the journal has record" in text) == (1, True), text

    # A state that is refused is not tried again and again: one of a newer release, an empty one.
    file = "/var/lib/penstock/penstock.db"
    assert machine.run("systemctl", "stop", "penstock").returncode == 0
    for damage in (f"import sqlite3; sqlite3.connect('{file}').execute('PRAGMA user_version=99')", None):
        if damage is None:
            machine.run("sh", "-c", f": >{file}", check=True)
        else:
            machine.run(sys.executable, "-c", damage, check=True)
        assert machine.run("systemctl", "restart", "penstock").returncode != 0
        assert machine.show("penstock", "ActiveState", "ExecMainStatus", "NRestarts") == ["failed", "8", "0"]
    journal = machine.journal("penstock")
    assert "written by a newer Penstock" in journal and "it has 0 bytes" in journal
    assert machine.run("stat", "-c", "%s", file).stdout.strip() == "0"

    # Nor is a wrong configuration.
    machine.write("/etc/penstock/penstock.yaml", "agent: {intervall: 1}")
    assert machine.run("systemctl", "restart", "penstock").returncode != 0
    assert machine.show("penstock", "ActiveState", "ExecMainStatus", "NRestarts") == ["failed", "78", "0"]


@pytest.mark.parametrize("site", [20], indirect=True)
def test_systemd_replaces_an_agent_that_makes_no_passes(site: Site) -> None:
    machine = site.machine
    site.start()
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "penstock", check=True)
    wanted = ["active", "serving", "1"]
    until(
        "it is replaced", lambda: machine.show("penstock", "ActiveState", "StatusText", "NRestarts") == wanted, 90, 0.5
    )
    assert "Watchdog timeout" in machine.journal("penstock")
    assert json.loads(site.penstock("root", "status", "--json")[1])
