"""Credentials for the requests of `dmr.wire`: who asks is proven, and the proof covers the whole request.

    munge:<credential>   made by the site's munged through libmunge: names the sender's uid and gid, valid on every node
    key:<hex>            HMAC-SHA256 with a key file that only its owner can read; the uid is that of the file's owner

A credential is made over the request's digest (`dmr.wire.digest`). libmunge is called through ctypes: starting the
`munge` command would fork, and forking inside an MPI process is unsafe on several fabrics. Freshness and replay of a
request are the agent's to judge (munged refuses a credential it has decoded before; an HMAC can be repeated).

Environment: `DMR_KEY_FILE` selects the key; `DMR_MUNGE_SOCKET` is munged's socket where it is not the default one.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import hmac
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["CredentialError", "Key", "Peer", "load_key", "sign", "sign_key", "sign_munge", "verify_key", "verify_munge"]

MIN_KEY_BYTES: Final = 32

# From munge.h, part of libmunge's stable interface (its soname is libmunge.so.2 since 2007).
_OPT_SOCKET: Final = 8
_ERRORS: Final = {
    6: "munged does not answer at its socket",
    7: "munged did not answer in time",
    14: "the credential is forged or damaged, or made with another realm's key",
    15: "the credential has expired",
    16: "the credential comes from the future: clocks differ",
    17: "the credential has been used before",
    18: "the credential is not meant for this user",
}


class CredentialError(Exception):
    """A credential cannot be made, or does not prove what it should; the message says why and holds no secret."""


class Peer(NamedTuple):
    """Who munged says made the credential."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Key:
    """A shared secret and the user it stands for."""

    uid: int
    secret: bytes = field(repr=False)


def sign(digest: str) -> str:
    """A credential over `digest`, with the key file if `DMR_KEY_FILE` is set, else by munge.

    Raises:
        CredentialError: the key file is unfit, or neither kind is available.
    """
    key_file = os.environ.get("DMR_KEY_FILE")
    return sign_key(digest, load_key(key_file)) if key_file else sign_munge(digest)


def load_key(path: str | os.PathLike[str]) -> Key:
    """Reads a key file: at least 32 bytes, owned by the reader, without any permission for group or others.

    Raises:
        CredentialError: it is missing, too short, or somebody else could have read or written it.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else a FIFO would keep us waiting
        try:
            # Of the opened file, not of the name: the name may be changed in between.
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise CredentialError(f"key file {path} is not a regular file")
            if status.st_uid != os.geteuid():
                raise CredentialError(f"key file {path} belongs to another user")
            if status.st_mode & 0o077:
                raise CredentialError(f"key file {path} can be used by others: chmod 600 it")
            secret = os.read(file, 4096)
        finally:
            os.close(file)
    except OSError as error:
        raise CredentialError(f"key file {path}: {error.strerror}") from error
    if len(secret) < MIN_KEY_BYTES:
        raise CredentialError(f"key file {path} is shorter than {MIN_KEY_BYTES} bytes")
    return Key(status.st_uid, secret)


def sign_key(digest: str, key: Key) -> str:
    """The `key:` credential over `digest`."""
    return "key:" + hmac.new(key.secret, digest.encode(), hashlib.sha256).hexdigest()


def verify_key(token: str, digest: str, key: Key) -> int:
    """The uid that the token proves.

    Raises:
        CredentialError: it was not made over this digest with this key.
    """
    # Not ASCII: not one of ours, and more than compare_digest takes.
    if not token.isascii() or not hmac.compare_digest(token, sign_key(digest, key)):
        raise CredentialError("the key credential does not fit the request")
    return key.uid


def sign_munge(digest: str, socket: str | None = None) -> str:
    """The `munge:` credential over `digest`; anybody in the realm may decode it.

    Raises:
        CredentialError: no libmunge, or munged does not answer (libmunge itself tries for a few seconds).
    """
    library = _libmunge()
    payload = digest.encode()
    credential = ctypes.c_void_p()
    with _context(library, socket) as context:
        _check(library.munge_encode(ctypes.byref(credential), context, payload, len(payload)), "encode")
    try:
        return "munge:" + ctypes.string_at(credential).decode("ascii")
    finally:
        _free(credential)


def verify_munge(token: str, digest: str, socket: str | None = None) -> Peer:
    """Who made the token over this digest. munged lets a credential be decoded once per host: decode it once.

    Raises:
        CredentialError: forged, expired, from the future, used before, or made over another digest.
    """
    kind, _, text = token.partition(":")
    if kind != "munge" or not text.isascii() or "\0" in text:
        raise CredentialError("not a munge credential")
    library = _libmunge()
    payload, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    try:
        with _context(library, socket) as context:
            out = (ctypes.byref(payload), ctypes.byref(length), ctypes.byref(uid), ctypes.byref(gid))
            _check(library.munge_decode(text.encode("ascii"), context, *out), "decode")
        content = ctypes.string_at(payload, length.value) if payload else b""
    finally:
        _free(payload)
    if not hmac.compare_digest(content, digest.encode()):
        raise CredentialError("the munge credential was made for another request")
    return Peer(uid.value, gid.value)


@functools.cache
def _libmunge() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libmunge.so.2")  # not find_library(): that forks
    except OSError as error:
        raise CredentialError("no credential: DMR_KEY_FILE is not set and libmunge.so.2 is not installed") from error
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("munge_ctx_create", pointer, []),
        ("munge_ctx_destroy", None, [pointer]),
        ("munge_ctx_set", ctypes.c_int, [pointer, ctypes.c_int]),  # variadic: the value is passed beyond these
        ("munge_encode", ctypes.c_int, [pointer, pointer, ctypes.c_char_p, ctypes.c_int]),
        ("munge_decode", ctypes.c_int, [ctypes.c_char_p] + [pointer] * 5),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _free(pointer: ctypes.c_void_p) -> None:
    function = ctypes.CDLL(None).free  # libc's: what libmunge allocated with
    function.restype, function.argtypes = None, [ctypes.c_void_p]
    function(pointer)


@contextmanager
def _context(library: ctypes.CDLL, socket: str | None) -> Iterator[ctypes.c_void_p]:
    context = ctypes.c_void_p(library.munge_ctx_create())
    if not context:
        raise CredentialError("libmunge is out of memory")
    try:
        path = socket or os.environ.get("DMR_MUNGE_SOCKET")
        if path:
            _check(library.munge_ctx_set(context, _OPT_SOCKET, ctypes.c_char_p(path.encode())), "set the socket of")
        yield context
    finally:
        library.munge_ctx_destroy(context)


def _check(code: int, verb: str) -> None:
    if code:
        raise CredentialError(_ERRORS.get(code, f"munge cannot {verb} the credential (error {code})"))
