"""Asks an agent on another host, at the address that its lease says: both prove who they are."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from dmr import credential
from dmr.wire import clean
from penstock import errors
from penstock.config import Config
from penstock.host.listening import bare
from penstock.ipc import proof
from penstock.ipc.asking import LONGEST_REPLY, ONCE, reason, request_line, result_of, unanswered
from penstock.state.lease.files import published
from penstock.state.lease.machine import Card

__all__ = ["ask_far", "elsewhere"]

_CONNECT: Final = 10.0


def elsewhere(config: Config) -> Card | None:
    """The agent that has the lease of this state, where it has an address."""
    holder = published(config.agent.state_dir)
    return None if holder is None or holder.released or not holder.address else holder


def ask_far(config: Config, holder: Card, op: str, arguments: Mapping[str, Any] | None, timeout: float) -> Any:  # noqa: ANN401
    """One request to the agent of this lease; its answer is believed only when it proves to be that agent's."""
    sign, verify = _proofs(config, holder)
    request = request_line(op, arguments)
    where = f"{holder} at {holder.address}"
    host, _, port = holder.address.rpartition(":")
    sent = False
    try:
        with socket.create_connection((bare(host), int(port)), min(timeout, _CONNECT)) as connection:
            connection.settimeout(timeout)
            with connection.makefile("rb") as stream:
                theirs = proof.nonce_of(stream.readline(proof.MAX_HEAD))
                ours, digest = proof.nonce(), proof.digest_of(request)
                head = proof.ProofHead(digest, sign(proof.request_text(theirs, ours, digest)), ours)
                connection.sendall(head.encode() + request)
                sent = True
                answer = proof.ProofHead.decode(stream.readline(proof.MAX_HEAD), request=False)
                line = stream.readline(LONGEST_REPLY)
    except (OSError, ValueError, errors.UserError, credential.CredentialError) as e:
        if sent and op in ONCE:
            raise unanswered(where, e) from e
        raise errors.AgentUnavailable(f"{where} uses the state, but cannot be reached: {reason(e)}") from e
    try:
        if answer.auth:
            said = proof.digest_of(line)
            verify(answer.auth, proof.reply_text(theirs, ours, digest, said))
            return result_of(json.loads(line))
        reply = json.loads(line)
        why = clean(str(reply.get("message"))) if isinstance(reply, dict) else "no reason"
    except (ValueError, credential.CredentialError) as e:
        raise errors.AgentUnavailable(
            f"what answers at the address of {where} could not prove that it is that agent: {e}"
        ) from e
    # Who is not believed cannot be given a proven answer: this may come from anybody on the way.
    raise errors.NotPermitted(f"{where} refuses the request: {why}")


def _proofs(config: Config, holder: Card) -> tuple[Callable[[str], str], Callable[[str, str], object]]:
    """How to sign for, and how to believe, the agent of this lease: by the key of its user where that can be read, as
    it can by that user alone, else by munge."""
    try:
        key = credential.load_key(config.agent.state_dir / "dmr.key") if holder.uid == os.geteuid() else None
    except credential.CredentialError:
        key = None
    if key is not None:
        known = key
        return lambda text: credential.sign_key(text, known), lambda token, text: credential.verify_key(
            token, text, known
        )
    munged = str(config.dmr.munge_socket) if config.dmr.munge_socket else None

    def verify(token: str, text: str) -> None:
        peer = credential.verify_munge(token, text, munged)
        if peer.uid != holder.uid:
            raise credential.CredentialError(f"it runs as user id {peer.uid}, not {holder.uid}")

    return lambda text: credential.sign_munge(text, munged), verify
