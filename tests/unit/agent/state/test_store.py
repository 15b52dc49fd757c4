"""The agent's memory survives, is written together or not at all, and refuses what it does not know."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from penstock.api import Decision, Reason, Verb
from penstock.errors import StoreError
from penstock.state.lease.fence import claim
from penstock.state.store import Store


def test_intents_stay_open_until_settled(tmp_path):
    store = Store(tmp_path / "s.db")
    first = store.intents.intend("submit", "workflow 1/a", {"name": "x"}, 1.0)
    second = store.intents.intend("merge", "job 7", {"resizer": 8}, 2.0)
    store.intents.settle(first, "done", "", 3.0)
    store.close()
    again = Store(tmp_path / "s.db")
    assert [(i.id, i.verb, i.payload["resizer"]) for i in again.intents.unsettled()] == [(second, "merge", 8)]


def test_a_killed_process_loses_nothing_that_was_written(tmp_path):
    script = (
        "import os, signal, sys; from penstock.state.store import Store; s = Store(sys.argv[1]);"
        "s.intents.intend('submit', 'w', {}, 1.0); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "s.db")], timeout=60, check=False)
    assert len(Store(tmp_path / "s.db").intents.unsettled()) == 1


def test_together_is_all_or_nothing(tmp_path):
    store = Store(tmp_path / "s.db")
    with pytest.raises(RuntimeError), store.together():
        store.facts.remember("a", "1")
        raise RuntimeError
    assert store.facts.get("a") is None
    with store.together():
        store.facts.remember("a", "1")
        store.facts.remember("b", "2")
    assert (store.facts.get("a"), store.facts.get("b")) == ("1", "2")


def test_the_same_decision_is_kept_once(tmp_path):
    store = Store(tmp_path / "s.db")
    first = Decision(Verb.EXPAND, "job 7", (Reason("idle", "3 nodes are idle"),))
    assert store.decisions.record(first, 1.0)
    assert not store.decisions.record(Decision(Verb.EXPAND, "job 7", (Reason("idle", "4 nodes are idle"),)), 2.0)
    assert store.decisions.record(first.because("cap", "at most 2"), 3.0)
    assert [d["at"] for d in store.decisions.of("job 7")] == [1.0, 3.0]


def test_decisions_of_a_subject_hold_those_below_it_only(tmp_path):
    store = Store(tmp_path / "s.db")
    for subject in ("workflow 3", "workflow 3/align", "workflow 30/align", "workflow 3_x"):
        store.decisions.record(Decision(Verb.SUBMIT, subject, (Reason("x", "x"),)), 1.0)
    assert {d["subject"] for d in store.decisions.of("workflow 3")} == {"workflow 3", "workflow 3/align"}


def test_a_newer_file_is_refused_with_the_way_out(tmp_path):
    Store(tmp_path / "s.db").close()
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="newer Penstock"):
        Store(tmp_path / "s.db")


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "s.db").write_text("hello " * 1000)
    with pytest.raises(StoreError, match=r"s\.db"):
        Store(tmp_path / "s.db")


def test_so_much_text_of_the_latest_runs_and_whose_a_run_is(tmp_path):
    store = Store(tmp_path / "db")
    for number in range(1, 6):
        assert store.runs.add(100 + number, {"text": "x" * 100}, 0.0) == number
    assert [n for n, _u, _s in store.runs.latest()] == [1, 2, 3, 4, 5]
    assert [n for n, _u, _s in store.runs.latest(most_text=250)] == [4, 5]
    assert [n for n, _u, _s in store.runs.latest(most_text=1)] == [5], "one at least"
    assert [n for n, _u, _s in store.runs.latest(limit=3)] == [3, 4, 5]
    assert (store.runs.owner(2), store.runs.owner(9)) == (102, None)


class Holder:
    """Holds the state among several hosts."""

    number = 1

    def lose(self, why: str) -> None:
        raise AssertionError(why)


def test_who_reads_run_after_run_keeps_nobody_from_writing(tmp_path, monkeypatch):
    """Without a write-ahead log, as where several hosts see the file, an open cursor would."""
    monkeypatch.setattr("penstock.state.runs._READ_AT_ONCE", 2)
    path = tmp_path / "s.db"
    assert claim(path, 1) == 0
    store = Store(path, Holder())
    store.connection._db.execute("PRAGMA busy_timeout=0")
    for n in range(9):
        store.runs.save(store.runs.add(0, {"n": n}, 0.0, "owner" if n == 4 else "agent"), {"n": n}, n or None)
    reader, found = Store.read_only(path), []
    for state in reader.runs.since(2.5):
        found.append(state["n"])
        store.facts.remember("n", str(state["n"]))
    assert found == [0, 3, 4, 5, 6, 7, 8]
    assert [n for n, _uid, _state in reader.runs.latest(submitter="owner")] == [5]
    assert [n for n, _uid, _state in reader.runs.latest(most_text=1)] == [9]
    store.facts.remember("n", "still")
    assert store.errors == 0
    assert list(Store(":memory:").runs.since(0.0)) == []
