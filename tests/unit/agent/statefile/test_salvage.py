"""What can be read of a damaged state file is written to a new one, and what was lost is said."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from stored_states import fill, of_version, settled, workflow_state

from penstock.cli import cli
from penstock.core.pauses import PauseControl
from penstock.errors import NotNow, StateRefused, StoreError, UserError
from penstock.state.leadership import lock_state
from penstock.state.schema import VERSION
from penstock.state.store import Store
from penstock.statefile.pages import Pages
from penstock.statefile.rescue import Salvaged, salvage
from penstock.statefile.statefile import inspect
from penstock_planning.hold.ledger import Ledger
from penstock_planning.hold.ledgerfile import LEDGER

PAGE = 4096


@pytest.fixture(scope="session")
def filled(tmp_path_factory) -> bytes:
    """Tables of many pages, workflows whose documents go on on pages of their own."""
    path = tmp_path_factory.mktemp("filled") / "penstock.db"
    fill(Store(path), decisions=2000, runs=60).close()
    return settled(path).read_bytes()


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        tables = [str(r[0]) for r in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        return {t: list(db.execute(f"SELECT * FROM {t} ORDER BY rowid")) for t in tables}


def save(folder: Path, data: bytes, to: str = "new.db") -> Salvaged:
    """Salvaged, with nothing done to the damaged file or left beside it."""
    damaged = folder / "old.db"
    damaged.write_bytes(data)
    done = salvage(damaged, folder / to)
    assert damaged.read_bytes() == data
    assert sorted(p.name for p in folder.iterdir()) == sorted(["old.db", to])
    assert (folder / to).stat().st_mode & 0o777 == 0o600
    assert inspect(folder / to).problems == ()
    return done


def roots(data: bytes) -> dict[str, int]:
    return Pages(data).schema()


def test_of_a_whole_file_nothing_is_lost(tmp_path, filled):
    done = save(tmp_path, filled)
    assert done.whole
    (tmp_path / "whole.db").write_bytes(filled)
    assert rows(tmp_path / "new.db") == rows(tmp_path / "whole.db")


def test_a_row_that_cannot_be_read_is_left_out_and_named(tmp_path, filled):
    data = bytearray(filled)
    at = data.index(b'"phase": "active"')
    data[at + 12] ^= 2
    number = next(n for n, _u, _k, state in _runs(filled) if state.encode() in filled and _holds(filled, at, state))
    done = save(tmp_path, bytes(data))
    part = done.parts["runs"]
    assert (part.kept, len(part.left_out), part.pages) == (59, 1, 0)
    assert part.left_out[0].startswith(f"runs {number}: state cannot be read")
    assert done.parts["decisions"].kept == 2000
    assert [n for n, *_ in rows(tmp_path / "new.db")["runs"]] == [n for n in range(1, 61) if n != number]


def _runs(data: bytes) -> list[tuple[int, int, str, str]]:
    found = Pages(data)
    table = found.table(found.schema()["runs"])
    return [(n, 0, "", bytes(values[4]).decode()) for n, values in table.rows.items()]


def _holds(data: bytes, at: int, state: str) -> bool:
    begin = data.find(state[:200].encode(), max(0, at - len(state) - PAGE))
    return 0 <= begin <= at < begin + len(state) + PAGE


@pytest.mark.parametrize("table", ["runs", "decisions", "facts", "intents"])
def test_a_table_whose_first_page_is_gone_is_found_by_its_other_pages(tmp_path, filled, table):
    data = bytearray(filled)
    root = roots(filled)[table]
    small = data[(root - 1) * PAGE] == 13  # its rows are on this page
    data[(root - 1) * PAGE : root * PAGE] = os.urandom(PAGE)
    done = save(tmp_path, bytes(data))
    (tmp_path / "whole.db").write_bytes(filled)
    was, now = rows(tmp_path / "whole.db"), rows(tmp_path / "new.db")
    assert done.parts[table].pages == 1
    assert now == {**was, table: []} if small else now == was


def test_without_the_first_page_of_all_the_large_tables_are_there(tmp_path, filled):
    """That says where each table begins. Requests in the inbox are rather lost than taken twice."""
    data = bytes(PAGE) + filled[PAGE:]
    done = save(tmp_path, data)
    (tmp_path / "whole.db").write_bytes(filled)
    was, now = rows(tmp_path / "whole.db"), rows(tmp_path / "new.db")
    for table in ("runs", "decisions", "intents", "malleable", "messages", "facts"):
        assert now[table] == was[table], table
    assert now["inbox"] == []
    assert done.parts["inbox"].pages == 1
    with closing(Store(tmp_path / "new.db")) as store:
        assert len(PauseControl(store).pauses) == 1


def test_a_file_that_was_cut_off(tmp_path, filled):
    done = save(tmp_path, filled[: len(filled) // 2 + 100])
    assert 0 < sum(part.kept for part in done.parts.values()) < 2100
    assert not done.whole


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.few(10)
def test_whatever_is_damaged_most_is_kept(tmp_path, filled, seed):
    """Flipped bits, or a page of other bytes: what is lost is what was on it."""
    dice = random.Random(seed)
    data = bytearray(filled)
    if seed % 2:
        page = dice.randrange(len(data) // PAGE)
        data[page * PAGE : (page + 1) * PAGE] = dice.randbytes(PAGE)
    else:
        for _ in range(dice.randint(1, 20)):
            bit = dice.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
    done = save(tmp_path, bytes(data))
    kept = sum(part.kept for part in done.parts.values())
    assert kept > 1900, {name: part for name, part in done.parts.items() if not part.whole}


def test_what_was_freed_does_not_come_back(tmp_path, filled):
    """A workflow that was forgotten, while the table that it was in is damaged."""
    path = tmp_path / "freed.db"
    path.write_bytes(filled)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM decisions WHERE id > 300")
        db.commit()
    data = bytearray(settled(path).read_bytes())
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    root = roots(bytes(data))["decisions"]
    data[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    save(tmp_path, bytes(data))
    assert max(row[0] for row in rows(tmp_path / "new.db")["decisions"]) <= 300


def test_what_is_still_in_the_log_is_taken_along(tmp_path, filled):
    (path := tmp_path / "old.db").write_bytes(filled)
    store = Store(path)
    store.runs.add(7, workflow_state(61), 1.0)
    log = path.with_name("old.db-wal").read_bytes()
    (folder := tmp_path / "copy").mkdir()
    (folder / "old.db").write_bytes(filled)
    (folder / "old.db-wal").write_bytes(log)
    store.close()
    done = salvage(folder / "old.db", folder / "new.db")
    assert done.parts["runs"].kept == 61
    assert (folder / "old.db").read_bytes() == filled
    assert (folder / "old.db-wal").read_bytes() == log


def test_of_an_emptied_file_what_its_log_has(tmp_path):
    """SQLite would throw the log away."""
    store = fill(Store(tmp_path / "made.db"))
    log = (tmp_path / "made.db-wal").read_bytes()
    store.close()
    (folder := tmp_path / "copy").mkdir()
    (folder / "old.db").touch()
    (folder / "old.db-wal").write_bytes(log)
    done = salvage(folder / "old.db", folder / "new.db")
    assert done.parts["runs"].kept == 6
    assert (folder / "old.db-wal").read_bytes() == log


def test_an_older_file_is_refused_with_what_to_install_first(tmp_path):
    old = of_version(tmp_path / "old.db", 6)
    with closing(sqlite3.connect(old)) as db:
        db.execute("DROP TABLE moldable")
    data = old.read_bytes()
    with pytest.raises(StateRefused, match=r"install Penstock of commit fd8d5927 .* first"):
        salvage(old, tmp_path / "new.db")
    assert old.read_bytes() == data and not (tmp_path / "new.db").exists()


def test_a_damaged_version_is_not_taken_for_a_newer_release(tmp_path, filled):
    data = bytearray(filled)
    data[62] ^= 1
    assert save(tmp_path, bytes(data)).whole


def test_a_newer_release_salvages_its_own(tmp_path, filled):
    data = bytearray(filled)
    data[60:64] = (VERSION + 1).to_bytes(4, "big")
    (tmp_path / "old.db").write_bytes(data)
    with pytest.raises(StateRefused, match="newer Penstock"):
        salvage(tmp_path / "old.db", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("data", [b"", b"x" * 10_000])
def test_of_nothing_nothing_is_made(tmp_path, data):
    (tmp_path / "old.db").write_bytes(data)
    with pytest.raises(StoreError, match="nothing"):
        salvage(tmp_path / "old.db", tmp_path / "new.db")
    assert [p.name for p in tmp_path.iterdir()] == ["old.db"]


def test_a_ledger_is_salvaged_as_well(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    for name in ("physics", "chemistry"):
        book.set_budget(name, 100.0)
    book.close()
    settled(tmp_path / "ledger.db")
    done = salvage(tmp_path / "ledger.db", tmp_path / "new.db", LEDGER)
    assert done.whole
    assert [a.name for a in Ledger(tmp_path / "new.db").accounts()] == ["chemistry", "physics"]


# -- the command -------------------------------------------------------------------------------------------------------


def run(*words: object):
    return CliRunner().invoke(cli, ["db", "salvage", *map(str, words)])


def test_it_says_what_goes_on_and_what_was_lost(tmp_path, filled):
    data = bytearray(filled)
    for where in (b'"phase": "active"', b'[["wait", "a wait of 7 s'):
        data[data.index(where)] ^= 8
    root = roots(filled)["facts"]
    data[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    (tmp_path / "old.db").write_bytes(data)
    done = run(tmp_path / "old.db", tmp_path / "new.db")
    assert done.exit_code == 0, done.exception
    for said in (", whole, version", "left out: runs ", "left out: decisions ", "goes on: workflow 2 mosaic (jobs 21"):
        assert said in done.output
    assert "Pauses, and that all is off, may be lost" in done.output and "squeue --me" in done.output
    told = json.loads(run(tmp_path / "old.db", tmp_path / "other.db", "--json").output)
    assert told["lost"] and told["whole"]
    assert told["tables"]["runs"]["kept"] == 59 == told["rows"]["runs"]
    assert told["tables"]["facts"]["unreadable_pages"] == 1


def test_what_is_there_is_never_written_over(tmp_path, filled):
    (tmp_path / "old.db").write_bytes(filled)
    (tmp_path / "new.db").write_text("precious")
    for target in ("new.db", "old.db"):
        assert isinstance(run(tmp_path / "old.db", tmp_path / target).exception, UserError)
    assert (tmp_path / "new.db").read_text() == "precious"
    assert isinstance(run(tmp_path / "nothing.db", tmp_path / "x.db").exception, StoreError)
    assert "cannot be written" in str(run(tmp_path / "old.db", tmp_path / "no" / "x.db").exception)


def test_not_while_an_agent_works_on_it(tmp_path, filled):
    (folder := tmp_path / "state").mkdir()
    (folder / "penstock.db").write_bytes(filled)
    lock = lock_state(folder)
    try:
        done = run(folder / "penstock.db", tmp_path / "new.db")
        assert isinstance(done.exception, NotNow) and "stop it first" in str(done.exception)
    finally:
        os.close(lock)
    assert run(folder / "penstock.db", tmp_path / "new.db").exit_code == 0
