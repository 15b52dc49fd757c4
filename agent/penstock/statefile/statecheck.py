"""What is wrong inside a state file, beyond what SQLite itself finds: its tables are those of its version, every value
is of its column's kind, and every stored document can be read into what it stands for.

One walk over all rows. Nothing here has a checksum: a digit that is another one now is not seen.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final

from penstock.audit.chain import ChainHead
from penstock.core.events import Event
from penstock.core.off import Off
from penstock.core.pauses import Pause
from penstock.future.speeds import read_program
from penstock.resize.running.machine import MalleableJob
from penstock.resize.waiting.model import MoldableJob
from penstock.state.filekind import Documents, Row, same, stored_json, stored_map
from penstock.state.schema import UNREADABLE, statements
from penstock.values.kinds import of_their_kinds
from penstock.values.messages import MessageState
from penstock.workflow.documents import run_from_dict
from penstock.workflow.phases import Submitter

__all__ = ["IN_STATE", "Column", "columns_of", "flaw", "problems"]

_FARTHEST: Final = 1e11  # seconds; what is later cannot be shown as a date
_DURATIONS: Final = frozenset({("waits", "estimate"), ("waits", "bound")})  # may be infinite
_AT_ONCE: Final = 20  # problems that are told of a file


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the schema has it: `kind` is INTEGER, REAL or TEXT; `key`: the primary key."""

    name: str
    kind: str
    required: bool
    default: str | None
    key: bool


def columns_of(db: sqlite3.Connection, table: str) -> tuple[Column, ...]:
    """The columns of a table, none where there is no such table. Raises `sqlite3.Error`."""
    quoted = table.replace('"', '""')
    return tuple(
        Column(str(name), str(kind), bool(required), default, bool(key))
        for _n, name, kind, required, default, key in db.execute(f'PRAGMA table_info("{quoted}")')
    )


def problems(db: sqlite3.Connection, scripts: Sequence[str], documents: Documents) -> Iterator[str]:
    """What is wrong in a file that was made by these scripts, a line each, the first ones. Raises `sqlite3.Error`."""
    found = list(islice(_all(db, scripts, documents), _AT_ONCE))
    yield from found
    if len(found) == _AT_ONCE:
        yield "and perhaps more"


