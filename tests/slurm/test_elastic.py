"""Elastic jobs on a real Slurm with PrologFlags=Contain: nodes join and leave by companions, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_jobs import Elastic, agent, assert_all_done, end, farm_file, home, rival, state, submit_file, tasks
from malleable import Agent, assert_nothing_left, until

from penstock_lab.cluster import Cluster

__all__ = ["agent", "home"]  # fixtures

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


@pytest.fixture
def resumed(contained: Cluster) -> Iterator[None]:
    yield
    contained.run_as("root", ["scontrol", "update", "nodename=n[1-8]", "state=resume"])


QUICK = ("--interval", "0.5", "--settle", "0.5", "--grace", "6")
HEAD = ("--start", "until [ -e over ]; do sleep 0.2; done")
WORK = "touch $SLURM_JOB_ID-$PENSTOCK_HOST; exec sleep 1000"


def test_a_farm_grows_gives_nodes_to_a_rival_and_loses_no_task(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    tasks(home, 40, 1.0)
    farm = submit_file(agent, farm_file())
    farm.until_said("grown 1 -> 8 nodes")
    waiting = rival(contained, 4)
    farm.until_said("shrunk 8 ->")
    until("the rival runs", lambda: state(contained, waiting) in ("RUNNING", "COMPLETED"))
    until("the farm is done", farm.ended, 180)
    assert farm.state() == "COMPLETED", farm.said()
    assert_all_done(home, 40)
    assert_nothing_left(contained)


@pytest.mark.long
def test_join_fails_on_one_node_hangs_on_leaving_and_a_companion_dies(
    agent: Agent, contained: Cluster, home: Path
) -> None:
    agent.start()
    # It fails on n3 as long as there is a file of that name, and nobody there hears of SIGTERM.
    join = f"[ ! -e bad/$PENSTOCK_HOST ] || exit 5; trap '' TERM; {WORK.replace('exec ', '')}"
    (home / "bad").mkdir()
    (home / "bad" / "n3").touch()
    (home / "bad").chmod(0o777)
    job = Elastic(agent, "--nodes", "1:3", *QUICK, *HEAD, "--join", join, sbatch=["-wn1", "--exclusive"])
    contained.run_as("root", ["scontrol", "update", "nodename=n[4-8]", "state=drain", "reason=test"], check=True)
    try:
        job.until_said("join failed on n3 (exit 5)")
        job.until_said("did not leave within 6 s: ended at once")
        (home / "bad" / "n3").unlink()
        job.until_said("grown 1 -> 3 nodes")
        (companion,) = job.companions()
        contained.run_as("alice", ["scancel", "--signal=KILL", str(companion)], check=True)
        job.until_said("the job goes on without n2, n3")
        until("it has another one", lambda: job.said().count("grown 1 -> 3 nodes") == 2, 90)
        assert companion not in job.companions()
    finally:
        contained.run_as("root", ["scontrol", "update", "nodename=n[4-8]", "state=resume"])
    end(job)


@pytest.mark.long
def test_a_notification_command_refuses_and_the_nodes_go_back(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    notify = "echo heard $PENSTOCK_RESIZE_EVENT $PENSTOCK_RESIZE_HOSTS $PENSTOCK_RESIZE_JOB; exit 3"
    job = Elastic(agent, "--nodes", "1:2", *QUICK, *HEAD, "--join", WORK, "--notify", notify)
    job.until_said("the notification command refused: exit 3")
    assert f"heard grow n2 {job.id}" in job.said()
    until("the companion has gone back", lambda: not job.companions())
    end(job)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["joining", "offered", "resizing", "idle", "leaving", "releasing"])
def test_the_agent_is_killed_in_a_phase(phase: str, agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    slow = (
        f"sleep 2; {WORK}" if phase == "resizing" else f"trap 'sleep 2; exit' TERM; {WORK.replace('exec ', '')} & wait"
    )
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", slow, "--settle", "3")
    if phase in ("idle", "leaving", "releasing"):
        job.until_said("grown 1 -> 4 nodes")
    if phase in ("leaving", "releasing"):
        rival(contained, 6, 20)
    until(f"the resize is {phase}", lambda: agent.phase(job.id) == phase, 60, 0.005)
    agent.kill()
    assert job.state() == "RUNNING"
    agent.start()
    until("it has come through", lambda: agent.phase(job.id) == "idle", 120)
    job.until_said("grown 1 -> 4 nodes")
    end(job)


@pytest.mark.long
def test_the_supervisor_is_killed(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", WORK)
    job.until_said("grown 1 -> 4 nodes")
    contained.run_as("root", ["pkill", "-KILL", "-u", contained.users["alice"], "-f", "slurm_script"])
    until("the job has ended", job.ended, 60)
    assert_nothing_left(contained)


@pytest.mark.long
@pytest.mark.parametrize("phase", ["joining", "offered", "resizing", "idle", "leaving"])
@pytest.mark.usefixtures("resumed")
def test_a_node_goes_down_in_a_phase(phase: str, agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    slow = f"trap 'sleep 2; exit' TERM; {WORK.replace('exec ', '')} & wait"
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", slow, "--settle", "2", sbatch=["-wn1"])
    if phase in ("idle", "leaving"):
        job.until_said("grown 1 -> 4 nodes")
    if phase == "leaving":
        rival(contained, 6, 20)
    until(f"the resize is {phase}", lambda: agent.phase(job.id) == phase and job.companions(), 60, 0.005)
    down = ["scontrol", "update", "nodename=n2", "state=down", "reason=test"]
    contained.run_as("root", down, check=True)
    until("the resize is over", lambda: agent.phase(job.id) == "idle", 60)
    assert job.state() == "RUNNING", job.said()
    job.until_said("grown 1 -> 4 nodes")
    contained.run_as("root", ["scontrol", "update", "nodename=n2", "state=resume"])
    end(job)


@pytest.mark.long
@pytest.mark.usefixtures("resumed")
def test_the_heads_node_is_lost(agent: Agent, contained: Cluster, home: Path) -> None:
    agent.start()
    job = Elastic(agent, "--nodes", "1:4", *QUICK, *HEAD, "--join", WORK, sbatch=["-wn1"])
    job.until_said("grown 1 -> 4 nodes")
    contained.run_as("root", ["scontrol", "update", "nodename=n1", "state=down", "reason=test"], check=True)
    until("the job has ended", job.ended, 60)
    contained.run_as("root", ["scontrol", "update", "nodename=n1", "state=resume"])
    assert_nothing_left(contained)


@pytest.mark.long
@pytest.mark.timeout(420)
def test_nodes_are_lent_until_somebody_is_to_have_them(agent: Agent, contained: Cluster, home: Path) -> None:
    """Four nodes are busy for three minutes, and a job that waits for seven gets its start then; until then the rest
    is lent, and it goes back before that by itself: no task is cut off."""
    agent.start()
    tasks(home, 400, 1.0)
    first = rival(contained, 4, 175, "-t3", "-wn[5-8]")
    until("it runs", lambda: state(contained, first) == "RUNNING")
    farm = submit_file(agent, {**farm_file(grace="2s"), "sbatch": ["-wn1"]})
    until("the farm runs", lambda: farm.state() == "RUNNING")
    waiting = rival(contained, 7, 3, "-t5")
    farm.until_said("grown 1 ->", 60)
    farm.until_said("shrunk", 200)
    assert state(contained, first) == "RUNNING", "it was asked back in time, not when others could have started"
    until("the job that waited runs", lambda: state(contained, waiting) in ("RUNNING", "COMPLETED"), 120)
    said = agent.log.read_text()
    assert "nobody in the queue is given for" in said and "were lent until now" in said
    assert "did not leave" not in farm.said()
    until("the farm is done", farm.ended, 180)
    assert_all_done(home, 400)
    assert_nothing_left(contained)
