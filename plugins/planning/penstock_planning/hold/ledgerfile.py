"""The ledger as a file that `penstock db` checks, copies and salvages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.state.filekind import Documents, FileKind, Row, same, stored_json, stored_map
from penstock.state.ownership import ledger_path
from penstock.workflow.documents import run_from_dict
from penstock_planning.hold.ledger import MIGRATIONS, Ledger
from penstock_planning.plan.holding import Hold

__all__ = ["LEDGER"]


def _hold(row: Row) -> None:
    Hold.from_dict(stored_map(stored_json(row["state"])))


def _run(row: Row) -> None:
    same(run_from_dict(stored_map(stored_json(row["state"]))).name, row["name"])


def _update(path: Path) -> None:
    Ledger(path).close()


_DOCUMENTS: Final[Documents] = {"holds": {"state": _hold}, "runs": {"state": _run}}
LEDGER: Final = FileKind(
    "ledger",
    MIGRATIONS,
    _DOCUMENTS,
    "entries",
    {"entries": "at"},
    ledger_path,
    _update,
    text="The ledger of held slots instead of the state.",
)
