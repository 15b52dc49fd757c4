"""What the scripts of guarded jobs do, run by a real bash with a Slurm of shell scripts."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from test_workflow_runner import Driver, job

from penstock.workflow.guard import PARENT_FAILED, TOO_EARLY, Guard
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase
from penstock.workflow.run.reading import SiteRules
from penstock.workflow.run.retrying import retried
from penstock.workflow.scripts import job_spec


@pytest.fixture
def slurm(tmp_path):
    """`slurm(squeue=..., sacct=...)`: what these commands do; every call is noted in the file `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(**commands: str) -> None:
        for name in ("squeue", "sacct", "scontrol"):
            path = folder / name
            path.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\n{commands.get(name, "exit 1")}\n')
            path.chmod(0o755)

    make()
    return make


def bash(folder: Path, script: str, **more: str):
    environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "SLURM_JOB_ID": "5", **more}
    return subprocess.run(
        ["bash"], input=script, text=True, capture_output=True, cwd=folder, env=environment, timeout=30
    )


def run(folder: Path, command: str, *, guard: Guard | None = None, mark: bool = False, name: str = "b", **more: str):
    flow = Workflow("w", (Stage(name, 1, 60, 60, command),))
    return bash(folder, job_spec(flow, flow.stages[0], "7-x", 1, (), guard=guard, mark=mark).script, **more)


def calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return file.read_text().splitlines() if file.exists() else []


def after(*parents: tuple[int, str], grace: float = 60.0, requeue: bool = False) -> Guard:
    return Guard("7-x", parents, grace, requeue)


def test_the_mark_of_the_parent_lets_the_job_go_without_a_word_to_slurm(tmp_path, slurm):
    done = run(tmp_path, "echo first", mark=True, name="a")
    assert (done.returncode, done.stdout) == (0, "first\n")
    assert (tmp_path / ".penstock/marks/7-x/a").exists()
    done = run(tmp_path, "echo second", guard=after((12, "a")), mark=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "second\n", "")
    assert calls(tmp_path) == []


def test_a_second_attempt_does_nothing_if_the_first_has_completed_after_all(tmp_path, slurm):
    again = Guard("7-x", (), 60.0, again="b")
    assert run(tmp_path, "echo work", guard=again, mark=True).stdout == "work\n"
    done = run(tmp_path, "echo work", guard=again, mark=True)
    assert (done.returncode, done.stdout, done.stderr, calls(tmp_path)) == (0, "", "", [])


@pytest.mark.parametrize("strategy", ["handover", "asa-naive", "asa-after"])
def test_what_a_user_runs_again_does_run_again(tmp_path, slurm, strategy):
    driver = Driver(strategy, Workflow("w", (Stage("a", 1, 60, 60, "echo work"),)))

    def attempt(number):
        order = driver.submit(number, number)
        driver.step(number + 9, job(number, "COMPLETED", start=number + 1.0, end=number + 8.0))
        assert driver.run.phase is RunPhase.COMPLETED
        return bash(tmp_path, order.spec.script).stdout

    assert attempt(1010) == "work\n"
    driver.run = retried(driver.run, "a", token="another", now=0.0)
    assert attempt(1020) == "work\n"


@pytest.mark.parametrize("command", ["exit 3", "false", "set +e\nfalse"])
def test_a_stage_that_fails_leaves_no_mark_and_keeps_its_exit_code(tmp_path, slurm, command):
    done = run(tmp_path, command, mark=True, name="a")
    assert done.returncode == (3 if "3" in command else 1)
    assert not (tmp_path / ".penstock/marks/7-x/a").exists()


def test_without_a_mark_slurm_knows(tmp_path, slurm):
    slurm(squeue="echo COMPLETED")
    done = run(tmp_path, "echo go", guard=after((12, "a"), (13, "c")))
    assert (done.returncode, done.stdout) == (0, "go\n"), done.stderr
    assert calls(tmp_path) == ["squeue -h -t all -j 12 -o %T", "squeue -h -t all -j 13 -o %T"]


def test_a_job_that_slurm_has_forgotten_is_looked_up_in_accounting(tmp_path, slurm):
    slurm(sacct="echo COMPLETED")
    assert run(tmp_path, "echo go", guard=after((12, "a"))).stdout == "go\n"


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED by 1000"])
def test_a_parent_that_failed_ends_the_job_before_its_work(tmp_path, slurm, state):
    slurm(squeue=f"echo {state}")
    done = run(tmp_path, "echo go", guard=after((12, "a")))
    assert (done.returncode, done.stdout) == (PARENT_FAILED, "")
    assert done.stderr == f"penstock: a (job 12) has ended {state}: nothing is done\n"


@pytest.fixture
def agent(tmp_path, slurm):
    """`agent(*lines)`: a Python for `-m dmr.ended` that says this, or where it is nothing, finds no agent. What it
    gives is the environment of a job that the agent has submitted."""

    def make(*lines: str) -> dict[str, str]:
        said, python = tmp_path / "said", tmp_path / "python"
        said.write_text("".join(f"{line}\n" for line in lines))
        python.write_text(f'#!/bin/sh\necho agent "$@" >>{tmp_path}/calls\ncat {said}\nexec test -s {said}\n')
        python.chmod(0o755)
        return {"DMR_AGENT": "login:1", "DMR_PYTHON": str(python)}

    return make


@pytest.mark.parametrize(
    ("states", "code", "out"),
    [
        (("12 COMPLETED", "13 COMPLETED", "again 15"), 0, "go\n"),
        (("12 COMPLETED", "13 FAILED", "again 15"), PARENT_FAILED, ""),
        (("13 TIMEOUT", "12 RUNNING", "again 15"), PARENT_FAILED, ""),
    ],
)
def test_where_an_agent_answers_slurm_is_not_asked(tmp_path, agent, states, code, out):
    done = run(tmp_path, "echo go", guard=after((12, "a"), (13, "c")), **agent(*states))
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert calls(tmp_path) == ["agent -m dmr.ended 12 13"]


def test_what_the_agent_does_not_know_slurm_is_asked(tmp_path, slurm, agent):
    slurm(squeue="echo COMPLETED")
    done = run(tmp_path, "echo go", guard=after((12, "a"), (13, "c")), **agent("12 COMPLETED", "again 15"))
    assert (done.returncode, done.stdout) == (0, "go\n"), done.stderr
    assert calls(tmp_path) == ["agent -m dmr.ended 12 13", "squeue -h -t all -j 13 -o %T"]


def test_an_agent_that_is_silent_once_is_asked_again_before_slurm(tmp_path, slurm, agent):
    slurm(squeue="echo COMPLETED")
    done = run(tmp_path, "echo go", guard=after((12, "a")), **agent())
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "go"), done.stderr
    assert calls(tmp_path) == ["agent -m dmr.ended 12"] * 2 + ["squeue -h -t all -j 12 -o %T"]


def test_what_an_agent_says_that_is_no_answer_harms_nothing(tmp_path, slurm, agent):
    slurm(squeue="echo COMPLETED")
    done = run(tmp_path, "echo go", guard=after((12, "a")), **agent("again; touch x", "12; FAILED", "again $(id)"))
    assert (done.returncode, done.stdout) == (0, "go\n"), done.stderr
    assert calls(tmp_path)[-1] == "squeue -h -t all -j 12 -o %T"


def test_it_waits_and_asks_rarely(tmp_path, slurm):
    slurm(squeue="echo RUNNING")
    (tmp_path / ".penstock/marks/7-x").mkdir(parents=True)
    leave = subprocess.Popen(["sh", "-c", f"sleep 3; : >{tmp_path}/.penstock/marks/7-x/a"])
    done = run(tmp_path, "echo go", guard=after((12, "a")))
    leave.wait()
    assert done.returncode == 0 and done.stdout.endswith("go\n") and "waited" in done.stdout
    assert len(calls(tmp_path)) == 1


def test_too_early_it_requeues_itself(tmp_path, slurm):
    slurm(squeue="echo RUNNING", scontrol="kill $PPID")
    done = run(tmp_path, "echo go", guard=after((12, "a"), grace=1.0, requeue=True))
    assert done.stdout == "" and done.returncode == -15, "Slurm kills what it requeues"
    assert calls(tmp_path)[-1] == "scontrol requeue 5"


def test_too_early_and_not_to_be_requeued(tmp_path, slurm):
    slurm(squeue="echo PENDING")
    done = run(tmp_path, "echo go", guard=after((12, "a"), grace=1.0))
    assert (done.returncode, done.stdout) == (TOO_EARLY, "")


def test_once_its_work_begins_it_is_not_requeued_any_more(tmp_path, slurm):
    slurm(squeue="echo COMPLETED", scontrol="exit 0")
    assert run(tmp_path, "echo go", guard=after((12, "a"), requeue=True)).stdout == "go\n"
    assert calls(tmp_path)[-1] == "scontrol update jobid=5 requeue=0"


def test_a_job_idles_no_longer_than_its_limit_leaves_beside_its_work():
    site = SiteRules(accrues=False, cycle=5.0, grace=300.0)
    stage = Stage("s", 1, 3600.0, 1000.0, "x")
    assert site.grace_of(stage) == 300.0
    assert site.grace_of(replace(stage, time_limit=1200.0)) == pytest.approx(100.0)
    assert site.grace_of(replace(stage, time_limit=1000.0)) == 0.0


@pytest.mark.parametrize(("command", "code"), [("[ $PENSTOCK_MEANWHILE = 1 ] && echo work", 0), ("exit 3", 3)])
def test_meanwhile_something_else_uses_the_nodes_and_ends_with_the_script(tmp_path, slurm, command, code):
    slurm(squeue="sleep 1; echo COMPLETED")
    meanwhile = "sh -c 'trap \"echo over >>m; exit 0\" TERM; echo begun >>m; while :; do sleep 0.1; done'"
    flow = Workflow("w", (Stage("b", 1, 60, 60, command, meanwhile=meanwhile),))
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for guard in (after((12, "a")), None):
        script = job_spec(flow, flow.stages[0], "7-x", 1, (), guard=guard, mark=True).script
        done = subprocess.run(["bash"], input=script.encode(), capture_output=True, cwd=tmp_path, env=environment)
        if guard is not None:  # nobody waits without one
            assert done.returncode == code, done.stderr
    assert (tmp_path / "m").read_text() == "begun\nover\n"


# -- old marks ---------------------------------------------------------------------------------------------------------


def old(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (0.0, 0.0))


def test_an_old_run_s_marks_are_removed_and_nothing_else(tmp_path, slurm):
    """The folder of marks may be one that the user has named, with other things in it."""
    marks = tmp_path / ".penstock/marks"
    for number in ("1-old", "2-new"):
        flow = Workflow("w", (Stage("a", 1, 60, 60, "true"), Stage("b", 1, 60, 60, "true")))
        for stage in flow.stages:
            assert bash(tmp_path, job_spec(flow, stage, number, 1, (), mark=True).script).returncode == 0
    (foreign := marks / "thesis").mkdir()
    (foreign / "chapter").write_text("years of work")
    (marks / "empty").mkdir()
    (marks / "notes").write_text("text")
    (marks / "3-0a").mkdir()
    (marks / "3-0a/__init__.py").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/.penstock-marks").write_text("marks of elsewhere\n")
    (marks / "link").symlink_to(tmp_path / "elsewhere")
    (marks / "copied").mkdir()
    (marks / "copied/.penstock-marks").write_text("marks of 1-old\n")
    old(*marks.iterdir())
    os.utime(marks / "2-new")
    assert run(tmp_path, "true", mark=True).returncode == 0
    left = {path.name for path in marks.iterdir()}
    assert left == {"2-new", "7-x", "thesis", "empty", "notes", "3-0a", "link", "copied"}
    assert (foreign / "chapter").read_text() == "years of work"
    assert (tmp_path / "elsewhere/.penstock-marks").exists()


def test_a_run_s_folder_in_which_somebody_has_put_something_stays(tmp_path, slurm):
    assert run(tmp_path, "true", mark=True, name="a").returncode == 0
    folder = tmp_path / ".penstock/marks/7-x"
    (folder / "data").write_text("mine")
    (folder / "more").mkdir()
    old(folder)
    flow = Workflow("w", (Stage("b", 1, 60, 60, "true"),))
    assert bash(tmp_path, job_spec(flow, flow.stages[0], "8-y", 1, (), mark=True).script).returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == [".penstock-marks", "a", "data", "more"]
    (folder / "data").unlink()
    (folder / "more").rmdir()
    old(folder)
    assert bash(tmp_path, job_spec(flow, flow.stages[0], "8-y", 1, (), mark=True).script).returncode == 0
    assert not folder.exists()


def test_a_mark_never_empties_a_file_of_its_name(tmp_path, slurm):
    (folder := tmp_path / ".penstock/marks/7-x").mkdir(parents=True)
    (folder / "a").write_text("text")
    assert run(tmp_path, "true", mark=True, name="a").returncode == 0
    assert (folder / "a").read_text() == "text"
