"""Asks the service of the host for the look that all share, and believes no more of it than can be checked.

It is an answer only if the process that listens there is of root or of the service's user, says that the cluster is the
asker's, and has begun the look as lately as it promises; by this process's own clock, too, which has seen when that
look was first handed out. Anything else, and Slurm is asked as if there was no service.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from penstock.api import Snapshot
from penstock.core.observe import OUTCOMES
from penstock.errors import SlurmUnavailable
from penstock.host.logs import get_logger
from penstock.host.peers import peer_uid
from penstock.host.unixdoor import connected
from penstock.site.look import wire
from penstock.values.backoff import backoff

__all__ = ["TOLERATED", "SharedLook"]

_log = get_logger(__name__)

TOLERATED: Final = 2.0
"""Seconds that an answer may take beyond what the service promises, and that two clocks may differ."""
_PROMISE: Final = 15.0
_LONGEST_PROMISE: Final = 120.0
_FIRST_REST: Final = 30.0
_LONGEST_REST: Final = 600.0
_BELIEVED: Final = 300.0  # for so long the service may say that Slurm does not answer
_BESIDE: Final = 200_000  # bytes of a part that are worth a thread of their own
_PASSING: Final = frozenset({"busy", "clock", "late"})  # no fault of the service


class _Unusable(Exception):
    """No look that can be used, by which of `OUTCOMES`, and why."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


