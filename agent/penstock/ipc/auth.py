"""Who is at the door, and is it theirs? Identity comes from the kernel or from a credential, never from the message.

On the Unix socket the kernel names the peer (SO_PEERCRED). Over TCP a credential binds the request to a uid: munge's,
or an HMAC with the agent's key file, which only the agent's own user can read. A request is fresh for `FRESH` seconds
and good once, also where this host's clock is set back or forth meanwhile. One that was refused was not used: with the
clock right again, it may be good.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from dmr import credential
from dmr.wire import Received
from penstock.errors import NotNow, NotPermitted, StoreError

__all__ = ["FRESH", "Verifier", "make_key"]

T = TypeVar("T")
FRESH = 300.0
_REMEMBERED = 100_000
_MAX_DECODING = 4
_MUNGE_LIMIT = 5.0


def make_key(path: Path) -> credential.Key:
    """The key in `path`, made on first use, readable by its owner only."""
    try:
        if not path.exists():
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            fresh.unlink(missing_ok=True)  # left by a killed agent
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
            fresh.rename(path)
        return credential.load_key(path)
    except (OSError, credential.CredentialError) as e:
        raise StoreError(f"{path}: {e.strerror}" if isinstance(e, OSError) else str(e)) from e


class Verifier:
    """Checks the credential, freshness and first use of every request over TCP.

    `steady` is a clock (s) that nobody sets: what was used is forgotten by it.
    """

    def __init__(
        self, key: credential.Key | None, munge_socket: str | None, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._key = key
        self._munge_socket = munge_socket
        self._steady = steady
        # When each was heard, and the time it gives itself.
        self._seen: dict[int, OrderedDict[str, tuple[float, float]]] = {}
        # The latest of these times among what was forgotten. Only where the clock is set back is it fresh again.
        self._forgotten = -math.inf
        # Threads of their own: those of asyncio are for the agent's other work.
        self._decoders = ThreadPoolExecutor(_MAX_DECODING, "munge")
        self._turns = asyncio.Semaphore(_MAX_DECODING)

    async def uid(self, received: Received, now: float) -> int:
        """The uid that the request proves. Raises `NotPermitted`, and `NotNow` where that cannot be told."""
        request = received.request
        if abs(now - request.time) > FRESH:
            raise NotPermitted(
                f"the request is {now - request.time:.0f} s old by this host's clock: check the clocks of both hosts"
            )
        uid = await self.prove(request.auth, received.digest)
        self._once(uid, request.id, self._steady(), request.time)
        return uid

    async def prove(self, auth: str, digest: str) -> int:
        """The uid that a credential over this digest proves, be it the first time or not. Raises like `uid`."""
        try:
            if auth.startswith("key:") and self._key is not None:
                return credential.verify_key(auth, digest, self._key)
            if auth.startswith("munge:"):
                return (await self._munge(credential.verify_munge, auth, digest, self._munge_socket)).uid
        except credential.CredentialError as e:
            raise NotPermitted(str(e)) from e
        raise NotPermitted("the request carries no credential that this agent accepts")

    async def sign(self, kind: str, digest: str) -> str:
        """The agent's own credential over a digest, of the kind ("key", "munge") that the other side has shown. Raises
        `NotNow` when there is none to be had."""
        try:
            if kind == "key" and self._key is not None:
                return credential.sign_key(digest, self._key)
            return await self._munge(credential.sign_munge, digest, self._munge_socket)
        except credential.CredentialError as e:
            raise NotNow(str(e)) from e

    async def _munge(self, call: Callable[..., T], *args: str | None) -> T:
        """In a thread: a munged that hangs blocks libmunge for seconds, and must not block the agent. A thousand
        applications that start at once wait for their turn. Raises `NotNow` when munged is too slow."""
        try:
            async with asyncio.timeout(_MUNGE_LIMIT):
                await self._turns.acquire()
                work = asyncio.get_running_loop().run_in_executor(self._decoders, call, *args)
                work.add_done_callback(self._decoded)
                return await asyncio.shield(work)
        except TimeoutError as e:
            raise NotNow("munged did not answer in time") from e

    def close(self) -> None:
        """Decode nothing any more."""
        self._decoders.shutdown(wait=False, cancel_futures=True)

    def _decoded(self, work: asyncio.Future[T]) -> None:
        self._turns.release()
        if not work.cancelled():
            work.exception()  # whoever waited has it, or has given up

    def _once(self, uid: int, nonce: str, heard: float, made: float) -> None:
        # Only proven requests are remembered, and each user's apart: nobody can have those of others forgotten.
        seen = self._seen.setdefault(uid, OrderedDict())
        self._forget(seen, heard)
        if nonce in seen:
            raise NotPermitted("the request was used before")
        if made <= self._forgotten:
            raise NotPermitted("the request may have been used before this host's clock was set back: check the clocks")
        seen[nonce] = heard, made
        # One of the others in its turn, who may never speak again.
        other = next(iter(self._seen))
        theirs = self._seen.pop(other)
        self._forget(theirs, heard)
        if theirs:
            self._seen[other] = theirs

    def _forget(self, seen: OrderedDict[str, tuple[float, float]], now: float) -> None:
        while seen and next(iter(seen.values()))[0] < now - 2 * FRESH:
            _nonce, (_heard, made) = seen.popitem(last=False)
            self._forgotten = max(self._forgotten, made)
        # Of who has too many, some are forgotten while they are fresh: that is no reason to refuse what comes next.
        while len(seen) >= _REMEMBERED:
            seen.popitem(last=False)
