"""What the check says of a growth or a longer limit, and what Slurm does with the same as an own request of that user.

Each case sets limits on a cluster that enforces them. The user's job runs on two nodes, another user's on one; the
check judges every growth and every time limit of the case. Then the job makes room, and the user asks Slurm itself for
one job of that size for that time: it has to run exactly where the check allowed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.api import Job
from penstock.core.ownlimits import Extension, Growth, Wish, held, obstacle, owner_of
from penstock.slurm.budget import BudgetLimits, RequestBudget
from penstock.slurm.cli import CliBackend
from penstock_lab.cluster import Cluster, ClusterSpec, up
from penstock_lab.cluster.programs import PATH
from site_limits import SiteLimits

pytestmark = pytest.mark.slurm
NODES, MINUTES = 2, 2  # of the job
BLOCKED = ("QOS", "Assoc", "MaxWall", "Partition", "Max")  # how Slurm's reasons begin that have to do with limits
IN_MOTION = ("None", "Priority", "Resources", "JobHeldUser", "BeginTime", "Dependency", "")
RELEASE = [pytest.mark.release, pytest.mark.long, pytest.mark.timeout(180, func_only=True)]


@dataclass(frozen=True)
class Case:
    """Limits by where they are set, and how many nodes more, or which time limits (min), are allowed of those tried."""

    name: str
    qos: dict[str, str] = field(default_factory=dict)
    own_qos: dict[str, str] = field(default_factory=dict)  # of the partition's QOS
    account: dict[str, str] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)
    partition: dict[str, str] = field(default_factory=dict)
    grows: int | None = None  # up to how many nodes more are allowed; None: sizes are not tried
    longest: int | None = None  # minutes
    code: str = ""  # why no more


CASES = [
    Case("nothing", grows=5, longest=600),
    Case("qos-max-wall", qos={"MaxWall": "4"}, longest=4, code="max-wall"),
    Case("user-max-wall", user={"MaxWall": "4"}, longest=4, code="max-wall"),
    Case("account-max-wall", account={"MaxWall": "4"}, longest=4, code="max-wall"),
    Case(
        "qos-max-wall-before-the-association's",
        qos={"MaxWall": "5"},
        user={"MaxWall": "3"},
        longest=5,
        code="max-wall",
    ),
    Case("partition-max-time", partition={"MaxTime": "4"}, longest=4, code="partition-max-time"),
    Case(
        "partition-max-time-passed-by",
        partition={"MaxTime": "4"},
        qos={"Flags": "PartitionTimeLimit", "MaxWall": "6"},
        longest=6,
        code="max-wall",
    ),
    Case("qos-max-nodes-per-job", qos={"MaxTRESPerJob": "node=3"}, grows=1, code="max-tres-per-job"),
    Case("qos-max-cpus-per-job", qos={"MaxTRESPerJob": "cpu=7"}, grows=1, code="max-tres-per-job"),
    Case("user-max-nodes-per-job", user={"MaxTRESPerJob": "node=3"}, grows=1, code="max-tres-per-job"),
    Case("account-max-nodes-per-job", account={"MaxTRESPerJob": "node=3"}, grows=1, code="max-tres-per-job"),
    Case(
        "qos-per-job-before-the-association's",
        qos={"MaxTRESPerJob": "node=4"},
        user={"MaxTRESPerJob": "node=3"},
        grows=2,
        code="max-tres-per-job",
    ),
    Case("qos-max-nodes-per-user", qos={"MaxTRESPerUser": "node=3"}, grows=1, code="max-tres-per-user"),
    Case("qos-max-cpus-per-user", qos={"MaxTRESPerUser": "cpu=6"}, grows=1, code="max-tres-per-user"),
    Case("qos-max-nodes-per-account", qos={"MaxTRESPerAccount": "node=4"}, grows=1, code="max-tres-per-account"),
    Case("qos-group", qos={"GrpTRES": "node=4"}, grows=1, code="grp-tres"),
    Case("account-group", account={"GrpTRES": "node=4"}, grows=1, code="grp-tres"),
    Case("user-group", user={"GrpTRES": "node=3"}, grows=1, code="grp-tres"),
    Case(
        "qos-group-before-the-account's",
        qos={"GrpTRES": "node=5"},
        account={"GrpTRES": "node=4"},
        grows=2,
        code="grp-tres",
    ),
    Case("limit-factor", qos={"LimitFactor": "2"}, account={"GrpTRES": "node=2"}, grows=1, code="grp-tres"),
    Case("partition-max-nodes", partition={"MaxNodes": "3"}, grows=1, code="partition-max-nodes"),
    Case(
        "partition's-qos",
        own_qos={"MaxTRESPerJob": "node=3"},
        qos={"MaxTRESPerJob": "node=4"},
        grows=1,
        code="max-tres-per-job",
    ),
    Case(
        "over-the-partition's-qos",
        own_qos={"MaxTRESPerJob": "node=3"},
        qos={"MaxTRESPerJob": "node=4", "Flags": "OverPartQOS"},
        grows=2,
        code="max-tres-per-job",
    ),
    Case("qos-node-minutes-that-run", qos={"GrpTRESRunMins": "node=8"}, grows=1, code="grp-tres-run-mins"),
    Case("qos-node-minutes-of-a-job", qos={"MaxTRESMinsPerJob": "node=6"}, grows=1, code="max-tres-mins-per-job"),
]


@pytest.fixture(
    scope="module",
    params=[None, pytest.param("trixie", marks=RELEASE), pytest.param("sid", marks=RELEASE)],
    ids=["installed", "24.11", "26.05"],
)
def site(
    request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None], new_folder: Callable[[str], Path]
) -> Iterator[Cluster]:
    need_slurm(request.param)
    folder = new_folder(f"o{request.param or ''}")
    it = up(ClusterSpec(nodes=8, folder=folder, release=request.param, enforce=True))
    yield it
    it.down()


@pytest.fixture
def limits(site: Cluster) -> Iterator[SiteLimits]:
    it = SiteLimits(site)
    yield it
    site.run_as("root", ["scancel", "--partition=batch"])
    gone(site)
    it.restore()


def submit(site: Cluster, who: str, nodes: int, minutes: int) -> int | None:
    """The job's number; None if Slurm refuses it."""
    argv = ["sbatch", "--parsable", f"-N{nodes}", "-t", str(minutes), "-o", "/dev/null", "--wrap", "sleep 600"]
    done = site.run_as(who, argv)
    return int(done.stdout) if done.returncode == 0 else None


