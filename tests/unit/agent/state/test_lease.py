"""The lease with real files and processes that are stopped, continued and killed; each says it is on another host."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.config import config_of
from penstock.errors import LeaseLost, NotNow, StateHeld, StoreError
from penstock.state.leadership import is_shared
from penstock.state.lease import files, host
from penstock.state.lease.holder import Lease
from penstock.state.lease.machine import PidScope, sure_for
from penstock.state.store import Store

LIMIT = 120.0
PATIENCE = 9.0  # far above what a slow machine keeps a process from its beats
PROCESS = """
import sys
from pathlib import Path
from penstock.errors import PenstockError
from penstock.state.lease import host
from penstock.state.lease.holder import Lease
from penstock.state.lease.machine import PidScope
from penstock.state.store import Store

folder, name, patience, wait = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
host.place = lambda: PidScope("boot of " + name, "pid:[1]") if name != "nowhere" else PidScope()
try:
    lease = Lease(folder, folder / "penstock.db", "agent", patience=patience, wait=wait)
    store = Store(folder / "penstock.db", lease)
except PenstockError as e:
    print(type(e).__name__, e, flush=True)
    sys.exit(0)
print("held", lease.number, flush=True)
for line in sys.stdin:
    verb, _, text = line.strip().partition(" ")
    try:
        if verb == "check":
            lease.check()
        elif verb == "write":
            store.facts.remember(name, text)
        elif verb == "close":
            store.close()
            lease.close()
        elif verb == "half":  # in the midst of a transaction that no longer fits into memory
            store.connection._db.execute("PRAGMA cache_size=2")
            store.connection._db.execute("BEGIN IMMEDIATE")
            for n in range(2000):
                store.connection._db.execute("INSERT INTO facts VALUES (?, ?)", (f"half {n}", "x" * 500))
        print("done", flush=True)
    except PenstockError as e:
        print(type(e).__name__, e, flush=True)
"""


class Other:
    """A process that says it is on host `name` and wants the state in a folder."""

    def __init__(self, folder: Path, name: str, wait: float = 0.0, patience: float = PATIENCE) -> None:
        arguments = [str(folder), name, str(patience), str(wait)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.heard()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(LIMIT)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Other]]:
    started: list[Other] = []

    def make(name: str, **more: float) -> Other:
        started.append(Other(tmp_path, name, **more))
        return started[-1]

    yield make
    for other in started:
        other.process.kill()
        other.process.communicate(timeout=LIMIT)


def facts(folder: Path) -> dict[str, str]:
    with sqlite3.connect(folder / "penstock.db", timeout=30) as db:
        found = dict(db.execute("SELECT key, value FROM facts WHERE key NOT LIKE 'half%'"))
    db.close()
    return found


def leases(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("agent.lease."))


def until(probe: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not probe():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_second_host_steps_back_and_has_it_when_the_first_is_killed(tmp_path, begin):
    first = begin("a", patience=20.0)
    assert first.heard() == "held 1"
    assert first.say("write 1") == "done"
    refused = begin("b", patience=20.0).heard()
    assert refused.startswith("StateHeld an agent on ")
    assert f"(pid {first.process.pid})" in refused
    first.signal(signal.SIGKILL)
    second = begin("b", wait=LIMIT)
    assert second.heard() == "held 2"
    assert second.say("write 2") == "done"
    assert facts(tmp_path) == {"a": "1", "b": "2"}
    assert leases(tmp_path) == ["agent.lease.2"]


def test_one_that_cannot_leave_word_of_what_it_sees_waits_until_it_has_seen_enough(tmp_path, begin):
    """As in a unit with ProcSubset=pid, which hides the boot's id: started again and again it would wait for ever."""
    first = begin("nowhere")
    assert first.heard() == "held 1"
    first.signal(signal.SIGKILL)
    second = begin("nowhere")
    assert second.heard() == "held 2"
    assert not list(tmp_path.glob("agent.seen.*"))


def test_one_that_was_stopped_while_another_took_over_writes_and_does_nothing_more(tmp_path, begin):
    first = begin("a")
    assert first.heard() == "held 1"
    assert first.say("write before") == "done"
    first.signal(signal.SIGSTOP)
    second = begin("b", wait=LIMIT)
    assert second.heard() == "held 2"
    assert second.say("write 1") == "done"
    first.signal(signal.SIGCONT)
    # Whichever it does first: neither may be done.
    assert first.say("write after").startswith("LeaseLost")
    assert first.say("check").startswith("LeaseLost")
    assert first.say("close") == "done"
    assert second.say("write 2") == "done"
    assert facts(tmp_path) == {"a": "before", "b": "2"}
    shown = files.published(tmp_path)
    assert shown is not None
    assert (shown.number, shown.pid, shown.released) == (2, second.process.pid, False)


def test_one_that_was_stopped_is_not_sure_before_it_has_looked(begin):
    first = begin("a")
    assert first.heard() == "held 1"
    first.signal(signal.SIGSTOP)
    time.sleep(2 * sure_for(PATIENCE))  # real time is what this is about
    assert first.process.stdin is not None
    first.process.stdin.write("check\n")
    first.process.stdin.flush()
    first.signal(signal.SIGCONT)
    said = first.heard()
    assert said == "done" or "not renewed" in said  # its beat may have come first
    until(lambda: first.say("check") == "done", "it goes on")
    assert first.say("write on") == "done"


