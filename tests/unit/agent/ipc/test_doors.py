"""Who may ask what at the command line's door of an agent that serves everybody, and what one user can do to it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.api import Decision, Reason, Verb
from penstock.app import App
from penstock.config import config_of, load
from penstock.console.door import ask_or_read
from penstock.core import callers
from penstock.core.pauses import Pause
from penstock.errors import AgentUnavailable, ConfigError, NotFound, NotNow, NotPermitted, UserError
from penstock.ipc.inbox import LATER, Inbox
from penstock.state.leadership import hold_state, lock_state
from penstock.state.sizes import FinishedResize
from penstock.state.store import Store
from penstock.workflow.part import WorkflowPart
from penstock.workflow.run import measure
from penstock.workflow.submit import admission, chains
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.testing import make_job, make_snapshot

ME, ALICE, BOB, OPER = os.geteuid(), 1101, 1102, 1103


class Agent:
    """A whole agent over a simulated cluster, asked as one user or another."""

    def __init__(self, serve="all"):
        self.running = asyncio.new_event_loop()
        self.backend = virtual_cluster(ClusterConfig(operators=("oper",)), start=1e9)
        config = config_of({"agent": {"serve": serve, "seed": 1}})
        self.app = App(config, self.backend, self.backend.clock, Store(":memory:"))
        self.running.run_until_complete(self.app.start())

    def ask(self, uid, op, /, **request):
        return self.running.run_until_complete(self.app.operations[op](uid, request))


@pytest.fixture
def agent():
    agent = Agent()
    yield agent
    agent.running.run_until_complete(agent.app.close())
    agent.running.close()


def stages(*names, script=""):
    """Each a job of its own, whose number follows from its name."""
    order = {"words": [], "workdir": "/", "script": script}
    return [{"name": name, "job": int.from_bytes(name.encode()), "after": [], "order": order} for name in names]


def test_a_pause_of_the_administrators_cannot_be_made_ones_own_and_lifted(agent):
    agent.ask(ME, "pause", uid=ALICE, why="she was told")
    with pytest.raises(NotPermitted, match="somebody else has paused it already"):
        agent.ask(ALICE, "pause", uid=ALICE)
    with pytest.raises(NotPermitted, match=r"not paused by you: .* paused by root:"):
        agent.ask(ALICE, "resume", uid=ALICE)
    assert [p.by for p in agent.app.executor.pause_control.pauses] == [ME]
    agent.ask(ALICE, "pause", uid=ALICE, feature="malleable")
    agent.ask(ALICE, "pause", uid=ALICE, feature="malleable", why="again")
    agent.ask(ME, "pause", uid=ALICE, feature="malleable", why="and now I say so")
    with pytest.raises(NotPermitted, match=r"not paused by you: .* paused by root:"):
        agent.ask(ALICE, "resume", uid=ALICE, feature="malleable")


@pytest.mark.parametrize("op", ["pause", "resume"])
def test_a_user_who_would_pause_everything_is_told_how_to_pause_what_is_theirs(agent, op):
    for more in ({}, {"partition": "batch"}, {"uid": BOB}):
        with pytest.raises(NotPermitted, match="use `--user` with your name"):
            agent.ask(ALICE, op, **more)


def test_what_a_user_says_of_a_pause_cannot_act_on_anothers_terminal(agent):
    agent.ask(ALICE, "pause", uid=ALICE, why="\x1b[2J\nall is well" + "x" * 1000)
    (pause,) = agent.app.executor.pause_control.pauses
    assert pause.why.isprintable()
    assert len(pause.why) <= 500


@pytest.mark.parametrize("partition", ["", "a b", "x" * 300, "\x1b[2J"])
def test_only_a_partition_can_be_paused(agent, partition):
    with pytest.raises(UserError, match="partition"):
        agent.ask(ALICE, "pause", uid=ALICE, partition=partition)


def test_what_is_explained_is_a_job_or_a_workflow_of_ones_own(agent):
    number = agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("a"))["run"]
    assert agent.ask(ALICE, "explain", subject=f"workflow {number}/a") == []
    others = [
        "agent",
        f"workflow {number}",
        f"request {number}",
        f"job {number}",
        "workflow " + "9" * 5000,
        "workflow ٣",
    ]
    for subject in others:
        with pytest.raises(NotPermitted):
            agent.ask(BOB, "explain", subject=subject)
    with pytest.raises(NotPermitted):
        agent.ask(ALICE, "explain", subject=f"request {number}")


def test_the_owner_of_a_resized_job_may_ask_what_was_decided_also_after_its_end(agent):
    store = agent.app.store
    store.malleable.save(7, {"job": 7, "uid": ALICE}, ended=5.0)
    store.decisions.record(Decision(Verb.EXPAND, "job 7", (Reason("idle", "two nodes are idle"),)), 1.0)
    assert [d["verb"] for d in agent.ask(ALICE, "explain", subject="job 7")] == ["expand"]
    assert [d["subject"] for d in agent.ask(ALICE, "decisions")] == ["job 7"]
    with pytest.raises(NotPermitted):
        agent.ask(BOB, "explain", subject="job 7")
    assert agent.ask(BOB, "decisions") == []


def test_the_status_has_the_resizes_of_ones_own_jobs(agent):
    for job, uid in ((7, ALICE), (8, BOB), (9, None)):
        agent.app.store.resizes.add(FinishedResize(job, 1, "expand", (2, 4), "completed", {}, uid=uid, nodes=2), 5.0)
    seen = {uid: [r["job"] for r in agent.ask(uid, "status")["resizes"]] for uid in (ALICE, BOB, ME)}
    assert seen == {ALICE: [7], BOB: [8], ME: [7, 8, 9]}


def test_a_number_that_slurm_gave_again_is_that_of_the_job_which_has_it_now(agent):
    agent.app.store.malleable.save(7, {"job": 7, "uid": ALICE}, ended=5.0)
    agent.app.observer._last = make_snapshot([replace(make_job(7, "n1"), uid=BOB)])
    for uid in (ALICE, BOB):
        with pytest.raises(NotPermitted):
            agent.ask(uid, "explain", subject="job 7")


def test_a_refusal_says_what_the_rule_is(agent):
    for op, request in (("waits", {}), ("queue", {}), ("explain", {"subject": "agent"}), ("resume", {})):
        with pytest.raises(NotPermitted, match=r"only the agent's own user, root, or an operator of Slurm may"):
            agent.ask(ALICE, op, **request)
    with pytest.raises(NotPermitted, match="tell of the jobs of others; `sbatch --test-only` asks Slurm"):
        agent.ask(ALICE, "waits")
    agent.app.config = config_of({"agent": {"serve": "own"}})
    with pytest.raises(NotPermitted, match="serves its own user only"):
        agent.ask(ALICE, "waits")


def test_nobody_speaks_for_another_user(agent):
    number = agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("a"))["run"]
    with pytest.raises(NotFound):
        agent.ask(BOB, "cancel", run=number)
    with pytest.raises(NotFound):
        agent.ask(BOB, "guide", workflow="w", run=number, strategy="asa", stages=stages("b"))
    assert agent.ask(BOB, "status")["workflows"] == []
    for op, request in (
        ("submit", {"workflow": {}, "strategy": "asa"}), ("retry", {"run": 1}), ("queue", {}), ("waits", {}),
        ("try", {"workflow": {}}), ("pause", {}), ("resume", {}), ("pause", {"uid": ALICE}), ("resume", {"uid": ALICE}),
    ):  # fmt: skip
        with pytest.raises(NotPermitted):
            agent.ask(BOB, op, **request)


@pytest.mark.parametrize("run", [True, 1.0, "1", 0, -1, 2**64, None, [1]])
def test_a_number_of_a_workflow_is_a_number(agent, run):
    with pytest.raises(UserError, match="must be the number of a workflow"):
        agent.ask(ME, "cancel", run=run)


def test_a_users_workflow_does_not_grow_without_an_end(agent, monkeypatch):
    monkeypatch.setattr(admission, "MOST_STAGES", 5)
    agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("a", "b", "c"))
    with pytest.raises(UserError, match="would have 6 stages, at most 5"):
        agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("d", "e", "f"))
    monkeypatch.setattr(admission, "_MOST_TEXT", 3000)
    agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("d", script="x" * 600))
    with pytest.raises(UserError, match="longer than 3000"):
        agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("e", script="x" * 600))


def linked(*jobs):
    """(job, dependency) of each."""
    return [{"called": f"j{job}", "job": job, "dependency": text, "at": 1e9} for job, text in jobs]


def test_jobs_that_depend_on_one_another_are_followed_for_their_owner_alone(agent):
    first = agent.ask(ALICE, "follow", links=linked((5, ""), (6, "afterok:5")))
    again = agent.ask(ALICE, "follow", links=linked((5, ""), (6, "afterok:5")))
    assert first == again == {"run": 1}
    assert agent.ask(ALICE, "follow", links=linked((7, ""), (8, "afterok:7"))) == {"run": 2}
    # Numbers of jobs are no secret: Bob's chain is his own.
    assert agent.ask(BOB, "follow", links=linked((9, "afterok:5"))) == {"run": 3}
    assert agent.ask(ALICE, "follow", links=linked((10, "afterok:6:8,singleton"))) == {"run": 1}
    runs = agent.app.part(WorkflowPart).controller.runs
    assert {n: [s.job for s in run.stages] for n, run in runs.items()} == {1: [5, 6, 7, 8, 10], 3: [9]}
    shown = {w["id"]: w for w in agent.ask(ALICE, "status")["workflows"]}
    assert (shown[2]["phase"], shown[2]["stages"]) == ("completed", [])
    assert shown[2]["why"] == "its jobs are part of workflow 1 (j5) now"
    assert agent.app.part(WorkflowPart).controller.book.finished.total() == 0
    told = agent.ask(ALICE, "explain", subject="workflow 1/j10")
    assert [code for code, _text in told[-1]["reasons"]] == ["chain-after", "left-to-slurm", "chains-joined"]
    with pytest.raises(NotPermitted):
        agent.ask(BOB, "explain", subject="workflow 1")
    agent.app.observer._last = make_snapshot([replace(make_job(11, "n1"), uid=BOB)])
    with pytest.raises(NotPermitted, match="job 11 is not yours"):
        agent.ask(ALICE, "follow", links=linked((11, "afterok:5")))


def test_a_chain_does_not_grow_without_an_end(agent, monkeypatch):
    monkeypatch.setattr(chains, "MOST_STAGES", 3)
    agent.ask(ALICE, "follow", links=linked((5, ""), (6, "afterok:5")))
    with pytest.raises(UserError, match="would have 4 jobs, at most 3"):
        agent.ask(ALICE, "follow", links=linked((7, "afterok:6"), (8, "afterok:7")))
    monkeypatch.setattr(measure, "MOST_OPEN", 1)
    with pytest.raises(NotNow, match="have not ended"):
        agent.ask(ALICE, "follow", links=linked((20, ""), (21, "afterok:20")))
    agent.ask(ALICE, "follow", links=linked((7, "afterok:6")))


def test_a_user_has_so_many_workflows_at_once(agent, monkeypatch):
    monkeypatch.setattr(measure, "MOST_OPEN", 2)
    for name in ("v", "w"):
        agent.ask(ALICE, "guide", workflow=name, strategy="asa", stages=stages("a"))
    with pytest.raises(NotNow, match="have not ended"):
        agent.ask(ALICE, "guide", workflow="x", strategy="asa", stages=stages("a"))
    agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("b"))
    agent.ask(BOB, "guide", workflow="x", strategy="asa", stages=stages("a"))


def test_a_users_workflows_are_so_long_in_all(agent, monkeypatch):
    """Or one user could fill the agent's memory, workflow by workflow."""
    monkeypatch.setattr(measure, "MOST_TEXT", 10_000)
    agent.ask(ALICE, "guide", workflow="v", strategy="asa", stages=stages("a", script="x" * 4000))
    agent.ask(ALICE, "guide", workflow="w", strategy="asa", stages=stages("a", script="x" * 4000))
    with pytest.raises(NotNow, match="longer than 10000"):
        agent.ask(ALICE, "guide", workflow="x", strategy="asa", stages=stages("a", script="x" * 4000))
    many = stages(*(f"s{i}" for i in range(20)))
    with pytest.raises(NotNow, match="longer than 10000"):
        agent.ask(ALICE, "guide", workflow="x", strategy="asa", stages=many)
    agent.ask(BOB, "guide", workflow="x", strategy="asa", stages=stages("a", script="x" * 4000))


