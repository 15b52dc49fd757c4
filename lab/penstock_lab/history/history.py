"""A history on file: what it says of itself, its columns and names. `store` writes it and describes the form."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import UserError
from penstock_lab.history.store import COLUMNS, FORM, VERSION

__all__ = ["History"]

_MOST_TEXT: Final = 1 << 28


class History:
    """Opened by its path: `about` is its history.json, `jobs` how many it has. UserError for what is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.about: dict[str, Any] = self._about()
        self.jobs: int = self.about["jobs"]

    def _about(self) -> dict[str, Any]:
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open("history.json") as file:
                found = json.loads(file.read(_MOST_TEXT))
        except FileNotFoundError:
            raise UserError(f"{self.path} is not there; `penstock history import SOURCE --to FILE` makes one") from None
        except (zipfile.BadZipFile, KeyError, ValueError):
            raise UserError(
                f"{self.path} is no history; `penstock history import {self.path} --to FILE` makes one of a log or dump"
            ) from None
        except (OSError, zlib.error, EOFError) as e:
            raise UserError(f"{self.path}: {getattr(e, 'strerror', None) or e}") from None
        if not isinstance(found, dict) or found.get("form") != FORM or not isinstance(found.get("jobs"), int):
            raise UserError(f"{self.path} is no history")
        if found.get("version") != VERSION:
            raise UserError(
                f"{self.path} is a history of version {found.get('version')}, not {VERSION}: import it anew"
            )
        return found

    def names(self, kind: str) -> list[str]:
        """The names of a kind (`user`, `account`, `partition`, `qos`) by their numbers."""
        found: list[str] = self.about["names"][kind]
        return found

    def column(self, name: str) -> NDArray[Any]:
        """One column, as `COLUMNS` has it. UserError where it is damaged."""
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"columns/{name}.npy") as file:
                found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
                file.read(1)  # only then is the checksum of the member compared
        except (zipfile.BadZipFile, KeyError, ValueError, OSError, zlib.error, EOFError) as e:
            raise UserError(f"{self.path}: column {name} is damaged: {e}") from None
        if found.shape != (self.jobs,) or found.dtype != np.dtype(COLUMNS[name]):
            raise UserError(f"{self.path}: column {name} is damaged: not {self.jobs} numbers of {COLUMNS[name]}")
        return found
