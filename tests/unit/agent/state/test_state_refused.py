"""A state that is no whole one of ours: refused with the way out by all who would work on it, and never replaced."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from stored_states import FLOW, fill, of_version, settled, workflow_state

from penstock.cli import cli
from penstock.config import load
from penstock.errors import NotPermitted, PenstockError, StateRefused, StoreError
from penstock.state.birth import LOGS
from penstock.state.leadership import hold_state
from penstock.state.lease.fence import claim
from penstock.state.schema import APPLICATION_ID, MIGRATIONS, VERSION
from penstock.state.store import Store
from penstock.statefile.statefile import inspect, must_be_whole, open_checked
from penstock_lab.agent_world import START, World, virtual
from penstock_planning.hold.ledger import Ledger

# All that look at a state without an agent, or leave something in it.
COMMANDS = (
    *(["status"], ["status", "--json"], ["top"], ["top", "--json"], ["explain", "w1"], ["explain", "w2", "--json"]),
    *(["explain", "agent"], ["explain", "70"], ["report"], ["report", "--json"], ["waits"], ["message", "list"]),
    *(["message", "list", "--json"], ["logs", "w1"], ["cancel", "w2"], ["retry", "w3"], ["pause"], ["resume"]),
)


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The state file of the command line; there is none yet."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("PENSTOCK_AGENT__STATE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return folder / "penstock.db"


@pytest.fixture(scope="session")
def filled(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("filled") / "penstock.db"
    fill(Store(path)).close()
    return settled(path).read_bytes()


def run(*words: str):
    return CliRunner().invoke(cli, words)


def started() -> None:
    """What an agent and a tick do first."""
    config = load()
    with closing(hold_state(config, "agent")) as leadership, closing(open_checked(config, leadership)):
        pass


def refused(path: Path, said: str) -> None:
    """By the agent, by `db check` and by who looks; with the way out, and the file stays as it is."""
    before = path.read_bytes()
    with pytest.raises(StateRefused, match=said) as agent:
        started()
    assert agent.value.exit_code == 8
    assert "db backup" in str(agent.value)
    assert ("db salvage" in str(agent.value)) == (len(before) >= 512), "of a few bytes there is nothing to be had"
    check = run("db", "check").exception
    assert isinstance(check, StoreError) and check.exit_code == 7
    for words in (["status"], ["pause"]):
        looked = run(*words).exception
        assert isinstance(looked, StateRefused), (words, looked)
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*-wal"))


# -- what is not there, and what is there but no state -----------------------------------------------------------------


def test_where_there_is_none_a_whole_one_is_made_for_its_owner_only(state):
    started()
    assert not inspect(state).problems
    assert state.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in state.parent.iterdir() if path.name.startswith(".")] == []
    with closing(sqlite3.connect(state)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


@pytest.mark.parametrize("content", [b"", b"S", b"SQLite format 3\0", b"\0" * 8192, b"hello " * 900])
def test_what_is_no_database_is_refused(state, content):
    state.write_bytes(content)
    refused(state, "is no database")


def test_the_log_of_an_emptied_file_is_not_thrown_away(state):
    """SQLite itself removes the log of a file without bytes, which may be all that is left."""
    store = fill(Store(state))
    log = state.with_name("penstock.db-wal")
    kept = log.read_bytes()
    assert len(kept) > 50_000
    os.truncate(state, 0)
    for look in (Store, Store.read_only, inspect, lambda path: claim(path, 1)):
        with pytest.raises(StateRefused, match="has 0 bytes"):
            look(state)
    assert log.read_bytes() == kept
    store.close()


def test_a_log_without_its_file_is_not_played_into_a_new_one(state):
    for end in LOGS:
        log = state.with_name(state.name + end)
        log.write_bytes(b"x" * 100)
        with pytest.raises(StateRefused, match=f"its log {log.name} is there"):
            started()
        assert not state.exists()
        log.unlink()


@pytest.mark.parametrize(
    ("made", "version"),
    [
        ("CREATE TABLE t (x)", 0),
        ("CREATE TABLE t (x)", 3),
        ("PRAGMA application_id=7", 3),
        ("CREATE TABLE runs (x)", 0),
    ],
)
def test_somebody_elses_database_is_refused(state, made, version):
    with closing(sqlite3.connect(state)) as db:
        db.execute(made)
        db.execute(f"PRAGMA user_version={version}")
        db.commit()
    refused(state, "no state file")
    with pytest.raises(StateRefused):
        claim(state, 1)


def test_another_mark_in_the_header_is_refused(state):
    fill(Store(state)).close()
    with closing(sqlite3.connect(state)) as db:
        db.execute("PRAGMA application_id=7")
    settled(state)
    with pytest.raises(StateRefused):
        started()
    assert "application id 0x7" in run("db", "check").output


def test_an_emptied_ledger_is_no_new_one(state):
    path = state.with_name("ledger.db")
    path.touch()
    with pytest.raises(StateRefused, match="is no database"):
        Ledger(path)
    path.unlink()
    Ledger(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files that its user cannot read")
def test_a_state_of_roots_is_final_for_the_agent(state, monkeypatch):
    fill(Store(state)).close()
    monkeypatch.setattr(os, "access", lambda *_args, **_more: False)
    monkeypatch.setattr("penstock.state.ownership.owner", lambda _path: 4711)
    with pytest.raises(StateRefused, match=r"it is the state of user 4711.*chown"):
        started()
    with pytest.raises(NotPermitted):
        Store(state)


def test_a_kill_in_making_the_first_one_leaves_none(state):
    script = (
        "import os, signal, sys, penstock.state.birth as b; from penstock.state.store import Store;"
        "b.publish = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL); Store(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(state)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not state.exists()
    (left,) = state.parent.glob(".penstock.db.new-*")
    os.utime(left, (0, 0))
    started()
    assert not left.exists()


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE runs SET state=substr(state, 2) WHERE id=1", "runs 1: state cannot be read"),
        ("UPDATE runs SET state=replace(state, '\"id\"', '\"ie\"') WHERE id=1", "runs 1: state cannot be read"),
        ("UPDATE runs SET submitter='agens' WHERE id=1", "runs 1: submitter cannot be read"),
        ('UPDATE runs SET state=replace(state, \'"phase": "active"\', \'"phase": "bctive"\')', "RunPhase"),
        ("UPDATE runs SET uid=-5 WHERE id=2", "runs 2: uid is no user id"),
        ("UPDATE malleable SET state=replace(state, '\"offer\"', '\"ofger\"')", "malleable 7[01]: state cannot"),
        ("UPDATE moldable SET state=replace(state, '2:8h', '2:8')", "moldable 8[01]: state cannot"),
        ("UPDATE decisions SET reasons='[1' WHERE id=3", "decisions 3: reasons cannot be read"),
        ("UPDATE decisions SET details='[]' WHERE id=3", "decisions 3: details cannot be read"),
        ("UPDATE decisions SET at='soon' WHERE id=3", "integrity|decisions 3: at is no number|decisions"),
        ("UPDATE decisions SET at=1e300 WHERE id=3", "decisions 3: at is no time"),
        ("UPDATE decisions SET subject=CAST(x'ff' AS TEXT) WHERE id=3", "decisions 3: subject is no UTF-8"),
        ('UPDATE decisions SET details=\'{"x": "\\ud800"}\' WHERE id=3', "decisions 3: details cannot"),
        ("UPDATE intents SET state='opfn' WHERE id=2", "intents 2: state cannot be read"),
        ("UPDATE facts SET value='1e' WHERE key='tick.at'", "facts tick.at: value cannot be read"),
        ("UPDATE facts SET value='{' WHERE key='off'", "facts off: value cannot be read"),
        ("UPDATE facts SET value='12' WHERE key='audit.head'", "facts audit.head: value cannot be read"),
        ("UPDATE facts SET value='[{}, 1]' WHERE key='pauses'", "facts pauses: value cannot be read"),
        ("UPDATE learned SET state='{\"version\": 1}' WHERE key='speeds 1000 x:1'", "learned speeds 1000 x:1: state"),
        ("UPDATE messages SET event='{}'", "messages 1: event cannot be read"),
        ("DROP INDEX decisions_subject", "the table decisions is not"),
        ("DROP TABLE inbox", "the table inbox is not there"),
    ],
)
def test_the_check_finds_what_sqlite_does_not(state, filled, sql, said):
    state.write_bytes(filled)
    with closing(sqlite3.connect(state)) as db:
        assert db.execute(sql).rowcount != 0
        db.commit()
    settled(state)
    with pytest.raises(StateRefused, match=said):
        started()
    done = run("db", "check")
    assert isinstance(done.exception, StoreError)
    assert "DAMAGED" in done.output


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.few(20)
def test_flipped_bits_are_found_or_do_no_harm(state, filled, seed):
    """Up to five anywhere in the file. Either the check says so, and the agent refuses; or all commands still work. And
    never is there a traceback."""
    dice = random.Random(seed)
    data = bytearray(filled)
    for _ in range(dice.randint(1, 5)):
        bit = dice.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
    state.write_bytes(data)
    check = run("db", "check").exception
    assert check is None or isinstance(check, PenstockError), check
    if check is None:
        started()
    else:
        with pytest.raises(StateRefused):
            started()
    for words in COMMANDS:
        done = run(*words)
        error = done.exception
        assert error is None or isinstance(error, PenstockError | SystemExit), (words, error)
        if check is None:
            assert getattr(error, "exit_code", 0) not in (7, 8), (words, error)


@pytest.mark.parametrize("place", [0, 16, 18, 19, 20, 21, 28, 31, 36, 44, 47, 52, 56, 59, 60, 63, 68, 71, 100, 103])
@pytest.mark.parametrize("bit", [0, 1, 3, 7])
def test_a_flipped_bit_of_the_header_is_found_or_does_no_harm(state, filled, place, bit):
    data = bytearray(filled)
    data[place] ^= 1 << bit
    state.write_bytes(data)
    check = run("db", "check").exception
    assert check is None or isinstance(check, PenstockError)
    if check is None:
        started()
    else:
        with pytest.raises(StateRefused):
            started()
    for words in (["status"], ["explain", "w1"], ["pause"]):
        error = run(*words).exception
        assert error is None or isinstance(error, StoreError), (words, error)
        assert check is not None or error is None, (words, error)


def test_a_tick_refuses_a_damaged_state(state, filled, monkeypatch):
    data = bytearray(filled)
    data[data.index(b'"phase": "active"') + 11] ^= 1
    state.write_bytes(data)
    monkeypatch.setenv("PENSTOCK_SLURM__BACKEND", "mock")
    monkeypatch.setenv("PENSTOCK_SLURM__MOCK_SOCKET", str(state.with_name("none.sock")))
    done = run("tick")
    assert isinstance(done.exception, StateRefused)
    assert done.exception.exit_code == 8


def test_a_running_agent_says_what_is_damaged_and_no_more(tmp_path, filled):
    """What is damaged after it was checked."""
    (path := tmp_path / "penstock.db").write_bytes(filled)
    store = Store(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE runs SET state='{' WHERE id=1")
        db.execute("UPDATE decisions SET reasons='{' WHERE id=1")
        db.commit()
    for look in (store.runs.latest, lambda: store.decisions.of("workflow 1"), lambda: list(store.runs.since(0.0))):
        with pytest.raises(StateRefused, match=r"(workflow|decision) 1 cannot be read.*db salvage"):
            look()
    store.close()


@pytest.mark.usefixtures("quick_and_quiet")
@virtual
async def test_what_an_agent_writes_passes_the_check(tmp_path):
    """All that workflows, resizes, pauses and messages leave behind."""
    world = World(tmp_path, {"messages": {"command": ["true"]}, "dmr": {"policy": "throughput"}})
    await world.boot()
    await world.malleable(step_seconds=5.0)
    await world.until(lambda: world.store.learning.learned_under("speeds "), 60)
    assert inspect(world.file).problems == ()
    number = await world.submit(FLOW, "asa")
    await world.finish(number)
    found = inspect(world.file)
    assert found.problems == ()
    assert found.rows["runs"] == 1 and found.rows["decisions"] > 3 and found.rows["malleable"] == 1
    assert world.now > START


# -- an older release --------------------------------------------------------------------------------------------------


def test_an_agent_does_not_start_on_an_older_file_and_leaves_it_alone(state):
    of_version(state, 6)
    data = state.read_bytes()
    for opening in (started, partial(must_be_whole, state), partial(claim, state, 1)):
        with pytest.raises(StateRefused, match=r"install Penstock of commit fd8d5927 .* first") as done:
            opening()
        assert done.value.exit_code == 8
    assert state.read_bytes() == data
    assert not [p for p in state.parent.iterdir() if "before" in p.name]


NEXT = VERSION + 1
STEP = "CREATE TABLE later (x); ALTER TABLE waits ADD COLUMN later TEXT; "


@pytest.fixture
def one_version_more(monkeypatch):
    """A release whose state has one step more than today's. `inspect` stays today's, to which that is a newer file."""
    monkeypatch.setattr("penstock.state.connection.MIGRATIONS", (*MIGRATIONS, STEP))
    for module in ("state.connection", "state.copies", "state.birth", "statefile.statefile"):
        monkeypatch.setattr(f"penstock.{module}.VERSION", NEXT)


def before(state: Path, number: int = 1) -> Path:
    return state.with_name(f"penstock.db.before-{NEXT}" + (f".{number}" if number > 1 else ""))


@pytest.mark.usefixtures("one_version_more")
def test_a_copy_is_kept_before_a_file_is_brought_to_the_next_version(state):
    of_version(state, VERSION)
    started()
    started()
    copy = before(state)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert (inspect(copy).version, inspect(state).version) == (VERSION, NEXT)
    assert inspect(copy).problems == ()
    assert inspect(copy).rows == {k: v for k, v in inspect(state).rows.items() if k in inspect(copy).rows}
    assert sorted(p.name for p in state.parent.iterdir() if "before" in p.name) == [copy.name]


@pytest.mark.usefixtures("one_version_more")
def test_a_copy_of_another_state_is_never_replaced(state):
    """Somebody went back to the older release, worked with it, and came again."""
    for number in (1, 2):
        state.unlink(missing_ok=True)
        of_version(state, VERSION)
        with closing(sqlite3.connect(state)) as db:
            db.execute("UPDATE waits SET wait=?", (number,))
            db.commit()
        started()
    for number in (1, 2):
        with closing(sqlite3.connect(before(state, number))) as db:
            assert db.execute("SELECT wait FROM waits").fetchone() == (float(number),)


@pytest.mark.parametrize("at", ["publish", "statement", "commit"])
def test_a_killed_migration_leaves_the_file_as_it_was(state, one_version_more, at):
    """Before the copy has its name, in the midst of the steps, and just before they hold; then it is done again."""
    of_version(state, VERSION)
    die = "os.kill(os.getpid(), signal.SIGKILL)"
    steps = {
        "publish": (STEP,),
        "statement": (STEP.replace("ALTER", "SELECT die(); ALTER"),),
        "commit": (STEP, "SELECT die();"),
    }[at]
    script = f"""
