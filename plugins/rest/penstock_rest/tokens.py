"""The token that a slurmrestd which asks for one is shown (auth/jwt): from a file or a command, renewed before it ends.

A token is a secret: it is in no log, no error and no command line, only in the header of a request. What it says is
read here without checking it, which is Slurm's affair: whose it is, and when it ends, so that a new one is there
before.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from penstock.errors import ConfigError, NotPermitted, SlurmUnavailable

__all__ = ["CommandTokens", "FileTokens", "Token", "Tokens", "read_token"]

_BEFORE: Final = 60.0  # seconds before its end from which on a new token is fetched
_UNDATED: Final = 300.0  # how long a token is kept that does not say when it ends
_LONGEST: Final = 16_384
_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_LIMIT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Token:
    """A token, whose it is (empty: it does not say), and when it ends (epoch seconds; None: it does not say)."""

    text: str = field(repr=False)
    user: str
    ends: float | None


class Tokens(Protocol):
    """Where tokens come from."""

    async def current(self, *, renewed: bool = False) -> Token:
        """The token to use now; `renewed`: not the one that was just refused. Raises `NotPermitted` where there is none
        that is valid, `SlurmUnavailable` where it cannot be had now."""
        ...


def read_token(text: str, source: str) -> Token:
    """The token in what a file or command says: the token alone, or `SLURM_JWT=TOKEN`, as `scontrol token` prints it.
    Raises `NotPermitted`, which does not show what was read."""
    found = text.strip().rpartition("SLURM_JWT=")[2].strip()
    if len(found) > _LONGEST or not _JWT.fullmatch(found):
        raise NotPermitted(
            f"{source} holds no token for slurmrestd (JWT, or SLURM_JWT=JWT, as `scontrol token` prints)"
        )
    payload = found.split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        ends = claims.get("exp")
        user = claims.get("sun") or claims.get("username") or ""
    except (ValueError, AttributeError, binascii.Error, RecursionError):
        raise NotPermitted(f"{source} holds something that looks like a token (JWT), but cannot be read") from None
    dated = isinstance(ends, int | float) and not isinstance(ends, bool)
    return Token(found, user if isinstance(user, str) else "", float(ends) if dated else None)


@dataclass
class FileTokens:
    """A file that somebody keeps renewed; read again when it has changed, when the token ends, and when it was refused.

    It must be its reader's or root's, and nobody else may read it.
    """

    path: Path
    clock: Callable[[], float] = time.time
    _read: tuple[float, int] | None = None
    _token: Token | None = None

    async def current(self, *, renewed: bool = False) -> Token:
        """See `Tokens.current`."""
        seen = self._seen()
        if self._token is None or renewed or seen != self._read:
            self._token, self._read = read_token(self._text(), str(self.path)), seen
        if self._token.ends is not None and self.clock() >= self._token.ends:
            raise NotPermitted(f"the token in {self.path} has expired; whoever keeps the file must renew it")
        return self._token

    def _seen(self) -> tuple[float, int]:
        try:
            status = self.path.stat()
        except OSError as error:
            raise SlurmUnavailable(f"{self.path} (`rest.token_file`): {error.strerror}") from error
        if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o037:
            raise NotPermitted(f"{self.path}: a token must be its owner's alone (chmod 600), and yours or root's")
        return status.st_mtime, status.st_ino

    def _text(self) -> str:
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                return file.read(_LONGEST + 100)
        except OSError as error:
            raise SlurmUnavailable(f"{self.path} (`rest.token_file`): {error.strerror}") from error


@dataclass
class CommandTokens:
    """A command that prints a new token, such as `scontrol token lifespan=3600`; run before the last one ends."""

    argv: Sequence[str]
    clock: Callable[[], float] = time.time
    limit: float = _LIMIT
    _token: Token | None = None
    _until: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def current(self, *, renewed: bool = False) -> Token:
        """See `Tokens.current`."""
        refused = self._token if renewed else None
        async with self._turn:
            kept = self._token
            if kept is not None and kept is not refused and self.clock() < self._until:
                return kept
            token = read_token(await self._run(), f"what `{self.argv[0]}` printed (`rest.token_command`)")
            now = self.clock()
            if token.ends is not None and now >= token.ends:
                raise NotPermitted(f"`{self.argv[0]}` (`rest.token_command`) printed a token that has expired")
            # One that lives shorter than the time kept free before its end is used for half of its life.
            left = _UNDATED if token.ends is None else max((token.ends - now) / 2, token.ends - now - _BEFORE)
            self._token, self._until = token, now + left
            return token

    async def _run(self) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise ConfigError(f"`rest.token_command`: {self.argv[0]}: {error.strerror}") from error
        try:
            async with asyncio.timeout(self.limit):
                said, complaint = await process.communicate()
        except BaseException as error:
            if process.returncode is None:
                process.kill()
                await process.wait()
            if isinstance(error, TimeoutError):
                raise SlurmUnavailable(f"`{self.argv[0]}` printed no token within {self.limit:g} s") from None
            raise
        if process.returncode != 0:
            why = " ".join(complaint.decode(errors="replace").split())[:200]
            raise SlurmUnavailable(f"`{self.argv[0]}` ended with {process.returncode}: {why}")
        return said.decode(errors="replace")
