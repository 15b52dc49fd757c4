"""penstock top, retry, logs and the way to the state file, over a simulated Slurm and over none."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import time
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner
from stored_states import owners_run

from penstock.api import Decision, Reason, Verb
from penstock.cli import cli
from penstock.config import load
from penstock.errors import NotFound, UserError
from penstock.sbatch.commands.arrays import again, completed_in
from penstock.state.leadership import hold_state, last_at_work
from penstock.state.store import TICKED, Store
from penstock.workflow.commands.joblog import output_files
from penstock.workflow.commands.runs import find, shown
from penstock.workflow.documents import run_to_dict
from penstock.workflow.metrics import WaitParts
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import Kept, RunPhase, StagePhase, Submitter
from penstock.workflow.run.retrying import retried
from penstock.workflow.run.runner import Runner
from penstock.workflow.state import Own, StageRun

FLOW = Workflow("w", tuple(Stage(n, 1, 60.0, 30.0, "true", a) for n, a in (("a", ()), ("b", ("a",)), ("c", ("b",)))))
BROKEN = owners_run(
    7,
    (
        StageRun("a", phase=StagePhase.DONE, job=1, start=5.0, end=9.0, submitted=0.0, slurm_state="COMPLETED"),
        StageRun("b", (0,), StagePhase.FAILED, job=2, failure="job 2 ended FAILED", start=12.0, end=13.0),
        StageRun("c", (1,), job=3, own=Own(kept=Kept.BEGIN)),
    ),
    os.geteuid(),
    name="w",
    submitted_at=0.0,
    phase=RunPhase.FAILING,
    why="b: job 2 ended FAILED",
)


def ended(*phases: StagePhase):
    run = Runner(accrues=True).start(3, FLOW, "perstage", 0.0, partition="batch")
    stages = tuple(replace(s, phase=p, attempt=1, job=9, failures=2) for s, p in zip(run.stages, phases, strict=True))
    return replace(run, stages=stages, phase=RunPhase.FAILED, why="b: it failed", ended_at=5.0)


def test_what_did_not_complete_waits_again_and_keeps_its_attempts():
    run = retried(ended(StagePhase.DONE, StagePhase.FAILED, StagePhase.CANCELLED), token="new", now=50.0)
    assert [s.phase for s in run.stages] == [StagePhase.DONE, StagePhase.WAITING, StagePhase.WAITING]
    assert [(s.job, s.attempt, s.failures) for s in run.stages] == [(9, 1, 2), (None, 1, 0), (None, 1, 0)]
    assert (run.phase, run.why, run.ended_at) == (RunPhase.ACTIVE, None, None)


def test_a_named_stage_takes_all_after_it_along():
    done = replace(ended(StagePhase.DONE, StagePhase.DONE, StagePhase.DONE), phase=RunPhase.COMPLETED)
    assert [s.phase for s in retried(done, "b", token="new", now=50.0).stages] == [
        StagePhase.DONE,
        StagePhase.WAITING,
        StagePhase.WAITING,
    ]
    with pytest.raises(UserError, match="all stages of workflow 3 have completed"):
        retried(done, token="new", now=50.0)
    with pytest.raises(UserError, match="no stage 'x'"):
        retried(done, "x", token="new", now=50.0)
    with pytest.raises(UserError, match="is active"):
        retried(replace(done, phase=RunPhase.ACTIVE), token="new", now=50.0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A configuration without an agent and a state file that `penstock tick` works on."""
    config = tmp_path / "penstock.yaml"
    config.write_text(yaml.safe_dump({"agent": {"state_dir": str(tmp_path / "state")}}))
    monkeypatch.setenv("PENSTOCK_CONFIG", str(config))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "state").mkdir()
    store = Store(tmp_path / "state" / "penstock.db")
    for _ in range(6):
        store.runs.add(os.geteuid(), {}, 0.0, Submitter.OWNER)
    store.runs.add(os.geteuid(), run_to_dict(BROKEN), 0.0, Submitter.OWNER)
    with store.together():
        store.connection.execute("DELETE FROM runs WHERE id < 7")
    store.facts.remember(TICKED, str(time.time()))
    store.close()
    return tmp_path


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code or getattr(done.exception, "exit_code", None) == code, done.output
    return str(done.exception) if code else done.output


def program(place, name: str, text: str) -> None:
    file = place / "bin" / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_top_shows_what_is_open_once_where_there_is_no_terminal(place):
    shown_ = run("top")
    assert "workflows 1  running 0  waiting 1" in shown_
    assert "job 2 ended FAILED" in shown_
    answer = json.loads(run("top", "--json"))
    assert [w["id"] for w in answer["workflows"]] == [7]
    assert answer["problems"] == []


@pytest.mark.parametrize("which", ["7", "w7", "w"])
def test_a_workflow_is_found_by_its_number_or_name(place, which):
    assert "workflow 7 w (asa): failing - b: job 2 ended FAILED" in run("status", which)
    answer = json.loads(run("status", which, "--json"))
    stage = find(shown(answer), which).stage("b")
    assert (stage.phase, stage.waited) == ("failed", WaitParts(3.0, 0.0, 0.0))
    assert find(shown(answer), which).stage("c").phase == "kept back"


