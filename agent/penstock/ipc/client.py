"""The command line's side of the agent's doors. Blocking: a command asks once and prints the answer."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dmr import credential
from dmr.wire import clean
from penstock import errors
from penstock.config import Config
from penstock.host.listening import bare
from penstock.host.unixdoor import connected
from penstock.ipc import proof
from penstock.state.lease.files import published
from penstock.state.lease.machine import Card

__all__ = ["ask", "ask_agent"]

_ONCE: Final = frozenset({"guide", "retry", "submit"})
"""What is done twice if it is asked for twice."""
_LONGEST_REPLY = 64 * 1024 * 1024
_CONNECT = 10.0
_START: Final = "Start one with `penstock agent`, or as a service with `systemctl --user start penstock-user`."
_SITE: Final = (
    "It is the agent of the whole site: run `systemctl status penstock` on its host, or ask its administrators."
)


def ask_agent(config: Config, op: str, arguments: Mapping[str, Any] | None = None, timeout: float = 60.0) -> Any:  # noqa: ANN401
    """The agent's answer to one request: by its socket on this host, else where its lease says.

    Raises `AgentUnavailable` when none answers, `OutcomeUnknown` when one has been told to do something that must not
    be done twice and its answer is lost, else the error that the agent raised.
    """
    try:
        return ask(config.socket_path, op, arguments, timeout, _advice(config))
    except errors.AgentUnavailable:
        holder = published(config.agent.state_dir)
        if holder is None or holder.released or not holder.address:
            raise
        return _ask_far(config, holder, op, arguments, timeout)


def _advice(config: Config) -> str:
    """What to do where no agent answers: a site's is not for users to start, nor is another user's."""
    try:
        mine = config.agent.state_dir.stat().st_uid == os.geteuid()
    except OSError:
        mine = True  # as it will be made
    return _START if mine and config.agent.serve == "own" else _SITE


def ask(
    path: Path,
    op: str,
    arguments: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    advice: str = _START,
) -> Any:  # noqa: ANN401
    """The answer of the agent at this socket to one request; `advice` is given where there is none.

    Raises as `ask_agent` does.
    """
    sent = False
    try:
        with connected(path, timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(_request(op, arguments))
            sent = True
            with connection.makefile("rb") as stream:
                line = stream.readline(_LONGEST_REPLY)
        reply = json.loads(line)
    except (OSError, ValueError) as e:
        if sent and op in _ONCE:
            raise _unanswered(f"the agent at {path}", e) from e
        raise errors.AgentUnavailable(f"no agent answers at {path} ({_why(e)}). {advice}") from e
    return _result(reply)


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _unanswered(who: str, error: Exception) -> errors.OutcomeUnknown:
    return errors.OutcomeUnknown(
        f"{who} got the request, but its answer was lost ({_why(error)}): before you ask again, check with "
        "`penstock status` whether it was carried out"
    )


def _request(op: str, arguments: Mapping[str, Any] | None) -> bytes:
    return json.dumps({"op": op, **(arguments or {})}).encode() + b"\n"


def _result(reply: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if reply.get("ok"):
        return reply.get("result")
    kind = getattr(errors, str(reply.get("error")), errors.PenstockError)
    if not (isinstance(kind, type) and issubclass(kind, errors.PenstockError)):
        kind = errors.PenstockError
    raise kind(str(reply.get("message")))


# -- an agent on another host ------------------------------------------------------------------------------------------


def _ask_far(config: Config, holder: Card, op: str, arguments: Mapping[str, Any] | None, timeout: float) -> Any:  # noqa: ANN401
    """One request to the agent of this lease; its answer is believed only when it proves to be that agent's."""
    sign, verify = _proofs(config, holder)
    request = _request(op, arguments)
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
                line = stream.readline(_LONGEST_REPLY)
    except (OSError, ValueError, errors.UserError, credential.CredentialError) as e:
        if sent and op in _ONCE:
            raise _unanswered(where, e) from e
        raise errors.AgentUnavailable(f"{where} uses the state, but cannot be reached: {_why(e)}") from e
    try:
        if answer.auth:
            said = proof.digest_of(line)
            verify(answer.auth, proof.reply_text(theirs, ours, digest, said))
            return _result(json.loads(line))
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