def runs(site: Cluster, job: int | None) -> bool:
    """Whether Slurm lets it run, once that is decided."""
    deadline = time.monotonic() + 40
    said = ""
    while job is not None:
        said = site.run_as("root", ["squeue", "-h", "-j", str(job), "-o", "%T %r"]).stdout.strip()
        state, _, reason = said.partition(" ")
        if state == "RUNNING":
            return True
        if state == "PENDING" and reason.startswith(BLOCKED):
            return False
        assert reason in IN_MOTION and time.monotonic() < deadline, said
        time.sleep(0.1)
    return False


def gone(site: Cluster, *jobs: int) -> None:
    """Wait until these jobs, or all, have left their nodes."""
    deadline = time.monotonic() + 40
    only = ["-j", ",".join(map(str, jobs))] if jobs else []
    while site.run_as("root", ["squeue", "-h", "-o", "%i", *only]).stdout.strip():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def cancel(site: Cluster, job: int | None) -> None:
    if job is not None:
        site.run_as("root", ["scancel", str(job)], check=True)
        gone(site, job)


def verdicts(site: Cluster, who: str, job: int, wishes: list[Wish]) -> list[str]:
    """What the check says of each wish for this job, to one who asks as `who`: the code, empty where it is allowed."""

    async def judge() -> list[str]:
        backend = CliBackend(
            prefix=site.prefix(who),
            user=site.user(who).name,
            slurm_conf=site.env["SLURM_CONF"],
            environment={"PATH": PATH},
            budget=RequestBudget(BudgetLimits(1000, 1000.0, 100_000)),
        )
        try:
            enforced = (await backend.site()).enforced
            seen: Job = next(one for one in await backend.jobs() if one.id == job)
            (known,) = await backend.limits([owner_of(seen)])
            now = held(seen, (), await backend.charges([job]), backend.now())
            reasons = [obstacle(known, now, wish, enforced) for wish in wishes]
            for reason in reasons:
                print(reason)
            return ["" if reason is None else reason.code for reason in reasons]
        finally:
            await backend.close()

    return asyncio.run(judge())


