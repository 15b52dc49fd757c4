"""`penstock doctor` on real Slurm: what it says to a user, to an operator, and when nobody answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from penstock_lab.cluster import Cluster
from site_limits import SiteLimits

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]

SOCKET = "/run/penstock-doctor/agent.sock"  # where all may enter
COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()", "doctor"]


def doctor(cluster: Cluster, who: str, *words: str, code: int = 0, **sections: dict[str, Any]) -> Any:
    """What the command tells this user, with a configuration of the user's own."""
    settings = {"dmr": {"munge_socket": str(cluster.munge_socket)}, **sections}
    config = cluster.home(who) / "doctor.yaml"
    text = yaml.safe_dump(settings)
    cluster.run_as(who, ["sh", "-c", f"cat > {config} <<'END'\n{text}\nEND"], check=True)
    done = cluster.run_as(who, [*COMMAND, *words], env={"PENSTOCK_CONFIG": str(config)}, timeout=120)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


def outcomes(told: Any) -> dict[str, str]:
    return {feature["id"]: feature["outcome"] for feature in told["features"]}


def levels(told: Any) -> dict[str, str]:
    return {check["id"]: check["level"] for check in told["checks"]}


def test_a_user_and_an_operator(cluster: Cluster):
    alice = doctor(cluster, "alice", "--json")
    assert alice["slurm"] == cluster.slurm_version
    assert alice["operator"] is False
    assert sum(alice["requests"].values()) <= 12
    found, seen = outcomes(alice), levels(alice)
    assert (found["observe"], found["workflows"], found["hold-job"], found["select"]) == ("works",) * 4
    assert found["hold-reservation"] == "no"
    assert found["grow-merge"] in ("works", "limited")  # home is no network folder here
    assert {seen[name] for name in ("munge", "accounting", "association", "submission", "extern-step")} == {"ok"}
    operator = doctor(cluster, "operator", "--json", agent={"serve": "all", "socket": SOCKET})
    assert operator["operator"] is operator["healthy"] is True
    assert outcomes(operator)["hold-reservation"] == "works"
    # It has changed nothing.
    assert cluster.run_as("root", ["squeue", "-h", "-t", "all", "-n", "penstock-doctor"]).stdout == ""


def test_what_an_administrator_would_not_have_meant(cluster: Cluster):
    """A socket that users do not reach, metrics for everybody, and rules with names that nobody has."""
    rules = [{"users": [cluster.users["alice"], "alcie"], "accounts": ["fysics"], "qos": ["normal", "lnog"]}]
    shut = cluster.home("operator") / "shut"
    cluster.run_as("operator", ["mkdir", "-m", "700", "-p", str(shut)], check=True)
    told = doctor(
        cluster,
        "operator",
        "--json",
        code=1,
        agent={"serve": "all", "state_dir": str(shut)},
        metrics={"listen": "0.0.0.0:9341"},
        limits={"allow": rules},
    )
    seen = {check["id"]: check["seen"] for check in told["checks"]}
    assert "other users cannot enter" in seen["socket"]
    assert "on all networks of this host" in seen["metrics"]
    assert "there is no user alcie, no account fysics, no QOS lnog" in seen["limits"]
    assert sum(told["requests"].values()) <= 14


def test_where_jobs_have_an_extern_step(contained: Cluster):
    text = doctor(contained, "alice", code=1, malleable={"backend": "merge"})
    assert "PrologFlags=CONTAIN" in text
    assert "docs/doctor.md#extern-step" in text
    assert "Asked for, and does not work: grow MPI jobs by merge" in text
    (companion,) = [line for line in text.splitlines() if "grow MPI jobs by companion" in line]
    assert companion.startswith(("works", "limited"))


@pytest.fixture
def silent(cluster: Cluster) -> Iterator[Cluster]:
    cluster.stop_controller()
    yield cluster
    cluster.start_controller()


def test_a_controller_that_is_down_costs_one_time_limit(silent: Cluster):
    began = time.monotonic()
    told = doctor(silent, "alice", "--json", "--limit", "2", code=1)
    assert time.monotonic() - began < 30
    assert levels(told)["controller"] == "no"
    assert levels(told)["queue"] == "unknown"
    assert sum(told["requests"].values()) == 1
    assert outcomes(told)["agent"] in ("works", "limited")


def check(told: Any, name: str) -> Any:
    return next(check for check in told["checks"] if check["id"] == name)


def test_on_a_site_that_enforces_limits(enforcing: Cluster, site_limits: SiteLimits):
    """Set up by the guide alone: the service user is an Operator with an account of its own."""
    alice = doctor(enforcing, "alice", "--json")
    assert levels(alice)["growth-limits"] == levels(alice)["resizers"] == levels(alice)["association"] == "ok"
    assert outcomes(alice)["grow-companion"] in ("works", "limited")
    assert "Resizing helps" in alice["verdict"]
    served = {"agent": {"serve": "all", "socket": SOCKET}}
    operator = doctor(enforcing, "operator", "--json", **served)
    assert levels(operator)["resizers"] == "no" and "may use root" in check(operator, "resizers")["seen"]
    assert outcomes(operator)["grow-merge"] == "no" and outcomes(operator)["grow-companion"] in ("works", "limited")
    doctor(enforcing, "operator", code=1, malleable={"backend": "merge"}, **served)

    site_limits.qos("normal", MaxTRESPerUser="node=3", MaxWall="30")
    seen = check(doctor(enforcing, "alice", "--json"), "growth-limits")
    assert seen["level"] == "note" and "QOS normal has MaxTRESPerUser node=3" in seen["seen"]
    seen = check(doctor(enforcing, "operator", "--json"), "time-limits")
    assert seen["level"] == "note" and "QOS normal has MaxWall 30 min" in seen["seen"]

    site_limits.user("alice", MaxTRESPerJob="node=1")
    companion = {"malleable": {"backend": "companion"}}
    text = doctor(enforcing, "alice", code=1, **companion)
    assert "has MaxTRESPerJob node=1" in text and "sacctmgr modify" in text
    assert "but not grow (see growth-limits)" in text.splitlines()[0]
    doctor(enforcing, "bob", **companion)


def test_without_an_association_where_one_is_demanded(enforcing: Cluster):
    enforcing.administer("delete", "user", "pst-bob", "account=penstock")
    try:
        told = doctor(enforcing, "bob", "--json", code=1)
    finally:
        enforcing.administer("add", "user", "pst-bob", "account=penstock")
    assert levels(told)["association"] == levels(told)["resizers"] == "no"
    assert "submitting ahead does not work (see association" in told["verdict"]
