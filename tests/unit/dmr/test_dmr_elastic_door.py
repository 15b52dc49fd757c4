"""Elastic jobs: their processes and their line to the agent, with an srun and a scancel that know this one node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dmr import wire
from dmr.client import Pending
from dmr.elastic import Nodes, plans
from dmr.elastic.__main__ import main
from dmr.elastic.farm import Head, Worker
from dmr.elastic.group import Group
from dmr.elastic.hands import Commands
from dmr.elastic.lines import cleaned, remote_shell, srun
from dmr.elastic.resuming import Resuming
from dmr.elastic.supervisor import ElasticSupervisor
from dmr.elastic.words import ElasticNode, ElasticPlan

# What runs "on a node" is in a process group that its file names; scancel sends to it by the companion's number.
SRUN = """#!/bin/bash
for word; do case $word in --jobid=*) job=${word#*=};; --output=*) exec >>"${word#*=}" 2>&1;; esac; done
echo $$ >> "$PLACE/job-$job"
exec setsid -w bash -c 'echo $$ >> "$PLACE/job-'$job'"; exec bash -c "$0"' "${@: -1}"
"""
SCANCEL = """#!/bin/bash
for pid in $(cat "$PLACE/job-$2"); do kill "-${1#*=}" -- "-$pid" 2>/dev/null; done
"""


class FakeAgent:
    """A client whose agent answers checks in turn, the last answer for ever."""

    def __init__(self, *replies: wire.CheckReply) -> None:
        self.replies = list(replies)
        self.said: list[wire.Request] = []

    def start(self, request: wire.Request, *, urgent: bool = False) -> Pending:
        self.said.append(request)
        pending = Pending(1.0)
        reply: wire.Reply = wire.Done()
        if isinstance(request, wire.Check):
            epochs = [r for r in self.replies if r.action != "none" and r.epoch > request.epoch]
            reply = epochs[0] if epochs else wire.CheckReply(action="none", size=request.size, epoch=request.epoch)
        elif isinstance(request, wire.Refuse):  # it is not offered again
            self.replies = [r for r in self.replies if r.epoch != request.epoch]
        pending.outcome.put((reply, None))  # type: ignore[arg-type]
        return pending

    def finish(self, pending: Pending) -> wire.Reply | None:
        outcome = pending.wait()
        assert not isinstance(outcome, Exception)
        return outcome[0]

    def close(self) -> None:
        pass

    def kinds(self) -> list[str]:
        return [request.op for request in self.said if not isinstance(request, wire.Check)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scancel", SCANCEL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for steps in tmp_path.glob("job-*"):  # Slurm ends what is left of a job's steps with the job
        for pid in steps.read_text().split():
            with contextlib.suppress(OSError):
                if f"PLACE={tmp_path}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    os.killpg(int(pid), signal.SIGKILL)


GROW = wire.CheckReply(action="expand", size=3, epoch=1, nodes=("n1", "n2", "n3"), companion=20)
SHRINK = wire.CheckReply(action="shrink", size=1, epoch=2, nodes=("n1",))


def run(
    plan: ElasticPlan, agent: FakeAgent | None, place: Path, at: Sequence[tuple[Callable[[], bool], int]] = ()
) -> tuple[int, str]:
    """The exit code of a job under this plan and what it said; `at`: when these hold, it gets these signals."""
    kind = Resuming if plan.again else Group
    said: list[str] = []
    hands = Commands(plan, os.environ, 7, place / "folder")
    supervisor = ElasticSupervisor(kind(plan, ("n1",), 7), hands, agent, 7, os.environ, said.append)  # type: ignore[arg-type]

    async def both() -> int:
        task = asyncio.ensure_future(supervisor.run())
        for condition, number in at:
            while not condition() and not task.done():
                await asyncio.sleep(0.02)
            supervisor.stop(number)
        return await asyncio.wait_for(task, 60)

    return asyncio.run(both()), "\n".join(said)


def waiting(file: str) -> str:
    """A line that ends when there is this file."""
    return f"until [ -e {file} ]; do sleep 0.05; done"


QUICK = {"interval": 0.1, "settle": 0.1, "grace": 3.0, "ready_timeout": 5.0}


def test_nodes_join_and_leave(place: Path) -> None:
    join = 'trap "touch left-$PENSTOCK_HOST; exit" TERM; touch here-$PENSTOCK_HOST; while :; do sleep 0.05; done'
    plan = plans.of_mapping({"minimum": 1, "maximum": 3, "start": waiting("left-n3"), "join": join, **QUICK})
    agent = FakeAgent(GROW, SHRINK)
    code, said = run(plan, agent, place)
    assert code == 0, said
    assert {p.name for p in place.glob("here-*")} == {"here-n1", "here-n2", "here-n3"}
    assert {"left-n2", "left-n3"} <= {p.name for p in place.glob("left-*")}
    assert agent.kinds()[:3] == ["accept", "done", "accept"]
    (done,) = [r for r in agent.said if isinstance(r, wire.Finished) and r.epoch == 1]
    assert done.nodes == ("n1", "n2", "n3") and done.timings["move"] > 0


def test_join_fails_on_one_node_and_the_other_is_told_to_leave(place: Path) -> None:
    join = '[ $PENSTOCK_HOST != n3 ] || exit 5; trap "touch left; exit" TERM; while :; do sleep 0.05; done'
    plan = plans.of_mapping(
        {"minimum": 1, "maximum": 3, "start": waiting("left") + "; sleep 1", "join": join, **QUICK, "settle": 1.0}
    )
    agent = FakeAgent(GROW)
    code, said = run(plan, agent, place)
    assert code == 0 and "join failed on n3 (exit 5)" in said
    assert agent.kinds()[0] == "accept" and "done" not in agent.kinds()


def test_ready_by_a_command_and_by_a_line(place: Path) -> None:
    join = "sleep 0.3; echo up and running; touch up-$PENSTOCK_HOST; sleep 60"
    for ready in ({"ready": "[ -e up-$PENSTOCK_HOST ]"}, {"ready_line": "up and running"}):
        for old in place.glob("up-*"):
            old.unlink()
        (place / "folder").mkdir(exist_ok=True)
        (place / "folder" / "n3.out").write_text("up and running\n")  # of one that was there before
        agent = FakeAgent(GROW)
        start = "until [ -e up-n2 ] && [ -e up-n3 ]; do sleep 0.05; done; sleep 1.5"
        plan = plans.of_mapping(
            {"minimum": 1, "maximum": 3, "start": start, "join": join, **QUICK, **ready, "settle": 50.0}
        )
        code, said = run(plan, agent, place)
        assert code == 0 and "grown 1 -> 3 nodes" in said, said
        assert (place / "up-n3").exists()


def test_leave_and_notify_hear_what_it_is_about(place: Path) -> None:
    hear = 'echo "$0 $PENSTOCK_RESIZE_EVENT $PENSTOCK_RESIZE_HOSTS $PENSTOCK_RESIZE_JOB" >> heard'
    plan = plans.of_mapping(
        {"minimum": 1, "maximum": 3, "start": waiting("over"), "join": "sleep 60", **QUICK,
         "notify": f"bash -c '{hear}' notify", "leave": f"bash -c '{hear}' leave; touch over"}
    )  # fmt: skip
    code, said = run(plan, FakeAgent(GROW, SHRINK), place)
    assert code == 0, said
    lines = (place / "heard").read_text().splitlines()
    assert lines == ["notify grow n2,n3 7", "notify shrink n2,n3 7", "leave shrink n2,n3 7"]


def test_a_growth_that_is_refused_by_the_notification(place: Path) -> None:
    plan = plans.of_mapping(
        {"minimum": 1, "maximum": 3, "start": "sleep 1.5", "join": "sleep 60", **QUICK, "notify": "exit 4"}
    )
    agent = FakeAgent(GROW)
    code, said = run(plan, agent, place)
    assert code == 0 and "refused: exit 4" in said and agent.kinds()[:2] == ["accept", "refuse"]
    assert not (place / "job-20").exists(), "nothing was started there"


def test_the_job_ends_as_its_head_and_by_a_signal(place: Path) -> None:
    said = {"minimum": 1, "maximum": 3, "join": "sleep 60", **QUICK}
    assert run(plans.of_mapping({**said, "start": "exit 3"}), None, place)[0] == 3
    plan = plans.of_mapping({**said, "start": "touch up; trap 'exit 0' TERM; while :; do sleep 0.05; done"})
    assert run(plan, None, place, [((place / "up").exists, 15)])[0] == 143


def test_a_program_that_is_started_again(place: Path) -> None:
    line = (
        'trap "echo \\$((n + 1)) > state; exit 0" USR1; n=$(cat state 2>/dev/null || echo 0); '
        'echo "$PENSTOCK_ELASTIC_NODES $PENSTOCK_ELASTIC_HOSTS" >> ran; [ "$n" -lt 2 ] || exit 0; '
        "while :; do sleep 0.05; done"
    )
    plan = plans.of_mapping(
        {
            "minimum": 1,
            "maximum": 3,
            "start": line,
            "again": line,
            "checkpoint": "state",
            "signal": 10,
            **QUICK,
            "settle": 1.0,
        }
    )
    agent = FakeAgent(GROW, SHRINK)
    code, said = run(plan, agent, place)
    assert code == 0, said
    assert (place / "ran").read_text().splitlines() == ["1 n1", "3 n1,n2,n3", "1 n1"]
    (checked,) = {r.method for r in agent.said if isinstance(r, wire.Check)}
    assert checked == "restart"


def test_the_remote_shell_reaches_the_job_that_holds_a_host(place: Path) -> None:
    shell = place / "rsh"
    shell.write_text(remote_shell([ElasticNode("n1", 7), ElasticNode("n2", 20)]))
    (place / "bin/srun").write_text('#!/bin/sh\necho "$SLURM_JOB_ID $*"\n')
    answer = os.popen(f"sh {shell} -x n2 echo hello").read()
    assert answer.startswith(" --jobid=20 --nodes=1") and "--nodelist=n2" in answer and "sh -c echo hello" in answer
    assert os.popen(f"sh {shell} n9 true 2>&1").read() == "elastic: n9 is no node of this job\n"


def test_a_step_elsewhere_knows_nothing_of_the_batch_script() -> None:
    environ = {"SLURM_JOB_ID": "7", "SLURM_CONF": "slurm.conf", "PMI_RANK": "0", "HOME": "alice"}
    assert cleaned(environ) == {"SLURM_CONF": "slurm.conf", "HOME": "alice"}
    assert srun(ElasticNode("n2", 20), "work")[:2] == ["srun", "--jobid=20"]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"minimum": 1, "join": "x", "start": "y"}, "maximum: is missing"),
        ({"minimum": 3, "maximum": 2, "join": "x", "start": "y"}, "minimum: 3 is above the maximum 2"),
        ({"minimum": 1, "maximum": 2, "preferred": 3, "join": "x", "start": "y"}, "preferred: 3 is outside 1..2"),
        ({"minimum": 1, "maximum": 2, "start": "y"}, "join: is missing"),
        ({"minimum": 1, "maximum": 2, "join": "x", "base_joins": False}, "start: is missing"),
        ({"minimum": 1, "maximum": 2, "again": "x"}, "start: is missing"),
        ({"minimum": 1, "maximum": 2, "start": "y", "again": "x", "join": "z"}, "join: has no place"),
        ({"minimum": 1, "maximum": 2, "join": "x", "start": "y", "grace": -1}, "grace: must be a number of seconds"),
        ({"minimum": True, "maximum": 2}, "minimum: must be a whole number"),
        ({"minimum": 1, "maximum": 2, "joins": "x"}, "joins: is not known"),
        ({"minimum": 1, "maximum": 2, "join": 3}, "join: must be a command"),
        ({"minimum": 1, "maximum": 2, "join": "x", "start": "y", "base_joins": 1}, "base_joins: must be true or false"),
        ({"minimum": 1, "maximum": 2, "join": "x", "start": "y", "ready": "a", "ready_line": "b"}, "not both"),
    ],
)
def test_plans_that_are_wrong(said: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        plans.of_mapping(said)


@pytest.mark.parametrize("text", ["1", "a:b", "4:2", "1:4:5", "0:3", "1:2:3:4", ""])
def test_sizes_that_are_wrong(text: str) -> None:
    with pytest.raises(ValueError):
        plans.sizes(text)
    assert plans.sizes("2:8:4") == (2, 8, 4) and plans.sizes("1:3") == (1, 3, None)


def test_signals_by_name_and_number() -> None:
    assert plans.signal_number("usr1") == plans.signal_number("SIGUSR1") == plans.signal_number("10") == 10
    with pytest.raises(ValueError, match="'SIGNONE' is none"):
        plans.signal_number("SIGNONE")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "--nodes=MIN:MAX is missing"),
        (["--nodes", "1:2"], "join: is missing"),
        (["--nodes", "4:2", "--join", "x"], "the minimum 4 is above the maximum 2"),
        (["--plan", "nowhere.json"], "nowhere.json"),
        (["--nodes", "1:2", "--join", "x", "--start", "y"], "this is no Slurm job"),
        (["--nodes", "1:2", "--join", "x", "--signal", "NO"], "'NO' is none"),
    ],
)
def test_mistakes_are_said_in_a_line(
    words: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("elastic: ") and text in said and said.count("\n") == 1


# -- from inside -------------------------------------------------------------------------------------------------------


def test_functions_are_called_when_nodes_come_and_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = FakeAgent(GROW, SHRINK)
    monkeypatch.setattr("dmr.elastic.nodes.Client.from_environment", lambda: agent)
    monkeypatch.setattr("dmr.elastic.nodes.launch.nodes", lambda environ: ["n1"])
    gone = threading.Event()
    heard: list[object] = []

    def added(hosts: Sequence[str]) -> None:
        heard.append(("added", tuple(hosts), nodes.command(hosts[0], ["./work", "a b"])[-1]))

    def leaving(hosts: Sequence[str], deadline: float) -> None:
        heard.append(("leaving", tuple(hosts), 0 < deadline - time.monotonic() <= 30))
        gone.set()

    nodes = Nodes(1, 3, on_nodes_added=added, on_nodes_leaving=leaving, interval=0.05)
    with nodes:
        assert gone.wait(20)
        deadline = time.monotonic() + 20
        while nodes.hosts != ("n1",) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert nodes.hosts == ("n1",)
    assert heard == [("added", ("n2", "n3"), "exec ./work 'a b'"), ("leaving", ("n2", "n3"), True)]
    assert agent.kinds()[:4] == ["accept", "done", "accept", "done"]


def test_a_function_that_fails_gives_the_nodes_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = FakeAgent(GROW)
    monkeypatch.setattr("dmr.elastic.nodes.Client.from_environment", lambda: agent)
    monkeypatch.setattr("dmr.elastic.nodes.launch.nodes", lambda environ: ["n1"])

    def added(hosts: Sequence[str]) -> None:
        raise RuntimeError("no licence")

    with Nodes(1, 3, on_nodes_added=added, on_nodes_leaving=lambda hosts, deadline: None, interval=0.05) as nodes:
        deadline = time.monotonic() + 20
        while "refuse" not in agent.kinds() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert agent.kinds()[:2] == ["accept", "refuse"] and nodes.hosts == ("n1",)


def test_without_an_agent_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMR_AGENT", raising=False)
    monkeypatch.setenv("PENSTOCK_ELASTIC", "1:4:2")
    never = lambda *_: pytest.fail("called")  # noqa: E731
    with Nodes(on_nodes_added=never, on_nodes_leaving=never) as nodes:
        assert nodes.hosts == ()
        nodes.want(3)
    with pytest.raises(ValueError, match="minimum: 5 is above the maximum 1"):
        Nodes(5, 1, on_nodes_added=never, on_nodes_leaving=never)


# -- the farm ----------------------------------------------------------------------------------------------------------


def until_over(head: Head, *workers: Worker, limit: float = 30.0) -> int:
    deadline = time.monotonic() + limit
    while True:
        left, failed = head.look()
        if left <= 0:
            return failed
        assert time.monotonic() < deadline
        for worker in workers:
            worker.step()
        time.sleep(0.01)


def test_a_form_feed_ends_no_task_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text(f"printf 'a\fb' > {tmp_path}/out\n# end\n")
    words = [sys.executable, "-m", "dmr.elastic.farm", "head", tmp_path / "tasks", tmp_path / "farm"]
    head = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    worker = Worker(tmp_path / "farm", 1, name="a")
    while head.poll() is None:
        worker.step()
        time.sleep(0.01)
    assert (head.communicate()[0].split("\n")[0], head.returncode) == ("farm: 1 tasks", 0)
    assert (tmp_path / "out").read_text() == "a\fb"


def test_each_task_runs_once_and_a_head_goes_on_where_one_was(tmp_path: Path) -> None:
    line = f"echo x >> {tmp_path}/ran-$PENSTOCK_TASK"
    want = tmp_path / "want"
    head = Head(["# a comment", *[line] * 9, ""], tmp_path / "farm", slots=4, want=want)
    assert head.look() == (9, 0) and want.read_text() == "3\n"
    assert until_over(head, Worker(tmp_path / "farm", 2, name="a"), Worker(tmp_path / "farm", 2, name="b")) == 0
    assert head.look() == (0, 0)
    assert Head([line] * 9, tmp_path / "farm").look() == (0, 0), "nothing is run again"
    assert [(tmp_path / f"ran-{n}").read_text() for n in range(9)] == ["x\n"] * 9


def test_a_worker_that_is_there_before_its_head_waits_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "farm"
    worker = Worker(folder, 1, name="early")
    assert worker.step() and not worker.running
    head = Head(["true"], folder)
    assert until_over(head, worker) == 0


def test_a_task_that_fails_is_tried_again_and_counted(tmp_path: Path) -> None:
    flaky = f"[ -e {tmp_path}/second ] || {{ touch {tmp_path}/second; exit 1; }}"
    head = Head([flaky, "exit 9"], tmp_path / "farm", tries=3)
    assert until_over(head, Worker(tmp_path / "farm", 1, name="a")) == 1


def test_a_worker_that_leaves_puts_back_what_it_has_not_ended(tmp_path: Path) -> None:
    head = Head([f"[ -e {tmp_path}/go ] || sleep 60"], tmp_path / "farm")
    first = Worker(tmp_path / "farm", 1, grace=0.0, name="a")
    first.step()
    assert first.running
    first.leave()
    assert not first.step() and head.look() == (1, 0)
    (tmp_path / "go").touch()
    assert until_over(head, Worker(tmp_path / "farm", 1, name="b")) == 0


def test_the_tasks_of_a_dead_worker_are_put_back(tmp_path: Path) -> None:
    head = Head(["true"], tmp_path / "farm", silent=0.2)
    dead = Worker(tmp_path / "farm", 1, name="dead")
    dead.step()
    time.sleep(0.3)
    assert until_over(head, Worker(tmp_path / "farm", 1, name="b")) == 0


def test_a_worker_takes_the_next_task_when_one_ends_and_leaves_when_it_is_told(tmp_path: Path) -> None:
    """It looks only twice a minute of itself here."""
    head = Head(["true"] * 5, tmp_path / "farm")
    code = "import sys; from dmr.elastic import farm; farm._EACH = 30.0; sys.exit(farm.main())"
    worker = subprocess.Popen([sys.executable, "-c", code, "worker", str(tmp_path / "farm"), "--slots", "1"])
    try:
        end = time.monotonic() + 20.0
        while head.look() != (0, 0):
            assert time.monotonic() < end, "a task waits for the next look"
            time.sleep(0.05)
        worker.terminate()
        assert worker.wait(20.0) == 0
    finally:
        worker.kill()
        worker.wait()