def test_an_operator_sees_all_and_may_pause_but_acts_as_nobody_else(agent, monkeypatch):
    monkeypatch.setattr(callers, "login", {ALICE: "alice", OPER: "oper"}.get)
    ask = agent.ask
    ask(ALICE, "pause", uid=ALICE)
    assert ask(OPER, "cluster")["whole"] and not ask(ALICE, "cluster")["whole"]
    assert ask(OPER, "queue")["jobs"] == []
    ask(OPER, "explain", subject="workflow 1")
    ask(OPER, "pause", why="maintenance")
    assert [str(p).count("maintenance") for p in agent.app.executor.pause_control.pauses] == [0, 1]
    assert any("maintenance" in problem for problem in ask(OPER, "status")["problems"])
    ask(OPER, "resume")
    assert not agent.app.executor.pause_control.pauses
    for op, request in (("submit", {}), ("retry", {"run": 1}), ("cancel", {"run": 1})):
        with pytest.raises(NotPermitted, match="agent's own user"):
            ask(OPER, op, **request)
    for op in ("queue", "pause", "resume", "waits"):
        with pytest.raises(NotPermitted, match="or an operator of Slurm"):
            ask(ALICE, op)


def test_a_request_that_was_left_and_breaks_is_not_tried_for_ever():
    store, tried = Store(":memory:"), []

    async def take(_uid, payload):
        tried.append(payload)
        return payload["x"] / 0

    store.inbox.post(ME, "guide", {"x": 1}, 0.0)
    store.inbox.post(ME, "nonsense", {}, 0.0)
    inbox = Inbox(store, dict.fromkeys(LATER, take))
    decisions = asyncio.run(inbox.reconcile(make_snapshot()))
    assert [d.reasons[0].code for d in decisions] == ["refused", "refused"]
    assert store.inbox.waiting() == []


