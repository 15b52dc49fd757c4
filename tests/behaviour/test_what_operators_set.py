"""What Slurm holds a job to whose limit or size an Operator has set, and whose owner has."""

from __future__ import annotations

import pytest

from penstock_lab.cluster import Cluster
from site_limits import SiteLimits
from waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180, func_only=True)]


def submit(slurm: Cluster, *words: str) -> str:
    """A job of alice's, held, unless words say otherwise."""
    said = slurm.run_as("alice", ["sbatch", "--parsable", "-o", "/dev/null", *words, "--wrap", "sleep 60"], check=True)
    return said.stdout.strip()


def changed(slurm: Cluster, who: str, job: str, *words: str) -> str:
    """What Slurm says to a change of a held job, which is released by its owner then."""
    said = slurm.run_as(who, ["scontrol", "update", f"jobid={job}", *words])
    slurm.run_as("alice", ["scontrol", "release", job], check=True)
    return said.stderr.strip()


def state(slurm: Cluster, job: str) -> tuple[str, str]:
    """The job's state and reason, once it runs or has been looked at by the scheduler."""

    def settled() -> tuple[str, str] | None:
        found, reason = slurm.run_as("root", ["squeue", "-h", "-j", job, "-o", "%T %r"]).stdout.split(maxsplit=1)
        return (
            None
            if found == "PENDING" and reason.strip() in ("None", "JobHeldUser", "Priority")
            else (found, reason.strip())
        )

    return until(settled, f"the scheduler to look at job {job}", 60)


def test_an_operator_s_time_limit_is_not_held_to_max_wall(slurm: Cluster, limits: SiteLimits) -> None:
    """A job whose time limit an Operator has set beyond its QOS's MaxWall starts, with DenyOnLimit as well.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: it waits with QOSMaxWallDurationPerJobLimit, as under the owner's own change.
    Relied on by: penstock.core.verdicts (Slurm does not judge what an Operator sets).
    """
    limits.qos("normal", MaxWall="3")
    job = submit(slurm, "-H", "-N1", "-t2")
    assert changed(slurm, "operator", job, "TimeLimit=6") == ""
    assert state(slurm, job)[0] == "RUNNING"


def test_an_owner_s_time_limit_beyond_max_wall_is_taken_and_waits_for_ever(slurm: Cluster, limits: SiteLimits) -> None:
    """A job whose owner has set a limit beyond MaxWall is changed, and waits.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: the change is refused.
    Relied on by: penstock.resize.waiting.controller (a shape that is refused like that is taken back).
    """
    limits.qos("normal", MaxWall="3")
    job = submit(slurm, "-H", "-N1", "-t2")
    assert changed(slurm, "alice", job, "TimeLimit=6") == ""
    assert state(slurm, job) == ("PENDING", "QOSMaxWallDurationPerJobLimit")


def test_an_operator_s_processors_are_not_held_to_group_limits(slurm: Cluster, limits: SiteLimits) -> None:
    """A job whose processors an Operator has set starts beyond GrpTRES=cpu of its QOS.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: it waits with QOSGrpCpuLimit.
    Relied on by: penstock.core.ownlimits (`Sharing.FORGETS`).
    """
    limits.qos("normal", GrpTRES="cpu=7")
    job = submit(slurm, "-H", "-N2", "-t2")
    assert changed(slurm, "operator", job, "NumNodes=4-4", "NumCPUs=8") == ""
    assert state(slurm, job)[0] == "RUNNING"


def test_an_operator_s_nodes_are_not_held_to_what_others_use_of_a_group_limit(
    slurm: Cluster, limits: SiteLimits
) -> None:
    """A job whose nodes an Operator has set starts though others use up GrpTRES=node of its user's association.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: it waits with AssocGrpNodeLimit, as under the owner's own change.
    Relied on by: penstock.core.ownlimits (`Sharing.FORGETS`).
    """
    limits.user("alice", GrpTRES="node=3")
    other = submit(slurm, "-N2", "-t5")
    assert state(slurm, other)[0] == "RUNNING"
    job = submit(slurm, "-H", "-N4", "-t2")
    assert changed(slurm, "operator", job, "NumNodes=2-2", "NumCPUs=4") == ""
    assert state(slurm, job)[0] == "RUNNING"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"GrpTRESRunMins": "node=10"}, "QOSGrpNodeRunMinutes"),
        ({"MaxTRESMinsPerJob": "node=10"}, "QOSMaxNodeMinutesPerJob"),
    ],
    ids=["GrpTRESRunMins", "MaxTRESMinsPerJob"],
)
def test_an_operator_s_time_limit_is_held_to_minutes(
    slurm: Cluster, limits: SiteLimits, limit: dict[str, str], reason: str
) -> None:
    """A job whose time limit an Operator has set is held to limits of TRES-minutes all the same.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: as MaxWall, they are forgotten.
    Relied on by: penstock.core.ownlimits (`_forgotten` leaves minutes to Slurm).
    """
    limits.qos("normal", **limit)
    job = submit(slurm, "-H", "-N2", "-t2")
    assert changed(slurm, "operator", job, "TimeLimit=6") == ""
    assert state(slurm, job) == ("PENDING", reason)


def test_a_running_job_s_limit_goes_past_a_reservation_and_a_waiting_one_s_does_not(slurm: Cluster) -> None:
    """A running job's limit can be raised past the beginning of a reservation of its nodes; a waiting job whose limit
    an Operator has raised so far does not start.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: both are refused, or neither.
    Relied on by: penstock.core.reserved.
    """
    running = submit(slurm, "-N8", "-t1")
    assert state(slurm, running)[0] == "RUNNING"
    made = [
        "create",
        "reservation",
        "reservationname=m",
        "starttime=now+3minutes",
        "duration=10",
        "users=root",
        "nodes=ALL",
    ]
    slurm.run_as("root", ["scontrol", *made], check=True)
    said = slurm.run_as("operator", ["scontrol", "update", f"jobid={running}", "TimeLimit=6"])
    shown = slurm.run_as("root", ["squeue", "-h", "-j", running, "-o", "%l"]).stdout.strip()
    assert (said.returncode, shown) == (0, "6:00")
    slurm.run_as("root", ["scancel", running], check=True)
    waiting = submit(slurm, "-H", "-N1", "-t1")
    assert changed(slurm, "operator", waiting, "TimeLimit=6") == ""
    assert state(slurm, waiting)[0] == "PENDING"
