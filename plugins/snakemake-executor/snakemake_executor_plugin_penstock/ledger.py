"""What was submitted and has not ended, on disk: a Snakemake that is started again looks there.

Snakemake's own marks of incomplete files would do, if a second Snakemake on a node did not write them anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.host.files import replace
from snakemake_executor_plugin_penstock.naming import ExternalName, name_from

__all__ = ["SubmissionLedger", "job_key", "read_ledger"]

_BEGUN, _ENDED = "+", "-"
_SPARE = 100  # lines that say nothing any more, and are kept until there are more


def job_key(rule: str, outputs: Iterable[str], wildcards: str) -> str:
    """What a job is known by in every run of Snakemake in its folder."""
    text = "\0".join([rule, wildcards, *sorted(outputs)])
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]


def read_ledger(lines: Iterable[str]) -> dict[str, ExternalName]:
    """The last name of each job that was begun and has not ended. A line that was cut off is passed over. Pure."""
    found: dict[str, ExternalName] = {}
    for line in lines:
        what, _, rest = line.strip().partition(" ")
        key, _, text = rest.partition(" ")
        if what == _BEGUN and (name := name_from(text)) is not None:
            found[key] = name
        elif what == _ENDED:
            found.pop(key, None)
    return found


class SubmissionLedger:
    """The file, in a folder of the workflow's. What an earlier run has left is in `left`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.left: dict[str, ExternalName] = {}
        with suppress(FileNotFoundError):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            self.left = read_ledger(lines)
            if len(lines) > 2 * len(self.left) + _SPARE:
                replace(path, "".join(f"{_BEGUN} {key} {name}\n" for key, name in self.left.items()), durable=False)

    def begun(self, names: Mapping[str, ExternalName]) -> None:
        """Jobs are about to be submitted: name by key. Raises OSError."""
        self._write(f"{_BEGUN} {key} {name}\n" for key, name in names.items())

    def ended(self, keys: Iterable[str]) -> None:
        """Jobs have ended, whatever became of them. Raises OSError."""
        self._write(f"{_ENDED} {key}\n" for key in keys)

    def close(self) -> None:
        """Nothing is open any more."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._path.parent.rmdir()  # if nothing else is there

    def _write(self, lines: Iterable[str]) -> None:
        if text := "".join(lines):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
