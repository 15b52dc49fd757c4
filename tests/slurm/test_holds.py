"""An administrator holds jobs at the very time at which a site's agent lets them go: no hold is lifted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from agents import Desk, SlurmAgent

from penstock.ipc.client import ask
from penstock_lab.cluster import Cluster

pytestmark = pytest.mark.slurm

FLOW = """name: raced
workdir: {home}
stages:
  - {{name: first, nodes: 1, time: 600, expect: 20, run: "until [ -e raced.go ]; do sleep 0.2; done"}}
"""
STAGE = '  - {{name: s{number}, nodes: 1, time: 60, expect: 1, run: "true", after: first}}\n'


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_no_hold_of_an_administrator_is_lifted(make_agent, cluster, count):
    # The agent looks every five seconds only: what it decides on may be that old.
    slow = {"min_interval": 5.0, "requests_per_second": 50, "request_burst": 100}
    site = make_agent("operator", agent={"serve": "all"}, slurm=slow).start()
    desk = Desk(site, "alice")
    desk.run("rm", "-f", "raced.go")
    flow = FLOW.format(home=desk.home) + "".join(STAGE.format(number=number) for number in range(count))
    assert desk.run("penstock", "submit", desk.write("raced.yaml", flow), "--strategy", "asa").returncode == 0
    site.until(lambda: _stages(site)["first"]["phase"] == "running", "the first stage")
    stages = _stages(site)
    due = stages["s0"]["due"]
    jobs = [stages[f"s{number}"]["job"] for number in range(count)]
    assert due > time.time() + 3, "too late for holds before it"

    # At random moments around the one when they are due, most of them in the last seconds before. None can start, for
    # the first stage runs.
    draw = random.Random(count)
    for at, job in sorted((due + draw.uniform(-3.0, 1.0), job) for job in jobs):
        time.sleep(max(at - time.time(), 0.0))
        _root(cluster, "scontrol", "hold", str(job))
    _looked(site, time.time())
    assert _rows(cluster, jobs) == dict.fromkeys(jobs, ("PENDING", "JobHeldAdmin"))

    desk.write("raced.go", "")
    site.until(lambda: _stages(site)["first"]["phase"] == "done", "the end of the first stage")
    _looked(site, time.time())
    assert _rows(cluster, jobs) == dict.fromkeys(jobs, ("PENDING", "JobHeldAdmin"))
    begun = int(time.time())
    for job in jobs:
        _root(cluster, "scontrol", "release", str(job))
    site.until(lambda: desk.workflow("raced")["phase"] == "completed", "the workflow", 150.0)
    ended = {stage["name"]: stage["start"] for stage in desk.workflow("raced")["stages"]}
    assert min(start for name, start in ended.items() if name != "first") >= begun


def _root(cluster: Cluster, *words: str) -> str:
    return cluster.run_as("root", words, check=True).stdout


def _rows(cluster: Cluster, jobs: list[int]) -> dict[int, tuple[str, str]]:
    rows = [row.split("|") for row in _root(cluster, "squeue", "-h", "-t", "all", "-o", "%i|%T|%r").splitlines()]
    known = {str(job): job for job in jobs}  # others have numbers such as 7_3 and 7+1
    return {known[number]: (state, reason) for number, state, reason in rows if number in known}


def _stages(site: SlurmAgent) -> dict[str, dict]:
    (run,) = ask(site.socket, "status")["workflows"]
    return {stage["name"]: stage for stage in run["stages"]}


def _looked(site: SlurmAgent, since: float) -> None:
    """Wait until the agent has looked after that time, and has had a pass after that."""
    looks: Callable[[], float] = lambda: ask(site.socket, "queue")["at"]  # noqa: E731
    site.until(lambda: looks() > since, "a look")
    first = looks()
    site.until(lambda: looks() > first, "a second look")
