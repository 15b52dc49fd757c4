"""`penstock try` as a user meets it: with an agent and without one, and that it submits nothing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from penstock.ipc.client import ask

FLOW = """
name: flow
stages:
  - {name: first, nodes: 2, time: 10m, expect: 5m, run: "true"}
  - {name: second, nodes: 2, time: 10m, expect: 5m, run: "true"}
  - {name: third, nodes: 1, time: 10m, expect: 5m, run: "true"}
"""


def everything(site):
    """All that the state file has of workflows and of what was left for the agent, and all jobs ever submitted."""
    with closing(sqlite3.connect(site.folder / "agent" / "penstock.db")) as db:
        stored = [db.execute(f"SELECT * FROM {table}").fetchall() for table in ("runs", "inbox", "intents")]
    return stored, site.names()


@pytest.mark.parametrize("words", [("try", "w.yaml"), ("submit", "--dry-run", "w.yaml")])
def test_it_says_one_line_first_and_submits_nothing(agent, words):
    (agent.folder / "w.yaml").write_text(FLOW)
    before = everything(agent)
    done = agent.run(*words)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("on this queue now: your chain 15m, no gain seen: Penstock the same, because ")
    assert any("first+second, third" in line for line in rest) and rest[-1] == "Nothing was submitted."
    assert "who comes later is not known" in done.stdout and "how long others run" in done.stdout
    told = json.loads(agent.run(*words, "--json").stdout)
    assert told["live"] and told["line"] == first and not told["gain"] and told["chosen"] == 0
    assert [cut["jobs"] for cut in told["cuts"]] == [
        [["first"], ["second"], ["third"]],
        [["first", "second"], ["third"]],
    ]
    assert ask(agent.socket, "status")["workflows"] == [] and everything(agent) == before
    assert before == ([[], [], []], [])


def test_without_an_agent_the_command_looks_itself(site):
    if site.process is not None and site.process.poll() is None:
        site.stop()
    (site.folder / "w.yaml").write_text(FLOW)
    there = sorted(path.name for path in site.folder.iterdir())
    done = site.run("try", "w.yaml", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert not told["live"] and told["cuts"][0]["makespan"]["median"] == 900.0
    assert site.names() == []
    assert site.run("try", "w.yaml", PENSTOCK_AGENT__STATE_DIR=str(site.folder / "none")).returncode == 0
    assert sorted(path.name for path in site.folder.iterdir()) == there, "a look leaves nothing behind"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FLOW.replace("nodes: 2", "nodes: 40"), "stages[0].nodes: must be at most 4"),
        (FLOW.replace("name: flow", "name: flow\npartition: nowhere"), "the cluster has no partition 'nowhere'"),
        ("name: x\n", "stages"),
    ],
)
def test_a_wrong_file_is_exit_2(agent, text, said):
    (agent.folder / "wrong.yaml").write_text(text)
    done = agent.run("try", "wrong.yaml")
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_without_slurm_it_is_exit_6(site):
    if site.process is not None and site.process.poll() is None:
        site.stop()
    (site.folder / "w.yaml").write_text(FLOW)
    done = site.run("try", "w.yaml", PENSTOCK_SLURM__MOCK_SOCKET=str(site.folder / "gone.sock"))
    assert done.returncode == 6 and done.stdout == ""
