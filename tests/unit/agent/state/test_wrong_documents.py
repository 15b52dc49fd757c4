"""Documents of the state file with a value of another kind somewhere: refused, or harmless; never a traceback."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner
from stored_states import fill, settled

from penstock.cli import cli
from penstock.config import load
from penstock.errors import PenstockError, StateRefused
from penstock.state.leadership import hold_state
from penstock.state.store import Store
from penstock.statefile.statefile import open_checked

DOCUMENTS = {
    "runs": "state", "malleable": "state", "moldable": "state", "learned": "state", "decisions": "reasons",
    "facts": "value", "messages": "event", "inbox": "payload", "intents": "payload", "resizes": "marks",
}  # fmt: skip
WRONG = (None, True, -1, 0, 1.5, 1e308, 10**30, "", "x", "\u0000", "é" * 5000, [], {}, [[]], [None], {"x": 1}, [[[[]]]])
COMMANDS = (["status"], ["status", "--json"], ["top"], ["explain", "w1"], ["explain", "70"], ["report"], ["waits"],
            ["message", "list"], ["logs", "w1"], ["cancel", "w2"], ["retry", "w3"], ["pause"], ["resume"])  # fmt: skip


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The state file of the command line; there is none yet."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return folder / "penstock.db"


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("filled") / "penstock.db"
    fill(Store(path)).close()
    return settled(path).read_bytes()


def places(value, path=()):
    """The way to each value in a document, itself included."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*path, key))


def changed(value, path, wrong):
    if not path:
        return wrong
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = changed(value[path[0]], path[1:], wrong)
    return copied


def documents(db, table):
    """(rowid, document) of each row that has one."""
    for rowid, text in db.execute(f'SELECT rowid, "{DOCUMENTS[table]}" FROM "{table}"').fetchall():
        try:
            yield rowid, json.loads(text)
        except ValueError:
            continue


def test_the_documents_are_those_of_the_schema(state, filled):
    state.write_bytes(filled)
    with closing(sqlite3.connect(state)) as db:
        assert {table for table in DOCUMENTS if list(documents(db, table))} == set(DOCUMENTS)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("table", DOCUMENTS)
@pytest.mark.few(6)
def test_a_value_of_another_kind_is_refused_or_does_no_harm(state, filled, table, seed):
    dice = random.Random(f"{table} {seed}")
    state.write_bytes(filled)
    with closing(sqlite3.connect(state)) as db:
        rowid, document = dice.choice(list(documents(db, table)))
        where, wrong = dice.choice(list(places(document))), dice.choice(WRONG)
        text = json.dumps(changed(document, where, wrong))
        db.execute(f'UPDATE "{table}" SET "{DOCUMENTS[table]}"=? WHERE rowid=?', (text, rowid))
        db.commit()
    settled(state)
    what = (table, rowid, where, wrong)
    check = CliRunner().invoke(cli, ["db", "check"]).exception
    assert check is None or isinstance(check, PenstockError), (what, check)
    config = load()
    with closing(hold_state(config, "agent")) as leadership:
        if check is None:
            open_checked(config, leadership).close()
        else:
            with pytest.raises(StateRefused):
                open_checked(config, leadership)
    if check is not None and table == "facts":
        return  # orders and pauses of a state that no agent starts on
    for words in COMMANDS:
        error = CliRunner().invoke(cli, words).exception
        assert error is None or isinstance(error, PenstockError | SystemExit), (what, words, error)
        if check is None:
            assert getattr(error, "exit_code", 0) not in (7, 8), (what, words, error)
