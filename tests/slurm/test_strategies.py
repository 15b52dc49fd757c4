"""Strategies on a real Slurm: guards, nodes handed over, and parents that Slurm has forgotten."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from agents import COMMAND, SlurmAgent

from conftest import folder_of
from penstock.ipc.client import ask
from penstock_lab.cluster import ClusterSpec, up
from penstock_lab.cluster.layout import reserved_ports

pytestmark = pytest.mark.slurm


def chain(*seconds: int, nodes: int = 2, last: str = "") -> str:
    """Stages that note the beginning and the end of their work in the file `log`; `last` ends the first one."""
    lines = []
    for i, n in enumerate(seconds):
        run = f"echo begin {i} >>log; sleep {n}; echo end {i} >>log" + (f"; {last}" if i == 0 and last else "")
        lines.append(f"  - {{name: s{i}, nodes: {nodes}, time: 60, expect: {n}, run: '{run}'}}")
    return "name: t\nstages:\n" + "\n".join(lines) + "\n"


def log(agent: SlurmAgent) -> list[str]:
    file = agent.folder / "log"
    return file.read_text().splitlines() if file.exists() else []


IN_ORDER = ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]


def told(agent: SlurmAgent, run: int) -> set[str]:
    decisions = [d for i in range(3) for d in ask(agent.socket, "explain", {"subject": f"workflow {run}/s{i}"})] + ask(
        agent.socket, "explain", {"subject": f"workflow {run}"}
    )
    return {code for d in decisions for code, _text in d["reasons"]}


@pytest.mark.parametrize("strategy", ["auto", "eager", "asa-after", "packed"])
@pytest.mark.few(2)
def test_stages_run_in_order(make_agent, strategy):
    agent = make_agent().start()
    number = agent.submit(chain(4, 4, 2), strategy)
    run = agent.finish(number)
    assert (run["phase"], log(agent)) == ("completed", IN_ORDER), agent.said()
    if strategy == "auto":
        assert run["by"] == "handover" and {"auto-handover", "pinned"} <= told(agent, number)
        assert [s["tie"] for s in run["stages"]] == ["none", "nodes", "nodes"]
        assert all(a["end"] <= b["start"] for a, b in zip(run["stages"], run["stages"][1:], strict=False))


def test_one_job_takes_the_nodes_of_each_stage_in_its_turn(make_agent, cluster):
    agent = make_agent().start()
    mpiexec = f"{Path(sys.executable).parent / 'mpiexec'} -launcher slurm hostname </dev/null | wc -l"
    count = f"echo $PENSTOCK_STAGE $(srun hostname | wc -l) $({mpiexec}) $SLURM_NNODES >>log"
    go = agent.folder / "go"  # the last stage lasts until its shrink is written down
    runs = [count, count, count, f"{count}; until [ -e {go} ]; do sleep 0.2; done"]
    sizes = zip((1, 3, 3, 2), runs, strict=True)
    stages = "".join(f"  - {{name: s{i}, nodes: {n}, time: 60, run: '{run}'}}\n" for i, (n, run) in enumerate(sizes))
    number = agent.submit(f"name: t\nstages:\n{stages}", "elastic")
    resizes = lambda: [(r["kind"], r["outcome"]) for r in ask(agent.socket, "status")["resizes"]]  # noqa: E731
    agent.until(lambda: "shrink" in dict(resizes()), "the shrink")
    go.touch()
    run = agent.finish(number)
    assert (run["phase"], log(agent)) == ("completed", ["s0 1 2 1", "s1 3 6 3", "s2 3 6 3", "s3 2 4 2"]), agent.said()
    assert [s["name"] for s in run["stages"]] == ["elastic"]
    assert sorted(resizes()) == [("expand", "completed"), ("shrink", "completed")]


def test_a_stage_that_starts_too_early_waits_in_its_script(make_agent):
    """asa-naive on an idle cluster: there is no wait, so what was submitted ahead of it starts at once."""
    with reserved_ports(1) as (port,):
        metrics = {"listen": f"127.0.0.1:{port}"}
    agent = make_agent(asa={"alternatives": [3.0, 4.0]}, metrics=metrics).start()
    run = agent.finish(agent.submit(chain(6, 6, 2), "asa-naive"))
    assert (run["phase"], log(agent)) == ("completed", IN_ORDER)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        asked = re.search(r"(?m)^penstock_guard_questions_total (\S+)$", answer.read().decode())
    assert asked and float(asked[1]) >= 1, "and asked its agent, not Slurm"
    assert [s["attempt"] for s in run["stages"]] == [1, 1, 1]
    assert run["stages"][1]["start"] < run["stages"][0]["end"], "it had its nodes before it could use them"


@pytest.mark.parametrize("strategy", ["handover", "asa-naive"])
def test_nothing_is_done_after_a_parent_that_failed(make_agent, strategy):
    agent = make_agent(asa={"alternatives": [3.0, 4.0]}).start()
    run = agent.finish(agent.submit(chain(5, 2, 2, last="exit 7"), strategy))
    assert (run["phase"], run["why"].split(" with")[0]) == ("failed", f"s0: job {run['stages'][0]['job']} ended FAILED")
    assert log(agent) == ["begin 0", "end 0"]


def test_a_workflow_goes_on_without_the_agent(make_agent, cluster):
    """What is in the queue already does the right thing by itself: the guard knows by the mark that it may begin."""
    agent = make_agent(asa={"alternatives": [3.0, 4.0]}).start()
    number = agent.submit(chain(6, 2), "asa-naive")
    agent.until(lambda: agent.state(number)["stages"][1]["job"], "the second stage in the queue")
    agent.stop(signal.SIGKILL)
    agent.until(lambda: "end 1" in log(agent), "the end of the second stage")
    assert log(agent) == IN_ORDER[:4]
    agent.start()
    assert agent.finish(number)["phase"] == "completed"


def test_a_job_alone_requeues_itself_when_it_was_too_early(make_agent, cluster):
    agent = make_agent(asa={"alternatives": [30.0, 40.0]}, workflows={"grace": 3}).start()
    number = agent.submit(
        chain(1000, 2).replace("time: 60", "time: 2000").replace("expect: 1000", "expect: 3"), "asa-naive"
    )
    second = agent.until(lambda: agent.state(number)["stages"][1]["job"], "the second stage in the queue")
    agent.stop(signal.SIGKILL)

    def requeued() -> bool:
        shown = cluster.run_as("alice", ["scontrol", "-o", "show", "job", str(second)], check=True).stdout
        return "JobState=PENDING" in shown and "Restarts=1" in shown

    agent.until(requeued, "the requeue")
    assert log(agent) == ["begin 0"]


def test_a_wfformat_instance_runs_packed_by_srun(make_agent, cluster):
    def task(name: str, *parents: str) -> dict:
        return {"id": name, "name": name, "parents": parents, "children": []}

    middle = [f"work_{i}" for i in range(10)]
    tasks = [task("split_0"), *(task(name, "split_0") for name in middle), task("join_0", *middle)]
    runs = [{"id": t["id"], "runtimeInSeconds": 0.5, "command": {"program": "true"}} for t in tasks]
    body = {"specification": {"tasks": tasks}, "execution": {"tasks": runs}}
    agent = make_agent().start()
    (agent.folder / "i.json").write_text(json.dumps({"name": "i", "schemaVersion": "1.6", "workflow": body}))
    command = f"sleep {{runtime}}; echo {{id}} $SLURMD_NODENAME >>{agent.folder}/log"
    words = ["submit", "i.json", "--strategy", "auto", "--max-nodes", "2", "--cores", "2", "--task", command]
    done = cluster.run_as("alice", [*COMMAND, *words], env=agent.environment, cwd=agent.folder)
    assert done.returncode == 0, done.stderr
    run = agent.finish(int(done.stdout.split()[-1]))
    logs = [file.read_text() for file in sorted(agent.folder.rglob("*.out"))]
    assert run["phase"] == "completed", (run["why"], [s["failure"] for s in run["stages"]], logs)
    assert [s["name"] for s in run["stages"]] == ["1-split", "2-work", "3-join"]
    lines = [line.split() for line in log(agent)]
    assert [lines[0][0], lines[-1][0]] == ["split_0", "join_0"] and sorted(n for n, _ in lines[1:-1]) == middle
    assert len({node for _, node in lines[1:-1]}) == 2, "on both nodes"


# -- parents that Slurm has forgotten ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[None, pytest.param("trixie", marks=pytest.mark.release)])
def forgetful(request, need_slurm, sweep):
    """A cluster that forgets a job a few seconds after its end."""
    need_slurm(request.param)
    it = up(ClusterSpec(nodes=2, folder=folder_of(f"f{request.param or ''}"), release=request.param, min_job_age=2))
    yield it
    it.down()


@pytest.mark.long_elsewhere
@pytest.mark.parametrize(
    ("strategy", "last"),
    [
        pytest.param("asa", "", id="asa-succeeded"),
        pytest.param("handover", "exit 7", id="handover-failed"),
        pytest.param("asa", "exit 7", id="asa-failed", marks=pytest.mark.long),
        pytest.param("handover", "", id="handover-succeeded", marks=pytest.mark.long),
    ],
)
@pytest.mark.few(1)
def test_a_parent_that_slurm_has_forgotten(forgetful, strategy, last):
    """The agent is away while the first stage ends, until Slurm knows nothing of it any more."""
    agent = SlurmAgent(forgetful, asa={"alternatives": [50.0, 60.0]})
    try:
        agent.start()
        number = agent.submit(chain(4, 1, nodes=1, last=last), strategy)
        agent.until(lambda: agent.state(number)["stages"][1]["phase"] == "queued", "the second stage in the queue")
        first = agent.until(lambda: agent.state(number)["stages"][0]["job"], "the first stage in the queue")
        agent.stop(signal.SIGKILL)

        def forgotten() -> bool:
            time.sleep(0.5)
            shown = forgetful.run_as("alice", ["squeue", "-h", "-t", "all", "-j", str(first), "-o", "%T"])
            return not shown.stdout.strip()

        agent.until(forgotten, "Slurm to forget", 120)
        agent.start()
        run = agent.finish(number)
        if last:
            assert (run["phase"], log(agent)) == ("failed", IN_ORDER[:2])
            assert "exit code 7" in run["why"]
        else:
            assert (run["phase"], log(agent)) == ("completed", IN_ORDER[:4])
    finally:
        agent.down()
