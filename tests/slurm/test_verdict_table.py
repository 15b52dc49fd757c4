"""Each act on a job, against each bound that an administrator or the job's owner sets right before it: none is crossed
by a node, a job or a minute, whether Penstock refuses the act or Slurm keeps the job.

The executor acts as a site's agent, an Operator, on jobs of alice's; what runs as the owner acts as alice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import pytest

from emptied import empty
from penstock.api import FAR, JobSpec
from penstock.core import acts
from penstock.core.acts import KnownJob
from penstock.core.executor import Concern, Executor
from penstock.core.observe import Observer
from penstock.core.ownlimits import Extension, Growth, Shape
from penstock.core.verdicts import FRESH
from penstock.errors import PenstockError
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock.slurm.parse import parse_limit, parse_time
from penstock.state.store import Store
from penstock_lab.cluster import Cluster, ClusterSpec, up
from penstock_lab.cluster.programs import PATH
from site_limits import SiteLimits
from waiting import until

LONG = [pytest.mark.release, pytest.mark.long]
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240, func_only=True)]

NODES, MINUTES = 4, 6  # what each act would bring the job to: beyond every bound
WATCHED = 3.0  # seconds for which Slurm may do what it should not


@dataclass(frozen=True)
class Bound:
    """What is set, and what it leaves to alice's jobs: `nodes` of all that run, `minutes` of each, `node_minutes` of
    all. `special`: another kind of bound."""

    name: str
    qos: dict[str, str] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)
    account: dict[str, str] = field(default_factory=dict)
    partition: dict[str, str] = field(default_factory=dict)
    nodes: int = 8
    minutes: float = inf
    node_minutes: float = inf
    special: str = ""


BOUNDS = [
    Bound("qos-max-wall", qos={"MaxWall": "3"}, minutes=3),
    Bound("qos-max-wall-deny", qos={"MaxWall": "3", "Flags": "DenyOnLimit"}, minutes=3),
    Bound("user-max-wall", user={"MaxWall": "3"}, minutes=3),
    Bound("partition-max-time", partition={"MaxTime": "3"}, minutes=3),
    Bound("qos-per-job", qos={"MaxTRESPerJob": "node=3"}, nodes=3),
    Bound("qos-per-job-deny", qos={"MaxTRESPerJob": "node=3", "Flags": "DenyOnLimit"}, nodes=3),
    Bound("user-per-job", user={"MaxTRESPerJob": "node=3"}, nodes=3),
    Bound("partition-max-nodes", partition={"MaxNodes": "3"}, nodes=3),
    Bound("qos-per-user", qos={"MaxTRESPerUser": "node=3"}, nodes=3),
    Bound("qos-cpus-per-user", qos={"MaxTRESPerUser": "cpu=6"}, nodes=3),
    Bound("qos-per-account", qos={"MaxTRESPerAccount": "node=3"}, nodes=3),
    Bound("qos-group", qos={"GrpTRES": "cpu=6"}, nodes=3),
    Bound("user-group", user={"GrpTRES": "node=3"}, nodes=3),
    Bound("account-group", account={"GrpTRES": "node=3"}, nodes=3),
    Bound("qos-minutes-per-job", qos={"MaxTRESMinsPerJob": "node=9"}, node_minutes=9),
    Bound("qos-minutes-that-run", qos={"GrpTRESRunMins": "node=9"}, node_minutes=9),
    Bound("reservation", special="reservation"),
    Bound("draining", special="draining"),
    Bound("hold", special="hold"),
    Bound("number", special="number"),
    Bound("owner", special="owner"),
]
WAITS = ("mold", "release", "retarget", "move")
RUNS = ("extend", "grow", "requeue")
ACTS = (*WAITS, *RUNS, "cancel", "submit")


def possible(act: str, bound: Bound) -> bool:
    if bound.special == "hold":
        return act in WAITS
    if bound.special == "draining":
        return act == "extend"
    return not (act == "submit" and bound.special in ("number", "owner"))


CASES = [(act, bound) for act in ACTS for bound in BOUNDS if possible(act, bound)]


@pytest.fixture(
    scope="module",
    params=[None, pytest.param("trixie", marks=LONG), pytest.param("sid", marks=LONG)],
    ids=["installed", "24.11", "26.05"],
)
def site(
    request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None], new_folder: Callable[[str], Path]
) -> Iterator[Cluster]:
    need_slurm(request.param)
    it = up(ClusterSpec(nodes=8, folder=new_folder(f"v{request.param or ''}"), release=request.param, enforce=True))
    yield it
    it.down()


@pytest.fixture
def limits(site: Cluster) -> Iterator[SiteLimits]:
    it = SiteLimits(site)
    yield it
    for node in site.nodes:
        site.run_as("root", ["scontrol", "update", f"nodename={node}", "state=resume"])
    empty(site)
    it.restore()


class Scene:
    """One case: alice's jobs, the bound, the act, and what Slurm shows afterwards."""

    def __init__(self, site: Cluster, limits: SiteLimits, bound: Bound) -> None:
        self.site, self.limits, self.bound = site, limits, bound
        self.qos = "capped" if bound.qos else "normal"
        if bound.qos:
            limits.qos("capped", MaxWall="600")
        self.window = inf  # when a reservation begins

    def slurm(self, who: str, *words: str) -> str:
        return self.site.run_as(who, list(words), check=True).stdout.strip()

    def submit(self, nodes: int, minutes: int, *words: str) -> int:
        size = [f"-N{nodes}", f"-t{minutes}", f"--qos={self.qos}", "--requeue", "-o", "/dev/null"]
        return int(self.slurm("alice", "sbatch", "--parsable", *size, *words, "--wrap", "sleep 300"))

    def row(self, job: int) -> dict[str, str]:
        said = self.site.run_as("root", ["scontrol", "-o", "show", "job", str(job)]).stdout
        return dict(word.partition("=")[::2] for word in said.split() if "=" in word)

    def running(self, job: int) -> int:
        until(lambda: self.row(job).get("JobState") == "RUNNING", f"job {job} to run", 60)
        return job

    def set(self, job: int | None) -> None:
        """The bound, as if between the decision and the act."""
        bound = self.bound
        if bound.qos:
            self.limits.qos("capped", **bound.qos)
        if bound.user:
            self.limits.user("alice", **bound.user)
        if bound.account:
            self.limits.account(**bound.account)
        if bound.partition:
            self.limits.partition(**bound.partition)
        if bound.special == "reservation":
            words = ["starttime=now+4minutes", "duration=30", "users=root", "flags=MAINT", "nodes=ALL"]
            self.slurm("root", "scontrol", "create", "reservation", "reservationname=m", *words)
            shown = dict(
                w.partition("=")[::2] for w in self.slurm("root", "scontrol", "-o", "show", "res", "m").split()
            )
            self.window = parse_time(shown["StartTime"]) or 0.0
        if bound.special == "hold":
            self.slurm("root", "scontrol", "hold", str(job))
        if bound.special == "draining":
            for node in self.site.nodes:
                self.slurm("root", "scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    def known(self, job: int) -> KnownJob:
        """The job as it was decided on; or what another job with its number, or another owner, is taken for."""
        submit = parse_time(self.row(job)["SubmitTime"])
        assert submit is not None
        uid = self.site.user("bob" if self.bound.special == "owner" else "alice").uid
        return KnownJob(job, uid, submit - 60.0 if self.bound.special == "number" else submit)

    def act(self, act: acts.SlurmAct[Any], who: str = "operator") -> str:
        """What came of it: empty where it was done."""

        async def done() -> str:
            backend = CliBackend(
                prefix=self.site.prefix(who),
                user=self.site.user(who).name,
                slurm_conf=self.site.env["SLURM_CONF"],
                environment={"PATH": PATH},
                budget=RequestBudget(BudgetLimits(1000, 1000.0, 100_000)),
            )
            observer = Observer(backend, backend, min_interval=0.0, stale_after=inf)
            executor = Executor(Store(":memory:"), backend, backend, look=lambda: observer.look(FRESH))
            owner = act.job.uid if act.job is not None else self.site.user(who).uid
            try:
                await executor.act(act, "case", {}, Concern("malleable", owner))
            except PenstockError as e:
                return f"{type(e).__name__}: {e}"
            finally:
                await backend.close()
            return ""

        return asyncio.run(done())

    def crossed(self) -> list[str]:
        """What alice's jobs have beyond the bound, in any look of some seconds."""
        wrong, end = [], time.monotonic() + WATCHED
        words = ["squeue", "-h", "-u", self.site.user("alice").name, "-t", "RUNNING", "-o", "%i|%D|%l|%S"]
        while time.monotonic() < end:
            rows = [line.split("|") for line in self.slurm("root", *words).splitlines()]
            limits = [(parse_limit(row[2]) or 1e9) / 60 for row in rows]
            ends = [(parse_time(row[3]) or 0.0) + 60 * limit for row, limit in zip(rows, limits, strict=True)]
            nodes = [int(row[1]) for row in rows]
            spent = sum(n * minutes for n, minutes in zip(nodes, limits, strict=True))
            b = self.bound
            if sum(nodes) > b.nodes or max(limits, default=0.0) > b.minutes or spent > b.node_minutes:
                wrong.append(f"{rows}")
            if max(ends, default=0.0) > self.window or (rows and b.special == "hold"):
                wrong.append(f"{rows} past {self.window}")
            time.sleep(0.2)
        return wrong


def prepared(scene: Scene, act: str) -> tuple[int | None, Callable[[], str]]:
    """The job, and the act on it."""
    if act == "submit":
        spec = JobSpec("s", "#!/bin/sh\nsleep 300\n", NODES, 60.0 * MINUTES, qos=scene.qos, output="/dev/null")
        return None, lambda: scene.act(acts.SubmitJob(spec), "alice")
    if act == "cancel":
        job = scene.submit(2, 2, "-H")
        return job, lambda: scene.act(acts.CancelJob(scene.known(job)))
    if act == "mold":
        job = scene.submit(2, 2, "-H")
        wish = Shape(NODES, 60.0 * MINUTES, judged=False)
        return job, lambda: scene.act(acts.Mold(scene.known(job), wish))
    if act == "release":
        job = scene.submit(NODES, MINUTES, f"--begin={FAR}")
        return job, lambda: scene.act(acts.ReleaseJob(scene.known(job)))
    if act == "retarget":
        other = scene.submit(1, 1, "-H")
        job = scene.submit(NODES, MINUTES, f"--dependency=afterok:{other}")
        return job, lambda: scene.act(acts.Retarget(scene.known(job), dependency=""))
    if act == "move":
        job = scene.submit(NODES, MINUTES, f"--begin={FAR}")
        words = ["starttime=now", "duration=30", f"users={scene.site.user('alice').name}", "nodes=n1,n2,n3,n4"]
        scene.slurm("root", "scontrol", "create", "reservation", "reservationname=own", *words, "flags=OVERLAP")

        def moved() -> str:
            if why := scene.act(acts.PutIntoReservation(scene.known(job), "own"), "alice"):
                return why
            return scene.act(acts.ReleaseJob(scene.known(job)), "alice")

        return job, moved
    job = scene.running(scene.submit(2, 2))
    if act == "requeue":
        return job, lambda: scene.act(acts.RequeueJob(scene.known(job)))
    if act == "extend":
        return job, lambda: scene.act(acts.SetLimit(scene.known(job), Extension(60.0 * MINUTES)))
    more = [f"-N{NODES - 2}", f"-t{MINUTES}", f"--qos={scene.qos}", "--no-shell", "--immediate=5"]
    give = lambda: scene.site.run_as("alice", ["salloc", *more], timeout=20) and None  # noqa: E731
    wish = Growth(NODES - 2, 60.0 * MINUTES)
    return job, lambda: scene.act(acts.AskLauncher(scene.known(job), give, wish))


def at_rest(row: dict[str, str]) -> dict[str, str]:
    names = ("JobState", "TimeLimit", "NumNodes", "Dependency", "EligibleTime", "Restarts", "UserId", "Reservation")
    return {name: row.get(name, "") for name in names}


@pytest.mark.few(3)
@pytest.mark.parametrize(("act", "bound"), CASES, ids=[f"{act}-{bound.name}" for act, bound in CASES])
def test_no_act_crosses_a_bound(site: Cluster, limits: SiteLimits, act: str, bound: Bound) -> None:
    scene = Scene(site, limits, bound)
    job, do = prepared(scene, act)
    scene.set(job)
    before = {} if job is None else at_rest(scene.row(job))
    said = do()
    print(said or "done")
    if job is not None and bound.special in ("number", "owner"):
        assert said, "it was done to another job"
        assert at_rest(scene.row(job)) == before
        return
    if act == "mold" and bound.special != "hold":
        scene.slurm("alice", "scontrol", "release", str(job))
    assert scene.crossed() == [], said


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.few(1)
def test_without_a_bound_each_act_is_done(site: Cluster, limits: SiteLimits, act: str) -> None:
    """Else the table would hold of an executor that does nothing."""
    scene = Scene(site, limits, Bound("none"))
    _job, do = prepared(scene, act)
    assert do() == ""


def test_while_accounting_is_away_what_gives_a_job_something_waits(site: Cluster, limits: SiteLimits) -> None:
    """What gives it nothing does not need accounting, and is done."""
    scene = Scene(site, limits, Bound("none"))
    waits, runs = scene.submit(2, 2, "-H"), scene.running(scene.submit(2, 2))
    wishes = [
        acts.Mold(scene.known(waits), Shape(NODES, 60.0 * MINUTES, judged=False)),
        acts.SetLimit(scene.known(runs), Extension(60.0 * MINUTES)),
    ]
    site.stop("slurmdbd")
    try:
        said = [scene.act(one) for one in wishes]
        done = scene.act(acts.SetLimit(scene.known(runs), Extension(60.0), raises=False))
        done += scene.act(acts.CancelJob(scene.known(waits)))
    finally:
        site.start("slurmdbd")
    assert [text.partition(":")[0] for text in said] == ["NotNow", "NotNow"], said
    assert done == ""
