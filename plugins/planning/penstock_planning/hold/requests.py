"""Signed requests for reservations: a file for an operator, or a site's wrapper, who may make what a user may not.

A request is one JSON file, `NAME.request`; its signature (HMAC-SHA256 with a key that the site's users may not read,
only the agent and the operator) covers every field, so nobody can widen what was granted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from pathlib import Path
from typing import Any, Final

from penstock.api import ReservationSpec
from penstock.errors import NotPermitted, StoreError, UserError
from penstock.host.files import replace

__all__ = ["drop", "load_key", "read", "write"]

_FIELDS: Final = ("name", "user", "account", "nodes", "nodelist", "partition", "start", "duration", "price")
_SHORTEST_KEY: Final = 16
# It becomes the name of a file and of a reservation.
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)


def load_key(path: Path | None) -> bytes:
    """The key in the file that `provision.request_key` names. Raises UserError; NotPermitted where it is not the
    caller's to use."""
    if path is None:
        raise UserError("`provision.request_key` must be set to sign requests")
    try:
        if path.stat().st_mode & 0o007:
            raise UserError(f"`provision.request_key`: everybody can read or write {path}: chmod o-rwx {path}")
        return path.read_bytes().strip()
    except PermissionError:
        raise NotPermitted(f"`provision.request_key`: you may not read {path}") from None
    except OSError as error:
        raise UserError(f"`provision.request_key`: {path} cannot be read: {error.strerror}") from None


def write(folder: Path, key: bytes, spec: ReservationSpec, account: str, price: float) -> Path:
    """Leave a request in `folder`; the same request twice is one file. Raises UserError, StoreError."""
    body = {
        "name": spec.name,
        "user": spec.users[0],
        "account": account,
        "nodes": spec.nodes,
        "nodelist": list(spec.nodelist),
        "partition": spec.partition or "",
        "start": math.floor(spec.start),
        "duration": spec.duration,
        "price": price,
    }
    path = _path(folder, spec.name)
    text = json.dumps({**body, "signature": _sign(key, body)}, indent=2, sort_keys=True) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace(path, text, mode=None)  # for those whom the folder's site lets read it
    except OSError as error:
        raise StoreError(f"the request {path} cannot be written: {error.strerror}") from None
    return path


def drop(folder: Path, name: str) -> None:
    """Take a request back; one that is not there is no error. Raises UserError, StoreError."""
    path = _path(folder, name)
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StoreError(f"the request {path} cannot be taken back: {error.strerror}") from None


def _path(folder: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UserError(f"a reservation's name is made of letters, digits and _ . - only, not {name[:60]!r}")
    return folder / f"{name}.request"


def read(path: Path, key: bytes, flags: tuple[str, ...] = ()) -> ReservationSpec:
    """The reservation that a request asks for. Raises UserError unless it is whole and its signature right."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is no request: {error}") from None
    if not isinstance(data, dict) or set(data) != {*_FIELDS, "signature"}:
        raise UserError(f"{path} is no request: it must have {', '.join(_FIELDS)} and signature")
    body = {name: data[name] for name in _FIELDS}
    if not hmac.compare_digest(str(data["signature"]).encode(errors="replace"), _sign(key, body).encode()):
        raise UserError(f"{path} has a wrong signature: it was changed, or written with another key")
    return ReservationSpec(
        body["name"],
        float(body["start"]),
        float(body["duration"]),
        int(body["nodes"]),
        body["partition"] or None,
        users=(body["user"],),
        flags=flags,
        nodelist=tuple(body["nodelist"]),
    )


def _sign(key: bytes, body: dict[str, Any]) -> str:
    if len(key) < _SHORTEST_KEY:
        raise UserError(f"`provision.request_key`: the key must have at least {_SHORTEST_KEY} bytes")
    return hmac.new(key, json.dumps(body, sort_keys=True).encode(), hashlib.sha256).hexdigest()