def test_a_stage_that_came_to_a_workflow_later_has_waited_since_then():
    first, later = (
        StageRun(name, phase=StagePhase.RUNNING, job=n, start=100.0) for n, name in enumerate("ab", start=1)
    )
    later = replace(later, own=Own(registered=90.0))
    (run,) = shown({"workflows": [run_to_dict(owners_run(3, (first, later), submitted_at=0.0))]})
    assert [stage.waited for stage in run.stages] == [WaitParts(w, 0.0, 0.0) for w in (100.0, 10.0)]


def test_what_is_not_there_is_said(place):
    assert run("status", "w8", code=5) == "there is no workflow w8"
    assert run("logs", "w", "x", code=5) == "workflow 7 has no stage 'x' (stages: a, b, c)"
    assert run("retry", "nope", code=5) == "there is no workflow nope"
    assert run("retry", "w", "a", code=2) == "nothing of workflow 7 failed that could run again: stage 'a' is done"


def test_without_an_agent_or_ticks_it_says_how_to_start_one(place):
    (place / "state" / "penstock.db").unlink()
    for words in (["status"], ["top"], ["explain", "w7"], ["logs", "w"], ["retry", "w"], ["cancel", "w"]):
        assert "no agent answers" in run(*words, code=3)
    assert not (place / "state" / "penstock.db").exists()


@pytest.mark.parametrize("words", [["status"], ["explain", "w7"], ["top"]])
def test_to_look_at_a_state_of_an_older_release_changes_nothing(place, words):
    file = place / "state" / "penstock.db"
    Store(file).close()  # what its log has is in the file then
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version=3")
    db.close()
    before = file.read_bytes()
    told = run(*words, code=8)
    assert "was written by an older Penstock" in told and "install Penstock of commit fd8d5927" in told
    assert file.read_bytes() == before


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_request_that_is_left_is_json_where_that_is_wanted(place, word):
    assert json.loads(run(word, "--json")) == {"format": 1, "left": True, "pauses": [], "unwritten": ""}
    assert run(word) == "Left for the next pass of an agent, or `penstock tick`\n"


def test_a_pause_that_a_sites_service_user_leaves_is_no_matter_of_a_crontab(place, monkeypatch):
    monkeypatch.setenv("PENSTOCK_AGENT__SERVE", "all")
    with contextlib.closing(Store(place / "state" / "penstock.db")) as store:
        store.facts.remember(TICKED, "0")
        before = len(store.inbox.waiting())
        assert run("pause", "--why", "work on Slurm") == "Left for the next pass of an agent, or `penstock tick`\n"
        assert [op for _n, _at, _uid, op, _request in store.inbox.waiting()[before:]] == ["pause"]


def decided(place, *subjects: str) -> None:
    with contextlib.closing(Store(place / "state" / "penstock.db")) as store:
        for subject in subjects:
            store.decisions.record(Decision(Verb.SUBMIT, subject, (Reason("due", f"about {subject}"),)), 5.0)


@pytest.mark.parametrize("subject", ["w", "w7"])
def test_a_workflow_is_explained_by_its_name_as_by_its_number(place, subject):
    decided(place, "workflow 7/b", "workflow 7/c", "workflow 6/b")
    told = run("explain", subject)
    assert "about workflow 7/b" in told and "about workflow 7/c" in told and "workflow 6" not in told
    one = run("explain", f"{subject}/b")
    assert "about workflow 7/b" in one and "workflow 7/c" not in one
    answer = json.loads(run("explain", f"{subject}/b", "--json"))
    assert (answer["subject"], len(answer["decisions"])) == ("workflow 7/b", 1)


def test_of_several_of_one_name_the_newest_is_explained_and_that_is_said(place):
    with contextlib.closing(Store(place / "state" / "penstock.db")) as store:
        number = store.runs.add(os.geteuid(), {}, 0.0, Submitter.OWNER)
        store.runs.save(number, run_to_dict(replace(BROKEN, id=number)))
    decided(place, "workflow 7/b", "workflow 8/b")
    told = run("explain", "w")
    assert number == 8 and "about workflow 8/b" in told and "workflow 7" not in told
    assert "workflow 8 is the newest of 2 of the name w" in told


def test_what_a_part_has_decided_is_explained_by_its_name_also_without_an_agent(place, monkeypatch):
    monkeypatch.setattr("penstock.core.installed.loaded", None)  # no part is loaded for it
    decided(place, "patience/monday", "patience/tuesday", "impatience")
    assert [line.split()[1] for line in run("explain", "patience").splitlines()] == [
        "patience/monday",
        "patience/tuesday",
    ]
    assert "about patience/monday" in run("explain", "patience/monday")


def test_what_cannot_be_explained(place):
    assert "SUBJECT must be a job number such as 1234" in run("explain", "nothing", code=2)
    assert run("explain", "w/x", code=5) == "workflow 7 has no stage 'x' (stages: a, b, c)"


