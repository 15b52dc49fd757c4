"""The agent's door for commands on other hosts: the requests of the Unix socket over TCP, both sides proven.

Only an agent that holds its state by a lease has it (`penstock.state.lease`): the lease tells commands where it is.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.errors import NotPermitted, PenstockError, UserError
from penstock.ipc import proof
from penstock.ipc.audited import PEER
from penstock.ipc.auth import Verifier
from penstock.ipc.handlers import refused
from penstock.ipc.limits import Requesters

__all__ = ["FarDoor", "Proven", "refusal"]


@dataclass(frozen=True, slots=True)
class Proven:
    """Who speaks on a connection, and what the request to come must be."""

    uid: int
    kind: str
    theirs: str
    head: proof.ProofHead


class FarDoor:
    """`answer` is that of the Unix socket: the same requests, authorised and limited alike.

    `refused` counts requests of which it was not proven who sends them, `requesters` the hosts that these came from;
    `on_refused` is told of each.
    """

    def __init__(
        self,
        answer: Callable[[int, bytes], Awaitable[bytes]],
        verifier: Verifier,
        on_refused: Callable[[PenstockError], None] = lambda _error: None,
    ) -> None:
        self._answer = answer
        self._verifier = verifier
        self._on_refused = on_refused
        self.refused = 0
        self.requesters = Requesters()

    async def prove(self, theirs: str, line: bytes) -> Proven:
        """Who has sent this head on the connection that was greeted with `theirs`. Raises `NotPermitted`, and `NotNow`
        where that cannot be told."""
        try:
            head = proof.ProofHead.decode(line, request=True)
            uid = await self._verifier.prove(head.auth, proof.request_text(theirs, head.nonce, head.digest))
        except UserError as e:
            raise self._refuse(NotPermitted(str(e))) from e
        except PenstockError as e:
            self._refuse(e)
            raise
        return Proven(uid, head.auth.partition(":")[0], theirs, head)

    async def answer(self, who: Proven, line: bytes) -> bytes:
        """Head and reply to the request of somebody proven. Raises `NotPermitted` when it is not what was proven."""
        if proof.digest_of(line) != who.head.digest:
            raise self._refuse(NotPermitted("the request is not the one that was proven"))
        reply = await self._answer(who.uid, line)
        digest = proof.digest_of(reply)
        covered = proof.reply_text(who.theirs, who.head.nonce, who.head.digest, digest)
        return proof.ProofHead(digest, await self._verifier.sign(who.kind, covered)).encode() + reply

    def _refuse(self, error: PenstockError) -> PenstockError:
        self.refused += 1
        self.requesters.note(PEER.get(), time.monotonic())
        self._on_refused(error)
        return error


def refusal(error: PenstockError) -> bytes:
    """Head and reply that prove nothing: said to somebody who has proven nothing."""
    reply = refused(error)
    return proof.ProofHead(proof.digest_of(reply), "").encode() + reply
