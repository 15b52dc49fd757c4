"""The agent over a real Slurm, as an ordinary user runs it: workflows, foreign users, and what fails or is killed."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter

import pytest
from agents import SlurmAgent

from penstock.ipc.client import ask

pytestmark = pytest.mark.slurm


@pytest.fixture
def begun() -> float:
    """When the test began, for accounting."""
    return time.time()


def chain(*seconds: int, nodes: int = 2) -> str:
    lines = [
        f"  - {{name: s{i}, nodes: {nodes}, time: 60, expect: {n}, run: sleep {n}}}" for i, n in enumerate(seconds)
    ]
    return "name: t\nstages:\n" + "\n".join(lines) + "\n"


def submissions(agent: SlurmAgent, since: float, stages: int) -> Counter[str]:
    """How many jobs accounting has of each stage, once (it lags) it knows of so many jobs."""
    agent.until(lambda: len(agent.accounting(since)) >= stages, "accounting")
    return Counter(row["JobName"].partition(".penstock.")[0] for row in agent.accounting(since))


@pytest.mark.parametrize("strategy", ["asa", pytest.param("perstage", marks=pytest.mark.long)])
def test_a_workflow_completes_in_order_and_accounting_agrees(make_agent, begun, strategy):
    # Slurm's times are whole seconds, and a pass may be late: ahead is well ahead.
    agent = make_agent(asa={"alternatives": [4.0, 5.0]}).start()
    run = agent.finish(agent.submit(chain(*[12 if strategy == "asa" else 5] * 3), strategy))
    assert (run["phase"], [s["phase"] for s in run["stages"]]) == ("completed", ["done"] * 3)

    def written() -> list[dict[str, str]]:
        rows = agent.accounting(begun)
        return rows if [r["State"] for r in rows] == ["COMPLETED"] * 3 else []

    rows = agent.until(written, "accounting")
    assert [int(r["JobID"]) for r in rows] == [s["job"] for s in run["stages"]]
    assert [(int(r["Start"]), int(r["End"])) for r in rows] == [(s["start"], s["end"]) for s in run["stages"]]
    assert {r["ExitCode"] for r in rows} == {"0:0"}
    for before, after in zip(run["stages"], run["stages"][1:], strict=False):
        assert before["end"] <= after["start"]
        # asa: ahead of the parent's end, with a dependency; perstage: after it, without.
        assert (after["submitted"] < before["end"]) == (strategy == "asa")
        assert after["depends_on"] == ([before["job"]] if strategy == "asa" else [])
    assert agent.stop() == 0


@pytest.mark.long
def test_a_paused_agent_submits_nothing_also_after_a_restart_and_goes_on_when_resumed(make_agent, begun):
    agent = make_agent().start()
    number = agent.submit(chain(4, 1), "perstage")
    agent.until(lambda: agent.state(number)["stages"][0]["phase"] == "running", "the first stage")
    paused = agent.run("alice", "pause", "--feature", "workflows", "--why", "maintenance")
    assert "alice: maintenance" in paused.stdout
    assert agent.stop() == 0
    agent.start()
    agent.until(lambda: "maintenance" in agent.run("alice", "explain", f"w{number}").stdout, "a word on the pause")
    agent.until(lambda: [r["State"] for r in agent.accounting(begun)] == ["COMPLETED"], "the end of the first stage")
    resumed = time.time()
    assert agent.run("alice", "resume").returncode == 0
    first, second = agent.finish(number)["stages"]
    assert first["end"] <= int(resumed) <= second["submitted"]
    assert submissions(agent, begun, 2) == {"s0": 1, "s1": 1}


def test_more_nodes_than_the_partition_are_refused_with_an_empty_queue(make_agent, cluster, begun):
    agent = make_agent().start()
    done = agent.run("alice", "submit", agent.write(chain(5, 5, nodes=9)))
    assert done.returncode == 2
    assert "w.yaml: stages[0].nodes: must be at most 8" in done.stderr
    assert cluster.run_as("root", ["squeue", "-h", "-o", "%i"], check=True).stdout == ""
    assert agent.accounting(begun) == []


_CHECK = """
import os, socket, sys
from dmr import credential, wire
request = wire.Check(job=int(sys.argv[1]), epoch=0, size=2, minimum=2, maximum=2)
with socket.create_connection(("127.0.0.1", int(sys.argv[2])), 10) as connection:
    connection.sendall(wire.encode(wire.signed(request, credential.sign_munge)))
    reply = wire.decode_reply(connection.makefile("rb").readline())
print(getattr(reply, "error", None) or reply.action, reply.message if hasattr(reply, "message") else reply.reason)
"""


_CANCEL = """
import sys
from pathlib import Path
from penstock.errors import PenstockError
from penstock.ipc.client import ask
try:
    ask(Path(sys.argv[1]), "cancel", {"run": int(sys.argv[2])})
except PenstockError as e:
    print(type(e).__name__)
