"""A pool of processes on this host: its command, its members, and what is killed of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from waiting import until

pytest.importorskip("distributed")

from penstock.cli import cli
from penstock.errors import AgentUnavailable, PenstockError, StoreError, UserError
from penstock_pool.client import ask
from penstock_pool.commands.pool import start
from penstock_pool.folder import PoolFolder
from penstock_pool.machine import Kill, StartAttempt
from penstock_pool.model import Capacity, PoolMember, PoolTask
from penstock_pool.placement import Pack
from penstock_pool.scheduler import PoolScheduler

LIMIT = 90.0
COMMAND = [sys.executable, "-m", "penstock", "pool"]


class Said(NamedTuple):
    """What a command has said."""

    returncode: int
    stdout: str
    stderr: str


class Live:
    """One pool; everything it starts is gone after `down`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pools"
        self.pool = self.folder / "main"
        self.work = folder / "work"
        self.work.mkdir()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PENSTOCK_"))}
        self.environment["PENSTOCK_POOL__FOLDER"] = str(self.folder)
        self.started: list[subprocess.Popen[bytes]] = []

    def command(self, *words: str) -> Said:
        """The command in this process, as its own takes seconds to start on a busy machine."""
        done = CliRunner().invoke(cli, ["pool", *words], env={"PENSTOCK_POOL__FOLDER": str(self.folder)})
        if isinstance(done.exception, PenstockError):
            return Said(done.exception.exit_code, done.stdout, str(done.exception))
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.work.parent / "processes.log").open("ab") as log:
            begun = subprocess.Popen([*COMMAND, *words], env=self.environment, cwd=self.work, stdout=log, stderr=log)
        self.started.append(begun)
        return begun

    def start(self) -> subprocess.Popen[bytes]:
        begun = self.begin("start")
        self.until(lambda: self._address().get("pid") == begun.pid)
        return begun

    def join(self, cores: int = 2, *more: str) -> subprocess.Popen[bytes]:
        before = len(self.status()["members"])
        begun = self.begin("join", "--here", "--cores", str(cores), *more)
        self.until(lambda: len(self.status()["members"]) > before)
        return begun

    def _address(self) -> dict[str, Any]:
        file = self.pool / "address.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def status(self) -> Any:
        """Asked from this process: a command takes seconds on a busy machine."""
        return ask(PoolFolder("main", self.pool), "status")

    def submit(self, lines: list[dict[str, Any]]) -> list[int]:
        numbers: list[int] = ask(PoolFolder("main", self.pool), "submit", {"tasks": lines})
        return numbers

    def until(self, probe: Callable[[], Any]) -> Any:
        log = self.work.parent / "processes.log"
        return until(probe, lambda: log.read_text() if log.exists() else "nothing was said", LIMIT)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.pool / "tasks.jsonl").read_text().splitlines()]

    def down(self) -> None:
        for begun in self.started:
            if begun.poll() is None:
                begun.terminate()
        for begun in self.started:
            try:
                begun.wait(30)
            except subprocess.TimeoutExpired:
                begun.kill()
                begun.wait()


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    it = Live(tmp_path)
    monkeypatch.chdir(it.work)
    yield it
    it.down()


def gated(live: Live, gate: str) -> dict[str, Any]:
    """A task that waits for a file and then adds its number to another."""
    script = f"until [ -e {gate} ]; do sleep 0.1; done; echo $PENSTOCK_TASK >> done"
    return {"command": ["sh", "-c", script], "workdir": str(live.work), "retries": 0}


def done(live: Live) -> list[int]:
    file = live.work / "done"
    return sorted(int(word) for word in file.read_text().split()) if file.exists() else []


def ends(live: Live, outcome: str) -> list[dict[str, Any]]:
    """The lines of the log that say that an attempt has ended so."""
    return [line for line in live.log() if line["op"] == "end" and line["outcome"] == outcome]


def test_what_a_pool_that_is_not_there_advises_is_a_command(tmp_path):
    folder = PoolFolder("mine", tmp_path / "mine")
    with pytest.raises(AgentUnavailable) as none:
        folder.check()
    folder.make()
    with pytest.raises(AgentUnavailable) as closed:
        ask(folder, "status")
    for said in (none, closed):
        words = str(said.value).split("`")[1].split()
        assert words[:3] == ["penstock", "pool", "start"]
        assert start.make_context("start", words[3:]).params["name"] == "mine"


