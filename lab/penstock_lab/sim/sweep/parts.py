"""One file per computed combination, in a folder beside the result: what is there is not computed again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import UserError
from penstock_lab.sim.sweep.grid import Combination
from penstock_lab.sim.sweep.one import COLUMNS, Row, failed
from penstock_lab.sim.swfout import whole_file

__all__ = ["NOT_COMPUTED", "Parts"]

NOT_COMPUTED = "not computed"


class Parts:
    """The part files of one result; each is complete or not there, whoever writes it."""

    def __init__(self, result: Path) -> None:
        self.folder = result.with_name(f"{result.name}.parts")

    def make(self) -> None:
        """Make the folder; UserError when that is impossible."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as e:
            raise UserError(f"{self.folder} cannot be made: {e.strerror or e}") from None

    def write(self, combination: Combination, row: Row) -> None:
        """Keep a row. OSError."""
        with whole_file(self._path(combination)) as file:
            file.write(json.dumps(row).encode())

    def read(self, combination: Combination) -> Row | None:
        """The row of a combination, None if there is none or it cannot be read."""
        try:
            row = json.loads(self._path(combination).read_bytes())
        except (OSError, ValueError):
            return None
        return row if isinstance(row, dict) and row.keys() == COLUMNS.keys() else None

    def missing(self, combinations: Sequence[Combination]) -> list[Combination]:
        """Those that are still to be computed: the ones without a part, and the ones that failed."""
        rows = ((one, self.read(one)) for one in combinations)
        return [one for one, row in rows if row is None or row["error"] is not None]

    def rows(self, combinations: Sequence[Combination]) -> list[Row]:
        """A row for each, in this order; one without a part has an error."""
        return [self.read(one) or failed(one, NOT_COMPUTED) for one in combinations]

    def _path(self, combination: Combination) -> Path:
        return self.folder / f"{combination.key()}.json"
