"""penstock tick over a simulated Slurm, the inbox, and the real sbatch's place taken by a script."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import replace

import pytest
from click.testing import CliRunner

from penstock.admin.one_pass import Tick, one_pass
from penstock.app import App
from penstock.cli import cli
from penstock.config import config_of
from penstock.errors import NotNow, NotPermitted, OutcomeUnknown, UserError
from penstock.fronts.programs.script import script_lines
from penstock.ipc.inbox import LATER, Inbox
from penstock.resize.running.part import MalleablePart
from penstock.sbatch.submission import submit
from penstock.state.leadership import lock_state
from penstock.state.store import Store
from penstock.workflow.files.formats import load_workflow
from penstock.workflow.model import workflow_to_dict
from penstock_lab.agent_world import SETTINGS, START, Killed
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.testing import make_snapshot

FLOW = """
name: ticked
stages:
  - {name: a, nodes: 1, time: 60, expect: 1, run: sleep 0.5}
  - {name: b, nodes: 2, time: 60, expect: 1, run: "true", after: a}
"""


def test_what_was_left_is_done_once_in_order_and_refusals_are_told(tmp_path):
    store, done = Store(tmp_path / "db"), []

    async def take(uid, payload):
        done.append((uid, payload["n"]))
        if payload["n"] == 2:
            raise UserError("not like this")
        if payload["n"] == 4 and done.count((5, 4)) == 1:
            raise NotNow("later")

    for n in range(1, 6):
        store.inbox.post(5, "guide", {"n": n}, 0.0)
    inbox = Inbox(store, dict.fromkeys(LATER, take))
    first = asyncio.run(inbox.reconcile(make_snapshot()))
    assert [(d.subject, d.reasons[0].code) for d in first] == [
        ("request 1", "taken"),
        ("request 2", "refused"),
        ("request 3", "taken"),
    ]
    assert [row[0] for row in store.inbox.waiting()] == [4, 5]
    asyncio.run(inbox.reconcile(make_snapshot()))
    assert [n for _uid, n in done] == [1, 2, 3, 4, 4, 5]
    assert store.inbox.waiting() == []


def test_stages_that_the_settings_do_not_allow_are_kept_in_order_and_asked_again(tmp_path):
    store, allowed, asked = Store(tmp_path / "db"), set(), []

    async def take(uid, payload):
        asked.append((uid, payload["n"]))
        if uid not in allowed:
            raise NotPermitted("not here", by_setting=True)

    def look(at):
        decisions = asyncio.run(inbox.reconcile(replace(make_snapshot(), taken_at=at)))
        return [(d.subject, d.reasons[0].code) for d in decisions]

    for n, op in enumerate(("guide", "guide", "submit"), 1):
        store.inbox.post(5, op, {"n": n}, 0.0)
    store.inbox.post(6, "guide", {"n": 4}, 0.0)
    inbox = Inbox(store, dict.fromkeys(LATER, take))
    allowed.add(6)
    said = [("request 1", "kept"), ("request 3", "refused"), ("request 4", "taken")]
    assert look(1000.0) == said, "nothing waits in Slurm for the workflow of 3, and the other user is not kept waiting"
    assert look(1009.0) == []
    assert look(1010.0) == [("request 1", "kept")]
    allowed.add(5)
    assert look(1029.0) == []
    assert look(1030.0) == [("request 1", "taken"), ("request 2", "taken")]
    assert [n for _uid, n in asked] == [1, 3, 4, 1, 1, 2] and store.inbox.waiting() == []


def test_a_kill_finds_what_was_done_and_the_request_or_neither(tmp_path):
    class Killed(BaseException):
        pass

    store, at = Store(tmp_path / "db"), []

    async def take(uid, payload):
        if at == ["before"]:
            raise Killed
        with store.together():
            store.runs.add(uid, {}, 0.0)
            if at == ["within"]:
                raise Killed
        if at == ["after"]:
            raise Killed

    inbox = Inbox(store, dict.fromkeys(LATER, take))
    store.inbox.post(5, "submit", {}, 0.0)
    for at[:] in (["before"], ["within"]):
        with pytest.raises(Killed):
            asyncio.run(inbox.reconcile(make_snapshot()))
        assert (len(store.inbox.waiting()), len(store.runs.latest())) == (1, 0)
    at[:] = ["after"]
    with pytest.raises(Killed):
        asyncio.run(inbox.reconcile(make_snapshot()))
    assert (len(store.inbox.waiting()), len(store.runs.latest())) == (0, 1)


@pytest.mark.parametrize("end", [Killed, OutcomeUnknown])
def test_a_submission_that_was_interrupted_is_tried_again_by_the_ticks_that_follow(tmp_path, monkeypatch, end):
    backend = virtual_cluster(ClusterConfig(accrue_always=True), "alice", start=START)
    config = config_of({**SETTINGS, "agent": {**SETTINGS["agent"], "state_dir": str(tmp_path)}})

    async def tick():
        store = Store(tmp_path / "penstock.db")
        app = App(config, backend, backend, store)
        await app.start(without=[MalleablePart])
        try:
            return await one_pass(app)
        finally:
            store.close()

    async def interrupted(_spec):
        raise end("in the middle of it")

    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    payload = {"workflow": {**workflow_to_dict(load_workflow(file, None)), "workdir": "/tmp"}, "strategy": "perstage"}
    Store(tmp_path / "penstock.db").inbox.post(os.geteuid(), "submit", payload, START)
    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(backend, "submit", interrupted)
        asyncio.run(tick())
    for _ in range(10):
        backend.clock.advance(60.0)
        done = asyncio.run(tick())
    assert done.left == 0
    stages = Store(tmp_path / "penstock.db").runs.latest()[0][2]["stages"]
    assert [(s["name"], s["phase"], s["attempt"], s["job"]) for s in stages] == [
        ("a", "done", 2, 1),
        ("b", "done", 1, 2),
    ]


def test_a_request_that_took_the_number_of_one_just_done_stays(tmp_path):
    store = Store(tmp_path / "db")

    async def take(uid, payload):
        with store.together():
            store.runs.add(uid, {}, 0.0)
        if payload.get("first"):  # another command, meanwhile
            store.inbox.post(5, "submit", {}, 0.0)

    number = store.inbox.post(5, "submit", {"first": True}, 0.0)
    inbox = Inbox(store, dict.fromkeys(LATER, take))
    asyncio.run(inbox.reconcile(make_snapshot()))
    assert [row[0] for row in store.inbox.waiting()] == [number]


def test_a_workflow_goes_through_by_ticks_and_each_does_little(site):
    (site.folder / "w.yaml").write_text(FLOW)
    assert site.run("tick").returncode == 0
    left = site.run("submit", "w.yaml", "--tick", "--strategy", "perstage")
    assert (left.returncode, left.stdout) == (0, "The next `penstock tick` takes the workflow on\n")
    told: list[dict] = []

    def ended() -> bool:
        done = site.run("tick", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        told.append(json.loads(done.stdout))
        return bool(told[-1]["left"] == 0 and len(told) > 1)

    site.until(ended, "the workflow's end")
    verbs = [(d["subject"], d["verb"]) for t in told for d in t["decisions"] if d["verb"] != "nothing"]
    assert verbs == [("request 1", "adopt"), ("workflow 1/a", "submit"), ("workflow 1/b", "submit")]
    quiet = site.run("tick")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    shown = json.loads(site.run("status", "ticked", "--json").stdout)["workflows"][0]
    assert shown["phase"] == "completed"
    assert "submit a at once" in site.run("explain", "w1").stdout


@pytest.mark.long
def test_a_tick_steps_back_where_somebody_has_the_state_folder(site):
    lock = lock_state(site.folder / "agent")
    try:
        assert json.loads(site.run("tick", "--json").stdout) == {
            "format": 1,
            "decisions": [],
            "left": 0,
            "problems": [],
            "ran": False,
        }
        assert (site.run("tick").stdout, site.run("tick").returncode) == ("", 0)
        assert "another agent already runs on" in site.run("tick", "-v").stdout
    finally:
        os.close(lock)


def test_a_slurm_that_does_not_answer_is_a_code_and_no_mail(site):
    site.configure(slurm={"mock_socket": str(site.folder / "nobody")})
    try:
        done = site.run("tick")
        assert (done.returncode, done.stdout, done.stderr) == (6, "", "")
        assert site.run("tick", "-v").stderr.startswith("penstock: ")
    finally:
        site.configure(slurm={"mock_socket": str(site.cluster.socket)})


def test_a_tick_says_on_request_why_nothing_was_done(monkeypatch):
    async def held(_config):
        return Tick(True, problems=("slurm: squeue gave no answer",))

    monkeypatch.setattr("penstock.admin.one_pass.tick", held)
    silent, told = (CliRunner().invoke(cli, ["tick", *words]) for words in ([], ["-v"]))
    assert (silent.exit_code, silent.output) == (6, "")
    assert told.exit_code == 6 and "penstock: slurm: squeue gave no answer" in told.output


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """`fake(text)` puts a program called sbatch in front of all others."""

    def make(text: str) -> None:
        file = tmp_path / "sbatch"
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PENSTOCK_SHIM_PATIENCE", "0")
    return make


@pytest.mark.parametrize(
    ("text", "job", "cluster", "code"),
    [
        ("echo 12", 12, "", 0),
        ("echo '12;east'", 12, ";east", 0),
        ("echo 'Welcome to 24 nodes'; echo 12", 12, "", 0),
        ("echo 12; exit 7", 12, "", 7),
        ("echo oh no; exit 3", None, "", 3),
        ("exit 1", None, "", 1),
    ],
)
def test_what_sbatch_says_is_understood(fake, text, job, cluster, code):
    fake(text)
    done = submit(["--parsable"], b"#!/bin/sh\n", {})
    assert (done.job, done.cluster, done.end()) == (job, cluster, code)


def test_a_script_goes_to_sbatch_as_it_came_and_the_job_is_known_before_sbatch_ends(fake, tmp_path):
    text = b"#!/bin/sh\n\xff\0" + b"x" * 300_000
    fake(
        f'cat > {tmp_path}/got; echo "$1" "$X" > {tmp_path}/words; echo 5\n'
        f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    )
    done = submit(["a b"], text, {"X": "y"})
    assert (done.job, done.ended) == (5, False)
    (tmp_path / "go").touch()
    assert done.end() == 0
    assert (tmp_path / "got").read_bytes() == text
    assert (tmp_path / "words").read_text() == "a b y\n"


def test_scripts_are_found_as_sbatch_finds_them(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "path").mkdir()
    (tmp_path / "here" / "a.sh").write_text("one\n")
    (tmp_path / "path" / "b.sh").write_text("two\n")
    (tmp_path / "path" / "a.sh").write_text("three\n")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.chdir(tmp_path / "here")
    assert [script_lines("a.sh"), script_lines("b.sh"), script_lines("c.sh")] == [["one"], ["two"], []]
    assert script_lines("b.sh", str(tmp_path / "path")) == ["two"]
    assert script_lines("../path/b.sh") == ["two"]
    assert script_lines(str(tmp_path)) == []