import os, signal, sqlite3, sys
import penstock.state.copies as f
import penstock.state.connection as s
real = sqlite3.connect
def connect(*a, **k):
    db = real(*a, **k)
    db.create_function("die", 0, lambda: {die})
    return db
s.sqlite3.connect = connect
s.MIGRATIONS = (*s.MIGRATIONS, *{steps!r})
s.VERSION = f.VERSION = {NEXT}
if {at == "publish"}:
    f.publish = lambda *a, **k: {die}
s.StateConnection(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", script, str(state)], timeout=60, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    found = inspect(state)
    assert (found.version, found.problems) == (VERSION, ())
    assert before(state).exists() == (at != "publish")
    started()
    assert inspect(state).version == NEXT
    assert inspect(before(state)).version == VERSION
    assert [p.name for p in state.parent.iterdir() if "before" in p.name] == [before(state).name]
    with closing(Store.read_only(state)) as store:
        assert [run for _n, _u, run in store.runs.latest()] == [workflow_state(1)]


@pytest.mark.usefixtures("one_version_more")
def test_a_damaged_file_is_not_brought_to_the_next_version(state):
    of_version(state, VERSION)
    with closing(sqlite3.connect(state)) as db:
        db.execute("UPDATE runs SET state='{'")
        db.commit()
    for opening in (started, partial(must_be_whole, state, older=True)):
        with pytest.raises(StateRefused, match=r"runs 1: "):
            opening()
    assert inspect(state).version == VERSION
    assert not before(state).exists()


def test_a_file_that_has_only_a_lease_is_no_state(state):
    with closing(sqlite3.connect(state)) as db:
        db.execute("CREATE TABLE lease (number INTEGER NOT NULL)")
        db.commit()
    data = state.read_bytes()
    with pytest.raises(StateRefused, match="no state file of Penstock"):
        Store(state)
    assert state.read_bytes() == data


def test_a_lease_is_not_written_into_an_empty_file(state):
    state.touch()
    with pytest.raises(StateRefused):
        claim(state, 1)
    assert state.stat().st_size == 0
    state.unlink()
    assert claim(state, 4) == 0
    assert inspect(state).problems == ()
