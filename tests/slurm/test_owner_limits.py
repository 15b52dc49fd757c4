"""A hostile program on a cluster that enforces limits: whatever it says, none is exceeded by a node or a minute.

The agent is an Operator for all users, set up as the guide says (docs/install.md): it has no account of those whom it
serves, and what grows is charged to its owner. Each limit is tried with each way of a program to get more than that.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import pytest
from malleable import PYTHON, Agent, assert_nothing_left, until

from penstock.slurm.parse import parse_limit
from penstock_lab.cluster import Cluster, ClusterSpec, up
from site_limits import SiteLimits

LONG = [pytest.mark.release, pytest.mark.long]
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900, func_only=True)]

# What a program says, without MPI: `honest` grows and uses what it gets; the others lie, or do not do as they said.
# What has happened is written down. Each ends `lasts` seconds after all that it waits for has happened, or after
# `latest` seconds: Slurm may take its time to grant nodes. One that waits for nothing ends after twice `lasts`.
HOSTILE = r"""
import json, os, subprocess, sys, threading, time
from dataclasses import replace
from dmr import node_requests, wire
from dmr.client import Client

way, report, steps_left, lasts, latest, *awaited = sys.argv[1:]
job, began = int(os.environ["SLURM_JOB_ID"]), time.time()
client = Client.from_environment()
steps = {"steps_left": 30000 if way == "claims" else int(steps_left), "step_seconds": 1.0}
asked, noted = set(), set()
environment = {k: v for k, v in os.environ.items() if k == "SLURM_CONF" or not k.startswith("SLURM")}


def own():
    shown = subprocess.run(["squeue", "-h", "-j", str(job), "-o", "%N"], capture_output=True, text=True).stdout.strip()
    return subprocess.run(["scontrol", "show", "hostnames", shown], capture_output=True, text=True).stdout.split()


def note(what):
    global end
    if what not in noted:
        noted.add(what)
        with open(report, "a") as file:
            file.write(json.dumps(what) + "\n")
        if set(awaited) == noted & set(awaited):
            end = min(end, time.time() + float(lasts))


def launch(wanted):
    if wanted.name in asked:
        return
    asked.add(wanted.name)
    if way == "greedy":
        wanted = replace(wanted, node_count=wanted.node_count + 1)
    if way == "lasting":
        wanted = replace(wanted, time_limit=wanted.time_limit + 3600)
    command = node_requests.command(wanted)
    threading.Thread(target=lambda: subprocess.run(command, env=environment, timeout=60), daemon=True).start()
    note("asked")


nodes, epoch, end = own(), 0, began + (float(latest) if awaited else 2 * float(lasts))
if way == "stays":  # a step on all of its nodes, whatever it says
    subprocess.Popen(["srun", "--overlap", "sleep", "300"])
while time.time() < end:
    said = {"size": len(nodes), "nodes": tuple(nodes), "minimum": 1, "maximum": 6, "factor": 1}
    if way in ("claims", "breaks-off", "silent", "takes-back", "stays"):
        said |= {"maximum": len(nodes), "preferred": 1, **steps}
    if way == "lies":
        said |= {"size": 1, "nodes": tuple(nodes[:1]), "maximum": 6, **steps}
    ask = wire.Check(job=job, epoch=epoch + (3 if way == "ahead" else 0), per_node=1, method="merge", companion=True,
                     requests_nodes=True, **said)
    reply = client.request(ask)
    if isinstance(reply, wire.CheckReply) and reply.node_request is not None:
        launch(reply.node_request)
    if isinstance(reply, wire.CheckReply) and reply.action != "none":
        note(reply.action)
        if isinstance(client.request(wire.Accept(job=job, epoch=reply.epoch), urgent=True), wire.Done):
            note("accepted")
            if way == "silent":
                time.sleep(4)
                break
            if way in ("claims", "breaks-off"):
                time.sleep(1)
                client.request(wire.Refuse(job=job, epoch=reply.epoch, why="no"), urgent=True)
                continue
            done = wire.Finished(job=job, epoch=reply.epoch, size=reply.size, nodes=reply.nodes)
            client.request(done, urgent=True)
            note("done")
            nodes, epoch = list(reply.nodes), reply.epoch
            if way == "takes-back":
                client.request(wire.Refuse(job=job, epoch=reply.epoch, why="no"), urgent=True)
    time.sleep(0.3)