def test_members_and_scheduler_are_killed_and_no_task_is_lost(live: Live):
    scheduler = live.start()
    first, second = live.join(), live.join()
    live.submit([gated(live, "early")] * 4 + [gated(live, "late")] * 8)
    (live.work / "early").touch()
    live.until(lambda: live.status()["tasks"]["complete"] == 4 and live.status()["tasks"]["running"] == 4)
    first.kill()  # one member, while it runs tasks ...
    live.until(lambda: len(ends(live, "lost")) == 2)
    scheduler.kill()  # ... then the scheduler
    scheduler.wait()
    with pytest.raises(AgentUnavailable, match=r"does not answer.*penstock pool start --pool main"):
        live.status()
    live.start()
    live.until(lambda: len(live.status()["members"]) == 1)  # the other member came back by itself
    assert live.status()["tasks"]["running"] == 2
    (live.work / "late").touch()
    live.until(lambda: live.status()["tasks"]["complete"] == 12)
    live.until(lambda: len(ends(live, "complete")) == 12)  # the log is written a moment after
    assert sorted(line["id"] for line in ends(live, "complete")) == list(range(1, 13))
    # Of the killed member; what the other one had began once, and went on.
    assert [line["why"] for line in ends(live, "lost")] == ["its member has left"] * 2
    assert sum(line["op"] == "start" for line in live.log()) == 14
    assert done(live) == list(range(1, 13))  # once each: what ran on the killed member ended with it
    assert live.command("stop").returncode == 0
    assert second.wait(LIMIT) == 0


@pytest.mark.long
def test_what_ended_while_no_scheduler_was_there_is_told_to_the_next(live: Live):
    scheduler = live.start()
    live.join(3)
    live.submit([gated(live, "first"), gated(live, "first"), gated(live, "second")])
    live.until(lambda: live.status()["tasks"]["running"] == 3)
    scheduler.kill()
    scheduler.wait()
    (live.work / "first").touch()
    live.until(lambda: len(done(live)) == 2)
    live.start()
    live.until(lambda: live.status()["tasks"]["complete"] == 2)
    assert live.status()["tasks"]["running"] == 1
    assert live.command("cancel", "3").returncode == 0
    live.until(lambda: live.status()["tasks"]["cancelled"] == 1)
    assert sum(line["op"] == "start" for line in live.log()) == 3


@pytest.mark.long
def test_a_member_that_was_given_up_ends_what_others_run(live: Live):
    live.start()
    first = live.join(1, "--idle", "60s")
    live.submit([gated(live, "gate")])
    live.until(lambda: live.status()["tasks"]["running"] == 1)
    first.send_signal(signal.SIGSTOP)
    live.join(1)
    live.until(lambda: sum(line["op"] == "start" for line in live.log()) == 2)  # half a minute later
    first.send_signal(signal.SIGCONT)
    live.until(lambda: len(live.status()["members"]) == 2)
    (live.work / "gate").touch()
    live.until(lambda: live.status()["tasks"]["complete"] == 1)
    assert done(live) == [1], "by the second member alone"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_with_a_full_disk_nothing_is_started_or_lost_until_there_is_room(live: Live):
    live.folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(live.folder)], check=True)
    try:
        live.start()
        live.join()
        first = live.submit([gated(live, "go")])
        live.until(lambda: live.status()["tasks"]["running"] == 1)
        filler = live.folder / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x")
        # What is left of the last block may take some lines, but not these.
        many = [{**gated(live, "go"), "environment": {"LONG": "x" * 2000}}] * 8
        with pytest.raises(StoreError, match=r"No space left.*the tasks are known, but"):
            live.submit(many)
        assert "No space left" in live.status()["problem"]
        with pytest.raises(StoreError, match="No space left"):
            live.submit(many)  # now not even that
        (live.work / "go").touch()
        live.until(lambda: done(live) == first)
        filler.unlink()
        live.until(lambda: live.status()["tasks"]["complete"] == 9)
        assert not live.status()["problem"]
        assert done(live) == list(range(1, 10)), "each has run once"
        live.command("stop")
    finally:
        live.down()
        subprocess.run(["umount", "-l", str(live.folder)], check=True)


