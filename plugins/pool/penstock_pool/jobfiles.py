"""What jobs of a pool have in its folder: their scripts and environments, each kept once by what is in it; and from
which number its jobs count."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.errors import StoreError
from penstock.fronts.programs.pools import EACH, MARK
from penstock.host.files import locked, replace
from penstock_pool.folder import PoolFolder
from penstock_pool.terms import FIRST_JOB

__all__ = ["JobFiles"]

_PATIENCE: Final = 10.0


class JobFiles:
    """See the module's text. `mark` is there as soon as the pool has had a job; the files are in `path`."""

    def __init__(self, folder: PoolFolder) -> None:
        self._folder = folder
        self.path = folder.path / "jobs"
        self.mark = folder.path / MARK

    def first(self) -> int:
        """The number that this pool's jobs count from; chosen at the first time. Raises StoreError."""
        try:
            with contextlib.suppress(FileNotFoundError):
                return int(json.loads(self.mark.read_text(encoding="utf-8"))["first"])
            base = self._folder.path.parent
            held = f"{base}: another pool has been choosing its first number for {_PATIENCE:g} s"
            with locked(base, os.O_RDONLY | os.O_DIRECTORY, held, _PATIENCE):
                taken = [int(json.loads(path.read_text(encoding="utf-8"))["first"]) for path in base.glob(f"*/{MARK}")]
                first = max(taken, default=FIRST_JOB - EACH) + EACH
                replace(self.mark, json.dumps({"first": first}))
                return first
        except (OSError, ValueError, KeyError) as e:
            raise StoreError(f"{self.mark}: {e}") from e

    def keep_script(self, content: bytes) -> str:
        """Keep a script; its name here. Raises StoreError."""
        return self._keep(content, 0o700)

    def keep_environment(self, environment: Mapping[str, str]) -> str:
        """Keep an environment; its name here. Raises StoreError."""
        return self._keep(json.dumps(dict(environment), sort_keys=True).encode(), 0o600)

    def script(self, name: str) -> Path:
        """Where a script is."""
        return self.path / name

    def environment(self, name: str) -> dict[str, str]:
        """An environment. Raises StoreError."""
        path = self.path / name
        try:
            found: dict[str, str] = json.loads(path.read_bytes())
            return found
        except (OSError, ValueError) as e:
            raise StoreError(f"{path}: cannot be read: {e}") from e

    def _keep(self, content: bytes, mode: int) -> str:
        name = hashlib.sha256(content).hexdigest()[:32]
        path = self.path / name
        try:
            if not path.exists():
                self.path.mkdir(mode=0o700, exist_ok=True)
                replace(path, content, mode=mode)
        except OSError as e:
            raise StoreError(f"{path}: cannot be written: {e.strerror}") from e
        return name