note("end")
"""

# Each way of a program, and what must have happened to it: otherwise it was tried for nothing.
WAYS = {
    "honest": {"expand", "accepted", "done"},
    "lies": set[str](),
    "ahead": set[str](),
    "greedy": {"asked"},
    "lasting": {"asked"},
    "claims": set[str](),
    "breaks-off": {"shrink"},
    "silent": {"shrink"},
    "takes-back": {"shrink"},
    "stays": {"shrink"},
}
SHRINKS = ("claims", "breaks-off", "silent", "takes-back", "stays")


@dataclass(frozen=True)
class Bound:
    """A limit as an administrator sets it, and what it leaves to a user: `nodes` of a job with its companions (None: as
    many as there are), `of_user` nodes of all jobs, `minutes` of each."""

    name: str
    qos: dict[str, str] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)
    partition: dict[str, str] = field(default_factory=dict)
    nodes: int = 6
    minutes: int | None = None

    @property
    def per_job(self) -> bool:
        """Whether it counts each job alone, a companion that a launcher asks for against its orders, too."""
        return "per-job" in self.name or self.name == "partition-max-nodes"


BOUNDS = [
    Bound("qos-max-wall", qos={"MaxWall": "3"}, minutes=3),
    Bound("association-max-wall", user={"MaxWall": "3"}, minutes=3),
    Bound("qos-max-tres-per-job", qos={"MaxTRESPerJob": "node=3"}, nodes=3),
    Bound("association-max-tres-per-job", user={"MaxTRESPerJob": "node=3"}, nodes=3),
    Bound("qos-max-tres-per-user", qos={"MaxTRESPerUser": "node=3"}, nodes=3),
    Bound("qos-grp-tres", qos={"GrpTRES": "node=3"}, nodes=3),
    Bound("association-grp-tres", user={"GrpTRES": "node=3"}, nodes=3),
    Bound("partition-max-nodes", partition={"MaxNodes": "3"}, nodes=3),
    Bound("partition-max-time", partition={"MaxTime": "3"}, minutes=3),
]


@pytest.fixture(
    scope="module",
    params=[None, pytest.param("trixie", marks=LONG), pytest.param("sid", marks=LONG)],
    ids=["installed", "24.11", "26.05"],
)
def site(
    request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None], new_folder: Callable[[str], Path]
) -> Iterator[Cluster]:
    need_slurm(request.param)
    it = up(ClusterSpec(nodes=6, folder=new_folder(f"w{request.param or ''}"), release=request.param, enforce=True))
    yield it
    it.down()


@pytest.fixture
def limits(site: Cluster) -> Iterator[SiteLimits]:
    it = SiteLimits(site)
    yield it
    it.restore()


@pytest.fixture
def agent(site: Cluster) -> Iterator[Agent]:
    yield from serving(site, 5)


@pytest.fixture
def patient_agent(site: Cluster) -> Iterator[Agent]:
    """For what Slurm grants: after many jobs it may take a while to do so."""
    yield from serving(site, 30)


def serving(site: Cluster, grant_timeout: int) -> Iterator[Agent]:
    """An agent for all users that waits so long (s) for nodes."""
    it = Agent(
        site,
        "operator",
        agent={"serve": "all"},
        malleable={"extend": True, "resize_timeout": 3, "resize_cost": 1},
        dmr={"cooldown": 0, "accept_timeout": 5, "grant_timeout": grant_timeout},
    )
    it.start()
    yield it
    it.stop()
    print(it.log.read_text()[-8000:])  # shown by pytest when the test failed
    site.run_as("root", ["scancel", "--partition=batch"])
    site.run_as("operator", ["rm", "-rf", str(it.folder)])


class Watch:
    """Sees what a user's jobs have, as often as it can, and what of it is too much."""

    def __init__(self, site: Cluster, bound: Bound) -> None:
        self.site, self.bound = site, bound
        self.looks, self.most, self.longest = 0, 0, 0.0
        self.wrong: list[str] = []
        self.apart = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            words = ["squeue", "-h", "-u", self.site.user("alice").name, "-t", "RUNNING", "-o", "%i|%j|%D|%l"]
            rows = [line.split("|") for line in self.site.run_as("root", words).stdout.splitlines()]
            nodes = sum(int(row[2]) for row in rows)
            minutes = max([(parse_limit(row[3]) or 1e9) / 60 for row in rows], default=0.0)
            self.looks, self.longest = self.looks + 1, max(self.longest, minutes)
            self.most = self.most if self.apart else max(self.most, nodes)
            # Two jobs of two nodes are within a limit of three for each: the second is the user's own, and of no use.
            counted = max([int(row[2]) for row in rows], default=0) if self.apart else nodes
            if counted > self.bound.nodes or minutes > (self.bound.minutes or 1e9):
                self.wrong.append(str(rows))
            self._end.wait(0.05)


