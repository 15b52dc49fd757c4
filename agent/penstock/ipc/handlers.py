"""What may be asked at the two doors. A handler authorises, notes what was said, wakes the loop, and never decides."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from dmr import wire
from penstock.audit.record import Door
from penstock.core.pace import BEHIND, Pace, Timed
from penstock.core.parts import Operation
from penstock.errors import NotNow, NotPermitted, PenstockError, UserError
from penstock.host.clock import Clock
from penstock.host.logs import get_logger
from penstock.ipc.audited import PEER, RequestAudit
from penstock.ipc.auth import Verifier
from penstock.ipc.guards import GuardDesk
from penstock.ipc.inturn import LongQuestions
from penstock.ipc.limits import RateLimit, Requesters
from penstock.values.documents import brief

__all__ = ["LocalDoor", "ProgramDesk", "RemoteDoor", "refused"]

_log = get_logger(__name__)

_CHEAP = 0.01  # seconds of work for which a request counts once more
_DEAREST = 200.0
_A_PART = 1000  # characters of an answer that take about as long as a stage to look through
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_OFTEN = ("answer", "touched", "turn")
_LONG = ("try",)
_SAID = re.compile(rb'\{"op": ?"(%b)"' % "|".join((*_OFTEN, *_LONG)).encode())
_GIVES_WAY = 0.05  # seconds after which a long question goes on, though short ones are still at work


class LocalDoor:
    """Requests of the command line: `{"op": ..., arguments}` to `{"ok": true, "result": ...}` or the error's name.

    `answers` counts them by how they went: ok, refused (not permitted, too many), failed; `requesters` whose were
    refused. Those that change something leave a record in the `audit`. `limit` is of each user's requests, `often` of
    those that front programs and hubs make: any number of tools may ask, and who is turned away asks Slurm.
    """

    def __init__(
        self,
        operations: Mapping[str, Operation],
        limit: RateLimit | None = None,
        audit: RequestAudit | None = None,
        often: RateLimit | None = None,
    ) -> None:
        self._operations = operations
        self._often = often
        self.answers: Counter[str] = Counter()
        self.requesters = Requesters()
        self._limit = limit
        self._audit = audit
        self._long = LongQuestions()
        self._at_work: set[Timed[bytes]] = set()

    async def answer(self, uid: int, line: bytes) -> bytes:
        """The reply to one line from the process of user `uid` on this host."""
        return await self.at(Door.UNIX, uid, line)

    async def answer_far(self, uid: int, line: bytes) -> bytes:
        """The reply to one line of a command on another host, which has proven to be user `uid`'s."""
        return await self.at(Door.FAR, uid, line)

    async def at(self, door: Door, uid: int, line: bytes) -> bytes:
        """The reply to one line that came in by this door."""
        said = found[1].decode() if (found := _SAID.match(line)) is not None else ""
        limit = self._often if self._often is not None and said in _OFTEN else self._limit
        if uid == 0:  # who has no limits, and gives way all the same
            limit = None
        try:
            if limit is not None:
                limit.take(uid, time.monotonic())
            if said in _LONG:
                return await self._in_turn(door, uid, line, said, limited=limit is not None)
        except NotNow as e:
            self._count_refused(uid)
            if self._audit is not None:
                self._audit.turned_away(door, uid, e)
            return refused(e)
        work = Timed(self._answer(door, uid, line, said))
        self._at_work.add(work)
        try:
            reply = await work
        finally:
            self._at_work.discard(work)
        # The agent does one thing at a time: who makes it work long has fewer requests.
        if limit is not None:
            limit.charge(uid, min(work.seconds // _CHEAP, _DEAREST), time.monotonic())
        return reply

    async def _in_turn(self, door: Door, uid: int, line: bytes, said: str, *, limited: bool) -> bytes:
        """The reply to a long question, when those of the same user before it have ended. Raises NotNow."""
        if not limited:
            return await self._behind_short(Timed(self._answer(door, uid, line, said)))
        called, used = asyncio.Event(), 0.0
        turn = self._long.enter(uid, time.monotonic(), called.set)
        try:
            while (rest := self._long.begins_in(turn, time.monotonic())) > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(called.wait(), rest)
                called.clear()
            work = Timed(self._answer(door, uid, line, said))
            try:
                return await self._behind_short(work)
            finally:
                used = work.seconds
        finally:
            self._long.leave(turn, used, time.monotonic())

    async def _behind_short(self, work: Timed[bytes]) -> bytes:
        former = BEHIND.set(self._short_ones)
        try:
            return await work
        finally:
            BEHIND.reset(former)

    async def _short_ones(self) -> None:
        """Until no short question is at work; one that waits for Slurm is not."""
        until = time.monotonic() + _GIVES_WAY
        while any(work.at_work for work in self._at_work) and time.monotonic() < until:
            await asyncio.sleep(0)

    async def _answer(self, door: Door, uid: int, line: bytes, said: str) -> bytes:
        try:
            reply = await _written(await self._dispatch(door, uid, line, said))
            self.answers["ok"] += 1
            return reply
        except NotPermitted as e:
            self._count_refused(uid)
            return refused(e)
        except PenstockError as e:
            self.answers["failed"] += 1
            return refused(e)
        except Exception as e:
            self.answers["failed"] += 1
            _log.exception("a request failed")
            told = {
                "ok": False,
                "error": "PenstockError",
                "message": f"internal error: {brief(e)}; see the agent's log",
            }
            return json.dumps(told).encode() + b"\n"

    def _count_refused(self, uid: int) -> None:
        self.answers["refused"] += 1
        self.requesters.note(uid, time.monotonic())

    async def _dispatch(self, door: Door, uid: int, line: bytes, said: str) -> object:
        try:
            text = line.decode()
            request = json.loads(text)
            if _SURROGATE.search(text):  # a half of a pair can be said in JSON, but neither stored nor answered
                json.dumps(request, ensure_ascii=False).encode()
            op = request["op"]
            operation = self._operations[op]
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            known = ", ".join(sorted(self._operations))
            anew = "if a part was installed since the agent started, start it anew"
            raise UserError(f"not a request of this agent (operations: {known}); {anew}") from e
        if said and op != said:  # JSON lets a key stand twice, and the last one counts
            raise UserError("op: is there twice")
        if self._audit is None:
            return await operation(uid, request)
        return await self._audit.carry_out(door, uid, op, request, operation)


async def _written(result: object) -> bytes:
    """The reply that was asked for. What is listed in it item by item, as `status` may list ten thousand stages."""
    if not isinstance(result, dict):
        return json.dumps({"ok": True, "result": result}).encode() + b"\n"
    pace, parts = Pace(), []
    for key, value in result.items():
        items = []
        for item in value if isinstance(value, list) else ():
            items.append(json.dumps(item))
            await pace.after(1 + len(items[-1]) // _A_PART)
        written = f"[{', '.join(items)}]" if isinstance(value, list) else json.dumps(value)
        parts.append(f"{json.dumps(str(key))}: {written}")
    return f'{{"ok": true, "result": {{{", ".join(parts)}}}}}\n'.encode()


def refused(error: PenstockError) -> bytes:
    """The reply to a request that was not done."""
    said = {"ok": False, "error": type(error).__name__, "message": str(error)}
    return json.dumps(said).encode() + b"\n"


def _failure(error: str, why: object) -> bytes:
    return wire.encode(wire.Failure(error=error, message=wire.clean(str(why))))


class ProgramDesk(Protocol):
    """Decides on what programs say, once it is proven whose they are."""

    guards: GuardDesk

    def knows(self, job: int) -> bool:
        """Whether a program of this job has said something before."""
        ...

    def reply(self, uid: int, request: wire.Request) -> wire.Reply:
        """The reply to a request that user `uid` has made. Raises `NotPermitted`."""
        ...


class RemoteDoor:
    """Requests of MPI applications, in the protocol of `dmr.wire`.

    `answers` counts them by how they went: ok, refused (not permitted), malformed, failed; `requesters` whose were
    refused or malformed: the user's, or, where nobody was proven, the host's.
    """

    def __init__(self, desk: ProgramDesk, verifier: Verifier, clock: Clock, audit: RequestAudit | None = None) -> None:
        self.desk = desk
        self._verifier = verifier
        self._clock = clock
        self.answers: Counter[str] = Counter()
        self.requesters = Requesters()
        self._audit = audit
        self._told = RateLimit(10, 0.2)

    async def answer(self, line: bytes) -> bytes:
        """The reply to one line."""
        return (await self.hear(line))[0]

    async def hear(self, line: bytes) -> tuple[bytes, int | None]:
        """The reply to one line, and whose that line has proven to be."""
        uid: int | None = None
        try:
            received = wire.decode_request(line)
        except wire.WireError as e:
            self.answers["malformed"] += 1
            self.requesters.note(PEER.get(), time.monotonic())
            return _failure("bad-request", e), uid
        try:
            uid = await self._verifier.uid(received, self._clock.now())
            reply = wire.encode(self._replied(uid, received.request))
            self.answers["ok"] += 1
            return reply, uid
        except NotPermitted as e:
            self.answers["refused"] += 1
            self.requesters.note(PEER.get() if uid is None else uid, time.monotonic())
            # Not every one: whoever reaches the port must not be able to fill the disk.
            if self._told.allows("", time.monotonic()):
                _log.warning("refused", job=received.request.job, why=str(e), refused=self.answers["refused"])
            if self._audit is not None:
                self._audit.program_refused(uid, received.request, e)
            return _failure("not-permitted", e), uid
        except PenstockError as e:
            self.answers["failed"] += 1
            return _failure("unavailable", e), uid
        except Exception as e:
            self.answers["failed"] += 1
            _log.exception("a request failed")
            return _failure("unavailable", f"internal error: {brief(e)}"), uid

    def _replied(self, uid: int, request: wire.Request) -> wire.Reply:
        known = self.desk.knows(request.job)
        reply = self.desk.reply(uid, request)
        if self._audit is not None:
            registered = not known and self.desk.knows(request.job)
            self._audit.program(uid, request, reply, registered=registered)
        return reply
