"""The command line against a running agent on the simulated Slurm, as a user meets it: every command is a process."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

import penstock.cli
from penstock.errors import PenstockError
from penstock.ipc.client import ask
from penstock_lab.mock import control

GOOD = """
name: good
shell: strict
stages:
  - {name: first, nodes: 1, time: 60, expect: 1, run: sleep 1}
  - {name: second, nodes: 2, time: 60, expect: 1, run: sleep 1, after: first}
"""


def changed(before: str, after: str) -> str:
    assert before in GOOD
    return GOOD.replace(before, after)


def state(agent, run: int) -> dict:
    """The workflow as `penstock status --json` shows it."""
    done = agent.run("status", str(run), "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["workflows"]
    return found


def submit(agent, text: str, *options: str) -> int:
    (agent.folder / "w.yaml").write_text(text)
    done = agent.run("submit", "w.yaml", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["run"]


def refused(agent, text: str, *options: str) -> str:
    """What `penstock submit` says of this file, on one line; exit 2, nothing submitted."""
    before = agent.names(), len(ask(agent.socket, "status")["workflows"])
    (agent.folder / "bad.yaml").write_text(text)
    done = agent.run("submit", "bad.yaml", *options)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("penstock: bad.yaml: ")
    assert done.stderr.count("\n") == 1
    assert (agent.names(), len(ask(agent.socket, "status")["workflows"])) == before
    return done.stderr.removeprefix("penstock: bad.yaml: ").rstrip("\n")


# -- without an agent --------------------------------------------------------------------------------------------------


def test_help_lists_all_commands(site):
    done = site.run("--help")
    assert done.returncode == 0
    words = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.strip()}
    assert {
        "agent",
        "bench",
        "cancel",
        "cluster",
        "config",
        "demo",
        "env",
        "explain",
        "status",
        "submit",
        "waits",
    } <= words
    assert {"logs", "retry", "sbatch", "tick", "top"} <= words
    assert site.run("--version").stdout.startswith("penstock, version ")


@pytest.mark.parametrize("command", [["status"], ["explain", "w1"], ["cancel", "1"], ["env"], ["submit", "ok.yaml"]])
def test_without_an_agent_a_command_says_how_to_start_one(site, command):
    if site.process is not None and site.process.poll() is None:
        site.stop()
    (site.folder / "ok.yaml").write_text(GOOD)
    done = site.run(*command)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "`penstock agent`" in done.stderr
    assert str(site.socket) in done.stderr


def test_a_wrong_file_is_refused_even_without_an_agent(site):
    if site.process is not None and site.process.poll() is None:
        site.stop()
    (site.folder / "bad.yaml").write_text("name: x\n")
    assert site.run("submit", "bad.yaml").returncode == 2


@pytest.mark.parametrize(
    "command", [["nonsense"], ["submit"], ["submit", "x", "--strategy", "nope"], ["cancel"], ["status", "--nope"]]
)
def test_a_wrong_command_line_is_exit_2_and_said_on_stderr(site, command):
    done = site.run(*command)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr


def test_the_configuration_can_be_checked_and_shown(site):
    assert site.run("config", "check").stdout == f"{site.config}: ok\n"
    shown = yaml.safe_load(site.run("config", "show").stdout)
    assert shown["agent"]["interval"] == 0.2
    assert shown["dmr"]["policy"] == "throughput"


# -- bad workflows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (changed("stages:", "stagess:"), "stagess"),
        (changed("nodes: 2", "node: 2"), "stages[1]: unknown key 'node': did you mean 'nodes'"),
        (changed("name: good", "name: good\nqueue: x"), "queue"),
        (changed("nodes: 2", "nodes: two"), "stages[1].nodes"),
        (changed("nodes: 2", "nodes: 1.5"), "stages[1].nodes"),
        (changed("nodes: 2", "nodes: 0"), "stages[1].nodes"),
        (changed("time: 60, expect: 1, run: sleep 1, after", "time: soon, run: sleep 1, after"), "stages[1].time"),
        (changed("run: sleep 1, after: first", "run: [], after: first"), "stages[1].run"),
        (changed("after: first", "after: 5"), "stages[1].after"),
        (changed("after: first", "after: frist"), "stages[1].after"),
        (changed("after: first", "after: second"), "stages[1].after"),
        (changed("run: sleep 1}", "run: sleep 1, after: second}"), "stages[0].after"),
        (changed("name: second", "name: first"), "stages[1].name"),
        ("name: x\nstages: []\n", "stages"),
        ("name: x\n", "stages"),
        ("just text", "map"),
        ("name: [", "line 1"),
        ("", ""),
    ],
)
@pytest.mark.few(5)
def test_a_wrong_workflow_is_refused_with_file_and_key(agent, text, key):
    assert key in refused(agent, text)


@pytest.mark.parametrize("strategy", ["asa", "perstage", "bigjob"])
def test_more_nodes_than_the_partition_are_refused_with_file_and_key(agent, strategy):
    said = refused(agent, changed("nodes: 2", "nodes: 5"), "--strategy", strategy)
    assert said.startswith("stages[1].nodes: must be at most 4")


def test_an_unknown_partition_is_refused_with_those_there_are(agent):
    assert "'mian' (did you mean 'main'?)" in refused(agent, "partition: mian" + GOOD)


def test_a_file_that_is_not_there_is_refused(agent):
    done = agent.run("submit", "missing.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "penstock: missing.yaml: cannot be read: No such file or directory\n"


# -- the way it should go ----------------------------------------------------------------------------------------------


def test_a_workflow_is_submitted_shown_explained_and_completes(agent):
    known = len(agent.names())
    (agent.folder / "w.yaml").write_text(GOOD)
    done = agent.run("submit", "w.yaml", "--strategy", "perstage")
    assert (done.returncode, done.stderr) == (0, "")
    run = int(done.stdout.removeprefix("Submitted workflow "))
    agent.until(lambda: state(agent, run)["phase"] == "completed", "the workflow's end")
    stages = state(agent, run)["stages"]
    assert [(s["name"], s["phase"], s["exit_code"]) for s in stages] == [("first", "done", 0), ("second", "done", 0)]
    assert stages[0]["end"] <= stages[1]["start"]
    assert len(agent.names()) == known + 2
    shown = agent.run("status", str(run))
    assert f"workflow {run} good (perstage): completed" in shown.stdout
    assert "second" in shown.stdout
    told = agent.run("explain", f"w{run}")
    assert "submit: submit first at once: it comes after no other stage" in told.stdout
    decisions = json.loads(agent.run("explain", f"w{run}", "--json").stdout)["decisions"]
    assert {d["verb"] for d in decisions} >= {"submit"}
    assert all(d["reasons"] for d in decisions if d["verb"] == "submit")
    job = stages[0]["job"]
    told = agent.run("explain", str(job))
    assert told.stderr == f"job {job} is stage first of workflow {run} (good)\n"
    assert "submit: submit first at once: it comes after no other stage" in told.stdout and "second" not in told.stdout


def test_stages_run_in_the_folder_of_the_submission(agent):
    run = submit(agent, changed("sleep 1, after", "pwd > where.txt, after"))
    agent.until(lambda: state(agent, run)["phase"] == "completed", "the workflow's end")
    assert (agent.folder / "where.txt").read_text().strip() == str(agent.folder)


def test_a_workflow_of_a_hundred_kilobytes_is_taken(agent):
    stages = [f"  - {{name: s{i}, nodes: 1, time: 60, run: 'true # {'x' * 300}'}}" for i in range(300)]
    run = submit(agent, "name: long\nstages:\n" + "\n".join(stages), "--strategy", "bigjob")
    agent.until(lambda: state(agent, run)["phase"] == "completed", "the workflow's end")


def test_a_failing_stage_fails_the_workflow_and_says_why(agent):
    run = submit(agent, changed("run: sleep 1}", "run: exit 3}"))
    agent.until(lambda: state(agent, run)["phase"] == "failed", "the workflow's failure")
    found = state(agent, run)
    assert "first" in found["why"]
    assert [s["phase"] for s in found["stages"]] == ["failed", "cancelled"]
    assert "failed" in agent.run("status", str(run)).stdout


def test_a_failed_workflow_runs_again_from_the_stage_that_failed(agent):
    mended = agent.folder / "mended"
    run = submit(agent, changed("run: sleep 1}", f"run: test -e {mended}}}"))
    agent.until(lambda: state(agent, run)["phase"] == "failed", "the failure")
    assert agent.run("retry", str(run), "nope").returncode == 5
    mended.touch()
    done = agent.run("retry", str(run))
    assert (done.returncode, done.stdout) == (0, f"Workflow {run} runs again\n")
    agent.until(lambda: state(agent, run)["phase"] == "completed", "the end")
    assert [s["attempt"] for s in state(agent, run)["stages"]] == [2, 2], "both were in the queue from the beginning"
    assert agent.run("retry", str(run)).returncode == 2
    mended.unlink()


def test_a_cancelled_workflow_ends_and_cannot_be_cancelled_again(agent):
    run = submit(agent, changed("run: sleep 1}", "run: sleep 50}"))
    agent.until(lambda: state(agent, run)["stages"][0]["phase"] == "running", "the first stage")
    done = agent.run("cancel", str(run))
    assert (done.returncode, done.stdout) == (0, f"Workflow {run} is being cancelled\n")
    agent.until(lambda: state(agent, run)["phase"] == "cancelled", "the cancellation")
    again = agent.run("cancel", str(run))
    assert (again.returncode, again.stderr) == (5, f"penstock: no running workflow {run}: it is cancelled\n")
    living = [j for j in control.call(agent.cluster.folder, "jobs") if j["state"] in ("PENDING", "RUNNING")]
    assert living == []


def test_what_is_not_there_or_not_understood_is_exit_2(agent):
    assert agent.run("status", "4711").stderr == "penstock: there is no workflow 4711\n"
    done = agent.run("explain", "this")
    assert done.returncode == 2
    assert "SUBJECT must be" in done.stderr
    for subject, what in (("w4711", "workflow 4711"), ("w4711/x", "workflow 4711/x"), ("hold:4711", "hold 4711")):
        none = agent.run("explain", subject)
        assert (none.returncode, none.stdout, none.stderr) == (5, "", f"penstock: nothing is known of {what}\n")
    for job in ("4711", "4711_2"):
        none = agent.run("explain", job)
        assert (none.returncode, none.stdout) == (5, "") and f"nothing is known of job {job}: it is none" in none.stderr


def test_status_prints_json_with_everything(agent):
    found = json.loads(agent.run("status", "--json").stdout)
    assert {"now", "problems", "workflows", "malleable", "resizes", "paused_until"} <= set(found)
    assert found["problems"] == []
    assert agent.run("status").returncode == 0


def test_env_prints_what_a_malleable_job_needs(agent):
    lines = dict(line.removeprefix("export ").split("=", 1) for line in agent.run("env").stdout.splitlines())
    host, _, port = lines["DMR_AGENT"].rpartition(":")
    assert host == "127.0.0.1"
    assert 0 < int(port) < 65536
    assert Path(lines["DMR_KEY_FILE"]).stat().st_mode & 0o077 == 0


# -- the daemon --------------------------------------------------------------------------------------------------------


def test_whoever_is_answered_at_all_hears_how_programs_find_the_agent(agent):
    """A job that is submitted the moment that an agent is there must not keep its size for want of an address."""
    heard, over = [], threading.Event()

    def asks() -> None:
        while not over.wait(0.001):
            with contextlib.suppress(PenstockError):
                heard.append(ask(agent.socket, "env"))

    agent.stop()
    agent.configure(dmr={"listen": "localhost:0"})  # which takes a moment to look up
    asking = threading.Thread(target=asks)
    asking.start()
    try:
        agent.start()
    finally:
        over.set()
        asking.join()
        agent.configure(dmr={"listen": "127.0.0.1:0"})
    assert heard and all("DMR_AGENT" in answer for answer in heard)


def test_a_second_agent_is_refused_and_the_first_goes_on(agent):
    done = agent.run("agent")
    assert done.returncode != 0
    assert done.stderr.startswith("penstock: another agent already ")
    assert "Traceback" not in done.stderr
    assert agent.answers()


def test_a_second_agent_over_the_same_state_is_refused_whatever_its_socket(agent):
    agent.settings["agent"]["socket"] = str(agent.folder / "second.sock")
    agent.configure()
    try:
        done = agent.run("agent")
    finally:
        del agent.settings["agent"]["socket"]
        agent.configure()
    assert done.returncode != 0
    assert "another agent already runs" in done.stderr
    assert agent.answers()


def test_sigterm_stops_the_agent_soon_and_cleanly(agent):
    go = agent.folder / "go"
    run = submit(agent, changed("run: sleep 1}", f"run: 'until [ -e {go} ]; do sleep 0.1; done'}}"))
    agent.until(lambda: state(agent, run)["stages"][0]["phase"] == "running", "the first stage")
    assert agent.stop(signal.SIGTERM) == 0
    assert not agent.socket.exists()
    assert "Traceback" not in agent.log.read_text()
    go.touch()
    agent.start()  # the job has gone on meanwhile, and so does the workflow
    agent.until(lambda: state(agent, run)["phase"] == "completed", "the workflow's end")


def test_sighup_takes_a_changed_setting_over_and_refuses_a_wrong_one(agent):
    agent.configure(log={"level": "debug"})
    agent.process.send_signal(signal.SIGHUP)
    agent.until(lambda: "[debug" in agent.log.read_text(), "the first debug message after the reload")
    agent.config.write_text("agent: {intervall: 5}")
    agent.process.send_signal(signal.SIGHUP)
    agent.until(lambda: "reload refused" in agent.log.read_text(), "the refusal")
    assert "did you mean `interval`" in agent.log.read_text()
    agent.configure(log={"level": "info"})
    agent.process.send_signal(signal.SIGHUP)
    agent.until(lambda: agent.log.read_text().count("reloaded") == 2, "the second reload")
    assert agent.answers()


def test_kill_9_and_a_restart_keep_the_port_and_the_workflow(agent):
    run = submit(agent, changed("run: sleep 1}", "run: sleep 5}"))
    agent.until(lambda: state(agent, run)["stages"][0]["phase"] == "running", "the first stage")
    before = agent.run("env").stdout
    assert agent.stop(signal.SIGKILL) == -signal.SIGKILL
    assert agent.socket.exists()
    left = agent.run("status")
    assert left.returncode == 0 and "first" in left.stdout, "what it knew"
    assert "on hold: no agent runs: the last pass of one began at " in left.stderr
    assert agent.run("cancel", str(run)).returncode == 3
    agent.start()
    assert agent.run("env").stdout == before
    agent.until(lambda: state(agent, run)["phase"] == "completed", "the workflow's end")
    jobs = [s["job"] for s in state(agent, run)["stages"]]
    records = control.call(agent.cluster.folder, "history", ids=[], name=None, since=None)
    names = [r["name"] for r in records if r["id"] >= min(jobs)]
    assert sorted(n.split(".")[0] for n in names) == ["first", "second"]


def test_slurm_that_fails_or_loses_answers_delays_a_workflow_and_no_more(agent):
    agent.cluster.fault("submit", "lost-answer")
    agent.cluster.fault("jobs", "error", count=2)
    known = len(agent.names())
    run = submit(agent, GOOD, "--strategy", "perstage")
    agent.until(lambda: state(agent, run)["phase"] == "completed", "the workflow's end", 60)
    assert len(agent.names()) == known + 2


def test_an_agent_waits_for_a_slurm_that_is_not_there_yet(site):
    if site.process is not None and site.process.poll() is None:
        site.stop()
    site.cluster.fault("site", "error", count=1)
    site.start()
    assert "slurm does not answer yet" in site.log.read_text()
    assert site.run("status").returncode == 0


def test_a_reload_reads_the_file_that_was_named(agent):
    agent.stop()
    other = agent.folder / "other.yaml"
    other.write_text(agent.config.read_text())
    agent.start("--config", str(other))
    before = len(agent.log.read_text())
    other.write_text("agent: {interval: nonsense}\n")
    agent.process.send_signal(signal.SIGHUP)
    agent.until(lambda: "other.yaml" in agent.log.read_text()[before:], "the refusal of that file")
    agent.stop()


def test_sigterm_does_not_wait_for_slurm_that_hangs(agent):
    agent.until(lambda: ask(agent.socket, "queue")["at"], "a first look, before which none can be seen to hang")
    agent.cluster.fault("jobs", "hang", count=1)
    agent.until(lambda: (ask(agent.socket, "queue")["at"] or time.time()) < time.time() - 1.0, "the look that hangs")
    assert agent.stop(signal.SIGTERM, 20) == 0  # well before what a look may take


def test_an_agent_of_root_says_once_that_it_should_not_be(agent):
    agent.stop()
    before = len(agent.log.read_text())
    agent.start()
    assert agent.log.read_text()[before:].count("this agent runs as root") == (os.geteuid() == 0)


def test_the_agent_can_be_asked_to_explain_itself(agent):
    agent.until(lambda: "complete" in agent.run("explain", "agent").stdout, "what it thinks of the picture")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PENSTOCK_AGENT__SOCKET", "FILE", "is no socket"),
        ("PENSTOCK_AGENT__STATE_DIR", "FILE", "cannot be used"),
        ("PENSTOCK_AGENT__SOCKET", "/tmp/" + "x" * 200, "cannot listen"),
        ("PENSTOCK_DMR__LISTEN", "no-such-host.invalid:0", "cannot listen"),
    ],
)
@pytest.mark.few(2)
def test_what_the_machine_cannot_give_is_a_wrong_configuration(agent, variable, value, said):
    agent.stop()
    file = agent.folder / "precious"
    file.write_text("keep me")
    ran = agent.run("agent", **{variable: value.replace("FILE", str(file))})
    assert ran.returncode == 78, ran.stderr
    assert said in ran.stderr.splitlines()[-1] and "Traceback" not in ran.stderr
    assert file.read_text() == "keep me"


# -- nowhere to write to -----------------------------------------------------------------------------------------------


def command(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **environ):
    argv = [sys.executable, "-c", "from penstock.cli import main; main()", *words]
    return subprocess.run(
        argv, stdout=stdout, stderr=stderr, text=True, timeout=60, check=False, env={**os.environ, **environ}
    )


@pytest.mark.parametrize("words", [["config", "show"], ["config", "schema"], ["--help"], ["waits", "--help"]])
def test_a_full_disk_under_the_output_is_one_line(words):
    with Path("/dev/full").open("w") as full:
        done = command(*words, stdout=full)
    assert (done.returncode, done.stderr) == (1, "penstock: cannot write: No space left on device\n")


@pytest.mark.parametrize(("words", "code"), [(["config", "nope"], 2), (["config", "check"], 78)])
def test_an_error_that_nobody_can_be_told_keeps_its_code(words, code):
    with Path("/dev/full").open("w") as full:
        assert command(*words, stderr=full, PENSTOCK_AGENT__SERVE="nobody").returncode == code


def test_whoever_read_the_output_has_gone():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = command("config", "show", stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_failing_disk_names_the_file_and_other_errors_stay_what_they_are(monkeypatch, capsys):
    def raising(error):
        def run(**_more):
            raise error

        monkeypatch.setattr(penstock.cli, "cli", run)
        penstock.cli.main()

    with pytest.raises(SystemExit, match="1"):
        raising(OSError(errno.EIO, "Input/output error", "/state/file"))
    assert capsys.readouterr().err == "penstock: /state/file: Input/output error\n"
    with pytest.raises(FileNotFoundError):
        raising(FileNotFoundError(errno.ENOENT, "No such file or directory", "/x"))
