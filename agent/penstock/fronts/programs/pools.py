"""Asks the scheduler of a pool of the caller's own, over TLS with the certificate in the pool's folder."""

from __future__ import annotations

import os
import time

from penstock.fronts.programs.plainjson import loads
from penstock.fronts.programs.process import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["DOOR", "EACH", "MARK", "FrontPool", "NoPool", "ask_pool", "pool_named", "pools_of"]

MARK = "jobs.json"
"""In a pool's folder: from which number its jobs count; there as soon as it has had one."""
DOOR = "door.json"
"""In a pool's folder: where its door for front programs is, and when that was last there (its time of change)."""
EACH = 100_000_000
"""How many jobs a pool may have: pools of one user count from numbers that are so far apart."""
_LONG_AGO = 600.0  # s without a sign of life after which a pool counts as stopped
_LIMIT = 30.0
_LONGEST = 256 * 1024 * 1024


class NoPool(Exception):
    """It does not answer: `stopped`, or (not) its scheduler was killed."""

    def __init__(self, text: str, *, stopped: bool) -> None:
        super().__init__(text)
        self.stopped = stopped


class FrontPool:
    """A pool that has had jobs; `first` is what their numbers count from."""

    def __init__(self, name: str, path: str, first: int = 0) -> None:
        self.name = name
        self.path = path
        self.first = first

    def has(self, job: int) -> bool:
        """Whether the number is of one of its jobs."""
        return self.first < job < self.first + EACH

    @property
    def stopped(self) -> bool:
        """Whether its scheduler has ended on purpose, or so long ago that it may have."""
        try:
            return time.time() - os.stat(os.path.join(self.path, DOOR)).st_mtime > _LONG_AGO
        except OSError:
            return True


def pools_of(settings: Mapping[str, str]) -> list[FrontPool]:
    """The caller's pools that have had jobs."""
    found = []
    base = settings.get("pools", "")
    try:
        names = sorted(os.listdir(base)) if base else []
    except OSError:
        return []
    for name in names:
        path = os.path.join(base, name)
        try:
            with open(os.path.join(path, MARK), encoding="utf-8") as file:
                text = file.read()
        except OSError:
            continue
        try:
            first = int(loads(text)["first"])
        except (ValueError, KeyError, TypeError):
            continue
        if _is_private(path):
            found.append(FrontPool(name, path, first))
    return found


def pool_named(settings: Mapping[str, str], name: str) -> FrontPool:
    """The pool of this name, be it there or not."""
    return FrontPool(name, os.path.join(settings.get("pools", ""), name.replace("/", "_") or "_"))


def ask_pool(pool: FrontPool, request: Mapping[str, Any], patience: float) -> Any:  # noqa: ANN401
    """The scheduler's answer, for which it is asked again for `patience` (s) while it is away. Raises NoPool."""
    # A front program ends by SIGPIPE, as Slurm's own; not because a scheduler is killed while it is asked.
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        return _asked(pool, request, patience)
    finally:
        signal.signal(signal.SIGPIPE, before)


def _asked(pool: FrontPool, request: Mapping[str, Any], patience: float) -> Any:  # noqa: ANN401
    from penstock.fronts.programs.once import delays

    pauses = iter(delays(os.urandom(2)))
    until = time.monotonic() + patience
    while True:
        try:
            return _ask(pool, request)
        except OSError as e:  # those of TLS are, too
            if pool.stopped:
                text = f"pool {pool.name!r} has no scheduler; `penstock pool start --detach{_option(pool)}` starts one"
                raise NoPool(text, stopped=True) from e
            pause = next(pauses)
            if time.monotonic() + pause > until:
                raise NoPool(f"the scheduler of pool {pool.name!r} does not answer: {e}", stopped=False) from e
            time.sleep(pause)


def _ask(pool: FrontPool, request: Mapping[str, Any]) -> Any:  # noqa: ANN401
    import json
    import socket
    import ssl

    if not _is_private(pool.path):
        raise FileNotFoundError(2, "there is no pool of the caller's own", pool.path)
    with open(os.path.join(pool.path, DOOR), encoding="utf-8") as file:
        try:
            door = json.load(file)
            place = (str(door["host"]), int(door["port"]))
        except (ValueError, KeyError) as e:
            raise OSError(5, "is no address", pool.path) from e
    certificate = os.path.join(pool.path, "cert.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # its certificate is the pool's own, which no other has
    context.load_verify_locations(certificate)
    context.load_cert_chain(certificate, os.path.join(pool.path, "key.pem"))
    text = json.dumps(request).encode() + b"\n"
    with socket.create_connection(place, timeout=_LIMIT) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(text)
        parts: list[bytes] = []
        length = 0
        while not (parts and parts[-1].endswith(b"\n")):
            part = connection.recv(1 << 20)
            length += len(part)
            if not part or length > _LONGEST:
                raise ConnectionError("the answer was cut off")
            parts.append(part)
    try:
        found = json.loads(b"".join(parts))
    except ValueError as e:
        raise ConnectionError("the answer is none") from e
    if not found.get("ok"):
        return {"out": "", "err": f"penstock: {found.get('error')}\n", "code": 1}
    return found["result"]


def _is_private(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _option(pool: FrontPool) -> str:
    return "" if pool.name == "main" else f" --pool {pool.name}"
