"""Expected waits in portals on a real Slurm: JupyterHub with its own server programs, the app of Open OnDemand, and a
thousand questions that cost Slurm nothing."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from agents import SlurmAgent

from browser import Browser, browser
from environments import environment
from penstock_lab.cluster import Cluster
from penstock_portals.asking import ask, expect
from portal import PORTALS, Portal, example
from waiting import until

READY = os.environ.get("PENSTOCK_TEST_JUPYTERHUB", "")
"""A virtual environment with what PACKAGES names that the cluster's users can read, instead of a new one."""
PACKAGES = ("jupyterhub==6.1.1", "batchspawner==1.3.0", "jupyter_server>=2,<3")
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600, func_only=True)]
HOUR = 3600.0
POLLED = 2
"""Seconds after which the hub looks again whether a server runs."""


@pytest.fixture
def halves(cluster: Cluster) -> Iterator[Cluster]:
    """Besides batch there are `long`, whose four nodes bob has for twenty minutes, and `interactive`."""
    for name, nodes in (("long", "n[1-4]"), ("interactive", "n[5-8]")):
        words = ["scontrol", "create", f"partition={name}", f"nodes={nodes}"]
        cluster.run_as("root", words, check=True)
    blocker = ["sbatch", "--parsable", "-o/dev/null", "-p", "long", "-N4", "-t20", "--wrap", "sleep 1200"]
    cluster.run_as("bob", blocker, check=True)
    yield cluster
    for name in ("long", "interactive"):
        cluster.run_as("root", ["scancel", f"--partition={name}"])
    until(lambda: not cluster.run_as("root", ["squeue", "-h"]).stdout, "an empty queue")
    for name in ("long", "interactive"):
        cluster.run_as("root", ["scontrol", "delete", f"partition={name}"], check=True)


def start(halves: Cluster, who: str, **sections: dict[str, Any]) -> SlurmAgent:
    """An agent that has seen the blocker run."""
    site = SlurmAgent(halves, who, **{"asa": {"predictor": "share-mix", "alternatives": None}, **sections}).start()

    def seen() -> bool:
        found = expect(str(site.socket), [{"partition": "long", "time_limit": HOUR}], patience=10.0)["jobs"][0]
        return (found["p50"] or 0) > 300

    try:
        site.until(seen, "the blocker in the agent's look")
    except BaseException:
        site.down()
        raise
    return site


# -- JupyterHub --------------------------------------------------------------------------------------------------------

CONFIG = """\
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):  # who asks the hub itself needs none
    should_start = False
    async def get_all_routes(self): return self.routes
    async def add_route(self, routespec, target, data):
        self.routes[routespec] = {"routespec": routespec, "target": target, "data": data}
    async def delete_route(self, routespec): self.routes.pop(routespec, None)
    routes = {}

told = TOLD
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.hub_bind_url = told["url"]
c.JupyterHub.bind_url = told["public"]
c.JupyterHub.db_url = "sqlite:///:memory:"
c.JupyterHub.cookie_secret_file = told["folder"] + "/cookie"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.services = [{"name": "tests", "api_token": told["token"]}]
c.JupyterHub.load_roles = [{"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:servers"]}]

c.PenstockSpawner.exec_prefix = "runuser -u {username} --"
c.PenstockSpawner.batchspawner_singleuser_cmd = told["bin"] + "/batchspawner-singleuser"
c.PenstockSpawner.cmd = [told["bin"] + "/jupyterhub-singleuser"]
c.PenstockSpawner.env_keep = ["PATH", "LANG", *told["keep"]]
c.PenstockSpawner.req_srun = ""
c.PenstockSpawner.poll_interval = POLLED
c.PenstockSpawner.req_prologue = f"export HOME={told['home']}"

def in_the_home_of_this_cluster(spawner):
    spawner.req_homedir = told["home"]

c.PenstockSpawner.pre_spawn_hook = in_the_home_of_this_cluster
c.PenstockSpawner.state_exechost_exp = "127.0.0.1"  # where all nodes of this cluster are
"""


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """The folder of JupyterHub's programs, with this spawner."""
    with environment("hub", PACKAGES, [str(PORTALS)], READY) as found:
        yield found


