"""What the tables of the state file are, how each release changed them, and which rows may be forgotten when."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.errors import UserError
from penstock.values.oldest import FIRST

__all__ = [
    "APPLICATION_ID",
    "MIGRATIONS",
    "OLDEST",
    "OVER",
    "UNREADABLE",
    "VERSION",
    "statements",
    "too_new",
    "too_old",
    "way_out",
]

APPLICATION_ID: Final = 0x50656E73
"""What SQLite's header of a state file says it is for ("Pens")."""

OLDEST: Final = 7
"""The first version of the state file that this release goes on from: that of `FIRST`."""

_SCHEMA: Final = f"""
    CREATE TABLE intents (
        id INTEGER PRIMARY KEY, verb TEXT NOT NULL, subject TEXT NOT NULL, payload TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', opened REAL NOT NULL, closed REAL, outcome TEXT);
    CREATE INDEX intents_open ON intents (state) WHERE state = 'open';
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,
        reasons TEXT NOT NULL, details TEXT NOT NULL);
    CREATE INDEX decisions_subject ON decisions (subject, id);
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, created REAL NOT NULL, finished REAL, state TEXT NOT NULL, \
submitter TEXT NOT NULL DEFAULT 'workflow');
    CREATE TABLE malleable (job INTEGER PRIMARY KEY, ended REAL, state TEXT NOT NULL);
    CREATE TABLE resizes (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL, epoch INTEGER NOT NULL, kind TEXT NOT NULL,
        old_size INTEGER NOT NULL, new_size INTEGER NOT NULL, outcome TEXT NOT NULL, finished REAL NOT NULL,
        marks TEXT NOT NULL, uid INTEGER, nodes INTEGER);
    CREATE TABLE learned (key TEXT PRIMARY KEY, updated REAL NOT NULL, state TEXT NOT NULL);
    CREATE TABLE waits (id INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, estimate REAL, wait REAL NOT NULL,
        censored INTEGER NOT NULL, bound REAL);
    CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE INDEX waits_key ON waits (key, id);
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, uid INTEGER NOT NULL, op TEXT NOT NULL, payload TEXT NOT NULL);
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, channel TEXT NOT NULL, at REAL NOT NULL, event TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, closed REAL,
        outcome TEXT NOT NULL DEFAULT '', UNIQUE (key, channel));
    PRAGMA application_id={APPLICATION_ID};
    CREATE TABLE moldable (
        job INTEGER PRIMARY KEY, uid INTEGER NOT NULL, ended REAL, state TEXT NOT NULL);
    """
# Append only: the number of entries is the file's user_version. The first is what `FIRST` has; nothing leads from the
# versions before it.
MIGRATIONS: Final = (*[""] * (OLDEST - 1), _SCHEMA)

# What is over, by table: the condition under which a row may go, and the column that says since when.
OVER: Final = {
    "intents": ("state NOT IN ('open', 'unknown')", "closed"),
    "decisions": ("TRUE", "at"),
    "runs": ("finished IS NOT NULL", "finished"),
    "malleable": ("ended IS NOT NULL", "ended"),
    "moldable": ("ended IS NOT NULL", "ended"),
    "resizes": ("TRUE", "finished"),
    "learned": ("TRUE", "updated"),
    "waits": ("TRUE", "at"),
    "messages": ("state NOT IN ('open', 'sending')", "closed"),
}
VERSION: Final = len(MIGRATIONS)
"""The version of the state file that this release writes."""
UNREADABLE: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, UserError)
"""What the readers of stored documents raise when one is not of their kind."""


def statements(script: str) -> list[str]:
    """Those of one migration, which has no `;` within a statement: run one by one they stay in one transaction."""
    return [text for part in script.split(";") if (text := part.strip())]


def way_out(path: Path | str, *, to_look: bool = True, to_salvage: bool = True) -> str:
    """What is to be done about a file that is refused; `to_look` further into it, `to_salvage` what it still has."""
    look = f"`penstock db check {path}` says more. " if to_look else ""
    salvage = f"have what can be read written to a new file (`penstock db salvage {path} NEW`), " if to_salvage else ""
    copy = "put a copy in its place (see `penstock db backup --help`), "
    return f"{look}Stop the agent, then {copy}{salvage}or move it away to start afresh"


def too_new(path: Path | str, have: int, know: int = VERSION) -> str:
    """What is said of a file that a newer release has written."""
    return (
        f"{path} was written by a newer Penstock (state version {have}, this one knows {know}): install that "
        "version again, or move the file away to start afresh"
    )


def too_old(path: Path | str, have: int, oldest: int = OLDEST) -> str:
    """What is said of a file that is older than this release goes on with; empty: it is not."""
    if not 0 < have < oldest:
        return ""
    return (
        f"{path} was written by an older Penstock (version {have}, this one goes on from {oldest}) and is left as it "
        f"is: install Penstock of {FIRST} first, start its agent once, then install this one"
    )
