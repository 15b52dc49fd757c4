"""A cluster that enforces associations, limits and QOS: what it refuses, and when it knows of a change."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import Desk, SlurmAgent

from penstock.errors import PenstockError
from penstock_lab.cluster import Cluster, ClusterSpec, up
from site_limits import SiteLimits
from waiting import until

pytestmark = pytest.mark.slurm
RELEASE = [pytest.mark.release, pytest.mark.timeout(180, func_only=True)]


@pytest.fixture(
    scope="module",
    params=[
        None,
        pytest.param("trixie", marks=RELEASE),
        pytest.param("sid", marks=RELEASE),
    ],
    ids=["installed", "24.11", "26.05"],
)
def site(
    request: pytest.FixtureRequest, need_slurm: Callable[[str | None], None], new_folder: Callable[[str], Path]
) -> Iterator[Cluster]:
    need_slurm(request.param)
    folder = new_folder(f"f{request.param or ''}")
    it = up(ClusterSpec(nodes=2, folder=folder, release=request.param, enforce=True))
    yield it
    it.down()


@pytest.fixture
def limits(site: Cluster) -> Iterator[SiteLimits]:
    it = SiteLimits(site)
    yield it
    it.restore()


def refusal(site: Cluster, who: str, *words: str) -> str:
    """What sbatch says against a job; empty if it is taken. What it takes is withdrawn."""
    argv = ["sbatch", "--parsable", "-H", "-o", "/dev/null", *words, "--wrap", "true"]
    done = site.run_as(who, argv)
    if done.returncode == 0:
        site.run_as("root", ["scancel", done.stdout.strip()], check=True)
    return done.stderr


def test_only_who_has_an_association_may_submit_under_an_account(site: Cluster) -> None:
    assert not refusal(site, "alice")
    assert "Invalid account" in refusal(site, "alice", "-A", "root")
    # The service user as docs/install.md sets it up: an account of its own, none of its users'.
    assert not refusal(site, "operator")
    assert "Invalid account" in refusal(site, "operator", "-A", "penstock")


def test_a_limit_holds_from_the_moment_it_was_set_until_it_is_taken_back(site: Cluster, limits: SiteLimits) -> None:
    for minutes in range(1, 6):
        limits.qos("normal", MaxWall=str(minutes), Flags="DenyOnLimit")
        assert "QOS" in refusal(site, "alice", "-t", str(minutes + 1))
        assert not refusal(site, "alice", "-t", str(minutes))
    limits.restore()
    assert not refusal(site, "alice", "-t", "6")


def test_a_qos_of_a_test_and_limits_by_tres_go_as_they_came(site: Cluster, limits: SiteLimits) -> None:
    def shown() -> str:
        table = site.run_as("root", ["sacctmgr", "-nP", "show", "assoc", "format=User,QOS,GrpTRES,MaxTRES"], check=True)
        qos = site.run_as("root", ["sacctmgr", "-nP", "show", "qos", "where", "name=normal,long"], check=True)
        return table.stdout + qos.stdout

    before = shown()
    limits.qos("long", MaxTRESPerUser="node=1,cpu=2")
    limits.user("alice", GrpTRES="node=1")
    limits.account(MaxTRES="cpu=4")
    assert not refusal(site, "alice", "--qos=long")
    assert shown() != before
    limits.restore()
    assert shown() == before
    assert "Invalid qos" in refusal(site, "alice", "--qos=long")


def test_what_sacctmgr_refuses_is_said(site: Cluster) -> None:
    with pytest.raises(PenstockError, match="MaxWhale"):
        site.administer("modify", "qos", "normal", "set", "MaxWhale=5")


@pytest.mark.parametrize("limit", ["MaxSubmitJobs", "MaxSubmitJobsPerUser"])
def test_behind_the_front_programs_sbatch_waits_for_room_in_the_queue(
    site: Cluster, limits: SiteLimits, limit: str
) -> None:
    """In the order in which they came, once each, and where no room comes with what Slurm says."""
    if limit == "MaxSubmitJobs":
        limits.user("alice", MaxSubmitJobs="2")
    else:
        limits.qos("normal", MaxSubmitJobsPerUser="2")
    agent = SlurmAgent(site)
    own, running = agent.folder / "agent" / "waiting", []
    try:
        fronts = Desk(agent).say("penstock", "shim", "--path").strip()
        path = {"PATH": f"{fronts}:{site.user_env('alice')['PATH']}"}

        def sbatch(name: str, patience: float) -> subprocess.Popen[str]:
            words = ["sbatch", "--parsable", "-H", "-o", "/dev/null", "-J", name, "--wrap", "true"]
            more = {**agent.environment, **path, "PENSTOCK_SHIM_PATIENCE": str(patience)}
            where = site.home("alice")
            return site.popen_as("alice", words, env=more, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        jobs = [sbatch(name, 1).communicate(timeout=30)[0].strip() for name in "ab"]
        late = sbatch("none", 1)
        said = late.communicate(timeout=30)[1]
        assert late.returncode == 1 and "MaxSubmitJob" in said and "Job violates accounting/QOS policy" in said
        for n, name in enumerate("cd", 1):
            running.append(sbatch(name, 60))
            until(lambda n=n: len(list(own.glob("*/[0-9]*"))) == n, "the next in line", 20)
        told = []
        for job, process in zip(jobs, running, strict=True):
            site.run_as("root", ["scancel", job], check=True)
            output, errors = process.communicate(timeout=30)
            told.append(output.strip())
            assert process.returncode == 0 and errors.count("waiting, at most 60 s") == 1, errors
        rows = site.run_as("alice", ["squeue", "-h", "--me", "-o", "%i %j"], check=True).stdout.split("\n")
        assert sorted(filter(None, rows)) == sorted(f"{job} {name}" for job, name in zip(told, "cd", strict=True))
    finally:
        for process in running:
            process.kill()
        site.run_as("root", ["scancel", "--partition=batch"], check=True)
        agent.down()