class Hub:
    """A JupyterHub of root's, whose pages are asked for at the hub itself."""

    def __init__(self, site_socket: str, cluster: Cluster, programs: Path) -> None:
        self.cluster = cluster
        self.login = cluster.users["alice"]
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/var/tmp"))
        self.token = secrets.token_hex(16)
        ports = free_ports(2)
        self.url = f"http://127.0.0.1:{ports[0]}/hub"
        told = {
            "url": f"http://127.0.0.1:{ports[0]}/hub/",
            "public": f"http://127.0.0.1:{ports[1]}/",
            "folder": str(self.folder),
            "token": self.token,
            "bin": str(programs),
            "keep": sorted(cluster.env),
            "home": str(cluster.home("alice")),
        }
        config = self.folder / "jupyterhub_config.py"
        page = example("jupyterhub.md", "python").replace("/run/penstock/agent.sock", site_socket)
        config.write_text(f"{page}\n{CONFIG.replace('TOLD', repr(told)).replace('POLLED', str(POLLED))}")
        self.log = self.folder / "log"
        with self.log.open("w") as output:
            self.process = cluster.popen_as(
                "root",
                [str(programs / "jupyterhub"), "-f", str(config)],
                env={"PATH": f"{programs}:{cluster.user_env('alice')['PATH']}"},
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )
        until(self.answers, "the hub")

    def answers(self) -> bool:
        assert self.process.poll() is None, self.said()
        try:
            return bool(self.api("GET", "/"))
        except OSError:
            return False

    def said(self) -> str:
        hub = [line for line in self.log.read_text(errors="replace").splitlines() if "GET /hub/api/users" not in line]
        servers = [file.read_text(errors="replace") for file in self.cluster.home("alice").glob("jupyterhub_*.log")]
        return "\n".join(text[-4000:] for text in ("\n".join(hub), *servers))

    def api(self, method: str, where: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/api{where}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def server(self) -> dict[str, Any]:
        """Alice's server as the hub tells it; empty while there is none."""
        return dict(self.api("GET", f"/users/{self.login}")["servers"].get("", {}))

    def jobs(self) -> list[str]:
        """State, partition and time limit of each of her jobs."""
        words = ["squeue", "-h", "-u", self.login, "-o", "%T %P %l"]
        return self.cluster.run_as("root", words, check=True).stdout.splitlines()

    def down(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def sign_in(hub: Hub, tab: Browser) -> None:
    tab.open(f"{hub.url}/login?next=%2Fhub%2Fspawn")
    tab.js(f"document.querySelector('#username_input').value = '{hub.login}'")
    tab.js("document.querySelector('#login_submit').click()")
    tab.until("document.querySelectorAll('input[name=profile]').length === 2")


@pytest.mark.long
def test_a_hub_shows_waits_before_the_choice_and_the_place_in_the_queue_after_it(halves, programs):
    site = start(halves, "operator", agent={"serve": "all"})
    hub = Hub(str(site.socket), halves, programs)
    try:
        with browser() as tab:
            sign_in(hub, tab)
            text = tab.text()
            assert re.search("One CPU for two hours expected wait: (starts|mostly) at once", text), text
            assert re.search("Two CPUs for a night expected wait: about (15|20) min", text), text
            tab.js("document.querySelector('input[value=night]').click()")
            tab.js("document.querySelector('#spawn_form').requestSubmit()")
            tab.until("location.pathname.includes('spawn-pending')")
            tab.until("document.body?.textContent.includes('Place 1 of 1 in partition long.')")
            assert re.search(r"Expected when it was submitted: about (15|20) min", tab.js("document.body.textContent"))
        assert hub.jobs() == ["PENDING long 12:00:00"]
        halves.run_as("root", ["scancel", "-u", halves.users["bob"]], check=True)
        until(lambda: hub.server().get("ready"), "the server", 60)
        assert hub.jobs() == ["RUNNING long 12:00:00"]
        assert hub.server()["user_options"] == {"profile": "night"}
        hub.api("DELETE", f"/users/{hub.login}/server")
        until(lambda: not hub.jobs(), "the end of the job")
        # Whoever speaks to the API chooses a profile and nothing else.
        request = {"profile": "small", "partition": "long"}
        try:
            hub.api("POST", f"/users/{hub.login}/server", request)
        except OSError as refused:
            assert getattr(refused, "code", 0) in (400, 500)
        until(lambda: not hub.server().get("pending"), "the refusal")
        assert not hub.server().get("ready") and hub.jobs() == []
    finally:
        print(hub.said())
        hub.down()
        site.down()


@pytest.mark.long
def test_a_hub_without_an_agent_offers_the_same_profiles(halves, programs):
    hub = Hub("/nowhere/agent.sock", halves, programs)
    try:
        with browser() as tab:
            sign_in(hub, tab)
            assert "Two CPUs for a night" in tab.text() and "expected wait" not in tab.text()
        hub.api("POST", f"/users/{hub.login}/server", {"profile": "small"})
        until(lambda: hub.server().get("ready"), "the server", 60)
        assert hub.jobs() == ["RUNNING interactive 2:00:00"]
        # One that is suspended for a while, as a site that preempts so does it, is no job that is gone.
        (job,) = halves.run_as("root", ["squeue", "-h", "-u", hub.login, "-o", "%i"], check=True).stdout.split()
        halves.run_as("root", ["scontrol", "suspend", job], check=True)
        assert hub.jobs() == ["SUSPENDED interactive 2:00:00"]
        time.sleep(2 * POLLED)
        assert hub.server().get("ready"), "the hub has not forgotten it"
        halves.run_as("root", ["scontrol", "resume", job], check=True)
        hub.api("DELETE", f"/users/{hub.login}/server")
        until(lambda: not hub.jobs(), "the end of the job")
    finally:
        print(hub.said())
        hub.down()


# -- Open OnDemand, and what it costs ----------------------------------------------------------------------------------


def test_the_app_of_a_portal_tells_its_user_what_to_expect(halves, tmp_path):
    site = start(halves, "alice")
    folder = site.place / "portal"
    folder.mkdir()

    def as_alice(words: list[str], **how: Any) -> subprocess.Popen[str]:
        how.pop("text")
        env = {"PENSTOCK_AGENT__SOCKET": str(site.socket)}
        return halves.popen_as("alice", words, env=env, stdout=how["stdout"], stderr=how["stderr"])

    portal = Portal(folder, {}, start=as_alice)
    try:
        status, busy = portal.json("/api/waits?partition=long&nodes=2&time=1h")
        assert status == 200 and re.match("about (15|20) min", busy["text"]), busy
        sooner = {one["change"]: one for one in busy["sooner"]}
        assert sooner["partition"]["partition"] in ("interactive", "batch"), busy
        assert sooner["partition"]["text"].startswith(f"in partition {sooner['partition']['partition']}: ")
        status, idle = portal.json("/api/waits?partition=interactive&nodes=2&time=1h")
        assert status == 200 and idle["text"].endswith("at once") and idle["sooner"] == []
        status, _, text = portal.get()
        assert status == 200 and all(f"Partition {name}:" in text for name in ("batch", "long", "interactive"))
        took = []
        for number in range(30):
            begun = time.monotonic()
            assert portal.json(f"/api/waits?partition=long&nodes=2&time={number + 1}m")[0] == 200
            took.append(time.monotonic() - begun)
        print(f"an answer of the app: median {1000 * statistics.median(took):.1f} ms, most {1000 * max(took):.1f} ms")
    finally:
        portal.down()
        site.down()


def requests(cluster: Cluster) -> int:
    """Requests of alice's that slurmctld has had, by its own count."""
    users = cluster.run_as("root", ["sdiag"], check=True).stdout.partition("by user")[2]
    found = re.search(rf"^\s*{cluster.users['alice']}\s*\(.*count:(\d+)", users, re.MULTILINE)
    return int(found[1]) if found else 0


def test_a_thousand_questions_cost_slurm_nothing(halves):
    site = start(halves, "alice")
    site.down()
    quiet = {"interval": 300, "idle_interval": 300}
    site = start(halves, "alice", agent=quiet)
    path = str(site.socket)
    try:
        wishes = [
            [{"partition": name, "nodes": nodes, "time_limit": HOUR}]
            for name in ("long", "interactive")
            for nodes in (1, 2, 4)
        ]
        before, took = requests(halves), []
        for number in range(1000):
            begun = time.monotonic()
            found = expect(path, wishes[number % len(wishes)], sooner=True, patience=10.0)
            took.append(time.monotonic() - begun)
            assert found["jobs"][0]["p95"] is not None
        assert requests(halves) == before, "no request for a thousand answers"
        assert ask(path, {"op": "ping"})["pid"], "it has time for others"
        ordered = sorted(1000 * each for each in took)
        print(f"an answer at the socket: median {statistics.median(ordered):.2f} ms, most {ordered[-1]:.2f} ms")
    finally:
        site.down()


@pytest.mark.parametrize("told_to", ["operators", "everybody"])
def test_users_of_a_sites_agent_are_told_where_the_site_wants_it(halves, told_to):
    site = SlurmAgent(halves, "operator", agent={"serve": "all"}, asa={"told_to": told_to}).start()
    try:
        site.until(lambda: expect(str(site.socket), [], patience=10.0)["at"], "the agent's first look")
        script = "import sys; sys.path.insert(0, sys.argv[1]); from penstock_portals.asking import expect\n"
        script += "print(expect(sys.argv[2], [{}], patience=20)['jobs'][0]['partition'])"
        # Not from the project's folder, which users may not enter.
        shutil.copytree(PORTALS / "penstock_portals", site.place / "portals" / "penstock_portals")
        words = ["/usr/bin/python3", "-IS", "-c", script, str(site.place / "portals"), str(site.socket)]
        done = halves.run_as("alice", words)
        assert (done.stdout.strip() == "batch") is (told_to == "everybody"), done.stdout + done.stderr
        assert ("asa.told_to: everybody" in done.stderr) is (told_to == "operators"), done.stderr
    finally:
        site.down()