"""


def test_a_foreign_user_is_refused_at_both_doors(make_agent, cluster, begun):
    agent = make_agent(agent={"serve": "all"}).start()
    number = agent.submit(chain(60), "perstage")
    agent.until(lambda: agent.state(number)["stages"][0]["phase"] == "running", "the stage")
    job = agent.state(number)["stages"][0]["job"]
    done = agent.run("bob", "cancel", str(number))
    assert (done.returncode, done.stderr) == (5, f"penstock: there is no workflow {number}\n"), "he is not shown it"
    done = agent.run("bob", "explain", f"w{number}")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "penstock: only the agent's own user, root, or an operator of Slurm may ask for this\n"
    forged = [sys.executable, "-c", _CANCEL, str(agent.socket), str(number)]
    assert cluster.run_as("bob", forged, check=True).stdout.strip() == "NotPermitted"
    assert "Nothing of" in agent.run("bob", "status").stdout
    port = ask(agent.socket, "env")["DMR_AGENT"].rpartition(":")[2]

    def check(who: str) -> str:
        environment = {"DMR_MUNGE_SOCKET": str(cluster.munge_socket)}
        argv = [sys.executable, "-c", _CHECK, str(job), port]
        return cluster.run_as(who, argv, env=environment, check=True).stdout.strip()

    assert check("bob") == f"not-permitted job {job} is not yours"
    assert ask(agent.socket, "status")["malleable"] == []
    assert check("alice").startswith("none")
    assert [m["job"] for m in ask(agent.socket, "status")["malleable"]] == [job]
    key = agent.folder / "agent" / "dmr.key"
    assert cluster.run_as("bob", ["cat", str(key)]).returncode != 0
    assert cluster.run_as("bob", ["ls", str(key.parent)]).returncode != 0
    assert submissions(agent, begun, 1) == {"s0": 1}
    assert agent.state(number)["phase"] == "active"
    # All of it is on record: who, by which door, about whose job; and the act that a request led to.
    assert agent.stop() == 0
    records = json.loads(agent.run("alice", "audit", "--json").stdout)["records"]
    alice, bob = cluster.users["alice"], cluster.users["bob"]
    told = [(r["user"], r["door"], r["verb"], r["outcome"], r["job"]) for r in records if r["kind"] != "agent"][1:]
    assert told == [
        (alice, "unix", "submit", "done", None),
        (alice, "agent", "submit", "done", job),
        (bob, "unix", "cancel", "refused", None),
        (bob, "tcp", "check", "refused", job),
        (alice, "tcp", "check", "done", job),
    ]
    assert records[2]["request"] == records[3]["request"] != ""
    assert agent.run("alice", "audit", "--verify").returncode == 0
    denied = agent.run("bob", "audit")
    assert (denied.returncode, denied.stdout) == (7, ""), "he has an audit trail of his own, in which nothing is yet"


def test_while_the_controller_is_down_the_agent_holds_and_then_goes_on(make_agent, cluster, begun):
    agent = make_agent().start()
    number = agent.submit(chain(4, 3), "perstage")
    agent.until(lambda: agent.state(number)["stages"][0]["phase"] == "running", "the first stage")
    cluster.stop_controller()

    def decided() -> dict:
        return ask(agent.socket, "explain", {"subject": "agent"})[-1]

    agent.until(lambda: decided()["verb"] == "hold", "the hold")
    assert decided()["reasons"][0][0] == "incomplete-picture"
    assert "on hold: slurm:" in agent.run("alice", "status").stderr
    assert agent.process.poll() is None
    cluster.start_controller()
    assert agent.finish(number)["phase"] == "completed"
    assert decided()["verb"] == "nothing"
    assert submissions(agent, begun, 2) == {"s0": 1, "s1": 1}


@pytest.mark.parametrize(
    "script",
    [
        'once && { echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }',
        'once && { $REAL "$@" >/dev/null; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1; }',
        "once && sleep 100",
        'once && { $REAL "$@" >/dev/null; sleep 100; }',
    ],
    ids=["fails", "answer-lost", "hangs", "hangs-after-it-submitted"],
)
@pytest.mark.few(2)
def test_an_sbatch_that_fails_or_hangs_ends_in_back_off_and_one_job(make_agent, begun, script):
    agent = make_agent(slurm={"timeout": 3})
    agent.wrap("sbatch", script)
    agent.start()
    run = agent.finish(agent.submit(chain(1), "perstage"))
    assert run["phase"] == "completed"
    assert submissions(agent, begun, 1) == {"s0": 1}
    assert "backing off" in agent.log.read_text()
    assert agent.stop() == 0


def test_an_squeue_that_fails_and_hangs_makes_the_agent_hold(make_agent, begun):
    agent = make_agent(slurm={"timeout": 2})
    agent.wrap("squeue", f"[ -e {agent.folder}/hang ] && sleep 100; [ -e {agent.folder}/fail ] && exit 1")
    agent.start()
    number = agent.submit(chain(2, 1), "perstage")
    for trouble in ("hang", "fail"):
        (agent.folder / trouble).touch()
        agent.until(lambda: ask(agent.socket, "explain", {"subject": "agent"})[-1]["verb"] == "hold", "the hold")
        (agent.folder / trouble).unlink()
        agent.until(lambda: ask(agent.socket, "explain", {"subject": "agent"})[-1]["verb"] == "nothing", "the picture")
    assert agent.finish(number)["phase"] == "completed"
    assert submissions(agent, begun, 2) == {"s0": 1, "s1": 1}


@pytest.mark.parametrize("strategy", ["asa", pytest.param("perstage", marks=pytest.mark.long)])
def test_an_agent_killed_right_after_each_submission_leaves_one_job_per_stage(make_agent, begun, strategy):
    """sbatch itself kills the agent, each time after Slurm has taken the job and before the agent hears of it."""
    agent = make_agent()
    agent.wrap("sbatch", 'answer=$($REAL "$@"); kill -9 $PPID; echo "$answer"; exit 0')
    agent.start()
    agent.run("alice", "submit", agent.write(chain(3, 3, 1)), "--strategy", strategy)
    for _stage in range(3):
        assert agent.process.wait(60) == -signal.SIGKILL
        agent.launch()  # it may be killed by the next submission before it answers anybody
    agent.until(agent.answers, "the agent")
    run = agent.finish(1)
    assert run["phase"] == "completed"
    assert submissions(agent, begun, 3) == {"s0": 1, "s1": 1, "s2": 1}
    assert [s["attempt"] for s in run["stages"]] == [1, 1, 1]