def test_where_an_agent_is_gone_it_is_said_since_when_and_what_it_knew_is_shown(place):
    """A socket that nobody listens at is what a kill leaves."""
    with contextlib.closing(Store(place / "state" / "penstock.db")) as store:
        store.connection.execute("DELETE FROM facts WHERE key=?", (TICKED,))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(load().socket_path))
    lock = place / "state" / "agent.lock"
    lock.touch()
    at = time.time() - 3 * 86400
    os.utime(lock, (at, at))
    decided(place, "workflow 7/b")
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    for words in (["status"], ["status", "w"], ["top"]):
        told = run(*words)
        assert "job 2 ended FAILED" in told
        assert f"on hold: no agent runs: the last pass of one began at {since}" in told
    assert since in json.loads(run("status", "--json"))["problems"][0]
    assert "about workflow 7/b" in run("explain", "w")
    for words in (["cancel", "w"], ["retry", "w"]):
        assert "no agent answers" in run(*words, code=3), "what an agent would have to do is asked of one"
    lock.unlink()
    assert "on hold: no agent runs\n" in run("status")


def test_the_lock_shows_when_a_pass_began(place):
    config = load()
    with contextlib.closing(hold_state(config, "agent")) as leadership:
        os.utime(place / "state" / "agent.lock", (5.0, 5.0))
        assert last_at_work(place / "state") == 5.0
        assert leadership.why_not() is None
        assert time.time() - last_at_work(place / "state") < 10


def test_of_an_array_the_tasks_that_have_not_completed_run_again():
    shown_ = "\n".join(
        f"JobId={n} ArrayJobId=5 ArrayTaskId={task} JobName=x\n   JobState={state} Reason=None Dependency=(null)\n"
        for n, task, state in ((6, "0", "COMPLETED"), (7, "1", "FAILED"), (8, "4-9%2", "CANCELLED"))
    )
    recorded = "5_1|FAILED\n5_2|COMPLETED\n5_3|CANCELLED by 0\n5_[4-9]|CANCELLED\n50_8|COMPLETED\n"
    assert completed_in(5, shown_, recorded) == {0, 2}
    assert completed_in(5, "", "") == frozenset()
    assert completed_in(1, "", "1|COMPLETED\n1_0|COMPLETED\n") == {0}, "the row of the array is none of its task 1"
    assert again("0-9%3", {0, 2}) == "1,3-9%3"
    assert again("1,3-9:2", {3, 5}) == "1,7,9"
    assert again("0-3", {0, 1, 2, 3}) == again("0-3", set()) == "0-3", "all of it"


def test_the_output_files_are_what_slurm_says(place):
    program(place, "scontrol", 'echo "   StdErr=/x/e"; echo "   StdOut=/x/a b"; echo "JobName=y StdOut=/no"')
    assert output_files(3, 5.0) == ["/x/a b"]
    program(place, "scontrol", "exit 1")
    program(place, "sacct", 'echo "/x/later"')
    assert output_files(3, 5.0) == ["/x/later"]
    program(place, "sacct", 'echo "sacct: error: Invalid field requested" >&2; exit 1')
    assert output_files(3, 5.0) == []


def test_logs_are_printed_or_it_is_said_why_not(place):
    file = place / "out.txt"
    program(place, "scontrol", f'echo "   StdOut={file}"')
    assert "the file is not there (failed)" in run("logs", "w", "b", code=6)
    assert "it has not begun (kept back)" in run("logs", "w", "c", code=6)
    file.write_text("said\n")
    assert run("logs", "w") == "said\n"
    assert run("logs", "w", "-f") == "said\n"
    told = json.loads(run("logs", "w", "--json"))
    assert told == {"format": 1, "files": [str(file)], "job": 2, "stage": "b", "workflow": 7}
    program(place, "scontrol", "exit 1")
    program(place, "sacct", "exit 1")
    assert "Slurm has forgotten it" in run("logs", "w", "b", code=5)


def test_find_takes_the_latest_of_a_name():
    answer = {"workflows": [run_to_dict(replace(BROKEN, id=n)) for n in (7, 9)]}
    assert find(shown(answer), "w").number == 9
    with pytest.raises(NotFound):
        find([], "1")


def test_one_whose_jobs_are_part_of_another_is_found_by_its_number_alone():
    gone = replace(BROKEN, id=9, stages=(), units=(), phase=RunPhase.COMPLETED)
    runs = shown({"workflows": [run_to_dict(BROKEN), run_to_dict(gone)]})
    assert [find(runs, which).number for which in ("w", "9", "w9")] == [7, 9, 9]


def test_what_slurm_alone_sees_to_is_shown_as_long_as_the_job_waits():
    own = Own(chained=True, base="afterany:5,singleton")
    waits, free, runs_on = (
        StageRun("a", phase=StagePhase.QUEUED, job=6, own=own),
        StageRun("b", phase=StagePhase.QUEUED, job=7, own=Own(chained=True)),
        StageRun("c", phase=StagePhase.RUNNING, job=8, own=own),
    )
    (run,) = shown({"workflows": [run_to_dict(owners_run(3, (waits, free, runs_on)))]})
    assert [stage.why for stage in run.stages] == ["Slurm sees to its afterany:5,singleton", None, None]
