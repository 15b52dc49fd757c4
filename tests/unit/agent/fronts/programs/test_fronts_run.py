"""The front programs with programs in the place of Slurm's, which fail as Slurm does when it is busy."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.fronts.commands.shim import shim
from penstock.ipc.handlers import LocalDoor
from penstock.sbatch.remembered import SubmittedJobs
from waiting import until

# $HERE/room: so many jobs there may be.
# $HERE/jobs has a line "COMMENT NUMBER" for each job; $HERE/plan what the calls do, a line each: before and after fail
# with what Slurm says when it is busy, `late` is taken only when the next call is made.
SBATCH = """#!/bin/bash
cd "$HERE"
FAILED="sbatch: error: Batch job submission failed"
exec 9>lock; flock 9
read -r act <plan; sed -i 1d plan
for word; do case $word in --comment=*) comment=${word#*=} ;; esac; done
printf '%s\\n' "$@" >words; env >env
cat "${script:-/dev/null}" >script 2>/dev/null
[ -e late ] && { cat late >>jobs; rm late; }
n=$(($(cat n 2>/dev/null || echo 100) + 1)); echo $n >n
if [ -e room ] && [ "$(cat jobs 2>/dev/null | wc -l)" -ge "$(cat room)" ]; then
  echo "sbatch: error: AssocMaxSubmitJobLimit" >&2
  echo "$FAILED: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)" >&2
  exit 1
fi
case $act in
  before) echo "$FAILED: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  refused) echo "$FAILED: Invalid partition name specified" >&2; exit 1 ;;
  odd) echo "sbatch: error: Please name a project" >&2; exit 7 ;;
  late) echo "$comment $n" >late ;;
  killed) echo "$comment $n" >>jobs; kill -9 $$ ;;
  *) echo "$comment $n" >>jobs ;;
esac
case $act in
  after|late) echo "$FAILED: Socket timed out on send/recv operation" >&2; exit 1 ;;
  mute) exit 1 ;;
esac
echo warned >&2
case " $* " in *" --parsable "*) echo $n ;; *" -Q "*) ;; *) echo "Submitted batch job $n" ;; esac
case " $* " in *" --wait "*) until [ -e go ]; do sleep 0.05; done; exit 3 ;; esac
"""
SQUEUE = """#!/bin/bash
cd "$HERE"
echo "$@" >>asked
if [ -s busy ]; then
  sed -i 1d busy
  echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2
  exit 1