# Some seconds each: one of each kind, and all with `--all`.
USUAL = {
    "nothing",
    "qos-max-wall",
    "partition-max-time",
    "qos-max-nodes-per-job",
    "qos-max-nodes-per-user",
    "qos-group",
}
USUAL |= {"limit-factor", "partition-max-nodes", "qos-node-minutes-that-run"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=() if c.name in USUAL else pytest.mark.long) for c in CASES]
)
def test_the_check_allows_what_slurm_gives_to_the_same_as_an_own_request(
    site: Cluster, limits: SiteLimits, case: Case
) -> None:
    if case.own_qos:
        limits.qos("ofpart", **case.own_qos)
        limits.partition(QoS="ofpart")
    if case.partition:
        limits.partition(**case.partition)
    for setter, values in ((limits.qos, case.qos), (limits.account, case.account)):
        if values:
            setter("normal" if setter == limits.qos else "penstock", **values)
    if case.user:
        limits.user("alice", **case.user)
    other, job = submit(site, "bob", 1, MINUTES), submit(site, "alice", NODES, MINUTES)
    assert job is not None and runs(site, other) and runs(site, job)
    sizes = [] if case.grows is None else sorted({1, case.grows, min(case.grows + 1, 5)})
    times = [] if case.longest is None else [MINUTES + 1, case.longest, case.longest + 1]
    wishes: list[Wish] = [Growth(size, 60.0 * MINUTES - 20.0) for size in sizes]
    wishes += [Extension(60.0 * minutes) for minutes in times]
    said = verdicts(site, "operator", job, wishes)
    assert verdicts(site, "alice", job, wishes) == said
    cancel(site, job)
    requests = [(NODES + size, MINUTES) for size in sizes] + [(NODES, minutes) for minutes in times]
    for (nodes, minutes), code in zip(requests, said, strict=True):
        own = submit(site, "alice", nodes, minutes)
        ran = runs(site, own)
        cancel(site, own)
        assert (code == "") == ran, (
            f"{nodes} nodes for {minutes} min: Slurm {'runs' if ran else 'refuses'} it, {code!r}"
        )
    allowed = [size <= (case.grows or 0) for size in sizes] + [minutes <= (case.longest or 0) for minutes in times]
    if case.name != "nothing":
        assert said == ["" if fine else case.code for fine in allowed]


def test_while_accounting_is_away_nothing_grows_and_no_limit_is_raised(site: Cluster, limits: SiteLimits) -> None:
    """Limits per user and flags of QOS are not shown by slurmctld: what is not known is not unlimited."""
    limits.qos("normal", MaxTRESPerJob="node=3")
    job = submit(site, "alice", NODES, MINUTES)
    assert job is not None and runs(site, job)
    wishes: list[Wish] = [Growth(1, 60.0), Growth(2, 60.0), Extension(600.0), Extension(60.0)]
    assert verdicts(site, "operator", job, wishes) == ["", "max-tres-per-job", "", ""]
    site.stop("slurmdbd")
    try:
        said = verdicts(site, "operator", job, wishes)
    finally:
        site.start("slurmdbd")
    assert said == ["limits-unknown", "max-tres-per-job", "limits-unknown", ""]


def test_a_partition_that_changes_between_look_and_act_is_seen(site: Cluster, limits: SiteLimits) -> None:
    """Each look reads it afresh, as it reads limits and their use."""
    job = submit(site, "alice", NODES, MINUTES)
    assert job is not None and runs(site, job)
    wishes: list[Wish] = [Growth(2, 60.0), Extension(600.0)]
    assert verdicts(site, "operator", job, wishes) == ["", ""]
    limits.partition(MaxNodes="3", MaxTime="5")
    assert verdicts(site, "operator", job, wishes) == ["partition-max-nodes", "partition-max-time"]
    limits.partition(MaxNodes="UNLIMITED", MaxTime="UNLIMITED")
    limits.qos("normal", MaxTRESPerUser="node=3", MaxWall="5")
    assert verdicts(site, "operator", job, wishes) == ["max-tres-per-user", "max-wall"]