def _all(db: sqlite3.Connection, scripts: Sequence[str], documents: Documents) -> Iterator[str]:
    sound = True
    for (problem,) in db.execute(f"PRAGMA integrity_check({_AT_ONCE})"):
        if problem != "ok":
            sound = False
            yield str(problem)
    if not sound:
        return  # what its rows say is no news then, and may take long
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        for script in scripts:
            for statement in statements(script):
                model.execute(statement)
        tables = [str(row[0]) for row in model.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for table in tables:
            if _shape(db, table) != _shape(model, table):
                sound = False
                yield f"the table {table} is not there, or not as this version has it"
        if sound:
            for table in tables:
                yield from _in_table(db, table, columns_of(model, table), documents.get(table, {}))


def _shape(db: sqlite3.Connection, table: str) -> tuple[object, ...]:
    """A table's columns and the indexes that keep it unique or are looked into."""
    indexes = sorted(
        (unique, origin, partial, [str(row[2]) for row in db.execute(f'PRAGMA index_info("{name}")')])
        for _n, name, unique, origin, partial in db.execute(f'PRAGMA index_list("{table}")').fetchall()
    )
    return (columns_of(db, table), indexes)


def _in_table(
    db: sqlite3.Connection, table: str, columns: tuple[Column, ...], readers: Mapping[str, Callable[[Row], object]]
) -> Iterator[str]:
    if _is_sound(db, table, columns, readers):
        return
    # Row by row, to name those that are not; one whose text is none shall not end the walk.
    names = ", ".join(f'CASE typeof("{c.name}") WHEN \'blob\' THEN 0 ELSE "{c.name}" END' for c in columns)
    db.text_factory = bytes
    try:
        for values in db.execute(f'SELECT {names} FROM "{table}"'):  # noqa: S608 (names of the schema)
            row = dict(zip((column.name for column in columns), values, strict=True))
            if (why := flaw(table, row, columns, readers)) is not None:
                yield f"{table} {_shown(row[columns[0].name])}: {why}"
    finally:
        db.text_factory = str


def _is_sound(
    db: sqlite3.Connection, table: str, columns: tuple[Column, ...], readers: Mapping[str, Callable[[Row], object]]
) -> bool:
    """The same, but only whether there is anything: in a quarter of the time."""
    odd = " OR ".join(_is_odd(table, column) for column in columns)
    if db.execute(f'SELECT 1 FROM "{table}" WHERE {odd} LIMIT 1').fetchone() is not None:  # noqa: S608 (as above)
        return False
    names = [column.name for column in columns]
    used = {name: read for name, read in readers.items() if name in names}
    quoted = ", ".join(f'"{name}"' for name in names)
    try:
        for values in db.execute(f'SELECT {quoted} FROM "{table}"'):  # noqa: S608 (as above)
            row = dict(zip(names, values, strict=True))
            for read in used.values():
                read(row)
    except (*UNREADABLE, RecursionError, sqlite3.OperationalError):
        return False
    return True


def _is_odd(table: str, column: Column) -> str:
    """What SQLite finds by itself of what `_flaw_of_value` says."""
    name = f'"{column.name}"'
    missing = "1" if column.required else "0"
    if column.kind == "TEXT":
        wrong = f"typeof({name}) != 'text'"
    elif column.kind == "INTEGER":
        wrong = f"typeof({name}) != 'integer'"
        if column.name == "uid":
            wrong = f"({wrong} OR {name} NOT BETWEEN 0 AND {2**32 - 1})"
    else:
        wrong = f"(typeof({name}) NOT IN ('integer', 'real') OR abs({name}) > {_FARTHEST!r})"
        if (table, column.name) in _DURATIONS:
            wrong = f"({wrong} AND abs({name}) != 9e999)"
    return f"CASE WHEN {name} IS NULL THEN {missing} ELSE {wrong} END"


def _shown(value: object) -> str:
    return value.decode("utf-8", "replace")[:60] if isinstance(value, bytes) else str(value)[:60]


def flaw(table: str, row: Row, columns: Iterable[Column], readers: Mapping[str, Callable[[Row], object]]) -> str | None:
    """What is wrong with a row, whose texts are bytes as they stand in the file; None: it can be used."""
    for column in columns:
        if (why := _flaw_of_value(table, column, row[column.name])) is not None:
            return f"{column.name} {why}"
    row = {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
    for name, read in readers.items():
        try:
            if name in row:  # not in every version
                read(row)
        except UNREADABLE as error:
            return f"{name} cannot be read: {_said_by(error)}"
        except RecursionError:
            return f"{name} cannot be read: it is nested too deeply"
    return None


def _said_by(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON at character {error.pos}"
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    return " ".join(str(error).split())[:100]


def _flaw_of_value(table: str, column: Column, value: object) -> str | None:
    if value is None:
        return "is missing" if column.required else None
    if column.kind == "TEXT":
        if not isinstance(value, bytes):
            return "is no text"
        try:
            value.decode()
        except UnicodeDecodeError:
            return "is no UTF-8 text"
        return None
    if column.kind == "INTEGER":
        if not isinstance(value, int):
            return "is no whole number"
        return None if column.name != "uid" or 0 <= value < 2**32 else "is no user id"
    if not isinstance(value, int | float):
        return "is no number"
    far = abs(value) > _FARTHEST and not (math.isinf(value) and (table, column.name) in _DURATIONS)
    return "is no time" if far else None


# -- the documents -----------------------------------------------------------------------------------------------------


def _a_map(column: str) -> Callable[[Row], object]:
    return lambda row: stored_map(stored_json(row[column]))


def _one_of(column: str, *words: str) -> Callable[[Row], object]:
    known = frozenset(words)

    def read(row: Row) -> None:
        if row[column] not in known:
            raise ValueError(f"it is {_shown(row[column])}, not one of {', '.join(words)}")

    return read


def _reasons(row: Row) -> None:
    for code, text in stored_json(row["reasons"]):
        if not isinstance(code, str) or not isinstance(text, str):
            raise TypeError("a reason is a code and a text")


def _run(row: Row) -> None:
    run = run_from_dict(stored_map(stored_json(row["state"])))
    of_their_kinds(run)
    same(run.id, row["id"])
    same(run.submitter.value, row["submitter"])


def _malleable(row: Row) -> None:
    job = MalleableJob.from_dict(stored_map(stored_json(row["state"])))
    of_their_kinds(job)
    same(job.job, row["job"])


def _moldable(row: Row) -> None:
    job = MoldableJob.from_dict(stored_map(stored_json(row["state"])))
    of_their_kinds(job)
    same(job.job, row["job"])


def _event(row: Row) -> None:
    of_their_kinds(Event.from_dict(stored_map(stored_json(row["event"]))))


def _marks(row: Row) -> None:
    for at in stored_map(stored_json(row["marks"])).values():
        float(at)


def _number(text: str) -> None:
    if not abs(float(text)) < _FARTHEST:
        raise ValueError("it is no time")


def _left(text: str) -> None:
    left, at = stored_json(text)
    float(left), float(at)


def _pauses(text: str) -> None:
    for pause in stored_json(text):
        of_their_kinds(told := Pause(**pause))
        str(told)


def _off(text: str) -> None:
    if text:
        of_their_kinds(told := Off.from_dict(stored_map(stored_json(text))))
        str(told)


# What is kept under names of which the program knows what it is; a history's own it can do without.
_FACTS: Final[Mapping[str, Callable[[str], object]]] = {
    "audit.head": ChainHead.parse,
    "dmr.port": int,
    "messages.reported": _number,
    "off": _off,
    "pauses": _pauses,
    "pruned.at": _number,
    "slurm.submissions": _left,
    "slurm.user_submissions": _left,
    "tick.at": _number,
    "tick.hinted": _number,
    "workflows.keeps_place": stored_json,
}


def _fact(row: Row) -> None:
    read = _FACTS.get(row["key"])
    if read is not None:
        read(row["value"])


def _learned(row: Row) -> None:
    """A predictor does without what it cannot read; of programs' speeds it is known what they are."""
    state = stored_map(stored_json(row["state"]))
    if row["key"].startswith("speeds "):
        read_program(state)


_INTENTS: Final = ("open", "done", "failed", "unknown", "interrupted")

IN_STATE: Final[Documents] = {
    "intents": {"payload": _a_map("payload"), "state": _one_of("state", *_INTENTS)},
    "decisions": {"reasons": _reasons, "details": _a_map("details")},
    "runs": {
        "submitter": _one_of("submitter", *Submitter),
        "state": _run,
    },
    "malleable": {"state": _malleable},
    "moldable": {"state": _moldable},
    "resizes": {"marks": _marks, "kind": _one_of("kind", "expand", "shrink")},
    "learned": {"state": _learned},
    "inbox": {"payload": _a_map("payload")},
    "messages": {"event": _event, "state": _one_of("state", *MessageState)},
    "facts": {"value": _fact},
}