class Scheduler(PoolScheduler):
    """One without a network, whose disk is `full` or not; what it sends is in `sent`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(PoolFolder("main", folder), Pack(), 1.0)
        self.sent: list[StartAttempt | Kill] = []
        self.full = False
        self._append, self._journal.append = self._journal.append, self._write

    def _write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        if self.full and list(lines):
            raise StoreError("No space left on device")
        self._append(lines)

    def _send(self, order: StartAttempt | Kill) -> None:
        self.sent.append(order)

    def step(self) -> None:
        self._held_until = 0.0
        self._pass()


@pytest.fixture
def begun_in_vain(tmp_path: Path) -> Scheduler:
    """Its disk was full when two tasks were to be started."""
    it = Scheduler(tmp_path)
    it.machine.submit([PoolTask(("true",))] * 2, 0.0)
    it.step()
    it.machine.join(PoolMember("a", "n1", "7", Capacity(1.0)), 0.0)
    it.machine.join(PoolMember("b", "n2", "8", Capacity(1.0)), 0.0)
    it.full = True
    it.step()
    it.step()
    assert it.sent == [] and it.machine.counts()["running"] == 2 and "No space left" in it.problem
    return it


def test_what_could_not_be_logged_when_it_was_to_be_started_is_started_later(begun_in_vain: Scheduler):
    begun_in_vain.full = False
    begun_in_vain.step()
    begun_in_vain.step()
    assert [(one.address, one.id, one.attempt) for one in begun_in_vain.sent] == [("a", 1, 1), ("b", 2, 1)]


def test_what_has_lost_its_member_before_it_was_started_is_started_elsewhere(begun_in_vain: Scheduler):
    begun_in_vain.machine.leave("a", 1.0)
    begun_in_vain.machine.join(PoolMember("a", "n1", "9", Capacity(1.0)), 2.0)
    begun_in_vain.full = False
    begun_in_vain.step()
    assert [(one.address, one.id, one.attempt) for one in begun_in_vain.sent] == [("b", 2, 1), ("a", 1, 2)]


def test_what_is_cancelled_before_it_was_started_is_never_started(begun_in_vain: Scheduler):
    begun_in_vain.machine.cancel([1], 1.0)
    begun_in_vain.full = False
    begun_in_vain.step()
    assert [one.id for one in begun_in_vain.sent] == [2]
    assert begun_in_vain.machine.counts()["cancelled"] == 1
    assert begun_in_vain.machine.busy() == (1.0, 2.0)
    assert begun_in_vain.machine.journal == []


def test_one_that_is_told_to_leave_lets_its_tasks_end_and_takes_no_more(live: Live):
    live.start()
    leaving = live.join(1)
    live.submit([gated(live, "go")] * 2)
    live.until(lambda: live.status()["tasks"]["running"] == 1)
    leaving.send_signal(signal.SIGTERM)
    live.until(lambda: live.status()["members"][0]["draining"])
    (live.work / "go").touch()
    assert leaving.wait(LIMIT) == 0
    assert done(live) == [1]
    assert live.status()["tasks"]["waiting"] == 1
    live.join(1)
    live.until(lambda: len(ends(live, "complete")) == 2)
    assert not ends(live, "lost") and not ends(live, "failed")


@pytest.mark.long
def test_one_leaves_before_its_allocation_ends_and_when_idle(live: Live):
    live.start()
    both = [live.begin("join", "--here", "--cores", "1", *more) for more in (("--left", "40"), ("--idle", "1"))]
    assert [one.wait(LIMIT) for one in both] == [0, 0]
    said = (live.work.parent / "processes.log").read_text()
    assert "its allocation nears its end" in said and "nothing to do" in said


def test_tasks_of_dasks_own_clients_count(live: Live):
    """One that submits to Dask itself: its tasks take cores, keep members from leaving, and are told of."""
    from distributed import Client

    from penstock_pool import link

    live.start()
    one = live.join(1, "--idle", "2s")
    folder, go = PoolFolder("main", live.pool), live.work / "go"

    def until_there(number: int) -> int:  # in here, so that it is sent whole
        while not go.exists():
            time.sleep(0.1)
        return number

    with Client(folder.address().url, security=link.security(folder), set_as_default=False) as client:
        theirs = [client.submit(until_there, n, pure=False) for n in range(3)]
        live.until(lambda: live.status()["others"] == {"running": 1, "waiting": 2})
        assert "of clients of Dask: 1 running, 2 waiting" in live.command("status").stdout
        assert [m["busy"] for m in live.status()["members"]] == [1.0]
        (mine,) = live.submit([{"command": ["true"]}])
        began = time.monotonic()
        live.until(lambda: time.monotonic() - began > 4)
        assert one.poll() is None, "it is not idle"
        assert live.status()["tasks"]["waiting"] == 1, "no core is left to it"
        go.touch()
        assert client.gather(theirs) == [0, 1, 2]
        live.until(lambda: live.status()["tasks"]["complete"] == 1)
    assert mine and one.wait(LIMIT) == 0, "now it has been idle for long enough"


def test_the_command(live: Live):
    said = live.command("status")
    assert (said.returncode, "there is no pool 'main'" in said.stderr) == (3, True)
    assert "Pool 'main' is open" in live.command("start", "--detach").stdout
    try:
        assert "another scheduler of this pool runs" in live.command("start", "--detach").stderr
        live.join(2, "--mem", "2GB")
        said = live.command("submit", "--cores", "3", "true")
        assert (said.returncode, "the largest member of the pool has 2 cores, 2 GB" in said.stderr) == (2, True)
        said = live.command("submit", "--name", "hello", "--env", "WHO=you", "--wait", "--", "sh", "-c", "echo hi $WHO")
        assert said.stdout == "1 of 1 task complete\n"
        assert live.command("submit", "--name", "hello", "--", "false").stdout == "Submitted task 1\n"
        assert live.command("logs", "hello").stdout == "hi you\n"
        said = live.command("submit", "--wait", "--retries", "1", "nosuchcommand")
        assert (said.returncode, said.stdout) == (1, "0 of 1 task complete\n")
        assert "task 2 failed: no such command: nosuchcommand" in said.stderr
        (slow,) = live.submit([{"command": ["sh", "-c", "echo begun; sleep 1000"]}])
        live.until(lambda: (live.pool / "output" / f"{slow}.1.out").exists())
        assert live.command("logs", str(slow)).stdout == "begun\n"
        assert "1 running" in live.command("top").stdout
        assert "1 task being cancelled" in live.command("cancel", str(slow)).stdout
        live.until(lambda: live.status()["tasks"]["cancelled"] == 1)
        assert "All of them had ended before" in live.command("cancel", "1").stdout
        assert live.command("logs", "77").returncode == 5
        assert "failed" in live.command("status", "--phase", "failed").stdout
        bad = live.work / "bad.jsonl"
        bad.write_text('{"command": "true"}\n{"command": "true", "cores": "many"}\n')
        assert f"{bad}:2: cores: must be a number" in live.command("submit", "--file", str(bad)).stderr
        live.pool.chmod(0o755)
        assert live.command("status").returncode == 4
        live.pool.chmod(0o700)
    finally:
        assert "is stopped; 0 tasks had not ended" in live.command("stop").stdout
    said = live.command("status")
    assert (said.returncode, "has no scheduler" in said.stderr) == (3, True)


def test_python_functions(live: Live, monkeypatch):
    from penstock_pool.functions import Functions

    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(live.folder))
    live.start()
    live.join()
    pool = Functions()
    offset = 40
    good = pool.submit(lambda a, b: a + b + offset, 1, b=1, task={"cores": 0.5, "time": "1m"})
    bad = pool.submit(int, "x", task={"retries": 0})
    dead = pool.submit(os._exit, 3, task={"retries": 0})
    assert pool.result(good) == 42
    with pytest.raises(ValueError, match="invalid literal"):
        pool.result(bad)
    with pytest.raises(PenstockError, match=f"task {dead} failed: exit code 3"):
        pool.result(dead)
    assert list((live.pool / "calls").iterdir()) == []
    with pytest.raises(UserError, match="unknown key 'core'"):
        pool.submit(int, task={"core": 1})


@pytest.mark.long
def test_as_an_executor_of_the_standard_library(live: Live, monkeypatch):
    from penstock_pool.futures import PoolExecutor

    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(live.folder))
    with pytest.raises(AgentUnavailable, match="no pool"):
        PoolExecutor("none")
    scheduler = live.start()
    live.join(2)
    for wrong, said in (({"name": "x"}, "one task"), ({"core": 1}, "unknown key 'core'")):
        with pytest.raises(UserError, match=said):
            PoolExecutor(task=wrong)
    gate, seen = live.work / "gate", live.work / "seen"

    def once(number: int) -> int:
        with seen.open("a") as file:
            file.write(f"{number}\n")
        while not gate.exists():
            time.sleep(0.1)
        return number**2

    with PoolExecutor(task={"cores": 0.5}) as pool:
        squares = pool.map(once, range(6))
        bad, dead = pool.submit(int, "x"), pool.submit(os._exit, 3)
        live.until(lambda: seen.exists() and len(seen.read_text().split()) == 4)
        scheduler.kill()  # what runs goes on, what waits is known
        scheduler.wait()
        live.start()
        late = pool.submit(once, 9)
        late.cancel()
        runs = pool.submit(time.sleep, 100)
        gate.touch()
        assert list(squares) == [number**2 for number in range(6)]
        assert isinstance(bad.exception(), ValueError)
        with pytest.raises(PenstockError, match="failed: exit code 3"):
            dead.result()
        live.until(lambda: live.status()["tasks"]["running"] == 1)
        assert runs.cancel()
        assert wait_for([late, runs], LIMIT).not_done == set()
    assert sorted(map(int, seen.read_text().split())) == list(range(6)), "each ran once"
    assert live.status()["tasks"]["running"] == 0
    assert list((live.pool / "calls").iterdir()) == []
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)
    with PoolExecutor(task={"cores": 64}) as pool, pytest.raises(UserError, match="largest member"):
        pool.submit(int).result()


def test_an_executor_whose_pool_is_stopped_lets_nobody_wait(live: Live, monkeypatch):
    from penstock_pool.futures import PoolExecutor

    monkeypatch.setenv("PENSTOCK_POOL__FOLDER", str(live.folder))
    live.start()
    with PoolExecutor() as pool:
        future = pool.submit(time.sleep, 1)
        live.until(lambda: live.status()["tasks"]["waiting"] == 1)
        assert live.command("stop").returncode == 0
        assert isinstance(future.exception(), AgentUnavailable)


def test_nobody_gets_in_without_the_key_of_the_pool(live: Live):
    live.start()
    url = live._address()["url"]
    other = live.folder / "other"
    begun = live.begin("start", "--pool", "other")
    live.until(lambda: (other / "address.json").exists())
    begun.terminate()
    begun.wait(30)
    # A key of another pool, and the address of this one.
    (other / "address.json").write_text(json.dumps({"url": url, "host": "here", "pid": 1, "started": 0.0}))
    said = live.command("status", "--pool", "other")
    assert (said.returncode, "does not answer" in said.stderr) == (3, True)
    # No TLS at all.
    probe = (
        "import asyncio, distributed\n"
        f"asyncio.run(distributed.core.connect('{url.replace('tls', 'tcp')}', timeout=5))\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode != 0


@pytest.mark.long
def test_a_scheduler_that_is_killed_after_its_log_was_made_shorter_has_forgotten_only_what_it_may(live: Live):
    live.environment["PENSTOCK_POOL__KEEP_TASKS"] = "20"
    killed = live.start()
    live.join(4)
    large = {"command": ["true"], "workdir": "/", "environment": {"PENSTOCK_FILL": "x" * 100_000}}
    tasks = [large | {"name": f"task-{number}"} for number in range(100)]
    live.submit(tasks[:60])
    live.until(lambda: live.status()["tasks"]["complete"] == 60)
    live.submit(tasks[60:])  # with these it has more than eight megabytes
    waits = live.submit([gated(live, "go")])
    live.until(lambda: live.status()["tasks"]["complete"] == 100)
    live.until(lambda: live.log()[0].get("log") == 2)
    killed.kill()
    killed.wait()
    assert sum(line.get("phase") == "complete" for line in live.log()) <= 20
    live.start()
    live.until(lambda: live.status()["members"])
    assert live.status()["tasks"] == {"waiting": 0, "running": 1, "complete": 100, "failed": 0, "cancelled": 0}
    (live.work / "go").touch()
    live.until(lambda: done(live) == waits)
    assert live.submit([large | {"name": "task-99"}]) == [100]
    assert live.submit([large | {"name": "task-0"}]) == [102], "forgotten, and so it is another task"
