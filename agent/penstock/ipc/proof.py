"""What the agent and a command on another host prove to each other over TCP, without any I/O.

    agent     {"penstock": 1, "nonce": N}              on every connection another
    command   {"nonce": M, "digest": D, "auth": ...}   a credential over N, M and D, the SHA-256 of the request to come
    command   the request, a line as on the Unix socket
    agent     {"digest": D', "auth": ...}              a credential over N, M, D and D', that of the reply to come
    agent     the reply, a line as on the Unix socket

Each side's number goes into what both sign, so neither line fits another connection, and no clock is needed. The
credentials are those of `dmr.credential`; what they cover begins with words of its own, so that none made for
something else fits here.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from typing import Final

from penstock.errors import UserError

__all__ = ["MAX_HEAD", "ProofHead", "digest_of", "greeting", "nonce", "nonce_of", "reply_text", "request_text"]

VERSION: Final = 1
MAX_HEAD: Final = 16 * 1024
_NONCE: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_AUTH: Final = re.compile(r"[ -~]{0,8192}", re.ASCII)


def nonce() -> str:
    """A number that is used once."""
    return secrets.token_hex(16)


def digest_of(line: bytes) -> str:
    """Of a request or a reply, its newline included."""
    return hashlib.sha256(line).hexdigest()


def request_text(theirs: str, ours: str, digest: str) -> str:
    """What the credential of a request covers: the agent's number, the command's, the request."""
    return _covered("request", theirs, ours, digest)


def reply_text(theirs: str, ours: str, request: str, reply: str) -> str:
    """What the credential of a reply covers: the agent's number, the command's, the request, the reply."""
    return _covered("reply", theirs, ours, request, reply)


def _covered(*parts: str) -> str:
    return hashlib.sha256("\n".join(("penstock command", str(VERSION), *parts)).encode("ascii")).hexdigest()


def greeting(number: str) -> bytes:
    """The agent's first line."""
    return json.dumps({"penstock": VERSION, "nonce": number}).encode("ascii") + b"\n"


def nonce_of(line: bytes) -> str:
    """The number in an agent's first line. Raises UserError when it is none."""
    said = _object(line)
    if said.get("penstock") != VERSION:
        raise UserError("what answers there is no agent of this release")
    return _field(said, "nonce", _NONCE)


@dataclass(frozen=True, slots=True)
class ProofHead:
    """What precedes a request or a reply: its digest and a credential. `nonce` is the command's; a reply has none."""

    digest: str
    auth: str
    nonce: str = ""

    def encode(self) -> bytes:
        """As a line."""
        said = {"digest": self.digest, "auth": self.auth}
        return json.dumps({**said, "nonce": self.nonce} if self.nonce else said).encode("ascii") + b"\n"

    @classmethod
    def decode(cls, line: bytes, *, request: bool) -> ProofHead:
        """From a line. Raises UserError when it is none."""
        said = _object(line)
        number = _field(said, "nonce", _NONCE) if request else ""
        return cls(_field(said, "digest", _DIGEST), _field(said, "auth", _AUTH), number)


def _object(line: bytes) -> dict[str, object]:
    try:
        said = json.loads(line) if len(line) <= MAX_HEAD else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise UserError("not a line of this protocol")
    return said


def _field(said: dict[str, object], name: str, form: re.Pattern[str]) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise UserError(f"not a line of this protocol: {name}")
    return value
