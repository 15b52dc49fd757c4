"""Answers from the agent's cache, word by word against the real commands, on a queue that stands still."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from agents import SlurmAgent
from shim_scene import Scene, calls, freeze, make_scene, other_partition, tool_calls

from penstock_lab.cluster import Cluster

pytestmark = [pytest.mark.slurm, pytest.mark.long_elsewhere, pytest.mark.timeout(600, func_only=True)]

# Asks the agent one thing a line, as whoever runs it.
_CLIENT = """
import json, sys
from pathlib import Path
from penstock.ipc.client import ask
for line in sys.stdin:
    op, arguments = json.loads(line)
    print(json.dumps(ask(Path(sys.argv[1]), op, arguments)), flush=True)
"""
ANOTHER = {"nodes": 8, "min_job_age": 7200}
"""Its ended jobs stay known."""
Given = tuple[str, Sequence[str], dict[str, str]]


class Front:
    """A process of Alice's that asks her agent what her front programs would."""

    def __init__(self, site: SlurmAgent, who: str = "alice") -> None:
        self.site, self.who = site, who
        argv = [sys.executable, "-c", _CLIENT, str(site.socket)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = site.cluster.popen_as(who, argv, **pipes)
        # What the commands of Alice's shell are told about the cluster.
        self.environ = {"SLURM_CONF": site.cluster.user_env(who)["SLURM_CONF"]}

    def ask(self, op: str, **arguments: object) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([op, arguments]) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        assert isinstance(told, dict)
        return told

    def answer(self, program: str, words: Sequence[str], environ: dict[str, str] | None = None) -> dict[str, Any]:
        return self.ask("answer", program=program, words=list(words), environ={**self.environ, **(environ or {})})

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.process.terminate()
        self.process.communicate()


@pytest.fixture
def front(another: Cluster) -> Iterator[Front]:
    """Alice's agent, which may ask Slurm often, and who asks it."""
    site = SlurmAgent(another, slurm={"request_burst": 2000, "requests_per_second": 200}, shim={"look_age": 1})
    it = Front(site.start())
    yield it
    it.close()
    another.run_as("root", ["scancel", "--partition=batch"])
    site.down()


def compared(front: Front, given: Sequence[Given]) -> tuple[list[Given], list[object]]:
    """What was served, and what of it was not what the real command says."""
    served, different = [], []
    for program, words, environ in given:
        for attempt in range(4):  # a second may begin between the two, and a look may be one second old
            ours = front.answer(program, words, environ)
            if "through" in ours:
                break
            done = front.site.cluster.run_as(front.who, [program, *words], env=environ)
            theirs = {"out": done.stdout, "err": done.stderr, "code": done.returncode}
            if ours == theirs:
                served.append((program, words, environ))
                break
            if attempt == 3:
                different.append((program, words, environ, ours, theirs))
            time.sleep(1.1)  # the look is too old then
    return served, different


def test_answers_are_those_of_the_commands(front):
    scene = make_scene(front.site.cluster)
    freeze(scene)
    front.site.until(lambda: settled(front.site.cluster), "accounting")
    tools = [(program, words, {}) for program, words in tool_calls(scene, front.site.cluster.users["alice"])]
    all_ = [*tools, *calls(scene)]
    served, different = compared(front, all_)
    assert different == []
    assert [call for call in tools if call not in served] == []
    assert len(all_) >= 250 and len(served) >= 150, f"{len(served)} of {len(all_)} were served"


def settled(cluster: Cluster) -> bool:
    """Accounting has what the queue has."""
    argv = ["sacct", "-a", "-X", "-n", "-P", "-S", "2020-01-01", "-o", "jobidraw,state,end"]
    before = cluster.run_as("root", argv).stdout
    time.sleep(2)
    return before == cluster.run_as("root", argv).stdout and before.count("SUSPENDED") == 4


def test_a_job_that_runs_and_what_was_touched(front):
    """Time that passes is that of the look; a job that was just submitted or cancelled is seen at once."""
    scene = Scene(front.site.cluster)
    one = scene.submit("one", "-J", "one", wrap="sleep 300")
    # Nobody told the agent: a number that the look lacks is looked for anew.
    assert front.answer("squeue", ["-h", "-j", str(one), "-o", "%i"])["out"] == f"{one}\n"
    scene.until("one", "RUNNING")
    time.sleep(1.1)
    running = [("squeue", words, {}) for words in (["--me"], ["-o", "%i %M %L %S %e"], ["-t", "R", "-h"], ["-l"])]
    served, different = compared(front, running)
    assert (different, len(served)) == ([], 4)
    two = scene.submit("two", "-H", "-J", "two")
    front.ask("touched", jobs=[two])
    assert str(two) in front.answer("squeue", ["-h", "--me", "-o", "%i"])["out"].split()
    front.site.cluster.run_as("alice", ["scancel", str(two)], check=True)
    front.ask("touched", jobs=[two])
    assert front.answer("squeue", ["-h", "-j", str(two), "-t", "all", "-o", "%T"])["out"] == "CANCELLED\n"
    assert "through" in front.answer("squeue", ["-j", "99999"])


def test_an_agent_for_all_tells_each_what_slurm_tells_them(another):
    budget = {"request_burst": 2000, "requests_per_second": 200}
    site = SlurmAgent(another, "operator", agent={"serve": "all"}, slurm=budget, shim={"look_age": 1}).start()
    scene = Scene(another)
    for who in ("alice", "bob"):
        scene.submit(f"of-{who}", "-H", "-J", f"of {who}", who=who)
    first, second = (scene.ids[f"of-{who}"] for who in ("alice", "bob"))
    known = ["sacct", "-a", "-X", "-n", "-P", "-j", f"{first},{second}", "-o", "jobid"]
    site.until(lambda: len(another.run_as("root", known).stdout.split()) == 2, "accounting")
    lines = f"""
        squeue | squeue --me | squeue -h -o %i%a%u -t all | squeue -j {first} | squeue -u pst-bob -l
        sacct | sacct -X | sacct -j {first},{second} -X -P | sacct -n -o jobid,user%20
        scontrol show job {second} | scontrol -o show job
    """
    given = [part.split() for line in lines.strip().splitlines() for part in line.split("|")]
    try:
        for who in ("alice", "bob"):
            front = Front(site, who)
            served, different = compared(front, [(words[0], words[1:], {}) for words in given])
            front.close()
            assert different == []
            assert [words for words in given if (words[0], words[1:], {}) not in served] == [], who
        root = Front(site, "root")
        assert "through" in root.answer("sacct", [])
        root.close()
    finally:
        another.run_as("root", ["scancel", "--partition=batch"])
        site.down()


def test_jobs_of_a_hidden_partition_are_shown_to_whom_squeue_shows_them(another):
    other_partition(another)
    another.run_as("root", ["scontrol", "update", "partition=other", "hidden=yes"], check=True)
    budget = {"request_burst": 2000, "requests_per_second": 200}
    sites = [
        SlurmAgent(another, who, agent={"serve": serve}, slurm=budget, shim={"look_age": 1}).start()
        for who, serve in (("alice", "own"), ("operator", "all"))
    ]
    try:
        scene = Scene(another)
        seen, hidden = (scene.submit(where, "-H", "-p", where) for where in ("batch", "other"))
        given = [["-h", "-o", "%i"], ["--me"], ["-a"], ["-p", "other"], ["-j", f"{seen},{hidden}"], ["-j", str(hidden)]]
        for site, least in zip(sites, (6, 4), strict=True):
            front = Front(site)
            served, different = compared(front, [("squeue", words, {}) for words in given])
            assert different == [] and len(served) == least
            assert "through" in front.answer("scontrol", ["show", "job", str(hidden)])
            front.close()
    finally:
        another.run_as("root", ["scontrol", "update", "partition=other", "hidden=no"])
        another.run_as("root", ["scancel", "--partition=batch,other"])
        for site in sites:
            site.down()


def requests(site: SlurmAgent) -> int:
    """Requests for jobs that slurmctld has had of Alice, by its own count."""
    text = site.cluster.run_as("root", ["sdiag"]).stdout
    users = text.partition("by user")[2]
    found = re.search(rf"^\s*{site.cluster.users['alice']}\s*\(.*count:(\d+)", users, re.MULTILINE)
    return int(found[1]) if found else 0


def test_ten_who_ask_twice_a_second_cost_one_look_in_five_seconds(another):
    site = SlurmAgent(another, agent={"interval": 300, "idle_interval": 300}).start()
    fronts = [Front(site) for _ in range(10)]
    try:
        words = [[], ["--me"], ["-h", "-o", "%i %t"], ["-t", "all"], ["-l"]]
        assert "out" in fronts[0].answer("squeue", [])
        begun, before, asked = time.monotonic(), requests(site), 0
        while (passed := time.monotonic() - begun) < 12:
            for number, one in enumerate(fronts):
                assert "out" in one.answer("squeue", words[(number + asked) % len(words)])
                asked += 1
            time.sleep(max(0.0, 0.5 - (time.monotonic() - begun - passed)))
        cost = requests(site) - before
        # squeue asks for the partitions as well as for the jobs.
        assert 2 <= cost <= 2 * (12 // 5 + 1), f"{asked} answers cost {cost} requests"
        assert asked >= 100
    finally:
        for one in fronts:
            one.close()
        site.down()
