"""Allow-lists and messages over a real Slurm: who is left alone, and what is told once over restarts of the agent."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from agents import Desk, SlurmAgent

from penstock.ipc.client import ask
from penstock.state.store import Store

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


def seen(site: SlurmAgent, number: int) -> dict:
    (found,) = [w for w in ask(site.socket, "status")["workflows"] if w["id"] == number]
    return dict(found)


HELD = """name: w
workdir: {home}
account: {account}
stages:
  - {{name: one, nodes: 1, time: 60, expect: 1, run: sleep 1}}
"""


def test_an_account_outside_the_allow_list_is_left_alone_until_a_reload(make_agent, cluster):
    rule = {"features": ["workflows"], "accounts": ["penstock"]}
    for entity in (["account", "chem"], ["user", cluster.users["bob"], "account=chem"]):
        cluster.run_as("root", ["sacctmgr", "-i", "add", *entity])  # there already where the test has run before
    site = make_agent("operator", agent={"serve": "all"}, limits={"allow": [rule]}).start()
    known = ["scontrol", "show", "assoc_mgr", "flags=assoc", "accounts=chem"]
    site.until(lambda: "UserName=" + cluster.users["bob"] in cluster.run_as("root", known).stdout, "the association")
    alice, bob = Desk(site, "alice"), Desk(site, "bob")
    for desk, account in ((alice, "penstock"), (bob, "chem")):
        file = desk.write("w.yaml", HELD.format(account=account, home=desk.home))
        done = site.run(desk.who, "submit", file)
        assert done.returncode == 0, done.stderr
    flows = {w["uid"]: w["id"] for w in ask(site.socket, "status")["workflows"]}
    hers, his = (flows[cluster.user(who).uid] for who in ("alice", "bob"))
    site.until(lambda: seen(site, hers)["phase"] == "completed", "the workflow of the allowed account", 120)

    def reasons() -> list[list[str]]:
        return [r for d in ask(site.socket, "explain", {"subject": f"workflow {his}"}) for r in d["reasons"]]

    site.until(lambda: "not-allowed" in [code for code, _text in reasons()], "the reason")
    assert "account chem is not one of penstock" in reasons()[-1][1]
    (job,) = [stage["job"] for stage in seen(site, his)["stages"]]
    row = cluster.run_as("root", ["squeue", "-h", "-j", str(job), "-o", "%T %r"], check=True).stdout.split()
    assert row == ["PENDING", "BeginTime"], "as its user has left it"
    assert f"on hold: workflow {his}: outside of `limits.allow`" in site.run("bob", "status").stderr
    settings = yaml.safe_load(site.config.read_text())
    settings["limits"]["allow"] = [{**rule, "accounts": ["penstock", "chem"]}]
    site.config.write_text(yaml.safe_dump(settings))
    assert site.process is not None
    site.process.send_signal(signal.SIGHUP)
    site.until(lambda: seen(site, his)["phase"] == "completed", "the workflow of the account allowed now", 120)


FAILING = "name: {name}\nstages:\n  - {{name: a, nodes: 1, time: 60, expect: 1, run: exit 3}}\n"


@pytest.fixture
def told(make_agent) -> Iterator[tuple[SlurmAgent, Callable[[], list[str]]]]:
    """An agent of alice's with a command that notes the keys of events, and what it has noted."""
    site = make_agent()
    notes, command = site.folder / "notes", site.place / "tell"
    command.write_text(f"#!/bin/sh\ncat >> {notes}\necho >> {notes}\n")
    command.chmod(0o755)
    settings = yaml.safe_load(site.config.read_text())
    settings["messages"] = {"command": [str(command)], "timeout": 60}
    site.config.write_text(yaml.safe_dump(settings))
    yield site.start(), lambda: _keys(notes)


def _keys(notes: Path) -> list[str]:
    return [json.loads(line)["key"] for line in notes.read_text().splitlines() if line] if notes.exists() else []


def states(site: SlurmAgent) -> list[str]:
    """The states of all messages."""
    store = Store.read_only(site.folder / "agent" / "penstock.db")
    try:
        return [m["state"] for m in store.messages.latest()]
    finally:
        store.close()


def test_a_failed_stage_is_told_of_once_also_over_restarts_of_the_agent(told):
    site, keys = told
    first = site.submit(FAILING.format(name="first"), "perstage")
    site.until(lambda: keys(), "the message")
    site.until(lambda: states(site) == ["sent"], "the note that it was sent")
    for number in (signal.SIGKILL, signal.SIGTERM):
        site.stop(number)
        site.start()
    assert site.finish(first)["phase"] == "failed"
    second = site.submit(FAILING.format(name="second"), "perstage")
    site.until(lambda: len(keys()) > 1, "the message on another workflow, which comes after any on the first")
    jobs = [site.state(run)["stages"][0]["job"] for run in (first, second)]
    assert keys() == [
        f"stage-failed workflow {run}/a job {job}" for run, job in zip((first, second), jobs, strict=True)
    ]
    report = json.loads(site.run("alice", "report", "--json").stdout)
    assert {f["name"]: f["value"] for f in report["figures"]}["workflows_failed"] >= 1
