"""A request and its reply, as both of the command line's ways to an agent have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from penstock import errors

__all__ = ["LONGEST_REPLY", "ONCE", "reason", "request_line", "result_of", "unanswered"]

ONCE: Final = frozenset({"guide", "retry", "submit"})
"""What is done twice if it is asked for twice."""
LONGEST_REPLY: Final = 64 * 1024 * 1024


def reason(error: Exception) -> str:
    """What an error of a connection says."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def unanswered(who: str, error: Exception) -> errors.OutcomeUnknown:
    """What to raise where an agent was told something and did not answer."""
    return errors.OutcomeUnknown(
        f"{who} got the request, but its answer was lost ({reason(error)}): before you ask again, check with "
        "`penstock status` whether it was carried out"
    )


def request_line(op: str, arguments: Mapping[str, Any] | None) -> bytes:
    """The request as it goes over the wire."""
    return json.dumps({"op": op, **(arguments or {})}).encode() + b"\n"


def result_of(reply: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """What the agent answered; raises what it raised."""
    if reply.get("ok"):
        return reply.get("result")
    kind = getattr(errors, str(reply.get("error")), errors.PenstockError)
    if not (isinstance(kind, type) and issubclass(kind, errors.PenstockError)):
        kind = errors.PenstockError
    raise kind(str(reply.get("message")))
