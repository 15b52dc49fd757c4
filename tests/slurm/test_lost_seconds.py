"""slurmctld dies and has lost its last seconds: the agent touches no job that has the number of one of its own by now,
and every workflow goes on, or says why it cannot.

Each time slurmctld is killed at another moment around the submissions; then the same user types plain jobs, which get
the numbers of those that are lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Desk, SlurmAgent

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240, func_only=True)]

_DRAW = random.Random(48)
MOMENTS = [round(_DRAW.uniform(0.0, 6.0), 2) for _ in range(20)]
PLAIN = 5
FIELDS = ("JobState", "Dependency", "EligibleTime", "StartTime", "TimeLimit", "NumNodes", "Priority", "Restarts")


@pytest.fixture(autouse=True)
def resumed(cluster: Cluster) -> Iterator[None]:
    """slurmctld drains a node that runs a job whose number it has given to another ("Duplicate jobid")."""
    yield
    cluster.start_controller()
    for node in cluster.nodes:
        cluster.run_as("root", ["scontrol", "update", f"nodename={node}", "state=resume"])


def crash(site: SlurmAgent) -> None:
    site.cluster.kill_controller()
    site.cluster.start_controller()


def plain_jobs(desk: Desk) -> list[str]:
    """Jobs that the user types in, and that wait: nothing is to happen to them."""
    words = ["sbatch", "--parsable", "-N8", "-t9", "-H", "-o", "/dev/null", "--wrap", "sleep 99"]
    return [desk.say(*words).strip() for _ in range(PLAIN)]


def looks_of(desk: Desk, jobs: list[str]) -> list[dict[str, str]]:
    found = []
    for job in jobs:
        row = desk.say("scontrol", "-o", "show", "job", job)
        told = dict(word.partition("=")[::2] for word in row.split() if "=" in word)
        found.append({name: told.get(name, "") for name in FIELDS})
    return found


def told(desk: Desk, found: dict[str, Any]) -> str:
    """What there is to say of a workflow that did not do as it should."""
    stages = [f"{s['name']}: job {s['job']} {s['phase']} {s['failure']}" for s in found["stages"]]
    rows = [f"{job}: {' '.join(row)}" for job, row in desk.queue().items()]
    return "\n".join(["", found["phase"], *stages, *rows, desk.site.said()])


def settled(desk: Desk, name: str, seconds: float = 100.0) -> dict[str, Any]:
    """The workflow, once it has ended, or has said of each stage why it cannot go on."""
    end = time.monotonic() + seconds
    while True:
        found = desk.workflow(name)
        if found["phase"] in ("completed", "failed", "failing"):
            return found
        # Slurm itself holds a job that it could not launch a second time.
        held = [s for s in found["stages"] if "held" in desk.queue().get(str(s["job"]), ["", ""])[1]]
        if held and "is left alone: it is held" in desk.say("penstock", "explain", f"w{found['id']}"):
            return found
        assert time.monotonic() < end, told(desk, found)
        time.sleep(1)


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
def test_stages_that_their_owner_submits(make_agent, moment: float) -> None:
    desk = Desk(make_agent().start())
    words = ["penstock", "sbatch", "--parsable", "-t1", "-o", "/dev/null", "--penstock-workflow=w"]
    stages = [
        int(desk.say(*words, f"--penstock-stage={name}", *after, "--wrap", "sleep 1").strip())
        for name, after in (("a", []), ("b", ["--penstock-after=a"]), ("c", ["--penstock-after=b"]))
    ]
    time.sleep(moment)
    crash(desk.site)
    plain = plain_jobs(desk)
    before = looks_of(desk, plain)
    found = settled(desk, "w")
    if found["phase"] not in ("completed", "active"):
        assert any("slurmctld has lost job" in (s["failure"] or "") for s in found["stages"]), found
        desk.run("penstock", "cancel", "w")
    time.sleep(1.5)
    assert looks_of(desk, plain) == before, (stages, plain)


@pytest.mark.few(1)
@pytest.mark.parametrize("moment", MOMENTS)
def test_stages_that_the_agent_submits(make_agent, moment: float) -> None:
    site = make_agent().start()
    desk = Desk(site)
    text = "name: w\nstages:\n"
    for name, after in (("a", ""), ("b", ", after: [a]"), ("c", ", after: [b]")):
        text += f"  - {{name: {name}, nodes: 1, time: 1m, expect: 1s, run: sleep 1{after}}}\n"
    run = site.submit(text, "eager")
    time.sleep(moment)
    crash(site)
    plain = plain_jobs(desk)
    before = looks_of(desk, plain)
    found = settled(desk, str(run))
    # A job that ran in the lost seconds may be ended by Slurm itself, which is a failure as any other, and told as one.
    said = [s["failure"] or "" for s in found["stages"] if s["phase"] in ("failed", "cancelled")]
    over = found["phase"] in ("completed", "active")
    assert over or (said and all(said)), told(desk, found)
    assert looks_of(desk, plain) == before, plain


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
def test_cancel_takes_only_its_own(make_agent, moment: float) -> None:
    """A user's own command, while no agent looks: only what the workflow's jobs were is cancelled."""
    site = make_agent().start()
    desk = Desk(site)
    words = ["penstock", "sbatch", "--parsable", "-t9", "-N8", "-H", "-o", "/dev/null", "--penstock-workflow=w"]
    for name in ("a", "b", "c"):
        desk.say(*words, f"--penstock-stage={name}", "--wrap", "sleep 1")
    site.until(lambda: len(desk.workflow("w")["stages"]) == 3, "the stages")
    time.sleep(moment / 3)
    crash(site)
    plain = plain_jobs(desk)
    before = looks_of(desk, plain)
    desk.say("penstock", "cancel", "w")
    time.sleep(1.5)
    assert looks_of(desk, plain) == before, plain
    mine = [row for job, row in desk.queue().items() if job not in plain and row[0] == "PENDING"]
    assert not mine, "what was not lost is cancelled"
