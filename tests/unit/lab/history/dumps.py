"""Dumps of sacct as text, and what becomes of them."""

from __future__ import annotations

from pathlib import Path

from penstock_lab.history.history import History
from penstock_lab.history.importing import Options, import_history
from penstock_lab.history.rows import Report
from penstock_lab.history.sacct import FIELDS

MARK = "@0123456789abcdef@"
# 2025-01-15 12:00:00 UTC.
NOON = 1736942400
USUAL = {
    "JobIDRaw": "7", "JobID": "7", "Cluster": "big", "User": "alice", "Account": "chem", "Partition": "batch",
    "QOS": "normal", "State": "COMPLETED", "Submit": str(NOON), "Eligible": str(NOON), "Start": str(NOON + 60),
    "End": str(NOON + 360), "ElapsedRaw": "300", "TimelimitRaw": "10", "NNodes": "2", "AllocCPUS": "8", "ReqCPUS": "8",
    "ReqMem": "4G", "JobName": "relax",
}  # fmt: skip


def record(mark: str = MARK, fields: tuple[str, ...] = FIELDS, **cells: object) -> str:
    """A row with a mark behind each field; what is not said is as usual."""
    known = USUAL | {name: str(value) for name, value in cells.items()}
    if "JobIDRaw" in cells and "JobID" not in cells:
        known["JobID"] = known["JobIDRaw"]
    return "".join(known[name] + mark for name in fields) + "\n"


def heading(mark: str = MARK, fields: tuple[str, ...] = FIELDS) -> str:
    return "".join(name + mark for name in fields) + "\n"


def dump(*records: str) -> str:
    return heading() + "".join(records)


def imported(folder: Path, text: str | bytes, **options: object) -> tuple[History, Report]:
    source = folder / "jobs.txt"
    source.write_bytes(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
    report = import_history([source], folder / "site.history", Options(**options))
    return History(folder / "site.history"), report


def job(folder: Path, text: str, **options: object) -> dict[str, int]:
    """The only job of a dump, its columns by name."""
    found, report = imported(folder, text, **options)
    assert found.jobs == report.kept == 1, report
    names = ("id", "submit", "eligible", "start", "end", "limit", "nodes", "cpus", "memory", "flags")
    return {name: int(found.column(name)[0]) for name in names}
