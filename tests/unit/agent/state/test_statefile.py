"""The state file as a file: looked into, copied beside a writer, made smaller, brought up to date or refused."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from stored_states import malleable_state, of_version, workflow_state

from penstock.api import Decision, Reason, Verb
from penstock.cli import cli
from penstock.errors import NotNow, StateRefused, StoreError, UserError
from penstock.state.copies import _BEGINNINGS, _Progress
from penstock.state.leadership import lock_state
from penstock.state.reading import describe
from penstock.state.retention import Retention
from penstock.state.schema import VERSION
from penstock.state.sizes import FinishedResize
from penstock.state.store import AT_ONCE, Store
from penstock.statefile.statefile import backup, inspect
from penstock_planning.hold.ledger import Ledger
from penstock_planning.hold.ledgerfile import LEDGER


def decide(store: Store, subject: str, at: float) -> None:
    store.decisions.record(Decision(Verb.SUBMIT, subject, (Reason("x", "x"),)), at)


def filled(path: Path) -> Store:
    """A state with a bit of everything: old and new, over and not."""
    store = Store(path)
    decide(store, "workflow 1", 100.0)
    decide(store, "workflow 2", 900.0)
    store.intents.settle(store.intents.intend("submit", "w", {}, 100.0), "done", "", 101.0)
    store.intents.intend("submit", "open", {}, 100.0)
    store.intents.settle(store.intents.intend("submit", "lost", {}, 100.0), "unknown", "", 101.0)
    store.runs.save(store.runs.add(7, {}, 100.0), workflow_state(1, over=True), finished=200.0)
    store.runs.add(7, workflow_state(2), 100.0)
    store.malleable.save(1, malleable_state(1), ended=200.0)
    store.malleable.save(2, malleable_state(2))
    store.resizes.add(FinishedResize(1, 1, "expand", (1, 2), "completed", {}), 150.0)
    store.learning.add_wait("k", None, 5.0, 0, 100.0)
    store.learning.save_learned("old", {}, 100.0)
    store.learning.save_learned("new", {}, 900.0)
    store.facts.remember("dmr.port", "1234")
    store.inbox.post(7, "submit", {}, 100.0)
    return store


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The configured state folder of the command line."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return folder / "penstock.db"


def run(*words: str):
    return CliRunner().invoke(cli, ["db", *words])


# -- what is old goes ------------------------------------------------------------------------------------------------


def test_only_what_is_over_and_old_is_forgotten(tmp_path):
    store = filled(tmp_path / "s.db")
    gone = store.prune(500.0)
    assert gone == {"intents": 1, "decisions": 1, "runs": 1, "malleable": 1, "resizes": 1, "learned": 1, "waits": 1}
    assert [i.subject for i in store.intents.unsettled()] == ["open", "lost"]
    assert [state for _n, _u, state in store.runs.latest()] == [workflow_state(2)]
    assert [state["job"] for state in store.malleable.live()] == [2]
    assert store.learning.learned("new") == {}
    assert store.decisions.of("workflow 2")
    assert store.facts.get("dmr.port") == "1234"
    assert len(store.inbox.waiting()) == 1
    assert store.prune(500.0) == {}


class Day:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1e9

    def now(self) -> float:
        return self.at


async def passes(store: Store, clock: Day, keep: float, controller: Retention | None = None) -> Retention:
    found = controller or Retention(store, clock, lambda: keep)
    assert await found.reconcile(None) == []
    return found


def test_the_agent_forgets_once_a_day_also_after_a_restart(tmp_path):
    import asyncio

    store, clock = Store(tmp_path / "s.db"), Day()
    decide(store, "first", clock.at - 200.0)
    first = asyncio.run(passes(store, clock, 100.0))
    assert not store.decisions.of("first")
    decide(store, "second", clock.at - 200.0)
    clock.at += 3600.0
    asyncio.run(passes(store, clock, 100.0, first))
    asyncio.run(passes(store, clock, 100.0))  # as after a restart
    assert store.decisions.of("second")
    clock.at += 86400.0
    asyncio.run(passes(store, clock, 0.0))  # for ever
    assert store.decisions.of("second")
    asyncio.run(passes(store, clock, 100.0, first))
    assert not store.decisions.of("second")


def test_a_clock_that_was_set_back_keeps_nothing_for_longer(tmp_path):
    import asyncio

    store, clock = Store(tmp_path / "s.db"), Day()
    first = asyncio.run(passes(store, clock, 100.0))
    clock.at -= 30 * 86400.0
    decide(store, "old", clock.at - 200.0)
    asyncio.run(passes(store, clock, 100.0, first))
    assert not store.decisions.of("old")


def test_what_is_too_much_for_one_pass_goes_with_the_next_ones(tmp_path):
    import asyncio

    store, clock = Store(tmp_path / "s.db"), Day()
    rows = ((clock.at - 200.0,) for _ in range(2 * AT_ONCE + 1))
    with store.together():
        store.connection._db.executemany("INSERT INTO waits (at, key, wait, censored) VALUES (?, 'k', 1.0, 0)", rows)
    controller, left = None, []
    for _ in range(3):
        controller = asyncio.run(passes(store, clock, 100.0, controller))
        left.append(len(store.learning.waits(limit=-1)))
    assert left == [AT_ONCE + 1, 1, 0]
    store.learning.add_wait("k", None, 1.0, 0, clock.at - 200.0)
    asyncio.run(passes(store, clock, 100.0, controller))
    assert len(store.learning.waits()) == 1, "until tomorrow"


# -- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, VERSION))
def test_an_older_file_is_refused_with_what_to_install_first_and_left_as_it_is(state, version):
    data = of_version(state, version).read_bytes()
    for look in (Store, Store.read_only, describe, inspect):
        with pytest.raises(StateRefused, match=r"older Penstock .* install Penstock of commit fd8d5927 .* first"):
            look(state)
    done = run("check")
    assert isinstance(done.exception, StoreError) and done.exception.exit_code == 7
    assert "install Penstock of commit fd8d5927" in str(done.exception)
    assert "brings" not in done.output + str(done.exception)
    assert state.read_bytes() == data
    assert sorted(p.name for p in state.parent.iterdir() if "before" in p.name) == []


def test_a_newer_file_is_refused_with_the_way_out(state):
    Store(state).close()
    with sqlite3.connect(state) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    for look in (Store, Store.read_only, describe):
        with pytest.raises(StoreError, match="install that version again"):
            look(state)
    done = run("check")
    assert done.exit_code == 1
    assert isinstance(done.exception, StoreError)
    assert done.exception.exit_code == 7
    assert "install that version again" in str(done.exception)
    assert f"this program knows {VERSION} only" in done.output


# -- check -----------------------------------------------------------------------------------------------------------


def test_check_says_what_is_in_it_while_somebody_writes(state):
    store = filled(state)
    decide(store, "later", 2e9)
    told = json.loads(run("check", "--json").output)
    assert told["whole"]
    assert (told["version"], told["program"], told["compatible"]) == (VERSION, VERSION, "same")
    assert told["rows"]["decisions"] == 3
    assert told["spans"]["decisions"] == {"first": 100.0, "last": 2e9}
    assert "decisions" in run("check").output
    decide(store, "and on", 3e9)
    store.close()


def test_check_finds_a_damaged_file(state):
    store = filled(state)
    with store.together():
        for i in range(2000):
            decide(store, f"workflow {i}", 1.0)
    store.close()
    with sqlite3.connect(state) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    data = bytearray(state.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 8192] = b"\xff" * 8192
    state.write_bytes(data)
    done = run("check")
    assert isinstance(done.exception, StoreError)
    with pytest.raises(StoreError):
        backup(state, state.with_name("copy.db"), replace=False)
    assert not state.with_name("copy.db").exists()


@pytest.mark.parametrize(("text", "said"), [(None, "there is no"), ("hello " * 900, "is no database")])
def test_check_of_what_is_no_state_file(state, text, said):
    if text is not None:
        state.write_text(text)
    done = run("check")
    assert said in str(done.exception)
    assert isinstance(done.exception, StoreError)


def test_check_of_somebody_elses_database(tmp_path, state):
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    assert "no state file of Penstock" in str(run("check", str(tmp_path / "other.db")).exception)


# -- backup ----------------------------------------------------------------------------------------------------------


def test_a_copy_is_one_whole_file_for_its_owner_only(state, tmp_path):
    store = filled(state)  # not closed: much of it is still in the log
    copy = tmp_path / "copy.db"
    done = run("backup", str(copy))
    assert done.exit_code == 0, done.exception
    assert "whole" in done.output
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.db", "state"]
    again = Store(copy)
    assert [i.subject for i in again.intents.unsettled()] == ["open", "lost"]
    assert again.facts.get("dmr.port") == "1234"
    again.close()
    store.close()


def test_the_help_names_all_files_to_remove_on_going_back():
    assert all(end in run("backup", "--help").output for end in ("-wal", "-shm", "-journal"))


def test_a_copy_never_replaces_a_file_unless_told_to(state, tmp_path):
    filled(state).close()
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    done = run("backup", str(copy))
    assert isinstance(done.exception, UserError)
    assert "--force" in str(done.exception)
    assert copy.read_text() == "precious"
    assert run("backup", str(copy), "--force").exit_code == 0
    assert inspect(copy).rows["runs"] == 2


def test_a_copy_onto_itself_or_to_nowhere_is_refused(state, tmp_path):
    filled(state).close()
    assert isinstance(run("backup", str(state), "--force").exception, UserError)
    done = run("backup", str(tmp_path / "no" / "copy.db"))
    assert "No such file or directory" in str(done.exception)
    assert inspect(state).rows["runs"] == 2


def test_a_copy_beside_a_busy_writer_is_of_one_instant(state, tmp_path):
    """Two tables are written together, so a copy that holds them unequal would be of no instant."""
    Store(state).close()
    stop, ready = threading.Event(), threading.Event()

    def write() -> None:
        store, n = Store(state), 0
        while not stop.is_set():
            with store.together():
                decide(store, f"workflow {n}", float(n))
                store.learning.add_wait("k", None, 1.0, 0, float(n))
            n += 1
            if n == 20:
                ready.set()
        store.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert ready.wait(30)
        counts = []
        for i in range(5):
            found = backup(state, tmp_path / f"{i}.db", replace=False)
            assert found.rows["decisions"] == found.rows["waits"]
            counts.append(found.rows["waits"])
    finally:
        stop.set()
        writer.join(30)
    assert counts == sorted(counts)
    assert counts[0] >= 20


@pytest.mark.parametrize("writes", [1, 1000])
def test_a_copy_of_a_state_without_a_log_lets_others_write(state, tmp_path, monkeypatch, writes):
    """As where several hosts see it; who writes after each portion has it begun anew, and taken at one go then."""

    class Watched(_Progress):
        portions = 0

        def __call__(self, *how_far) -> None:
            Watched.portions += 1
            if Watched.portions <= writes:
                with other:
                    other.execute("INSERT INTO facts VALUES (?, '')", (f"written {Watched.portions}",))
            super().__call__(*how_far)

    Store(state).close()
    other = sqlite3.connect(state, timeout=0)
    other.execute("PRAGMA journal_mode=TRUNCATE")
    with other:
        for i in range(200):
            other.execute("INSERT INTO facts VALUES (?, ?)", (f"fact {i}", "x" * 2000))
    monkeypatch.setattr("penstock.state.copies._Progress", Watched)
    monkeypatch.setattr("penstock.state.copies._PORTION", 10)
    monkeypatch.setattr("penstock.state.copies._TURN", 0.001)
    found = backup(state, tmp_path / "copy.db", replace=False)
    written = min(writes, Watched.portions)
    assert written == (1 if writes == 1 else _BEGINNINGS + 2)
    assert found.rows["facts"] == 200 + written
    other.close()


def test_a_copy_put_back_is_the_state_it_was(state, tmp_path):
    store = filled(state)
    assert run("backup", str(tmp_path / "copy.db")).exit_code == 0
    store.prune(1e9)
    store.close()
    for end in ("", "-wal", "-shm"):
        state.with_name(state.name + end).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.db", state)
    assert len(Store(state).runs.latest()) == 2


def test_a_copy_can_be_checked_where_nothing_can_be_written(state, tmp_path, monkeypatch):
    """A copy on a shelf: no log beside it, and no right to make one (which root, in these tests, always has)."""
    filled(state).close()
    backup(state, tmp_path / "copy.db", replace=False)
    monkeypatch.setattr(os, "access", lambda _path, mode, **_: mode == os.R_OK)
    assert not inspect(tmp_path / "copy.db").problems
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.db", "state"]


def test_the_ledger_is_copied_and_checked_the_same_way(state, tmp_path):
    book = Ledger(state.with_name("ledger.db"))
    book.set_budget("physics", 100.0)
    assert run("backup", "--ledger", str(tmp_path / "ledger.db")).exit_code == 0
    assert inspect(tmp_path / "ledger.db", LEDGER).rows["accounts"] == 1
    assert json.loads(run("check", "--ledger", "--json").output)["kind"] == "ledger"
    assert run("vacuum", "--ledger").exit_code == 0
    assert book.account("physics").budget == 100.0


# -- vacuum ----------------------------------------------------------------------------------------------------------


def test_vacuum_forgets_what_is_old_and_makes_the_file_smaller(state):
    store = Store(state)
    with store.together():
        for i in range(4000):
            decide(store, f"workflow {i}", 1.0)
    decide(store, "recent", 4e9)
    store.close()
    told = json.loads(run("vacuum", "--json").output)
    assert told["forgotten"] == {"decisions": 4000}
    assert told["after"] < told["before"] / 4
    assert inspect(state).rows["decisions"] == 1


def test_vacuum_waits_until_no_agent_runs(state):
    filled(state).close()
    lock = lock_state(state.parent)
    try:
        done = run("vacuum")
        assert isinstance(done.exception, NotNow)
        assert "stop it" in str(done.exception)
    finally:
        os.close(lock)
    assert run("vacuum").exit_code == 0
