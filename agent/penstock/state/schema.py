"""What the tables of the state file are, how each release changed them, and which rows may be forgotten when."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.errors import UserError

__all__ = ["APPLICATION_ID", "MIGRATIONS", "OVER", "UNREADABLE", "VERSION", "statements", "too_new", "way_out"]

APPLICATION_ID: Final = 0x50656E73
"""What SQLite's header of a state file says it is for ("Pens"); 0 in files of before version 5."""

# Append only: the number of applied entries is the file's user_version.
MIGRATIONS: Final = (
    """
    CREATE TABLE intents (
        id INTEGER PRIMARY KEY, verb TEXT NOT NULL, subject TEXT NOT NULL, payload TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', opened REAL NOT NULL, closed REAL, outcome TEXT);
    CREATE INDEX intents_open ON intents (state) WHERE state = 'open';
    CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,
        reasons TEXT NOT NULL, details TEXT NOT NULL);
    CREATE INDEX decisions_subject ON decisions (subject, id);
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, created REAL NOT NULL, finished REAL, state TEXT NOT NULL);
    CREATE TABLE malleable (job INTEGER PRIMARY KEY, ended REAL, state TEXT NOT NULL);
    CREATE TABLE resizes (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL, epoch INTEGER NOT NULL, kind TEXT NOT NULL,
        old_size INTEGER NOT NULL, new_size INTEGER NOT NULL, outcome TEXT NOT NULL, finished REAL NOT NULL,
        marks TEXT NOT NULL);
    CREATE TABLE learned (key TEXT PRIMARY KEY, updated REAL NOT NULL, state TEXT NOT NULL);
    CREATE TABLE waits (id INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, estimate REAL, wait REAL NOT NULL,
        censored INTEGER NOT NULL);
    CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    """,
    """
    ALTER TABLE waits ADD COLUMN bound REAL;
    CREATE INDEX waits_key ON waits (key, id);
    """,
    """
    ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT 'workflow';
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, uid INTEGER NOT NULL, op TEXT NOT NULL, payload TEXT NOT NULL);
    """,
    """
    ALTER TABLE resizes ADD COLUMN uid INTEGER;
    ALTER TABLE resizes ADD COLUMN nodes INTEGER;
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, channel TEXT NOT NULL, at REAL NOT NULL, event TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, closed REAL,
        outcome TEXT NOT NULL DEFAULT '', UNIQUE (key, channel));
    """,
    f"PRAGMA application_id={APPLICATION_ID};",
    """
    ALTER TABLE runs RENAME COLUMN kind TO submitter;
    UPDATE runs SET submitter = CASE submitter WHEN 'guided' THEN 'owner' ELSE 'agent' END;
    """,
    # A flipped bit in the header makes a file of version 7 one of version 6.
    """
    CREATE TABLE IF NOT EXISTS moldable (
        job INTEGER PRIMARY KEY, uid INTEGER NOT NULL, ended REAL, state TEXT NOT NULL);
    """,
)

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