fi
cat jobs 2>/dev/null; exit 0
"""
SCANCEL = """#!/bin/bash
cd "$HERE"
echo "$@" >>cancelled
case " $* " in *" -v "*) echo "scancel: Terminating job 5" >&2 ;; esac
ERROR="scancel: error: Kill job error on job id 5"
if [ -s lost ]; then sed -i 1d lost; echo "$ERROR: Socket timed out on send/recv operation" >&2; exit 1; fi
if [ -e gone ]; then echo "$ERROR: Job/step already completing or completed" >&2; exit $(cat gone); fi
"""
LIMITED = (
    b"sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
    b"(job submit limit, user's size and/or time limits)\n"
)
NOTHING = "#!/bin/sh\nexit 1\n"


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "real"
        self.shim = ""

    def run(self, *words: str, stdin: bytes = b"", **more: str) -> tuple[int, bytes, bytes]:
        env = {**os.environ, "PATH": f"{self.shim}:{os.environ['PATH']}", "HERE": str(self.home), **more}
        done = subprocess.run(words, input=stdin, capture_output=True, timeout=60, env=env, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def plan(self, *acts: str) -> None:
        (self.home / "plan").write_text("".join(f"{act}\n" for act in acts))

    def lines(self, name: str) -> list[str]:
        path = self.home / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PENSTOCK_SHIM_PATIENCE", "12")
    (tmp_path / "slurm.conf").write_text("ClusterName=here\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    it = Desk(tmp_path)
    it.home.mkdir()
    (it.home / "plan").touch()
    programs = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL, "sacct": NOTHING, "scontrol": NOTHING}
    for name, text in programs.items():
        (it.home / name).write_text(text)
        (it.home / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{it.home}:/usr/bin:/bin")
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH -J align --comment=mine\ntrue\n")
    done = CliRunner().invoke(shim, ["--path"], catch_exceptions=False)
    it.shim = done.output.strip()
    return it


Answering = Callable[[Callable[[dict], dict]], list[dict]]


@pytest.fixture
def agent(desk: Desk) -> Iterator[Answering]:
    """`agent(answer)` is one, of few words; the requests that came."""
    asked: list[dict] = []
    server = socket.socket(socket.AF_UNIX)
    (desk.folder / "state").mkdir(exist_ok=True)

    def start(answer: Callable[[dict], dict]) -> list[dict]:
        server.bind(str(desk.folder / "state" / "agent.sock"))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, connection.makefile("rwb") as stream:
                    request = json.loads(stream.readline())
                    asked.append(request)
                    stream.write(json.dumps(answer(request)).encode() + b"\n")

        threading.Thread(target=serve, daemon=True).start()
        return asked

    yield start
    server.close()


# -- sbatch ------------------------------------------------------------------------------------------------------------


def test_a_job_is_submitted_as_it_was_written_and_remembered(desk):
    assert desk.run("sbatch", "-H", "a.sh", "x y") == (0, b"Submitted batch job 101\n", b"warned\n")
    words = desk.lines("words")
    assert (words[0], words[2:]) == ("-H", ["a.sh", "x y"])
    assert words[1].startswith("--comment=mine penstock:")
    environment = dict(line.partition("=")[::2] for line in desk.lines("env"))
    assert environment["PATH"] == os.environ["PATH"]
    known = SubmittedJobs(desk.folder / "state", "here").get(101)
    assert known is not None
    assert (known.name, known.stage, known.dependency) == ("align", "align", "")
    assert known.order == {"words": ["-H", "a.sh", "x y"], "workdir": str(desk.folder), "script": None}


@pytest.mark.parametrize("act", ["before", "after", "mute", "killed"])
def test_what_fails_is_tried_again_and_there_is_one_job(desk, act):
    desk.plan(act)
    code, output, errors = desk.run("sbatch", "--parsable", "a.sh")
    jobs = desk.lines("jobs")
    assert len(jobs) == 1
    assert (code, output) == (0, jobs[0].rpartition(" ")[2].encode() + b"\n")
    assert errors == (b"warned\n" if act == "before" else b"")


def test_a_job_that_came_in_after_it_was_looked_for_is_the_job(desk):
    desk.plan("late")
    assert desk.run("sbatch", "a.sh") == (0, b"Submitted batch job 101\n", b"")
    assert desk.lines("cancelled") == ["102"]


def test_while_squeue_does_not_answer_nothing_is_submitted(desk):
    desk.plan("after")
    (desk.home / "busy").write_text("x\nx\n")
    assert desk.run("sbatch", "a.sh") == (0, b"Submitted batch job 101\n", b"")
    assert desk.lines("n") == ["101"]


def test_after_its_patience_the_answer_is_sbatchs(desk):
    desk.plan("before", "before", "before", "before")
    begun = time.monotonic()
    code, output, errors = desk.run("sbatch", "a.sh", PENSTOCK_SHIM_PATIENCE="2")
    assert (code, output) == (1, b"")
    assert errors.startswith(b"sbatch: error: Batch job submission failed: Unable to contact")
    assert errors.count(b"\n") == 1
    assert time.monotonic() - begun < 20


def test_for_who_has_given_up_nothing_is_tried_again(desk):
    desk.plan("before", "before")
    env = {**os.environ, "PATH": f"{desk.shim}:{os.environ['PATH']}", "HERE": str(desk.home)}
    with subprocess.Popen(["sbatch", "a.sh"], stdout=subprocess.PIPE, env=env, cwd=desk.folder) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 1
    assert desk.lines("jobs") == []
    assert desk.lines("plan") == ["before"], "it was tried once"
    for target in ("/dev/null", str(desk.folder / "answer")):
        desk.plan("before")
        assert desk.run("sh", "-c", f"sbatch a.sh >{target}")[0] == 0, "which nobody has to read"


def test_a_refusal_is_passed_on_at_once(desk):
    desk.plan("refused", "ok")
    refusal = b"sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    assert desk.run("sbatch", "a.sh") == (1, b"", refusal)
    assert desk.lines("n") == ["101"] and not desk.lines("asked")


def test_what_is_not_understood_is_passed_on_when_there_is_no_job(desk):
    desk.plan("odd", "ok")
    assert desk.run("sbatch", "a.sh") == (7, b"", b"sbatch: error: Please name a project\n")
    assert desk.lines("n") == ["101"] and len(desk.lines("asked")) == 1


@pytest.mark.parametrize(
    "words", [["-N1", ":", "-N2", "a.sh"], ["-M", "east", "a.sh"], ["--comment=" + "x" * 1000, "a.sh"]]
)
def test_what_cannot_be_looked_for_is_tried_once(desk, words):
    desk.plan("after", "ok")
    code, output, _errors = desk.run("sbatch", *words)
    assert (code, output, desk.lines("n"), desk.lines("words")) == (1, b"", ["101"], words)


@pytest.mark.parametrize("words", [["--version"], ["--test-only", "a.sh"], ["--help"], ["--usage"]])
def test_what_submits_nothing_is_run_as_it_is(desk, words):
    desk.plan("after", "ok")
    assert desk.run("sbatch", *words)[0] == 1
    assert desk.lines("words") == words


@pytest.mark.parametrize("words", [[], ["/dev/stdin"]])
def test_a_script_in_a_pipe_is_given_again_at_each_try(desk, words):
    text = b"#!/bin/sh\n#SBATCH --comment=piped\n" + b"# x\n" * 100_000
    desk.plan("before", "before")
    assert desk.run("sbatch", *words, stdin=text, script="/dev/stdin")[:2] == (0, b"Submitted batch job 103\n")
    assert (desk.home / "script").read_bytes() == text
    assert desk.lines("words")[0].startswith("--comment=piped penstock:")
    known = SubmittedJobs(desk.folder / "state", "here").get(103)
    assert known is not None and known.order["script"] == text.decode()


def test_a_script_of_a_process_substitution(desk):
    desk.plan("before")
    done = desk.run("bash", "-c", "sbatch <(cat a.sh)")
    assert done[:2] == (0, b"Submitted batch job 102\n")


def test_quiet_is_quiet(desk):
    desk.plan("after")
    assert desk.run("sbatch", "-Q", "a.sh") == (0, b"", b"")
    assert len(desk.lines("jobs")) == 1


def test_the_job_is_named_before_the_end_of_one_that_is_waited_for(desk):
    env = {**os.environ, "PATH": f"{desk.shim}:{os.environ['PATH']}", "HERE": str(desk.home)}
    process = subprocess.Popen(["sbatch", "--wait", "a.sh"], stdout=subprocess.PIPE, env=env, cwd=desk.folder)
    assert process.stdout is not None
    assert process.stdout.readline() == b"Submitted batch job 101\n"
    assert process.poll() is None
    (desk.home / "go").touch()
    assert process.wait(30) == 3


@pytest.mark.parametrize(("ended", "code"), [("FAILED ExitCode=3:0", 3), ("FAILED ExitCode=0:9", 1),
                                             ("TIMEOUT ExitCode=0:15", 1), ("CANCELLED ExitCode=0:0", 0)])  # fmt: skip
def test_it_ends_as_sbatch_does_whose_job_ended_so(desk, ended, code):
    desk.plan("after")
    (desk.home / "scontrol").write_text(f"#!/bin/sh\necho 'JobId=101 JobName=x JobState={ended}'\n")
    assert desk.run("sbatch", "--wait", "a.sh") == (code, b"Submitted batch job 101\n", b"")


@pytest.mark.parametrize("alive", ["RUNNING", "REQUEUE_HOLD", "SPECIAL_EXIT", "SIGNALING"])
def test_one_that_is_waited_for_and_whose_answer_was_lost_is_waited_for(desk, alive):
    desk.plan("after")
    states = f"echo 'JobId=101 JobName=x JobState={alive} ExitCode=0:0'"
    ended = (
        "echo 'JobId=101_1 JobName=x JobState=COMPLETED ExitCode=0:0'; echo 'JobId=102 JobState=FAILED ExitCode=3:0'"
    )
    text = f'#!/bin/sh\ncd "$HERE"\nif [ -e seen ]; then {ended}; else touch seen; {states}; fi\n'
    (desk.home / "scontrol").write_text(text)
    assert desk.run("sbatch", "--wait", "a.sh") == (3, b"Submitted batch job 101\n", b"")


def test_a_signal_ends_it_and_sbatch(desk):
    env = {**os.environ, "PATH": f"{desk.shim}:{os.environ['PATH']}", "HERE": str(desk.home)}
    process = subprocess.Popen(["sbatch", "--wait", "a.sh"], stdout=subprocess.PIPE, env=env, cwd=desk.folder)
    assert process.stdout is not None and process.stdout.readline()
    process.terminate()
    assert process.wait(30) == -15


def test_many_at_once_with_every_third_failing(desk):
    desk.plan(*["before", "after", "ok", "mute", "ok", "ok"] * 20)
    found: list[bytes] = []

    def submit() -> None:
        found.append(desk.run("sbatch", "--parsable", "a.sh")[1])

    threads = [threading.Thread(target=submit) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there = [line.rpartition(" ")[2] for line in desk.lines("jobs")]
    assert sorted(text.decode().strip() for text in found) == sorted(there)
    assert len(there) == 30


def test_where_there_may_be_no_more_jobs_it_waits_for_room_in_order(desk):
    """One that comes while there is room, and others wait, does not overtake them."""
    (desk.home / "room").write_text("0\n")
    found: dict[str, tuple[int, bytes, bytes]] = {}

    def submit(name: str) -> None:
        found[name] = desk.run("sbatch", f"--comment={name}", "a.sh")

    def in_line() -> int:
        return len(list((desk.folder / "state").rglob("waiting/*/[0-9]*")))

    threads = [threading.Thread(target=submit, args=(name,)) for name in "abcd"]
    for n, thread in enumerate(threads, 1):
        thread.start()
        until(lambda n=n: in_line() == n, "the next in line", 10)
    (desk.home / "room").write_text("2\n")
    threads[0].join()
    threads[1].join()
    assert len(desk.lines("jobs")) == 2
    (desk.home / "room").write_text("9\n")
    for thread in threads:
        thread.join()
    assert [line.split()[0] for line in desk.lines("jobs")] == list("abcd")
    for name, (code, output, errors) in found.items():
        assert (code, output[:20]) == (0, b"Submitted batch job "), name
        assert errors.count(b"\n") == 2 and errors.count(b"waiting, at most 12 s") == 1, errors
    assert b"(AssocMaxSubmitJobLimit)" in found["a"][2]
    assert in_line() == 0


def test_where_no_room_comes_the_answer_is_slurms(desk):
    (desk.home / "room").write_text("0\n")
    code, output, errors = desk.run("sbatch", "a.sh", PENSTOCK_SHIM_PATIENCE="3")
    assert (code, output, errors.count(b"waiting, at most 3 s")) == (1, b"", 1)
    assert errors.endswith(b"AssocMaxSubmitJobLimit\n" + LIMITED)
    assert (
        desk.run("sbatch", "a.sh", PENSTOCK_SHIM_PATIENCE="0")[2]
        == b"sbatch: error: AssocMaxSubmitJobLimit\n" + LIMITED
    )


def test_one_that_was_killed_in_line_and_one_of_another_account_hold_up_nobody(desk):
    (desk.home / "room").write_text("0\n")
    env = {**os.environ, "PATH": f"{desk.shim}:{os.environ['PATH']}", "HERE": str(desk.home)}
    with subprocess.Popen(["sbatch", "a.sh"], stderr=subprocess.PIPE, env=env, cwd=desk.folder) as process:
        assert process.stderr is not None and b"waiting" in process.stderr.readline()
        (desk.home / "room").write_text("9\n")
        assert b"others of your jobs" not in desk.run("sbatch", "-A", "b", "a.sh")[2]
        process.kill()
    assert desk.run("sbatch", "a.sh")[2] == b"warned\n"


@pytest.mark.parametrize("words", [["--penstock-nonsense=x", "a.sh"], ["p.sh"]])
def test_what_is_penstocks_is_left_to_it(desk, words):
    (desk.folder / "p.sh").write_text("#!/bin/sh\n#PENSTOCK nonsense=x\n")
    code, output, errors = desk.run("sbatch", *words)
    assert (code, output) == (2, b"")
    assert errors.startswith(b"penstock: ") and b"nonsense" in errors
    assert not desk.lines("words")


def test_a_dependency_is_followed(desk):
    desk.run("sbatch", "a.sh")
    code, output, errors = desk.run("sbatch", "-d", "afterok:align", "a.sh")
    assert (code, output, errors) == (0, b"Submitted batch job 102\n", b"warned\n"), "nothing of ours for a tool"
    assert "--dependency=afterok:101" in desk.lines("words")
    known = SubmittedJobs(desk.folder / "state", "here").get(102)
    assert known is not None and known.dependency == "afterok:101"


def test_without_its_penstock_the_real_one_submits(desk):
    settings = Path(desk.shim) / "settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "python": "/nowhere/python"}))
    assert desk.run("sbatch", "-d", "afterok:1", "a.sh")[:2] == (0, b"Submitted batch job 101\n")
    (desk.folder / "p.sh").write_text("#!/bin/sh\n#PENSTOCK workflow=w\n")
    code, output, errors = desk.run("sbatch", "p.sh")
    assert (code, output) == (1, b"") and b"Penstock cannot be run (/nowhere/python" in errors


# -- the others --------------------------------------------------------------------------------------------------------


def test_the_agent_answers(desk, agent):
    asked = agent(lambda request: {"ok": True, "result": {"out": "7 R\n", "err": "e", "code": 5}})
    assert desk.run("squeue", "-h", "-j", "7", SQUEUE_FORMAT="%i") == (5, b"7 R\n", b"e")
    (request,) = asked
    assert (request["op"], request["program"], request["words"]) == ("answer", "squeue", ["-h", "-j", "7"])
    assert request["environ"]["SQUEUE_FORMAT"] == "%i" and "PATH" not in request["environ"]
    assert not desk.lines("asked")


@pytest.mark.parametrize(
    "reply",
    [
        {"ok": True, "result": {"through": "a format of its own"}},
        {"ok": False, "error": "UserError", "message": "no such operation"},
        {"ok": True, "result": None},
        {"ok": True, "result": {"out": "x", "code": 0}},
        [],
    ],
)
def test_where_it_does_not_the_real_one_does(desk, agent, reply):
    agent(lambda request: reply)
    (desk.home / "jobs").write_text("x 7\n")
    assert desk.run("squeue") == (0, b"x 7\n", b"")


def test_an_agent_whose_answers_are_not_installed_leaves_it_to_slurm(desk, agent):
    door = LocalDoor({})  # what `answer` and `touched` are comes with penstock-fronts
    asked = agent(lambda request: json.loads(asyncio.run(door.answer(os.geteuid(), json.dumps(request).encode()))))
    (desk.home / "jobs").write_text("x 7\n")
    assert desk.run("squeue") == (0, b"x 7\n", b"")
    assert desk.run("scancel", "5") == (0, b"", b"")
    assert [request["op"] for request in asked] == ["answer", "touched"]


def test_another_cluster_is_not_the_agents(desk, agent):
    asked = agent(lambda request: {"ok": True, "result": {"out": "wrong", "err": "", "code": 0}})
    other = desk.folder / "other.conf"
    other.write_text("ClusterName=there\n")
    assert desk.run("squeue", SLURM_CONF=str(other)) == (0, b"", b"")
    assert asked == []


def test_no_answer_is_no_empty_list(desk):
    (desk.home / "jobs").write_text("x 7\n")
    (desk.home / "busy").write_text("x\nx\n")
    assert desk.run("squeue") == (0, b"x 7\n", b"")
    (desk.home / "busy").write_text("x\n" * 50)
    code, output, errors = desk.run("squeue", PENSTOCK_SHIM_PATIENCE="1")
    assert (code, output) == (1, b"")
    assert errors == b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"


def test_what_is_changed_is_told(desk, agent):
    asked = agent(lambda request: {"ok": True, "result": None})
    assert desk.run("scancel", "5", "6_1")[0] == 0
    assert desk.run("sbatch", "a.sh")[0] == 0
    assert asked == [{"op": "touched", "jobs": [5, 6]}, {"op": "touched", "jobs": [101]}]


def test_a_cancellation_whose_answer_was_lost_is_made_again_and_went_well(desk):
    for code in ("0", "1"):  # by release, and with -v or without
        (desk.home / "gone").write_text(code)
        (desk.home / "lost").write_text("x\n")
        assert desk.run("scancel", "5") == (0, b"", b"")
        assert desk.lines("cancelled")[-2:] == ["5", "5"]
        (desk.home / "lost").write_text("x\n")
        assert desk.run("scancel", "-v", "5") == (0, b"", b"scancel: Terminating job 5\n")
    (desk.home / "lost").write_text("x\n")
    assert desk.run("scancel", "-s", "USR1", "5")[0] == 1, "a signal twice is not a signal once"


def test_nothing_is_said_but_to_a_person(desk):
    assert desk.run("squeue") == (0, b"", b"")
    line = f"import pty, sys; sys.exit(pty.spawn(['{desk.shim}/squeue']) >> 8)"
    told = [desk.run(sys.executable, "-c", line)[1] for _ in range(2)]
    assert b"no agent runs here" in told[0]
    assert told[1] == b"", "once a day"