class SharedLook:
    """One asker. `trusted` are the uids that may listen at `path`; `cluster` is Slurm's name of the asker's. `silent`:
    that there is no service at all is not worth a word; `quiet`: nothing is, as a command's output is not to be mixed
    with that. `outcomes` counts by `OUTCOMES`, `promise` is how old (s) a
    look may be, as the service said last, and `using` whether the last one came from it."""

    def __init__(
        self,
        path: Path,
        trusted: Collection[int],
        cluster: str,
        *,
        timeout: float = 20.0,
        silent: bool = False,
        quiet: bool = False,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.cluster = cluster
        self.promise = _PROMISE
        self.using = False
        self.why = "not asked yet"
        self.outcomes: Counter[str] = Counter()
        self._trusted = frozenset(trusted)
        self._timeout = timeout
        self._silent = silent
        self._quiet = quiet
        self._steady = steady
        self._rest_until = self._dead_since = float("-inf")
        self._failures = 0
        self._told = ""
        self._parts: dict[str, tuple[str, list[Any]]] = {}
        self._seen: tuple[str, int, float] = ("", -1, 0.0)  # the last look, and when it was first seen
        self._taken_at = float("-inf")

    async def look(self, now: float) -> Snapshot | None:
        """The look that the service has; None: ask Slurm. `now` is the asker's idea of the controller's time. Raises
        `SlurmUnavailable` where the service has asked Slurm in vain, for the first minutes of that."""
        if self._steady() < self._rest_until:
            return None
        try:
            async with asyncio.timeout(self._timeout):
                found = await self._ask_twice(now)
        except TimeoutError:
            self._unused(_Unusable("slow", f"no whole answer within {self._timeout:.0f} s"))
            return None
        except _Unusable as e:
            self._unused(e)
            return None
        self._failures = 0
        self._dead_since = float("-inf")
        self._used()
        return found

    async def _ask_twice(self, now: float) -> Snapshot:
        """An answer that was on its way for too long, or whose asker was left as too slow, is asked for once more: the
        host is busy, and Slurm is not to suffer from that."""
        began = self._steady()
        try:
            return await self._ask(now)
        except _Unusable as e:
            if e.outcome != "late":
                raise
        return await self._ask(now + self._steady() - began)

    async def _ask(self, now: float) -> Snapshot:
        began = self._steady()
        try:
            connection = await asyncio.to_thread(connected, self.path, self._timeout)
            reader, writer = await asyncio.open_unix_connection(sock=connection, limit=wire.LONGEST_HEAD)
        except OSError as e:
            raise _Unusable("absent", e.strerror or str(e)) from e
        try:
            self._check_peer(writer)
            writer.write(wire.encode_request({name: tag for name, (tag, _) in self._parts.items()}))
            await writer.drain()
            head = wire.decode_head(await reader.readline())
            if isinstance(head, wire.LookRefusal):
                raise self._refused(head)
            self._check(head, now, self._steady() - began)
            parts = await self._read(reader, head.parts)
        except (OSError, EOFError, ValueError) as e:  # cut off, too long, not of the protocol
            left = isinstance(e, OSError | EOFError) and self._steady() - began > TOLERATED
            raise _Unusable("late" if left else "broken", str(e) or type(e).__name__) from e
        finally:
            writer.transport.abort()
        self._check_age(head, self._steady() - began)
        self._parts, self.promise, self._taken_at = parts, head.promise, head.taken_at
        return _snapshot(head.taken_at, {name: items for name, (_, items) in parts.items()})

    def _check_peer(self, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid not in self._trusted:
            raise _Unusable("forged", f"it is of user id {uid}, who is neither root nor the service's user")

    def _check(self, head: wire.LookHead, now: float, took: float) -> None:
        if head.cluster != self.cluster:
            raise _Unusable("elsewhere", f"it looks at cluster {head.cluster}, not {self.cluster}")
        if head.promise > _LONGEST_PROMISE:
            raise _Unusable("old", f"it promises no look that is younger than {head.promise:.0f} s")
        if abs(now + took - head.now) > TOLERATED + took:
            raise _Unusable("clock", "its idea of the controller's time is another one")
        self._check_age(head, took)

    def _check_age(self, head: wire.LookHead, took: float) -> None:
        """By its own words, by when this process saw the same look first, and by how long the answer `took` (s)."""
        key, most = (head.instance, head.number), head.promise + TOLERATED
        if key != self._seen[:2]:
            self._seen = (*key, self._steady() - took)
            if head.taken_at < self._taken_at - TOLERATED:
                raise _Unusable("old", "its look is older than the one before")
        said = max(head.age, head.now - head.taken_at)
        held = self._steady() - self._seen[2]
        if max(said, held - took) > most or head.taken_at > head.now + TOLERATED:
            age = max(said, held)
            raise _Unusable("old", f"its look is {age:.0f} s old, and {head.promise:.0f} s is what it promises")
        if max(said + took, held) > most:
            raise _Unusable("late", f"its answer was {took:.0f} s on its way")

    async def _read(
        self, reader: asyncio.StreamReader, parts: Collection[wire.LookPart]
    ) -> dict[str, tuple[str, list[Any]]]:
        found = {}
        for part in parts:
            if part.name not in wire.PARTS:  # of a later release
                await reader.readexactly(part.size)
            elif part.size:
                data = await reader.readexactly(part.size)
                beside = part.size > _BESIDE
                items = (
                    await asyncio.to_thread(wire.unpacked, part.name, data)
                    if beside
                    else wire.unpacked(part.name, data)
                )
                found[part.name] = (part.tag, items)
            elif self._parts.get(part.name, ("",))[0] == part.tag:
                found[part.name] = self._parts[part.name]
            else:
                raise _Unusable("broken", f"it says that the {part.name} are known, and they are not")
        return found

    def _refused(self, said: wire.LookRefusal) -> Exception:
        if said.error != "slurm":
            return _Unusable(said.error if said.error in OUTCOMES else "broken", said.message)
        at = self._steady()
        if self._dead_since == float("-inf"):
            self._dead_since = at
        if at - self._dead_since > _BELIEVED:
            return _Unusable("slurm", f"for {at - self._dead_since:.0f} s it has had no answer: {said.message}")
        self.outcomes["slurm"] += 1
        return SlurmUnavailable(f"by the site's view: {said.message}", again_in=max(1.0, said.again_in))

    # -- what is said of it --------------------------------------------------------------------------------------------

    def _used(self) -> None:
        self.outcomes["used"] += 1
        self.using, self.why = True, ""
        if self._told and not self._quiet:
            _log.info("the site's view is used again", path=str(self.path))
            self._told = ""

    def _unused(self, reason: _Unusable) -> None:
        outcome = reason.outcome
        self.outcomes[outcome] += 1
        was, self.using, self.why = self.using, False, f"{outcome}: {reason}"
        if outcome not in ("absent", *_PASSING):
            self._failures += 1
            self._rest_until = self._steady() + backoff(_FIRST_REST, self._failures - 1, _LONGEST_REST)
        if self._quiet or (outcome == "absent" and self._silent and not was):
            return
        if self._told != outcome and outcome not in _PASSING:  # one line, not one a look
            self._told = outcome
            _log.warning("Slurm is asked directly, not by the site's view", path=str(self.path), why=self.why)


def _snapshot(taken_at: float, parts: Mapping[str, list[Any]]) -> Snapshot:
    return Snapshot(
        taken_at,
        MappingProxyType({job.id: job for job in parts["jobs"]}),
        MappingProxyType({node.name: node for node in parts["nodes"]}),
        MappingProxyType({partition.name: partition for partition in parts["partitions"]}),
        reservations=tuple(parts["reservations"]),
        licenses=tuple(parts["licenses"]),
    )