def run(agent: Agent, site: Cluster, way: str, bound: Bound) -> list[str]:
    """What became of a program of that way in a job of two nodes and two minutes."""
    qos = "hostile" if bound.qos else "normal"
    # What a shrink to one node would take longer than the job has: in three minutes it could be done.
    steps = 60 if bound.minutes == 3 else 30_000
    home = site.home("alice")
    (home / "hostile.py").write_text(HOSTILE)
    report = home / f"hostile-{way}.jsonl"
    report.unlink(missing_ok=True)
    environment = {k: v for k, v in agent.ask("env").items() if k != "DMR_KEY_FILE"}
    command = f"#!/bin/bash\nexec {PYTHON} hostile.py {way} {report} {steps} 4 60 {' '.join(WAYS[way])}\n"
    words = ["sbatch", "--parsable", "-N2", "-t2", f"--qos={qos}", "-o", "hostile-%j.out", "--no-requeue"]
    number = int(site.run_as("alice", words, input=command, env=environment, check=True).stdout)

    def running() -> bool:
        return site.run_as("root", ["squeue", "-h", "-j", str(number), "-o", "%T"]).stdout.strip() == "RUNNING"

    if way in SHRINKS:  # the last of these waits, so that a shrink is attractive
        until("it runs", running)
        for _ in range(5):
            site.run_as("bob", ["sbatch", "-N1", "-t1", "-o", "/dev/null", "--wrap", "sleep 5"], check=True)

    def events() -> list[str]:
        return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []

    def out() -> str:
        return "".join(path.read_text() for path in home.glob(f"hostile-{number}.out"))

    until("it has ended", lambda: "end" in events() or re.search("Traceback", out()), 90)
    assert "end" in events(), out()
    site.run_as("root", ["scancel", "--partition=batch"])
    until("nothing is left", lambda: not site.run_as("root", ["squeue", "-h", "-o", "%i"]).stdout.strip(), 60)
    return events()


# A minute each: one in CI, and all with `--all`.
USUAL = ("association-grp-tres",)


@pytest.mark.parametrize(
    "bound",
    [pytest.param(b, id=b.name, marks=() if b.name in USUAL else pytest.mark.long) for b in BOUNDS],
)
def test_no_way_past_a_limit(site: Cluster, limits: SiteLimits, agent: Agent, bound: Bound) -> None:
    if bound.user:
        limits.user("alice", **bound.user)
    if bound.qos:  # of alice's jobs alone: others are not held up
        limits.qos("hostile", **bound.qos)
    if bound.partition:
        limits.partition(**bound.partition)
    came: dict[str, list[str]] = {}
    with Watch(site, bound) as watch:
        for way in WAYS:
            watch.apart = way == "greedy" and bound.per_job
            came[way] = run(agent, site, way, bound)
    assert watch.wrong == []
    assert watch.looks > 50
    # It was not for nothing: the program was offered what its owner may have, and each did what it does.
    assert all(awaited <= set(came[way]) for way, awaited in WAYS.items()), came
    assert watch.most == bound.nodes if bound.nodes < 6 else watch.most > 2


def test_growth_works_as_the_guide_sets_it_up_and_is_charged_to_the_owner(site: Cluster, patient_agent: Agent) -> None:
    bound = Bound("none")
    with Watch(site, bound) as watch:
        charged = threading.Event()

        def look() -> None:
            while not charged.is_set():
                words = ["squeue", "-h", "-o", "%u %j %a", "-t", "RUNNING"]
                for line in site.run_as("root", words).stdout.splitlines():
                    user, name, account = line.split()
                    assert user == site.user("alice").name
                    if name.startswith("penstock-"):
                        owners.add((user, account))
                time.sleep(0.1)

        owners: set[tuple[str, str]] = set()
        looking = threading.Thread(target=look)
        looking.start()
        came = run(patient_agent, site, "honest", bound)
        charged.set()
        looking.join()
    assert {"expand", "accepted", "done"} <= set(came) and watch.most == 6
    assert owners == {(site.user("alice").name, "penstock")}
    assert_nothing_left(site)