def test_on_the_same_host_the_kernel_says_whether_it_lives(begin):
    first = begin("a", patience=1000.0)
    assert first.heard() == "held 1"
    first.signal(signal.SIGSTOP)
    assert begin("a", patience=1000.0).heard().startswith("StateHeld")
    first.signal(signal.SIGKILL)
    assert begin("a", patience=1000.0).heard() == "held 2"


def test_given_back_it_is_free_at_once(tmp_path, begin):
    first = begin("a", patience=1000.0)
    assert first.heard() == "held 1"
    assert first.say("close") == "done"
    assert not list(tmp_path.glob("agent.seen.*"))
    assert begin("b", patience=1000.0).heard() == "held 2"


def test_of_many_at_once_one_has_it(tmp_path, begin):
    said = [other.heard() for other in [begin(name, patience=1000.0) for name in "abcdef"]]
    assert sum(line.startswith("held") for line in said) == 1, said
    assert len(leases(tmp_path)) == 1


def test_what_a_killed_one_left_half_written_is_undone_by_the_next_and_touched_by_no_reader(tmp_path, begin):
    first = begin("a")
    assert first.heard() == "held 1"
    assert first.say("write 1") == "done"
    assert first.say("half") == "done"
    journal = tmp_path / "penstock.db-journal"
    assert journal.stat().st_size > 0
    first.signal(signal.SIGKILL)
    before = journal.read_bytes()
    with pytest.raises(StoreError, match="the next agent or tick"):
        Store.read_only(tmp_path / "penstock.db").facts.get("a")
    assert journal.read_bytes() == before
    second = begin("b", wait=LIMIT)
    assert second.heard() == "held 2"
    assert facts(tmp_path) == {"a": "1"}
    looking = Store.read_only(tmp_path / "penstock.db")
    assert looking.facts.get("a") == "1"
    looking.close()


def test_while_somebody_writes_nobody_takes_over(begin):
    first = begin("a")
    assert first.heard() == "held 1"
    assert first.say("half") == "done"
    first.signal(signal.SIGSTOP)  # with the lock on the database
    assert begin("b", wait=2 * PATIENCE).heard().startswith("StateHeld")
    first.signal(signal.SIGKILL)
    assert begin("b", wait=LIMIT).heard() == "held 2"


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[Lease]:
    held = Lease(tmp_path, tmp_path / "penstock.db", "agent", patience=PATIENCE)
    yield held
    held.close()


def test_without_an_answer_of_the_file_server_it_holds_says_so_and_goes_on_after(lease, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    until(lambda: lease.why_not() is None, "it is sure")
    with monkeypatch.context() as broken:
        broken.setattr(files, "rewrite", fail)
        until(lambda: lease.why_not(), "it is not sure any more")
        with pytest.raises(NotNow, match=r"not renewed for \d+ s.*Input/output error"):
            lease.check()
    until(lambda: lease.why_not() is None, "it goes on")
    assert not lease.lost


def test_a_lease_that_is_gone_is_lost(lease, tmp_path):
    told: list[str] = []
    lease.on_lost = lambda: told.append(lease.lost)
    files.remove(tmp_path, lease.number)
    until(lambda: told, "it is told")
    with pytest.raises(LeaseLost):
        lease.check()
    assert leases(tmp_path) == []


def test_the_database_refuses_who_has_another_number(lease, tmp_path):
    store = Store(tmp_path / "penstock.db", lease)
    assert store.connection._db.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
    store.facts.remember("k", "1")
    with sqlite3.connect(tmp_path / "penstock.db") as db:
        db.execute("UPDATE lease SET number = 9")
    db.close()
    for write in (lambda: store.facts.remember("k", "2"), lambda: store.intents.intend("submit", "w", {}, 1.0)):
        with pytest.raises(LeaseLost):
            write()
    with pytest.raises(LeaseLost), store.together():
        store.facts.remember("k", "3")
    assert store.facts.get("k") == "1"
    assert lease.lost
    store.close()


def test_only_what_its_owner_alone_can_write_is_believed(lease, tmp_path):
    shown = files.published(tmp_path)
    assert shown is not None
    assert (shown.pid, shown.number) == (os.getpid(), 1)
    file = tmp_path / files.LEASE
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o620)
    assert files.published(tmp_path) is None
    file.chmod(0o600)
    tmp_path.chmod(0o770)
    assert files.published(tmp_path) is None
    tmp_path.chmod(0o700)
    assert files.published(tmp_path) is not None
    file.unlink()
    file.mkdir()
    assert files.published(tmp_path) is None


def test_what_one_process_saw_the_next_on_this_host_knows(lease, tmp_path, monkeypatch):
    here = PidScope("another boot", "pid:[1]")
    monkeypatch.setattr(host, "place", lambda: here)
    with pytest.raises(StateHeld):
        Lease(tmp_path, tmp_path / "penstock.db", "tick", patience=PATIENCE)
    assert set(files.load_notes(tmp_path, here)) == {1}
    assert files.load_notes(tmp_path, PidScope("a third", "pid:[1]")) == {}
    (file,) = tmp_path.glob("agent.seen.*")
    file.write_text("{")
    assert files.load_notes(tmp_path, here) == {}


@pytest.mark.parametrize(("asked", "found"), [("yes", True), ("no", False), ("auto", False)])
def test_what_the_configuration_says_of_the_folder_counts(tmp_path, asked, found):
    config = config_of({"agent": {"state_dir": str(tmp_path), "shared": asked}})
    assert is_shared(config) is found
    Lease(tmp_path, tmp_path / "penstock.db", "tick", patience=PATIENCE).close()
    # Here it may be a local folder: the host that serves it to those that have leases on it.
    assert is_shared(config) is (asked != "no")
