"""The merged result of a sweep: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import UserError
from penstock_lab.sim.sweep.one import COLUMNS, Row
from penstock_lab.sim.swfout import whole_file

__all__ = ["check_table", "write_table"]


def check_table(path: Path) -> None:
    """UserError when a table of this name cannot be written; to be asked before anything is computed."""
    if path.name.endswith((".csv", ".csv.gz")):
        return
    if path.suffix != ".parquet":
        raise UserError(f"--out must end with .csv, .csv.gz or .parquet, not {path.name[-40:]!r}")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UserError(
            f"{path.name} needs pyarrow, which the extra 'parquet' installs (pip install 'penstock-lab[parquet]'); "
            "or let --out end with .csv"
        ) from None


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows under the names of COLUMNS. UserError when it cannot be written."""
    data = _parquet(rows) if path.suffix == ".parquet" else _csv(rows)
    try:
        with whole_file(path) as file:
            file.write(data)
    except OSError as e:
        raise UserError(f"{path} cannot be written: {e.strerror or e}") from None


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)  # None is an empty cell
    return text.getvalue().encode()


def _parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema), sink)
    return sink.getvalue()