def test_a_dry_run_takes_no_workflows_of_others(agent):
    agent.app.executor.pause_control.dry_run = True
    stage = {"stage": "a", "job": 1, "after": []}
    with pytest.raises(NotPermitted, match="dry_run"):
        agent.ask(ALICE, "guide", workflow="w", stages=[stage])
    assert "dry run: nothing is done to jobs of other users" in agent.ask(ALICE, "status")["problems"]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_state_folder_that_others_can_write_to_is_refused(tmp_path, mode):
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ConfigError, match="chmod go-w"):
        lock_state(folder)
    folder.chmod(0o711)
    os.close(lock_state(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_state_folder_of_another_user_is_refused(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o711)
    os.chown(folder, ALICE, ALICE)
    with pytest.raises(ConfigError, match="belongs to another user"):
        lock_state(folder)


@pytest.fixture
def foreign(monkeypatch):
    """The configuration of a site, whose state belongs to its service user."""
    place = Path(tempfile.mkdtemp(prefix="penstock-door-"))
    place.chmod(0o755)
    (place / "state").mkdir(mode=0o700)
    os.chown(place / "state", BOB, BOB)
    (place / "site.yaml").write_text(f"agent:\n  state_dir: {place / 'state'}\n")
    monkeypatch.setattr("penstock.config.SITE", place / "site.yaml")
    monkeypatch.setattr("penstock.state.leadership.SITE", place / "site.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    yield place
    os.seteuid(0)
    shutil.rmtree(place)


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")


@ROOT_ONLY
@pytest.mark.parametrize("shared", ["yes", "no"])
def test_whom_the_sites_configuration_holds_by_mistake_is_told_what_to_do(foreign, monkeypatch, shared):
    monkeypatch.setenv("PENSTOCK_AGENT__SHARED", shared)
    os.seteuid(ALICE)
    with pytest.raises(ConfigError, match="belongs to another user") as caught:
        hold_state(load(), "agent")
    said = str(caught.value)
    assert f"set by {foreign / 'site.yaml'}:2, the site's configuration" in said
    assert f"make {foreign / 'config' / 'penstock' / 'config.yaml'}, which may be empty" in said
    os.seteuid(0)
    with pytest.raises(ConfigError, match="systemctl start penstock"):
        hold_state(load(), "agent")


@ROOT_ONLY
def test_another_file_or_a_variable_that_names_somebody_elses_folder_is_named(foreign, monkeypatch):
    other = foreign / "other.yaml"
    (foreign / "site.yaml").rename(other)
    with pytest.raises(ConfigError, match=f"it is set by {other}:2$"):
        hold_state(load(other), "agent", config_path=other)
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(foreign / "state"))
    with pytest.raises(ConfigError, match=r"it is set by PENSTOCK_AGENT__STATE_DIR$"):
        hold_state(load(), "agent")


def test_the_pause_of_a_stored_state_is_what_it_was(agent):
    agent.ask(ALICE, "pause", uid=ALICE)
    (stored,) = [Pause(**p) for p in json.loads(agent.app.store.facts.get("pauses"))]
    assert stored.scope == (None, ALICE, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")
def test_a_state_that_one_may_not_read_is_no_other_error_than_that_no_agent_answers():
    folder = Path(tempfile.mkdtemp(prefix="penstock-door-"))  # others cannot enter it
    (folder / "penstock.db").touch()
    config = config_of({"agent": {"state_dir": str(folder)}})
    os.seteuid(ALICE)
    try:
        with pytest.raises(AgentUnavailable):
            ask_or_read(config, "status")
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)
