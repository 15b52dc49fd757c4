"""`penstock waits` as a user meets it: with a running agent, without one, and with mistakes."""

from __future__ import annotations

import json

import pytest

from penstock.api import JobSpec
from penstock.ipc.client import ask
from penstock_lab.mock import control

FLOW = """
name: flow
stages:
  - {name: first, nodes: 1, time: 60, expect: 1, run: "true"}
  - {name: second, nodes: 2, time: 60, expect: 1, run: "true", after: first}
"""


def told(site, *options):
    done = site.run("waits", *options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_before_anything_is_known_it_says_so(agent):
    done = agent.run("waits")
    assert done.returncode == 0 and "No waits are known yet" in done.stdout
    done = agent.run("waits", "--report")
    assert done.returncode == 0 and "Nothing was predicted yet" in done.stdout
    done = agent.run("waits", "-N", "2")
    assert done.returncode == 0, done.stderr
    assert "2 nodes for 1h in " in done.stdout and "nothing yet" in done.stdout
    assert "19 of 20 start within" in done.stdout


def test_a_young_agent_reckons_with_no_longer_wait_than_time_limits_allow(agent):
    """All nodes are taken for ten minutes at most, and nobody else waits."""
    spec = JobSpec("blocker", "#!/bin/sh\nsleep 500\n", 4, 600.0)
    blocker = control.call(agent.cluster.folder, "submit", spec=spec)
    agent.until(lambda: told(agent, "-N", "4", "-t", "10m")["outlook"]["estimate"] > 60, "a look at the job")
    quantiles = told(agent, "-N", "4", "-t", "10m")["outlook"]["quantiles"]
    control.call(agent.cluster.folder, "cancel", job=blocker)
    assert quantiles["95"] < 600 + 120, "its limit, and Slurm's own delays"


def test_an_agent_tells_what_it_has_learned_and_looks_at_the_queue(agent):
    (agent.folder / "w.yaml").write_text(FLOW)
    assert agent.run("submit", "w.yaml", "--strategy", "asa").returncode == 0
    agent.until(lambda: ask(agent.socket, "status")["workflows"][-1]["phase"] == "completed", "the end of the workflow")
    found = told(agent)
    assert found["live"] is True and found["outlook"] is None
    assert sorted(row["nodes"] for row in found["geometries"]) == [[1, 1], [2, 3]]
    assert found["calibration"]["predictions"] == 2
    shown = agent.run("waits").stdout
    assert "Waits by geometry" in shown and "All predictions so far: 2" in shown
    rows = {(row["jobs"], row["who"], row["beside"]): row for row in found["accuracy"]}
    assert rows["predicted", "penstock", None]["predictions"] == 2
    assert rows["predicted", "sbatch --test-only", "penstock"]["predictions"] == 2
    shown = agent.run("waits", "--report").stdout
    assert "How right estimated waits were" in shown and "sbatch --test-only" in shown and "2204.13543" in shown
    found = told(agent, "-N", "2", "-t", "1m")["outlook"]
    assert {"history", "queue", "slurm"} <= found["experts"].keys()
    assert found["known_waits"] == 1 and found["partition"]
    text = agent.run("waits", "-N", "2", "-t", "1m").stdout
    assert "2 nodes for 1m in " in text and "the queue as it stands" in text and "learned from            1 " in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-t", "soon"), "-t/--time must be a duration"),
        (("-p", "nowhere"), "-p: there is no partition 'nowhere' (partitions: "),
        (("-N", "99"), "4 nodes at most, not 99"),
        (("-N", "0"), "-N"),
        (("--mem", "-3"), "--mem"),
        (("--report", "-N", "2"), "--report is about all jobs so far"),
    ],
)
def test_mistakes_are_exit_2_on_one_line(agent, options, said):
    done = agent.run("waits", *options)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_the_state_file_answers_while_no_agent_runs(agent):
    before = told(agent)
    agent.stop()
    assert {**told(agent), "live": True} == before
    done = agent.run("waits", "-N", "2", "-t", "1m")
    assert done.returncode == 0 and "No agent is running" in done.stderr
    assert "expected wait" in done.stdout
    done = agent.run("waits", PENSTOCK_AGENT__STATE_DIR=str(agent.folder / "none"))
    assert done.returncode == 3 and "no agent answers" in done.stderr
