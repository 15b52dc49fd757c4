"""An administrator holds jobs at the very time at which a site's agent lets them go: no hold is lifted."""

from __future__ import annotations

import random
import time

import pytest
from agents import Desk

from penstock.ipc.client import ask

pytestmark = pytest.mark.slurm

FLOW = "name: raced\nworkdir: .\nstages:\n"
STAGE = '  - {{name: s{number}, nodes: 1, time: 60, expect: 1, run: "true"}}\n'
# Seconds over which the holds are spread: from before the agent has seen the jobs until after it has let all go.
SPREAD = 3.0


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_no_hold_of_an_administrator_is_lifted(make_agent, cluster, count):
    # A look every two seconds: without one right before each act, decisions would be that old.
    slow = {"min_interval": 2.0, "requests_per_second": 50, "request_burst": 100}
    site = make_agent("operator", agent={"serve": "all"}, slurm=slow).start()
    desk = Desk(site, "alice")
    blocker = _root(cluster, "sbatch", "--parsable", "-N8", "-t5", "-o/dev/null", "--wrap", "sleep 300").strip()
    _until(lambda: _rows(cluster)[int(blocker)][0] == "RUNNING", "the job that keeps all nodes busy")
    flow = FLOW + "".join(STAGE.format(number=number) for number in range(count))
    assert desk.run("penstock", "submit", desk.write("raced.yaml", flow)).returncode == 0
    jobs = [stage["job"] for stage in desk.workflow("raced")["stages"]]
    draw = random.Random(count)
    draw.shuffle(jobs)
    pauses = [draw.uniform(0.0, 2 * SPREAD / count) for _ in jobs]
    # At random moments, one after the other; each job waits, since no node is free.
    held = "".join(
        f"sleep {pause:.3f}; scontrol hold {job} || exit 1;" for pause, job in zip(pauses, jobs, strict=True)
    )
    _root(cluster, "bash", "-c", held)

    # Those that were let go before they were held, and an ordinary job as a sign that Slurm has looked at the queue.
    _root(cluster, "scancel", blocker)
    sign = int(desk.say("sbatch", "--parsable", "-N8", "-t1", "-o/dev/null", "--wrap", "true"))
    _until(lambda: _rows(cluster)[sign][0] == "COMPLETED", "an ordinary job")
    _until(
        lambda: any(j["id"] == sign and j["state"] == "COMPLETED" for j in _queue(site)), "a look of the agent after it"
    )
    shown = _rows(cluster)
    assert {job: shown[job] for job in jobs} == dict.fromkeys(jobs, ("PENDING", "JobHeldAdmin"))

    begun = time.time()
    _root(cluster, "bash", "-c", "".join(f"scontrol release {job};" for job in jobs))
    _until(lambda: desk.workflow("raced")["phase"] == "completed", "the workflow", 120.0)
    starts = [stage["start"] for stage in desk.workflow("raced")["stages"]]
    assert min(starts) >= int(begun)


def _root(cluster, *words: str) -> str:
    return str(cluster.run_as("root", list(words), check=True, timeout=120).stdout)


def _rows(cluster) -> dict[int, tuple[str, str]]:
    rows = _root(cluster, "squeue", "-h", "-t", "all", "-o", "%i|%T|%r").splitlines()
    return {int(row.split("|")[0]): (row.split("|")[1], row.split("|")[2]) for row in rows}


def _until(probe, what: str, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.2)


def _queue(site) -> list[dict]:
    return list(ask(site.socket, "queue")["jobs"])
