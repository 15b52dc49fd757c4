"""The environments of those who submit workflows, as long as these run: a file each, which only its user can read.

They may hold passwords, so they are kept out of the state file, which is shown, copied and backed up. A command leaves
one for its request, which has its name and no more; the agent, which runs as the same user, keeps the name with the run
and erases the file when that ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from penstock.errors import UserError
from penstock.host.files import replace
from penstock.host.logs import get_logger

__all__ = ["Environments", "own_environment"]

_log = get_logger(__name__)
_FOLDER: Final = "environments"
_TOKEN: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PATIENCE: Final = 3600.0
"""Seconds that one may lie for a request that has not come, or is in no inbox."""
# What Python itself says to the programs that it starts, where the caller's locale is C.
_COERCED: Final = frozenset({b"C.UTF-8", b"C.utf8", b"UTF-8"})


def own_environment() -> dict[bytes, bytes]:
    """This process's environment, as it was when it was started."""
    found = dict(os.environb)
    if found.get(b"LC_CTYPE") in _COERCED:
        with contextlib.suppress(OSError):
            given = Path("/proc/self/environ").read_bytes().split(b"\0")
            if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
                del found[b"LC_CTYPE"]
    return found


class Environments:
    """Those that are kept in a state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / _FOLDER

    def leave(self, environment: Mapping[bytes, bytes]) -> str:
        """Keep one for the request to come; what that has to say. Raises OSError."""
        token = secrets.token_hex(16)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._folder.chmod(0o700)
        content = b"".join(name + b"=" + value + b"\0" for name, value in environment.items())
        replace(self._file(token), content, 0o600)
        return token

    def take(self, token: str) -> None:
        """From now on it is kept as long as its run. Raises UserError where nothing was left."""
        try:
            os.utime(self._file(token), (0, 0))
        except OSError as e:
            raise UserError(
                f"the environment that was handed over is not in {self._folder}: the command and the agent must have "
                "the same `agent.state_dir`"
            ) from e

    def read(self, token: str) -> dict[str, str] | None:
        """The variables; None where it is not (any more) there."""
        try:
            content = self._file(token).read_bytes()
        except OSError as e:
            _log.warning("an environment cannot be read; the job gets a bare one", why=e.strerror)
            return None
        pairs = (os.fsdecode(entry).partition("=") for entry in content.split(b"\0") if entry)
        return {name: value for name, _, value in pairs}

    def erase(self, token: str) -> None:
        """Its run has ended, or its request was refused."""
        if _TOKEN.fullmatch(token):
            self._file(token).unlink(missing_ok=True)

    def sweep(self, kept: Collection[str]) -> None:
        """Erase all but these, and those that were left a short while ago for a request that is still to come."""
        try:
            entries = list(self._folder.iterdir())
        except FileNotFoundError:
            return
        for path in entries:
            if path.name not in kept and not _young(path):
                path.unlink(missing_ok=True)

    def _file(self, token: str) -> Path:
        if not _TOKEN.fullmatch(token):
            raise FileNotFoundError(errno.ENOENT, "not the name of an environment")
        return self._folder / token


def _young(path: Path) -> bool:
    try:
        # Where others' clocks are ahead, a file server's perhaps, it is from the future, and young.
        return time.time() - path.stat().st_mtime < _PATIENCE
    except FileNotFoundError:
        return False
