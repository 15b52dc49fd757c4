"""What a slurmctld has forgotten that was killed and started again."""

from __future__ import annotations

import time

import pytest

from penstock.slurm.parse import parse_time
from penstock_lab.cluster import Cluster
from waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180, func_only=True)]


def submit(slurm: Cluster, *words: str) -> int:
    said = slurm.run_as("alice", ["sbatch", "--parsable", "-o", "/dev/null", *words, "--wrap", "sleep 60"], check=True)
    return int(said.stdout)


def row(slurm: Cluster, job: int) -> dict[str, str]:
    said = slurm.run_as("root", ["scontrol", "-o", "show", "job", str(job)]).stdout
    return dict(word.partition("=")[::2] for word in said.split() if "=" in word)


def next_number(slurm: Cluster) -> int:
    for line in slurm.run_as("root", ["scontrol", "show", "config"], check=True).stdout.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "NEXT_JOB_ID":
            return int(value)
    raise AssertionError("no NEXT_JOB_ID")


def crash(slurm: Cluster) -> None:
    """As on a host that dies: slurmctld writes nothing any more."""
    slurm.kill_controller()
    slurm.start_controller()


def test_numbers_of_the_last_seconds_are_given_out_again(slurm: Cluster) -> None:
    """A job that was submitted right before a crash is gone, NEXT_JOB_ID is back, and a later job gets its number.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: slurmctld saves each job before sbatch is answered.
    Relied on by: penstock.workflow.run.identity, penstock.workflow.run.views (`lost_in_a_crash`).
    """
    for _ in range(5):  # a save may just have come in between
        lost = submit(slurm, "-H", "-J", "lost")
        crash(slurm)
        if not row(slurm, lost):
            break
    assert next_number(slurm) <= lost
    found = {submit(slurm, "-H", "-J", "next") for _ in range(lost - next_number(slurm) + 1)}
    assert lost in found and row(slurm, lost)["JobName"] == "next"


def test_a_begin_time_that_was_brought_forward_is_lost(slurm: Cluster) -> None:
    """A job that was kept back by its begin time, and let go right before a crash, is kept back again.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: what scontrol has answered is on disk.
    Relied on by: penstock.workflow.run.owned (a lost release is repeated).
    """
    job = submit(slurm, "-N1", "--begin=2099-12-31T00:00:00")
    time.sleep(6)  # slurmctld saves its jobs every five seconds
    for _ in range(5):
        slurm.run_as("alice", ["scontrol", "update", f"jobid={job}", "StartTime=now+600"], check=True)
        crash(slurm)
        if row(slurm, job)["EligibleTime"].startswith("2099"):
            return
        slurm.run_as("alice", ["scontrol", "update", f"jobid={job}", "StartTime=2099-12-31T00:00:00"], check=True)
        time.sleep(6)
    pytest.fail("the begin time was never lost")


def test_a_requeue_moves_the_submission_time_and_the_count_at_once(slurm: Cluster) -> None:
    """No look shows a requeued job with its new submission time and the old count of restarts.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: the count changes when the job starts again.
    Relied on by: penstock.workflow.run.identity (`recognise`), penstock.resize.waiting.model (`is_job`).
    """
    job = submit(slurm, "-N1", "--requeue")
    until(lambda: row(slurm, job)["JobState"] == "RUNNING", "its start", 60)
    before = row(slurm, job)
    time.sleep(1.1)  # times are whole seconds
    slurm.run_as("alice", ["scontrol", "requeue", str(job)], check=True)
    seen = []
    until(lambda: seen.append(row(slurm, job)) or seen[-1]["JobState"] == "PENDING", "its return", 60)
    for one in [*seen, row(slurm, job)]:
        moved = parse_time(one["SubmitTime"]) != parse_time(before["SubmitTime"])
        assert not moved or int(one["Restarts"]) > int(before["Restarts"]), one
    assert parse_time(row(slurm, job)["SubmitTime"]) > parse_time(before["SubmitTime"])


def test_scancel_by_a_number_and_a_name_wants_both(slurm: Cluster) -> None:
    """scancel with a number and --name ends the job only where it has that name, and says nothing where it has not.

    Releases seen: 22.05.8, 24.11.5, 26.05.5.
    Guess: the number is enough, or each of the two selects jobs by itself.
    Relied on by: dmr.node_requests (the number of a job that was granted may be another job's by now).
    """
    job, namesake = submit(slurm, "-H", "-J", "mine"), submit(slurm, "-H", "-J", "other")
    slurm.run_as("alice", ["scancel", "--name=other", str(job)], check=True)
    time.sleep(0.5)
    assert {row(slurm, one)["JobState"] for one in (job, namesake)} == {"PENDING"}
    slurm.run_as("alice", ["scancel", "--name=mine", str(job)], check=True)
    until(lambda: row(slurm, job)["JobState"] == "CANCELLED", "its end", 20)
    assert row(slurm, namesake)["JobState"] == "PENDING"
