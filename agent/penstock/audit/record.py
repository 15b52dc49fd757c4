"""One record of the audit trail: who, by which door, wanted what of whose job, and how it ended. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from penstock.errors import PenstockError

__all__ = ["Door", "Record", "RecordKind", "RecordOutcome", "Scalar", "code_of", "instant", "utc"]

Scalar = str | int | float | bool | None

_LONGEST: Final = {"verb": 40, "code": 60, "user": 80, "subject": 200, "request": 80, "text": 1000}
_DETAILS: Final = 16
_DETAIL: Final = 200
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class RecordKind(StrEnum):
    """What a record is about: a request of somebody, an act on Slurm, the agent's own life, or the audit file."""

    REQUEST = "request"
    ACT = "act"
    AGENT = "agent"
    FILE = "file"


class Door(StrEnum):
    """How a request came in: the Unix socket, TCP of programs, TCP of commands on other hosts, the inbox that is left
    while no agent runs, a user's own command; or the agent itself."""

    UNIX = "unix"
    TCP = "tcp"
    FAR = "far"
    INBOX = "inbox"
    COMMAND = "command"
    AGENT = "agent"


class RecordOutcome(StrEnum):
    """How it ended. `unknown`: the answer was lost; `interrupted`: the agent died while it was under way."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `at`: seconds since the epoch.

    `uid` and `user` are the requester's (None, "": nobody was proven), `owner` the user whose job or workflow it is
    about, `subject` what it is about ("workflow 3/align"), `code` the reason for machines and `text` for people.
    `request` is the number of a request, which the acts that it led to name as well. A record of several requests
    (`count`) stands for those from `since` to `at`.
    """

    at: float
    kind: RecordKind
    verb: str
    outcome: RecordOutcome
    code: str = ""
    door: Door = Door.AGENT
    uid: int | None = None
    user: str = ""
    owner: int | None = None
    job: int | None = None
    subject: str = ""
    request: str = ""
    text: str = ""
    count: int = 1
    since: float | None = None
    details: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, always in the same order, cut to what a line may be long; without what is empty but who, how
        and whose."""
        found: dict[str, Any] = {
            "at": utc(self.at),
            "kind": self.kind.value,
            "verb": _cut("verb", self.verb),
            "outcome": self.outcome.value,
            "code": _cut("code", self.code),
            "door": self.door.value,
            "uid": self.uid,
            "user": _cut("user", self.user),
            "owner": self.owner,
            "job": self.job,
            "subject": _cut("subject", self.subject),
            "request": _cut("request", self.request),
            "text": _cut("text", self.text),
        }
        if self.count != 1:
            found["count"] = self.count
        if self.since is not None:
            found["since"] = utc(self.since)
        if self.details:
            items = list(self.details.items())[:_DETAILS]
            found["details"] = {key[:40]: _scalar(value) for key, value in items}
        return found

    def encode(self) -> str:
        """The canonical JSON: the same text for the same record, ASCII, on one line."""
        return json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=True, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """A record as it was read. Raises ValueError where it is none; what it does not know it leaves out."""
        try:
            since = data.get("since")
            return cls(
                at=instant(data["at"]),
                kind=RecordKind(data["kind"]),
                verb=str(data["verb"]),
                outcome=RecordOutcome(data["outcome"]),
                code=str(data["code"]),
                door=Door(data["door"]),
                uid=_number(data["uid"]),
                user=str(data["user"]),
                owner=_number(data["owner"]),
                job=_number(data["job"]),
                subject=str(data["subject"]),
                request=str(data["request"]),
                text=str(data["text"]),
                count=int(data.get("count", 1)),
                since=None if since is None else instant(since),
                details=MappingProxyType(dict(data.get("details", {}))),
            )
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"not a record of the audit trail: {e!r}") from e


def code_of(error: BaseException) -> str:
    """The reason code of an error: NotPermitted is not-permitted."""
    return _WORDS.sub("-", type(error).__name__).lower() if isinstance(error, PenstockError) else "internal"


def utc(at: float) -> str:
    """An instant in UTC, to the millisecond: 2026-11-23T11:43:13.123Z."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a clock that is far off shall not keep anything from being written
        return datetime.fromtimestamp(0, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(text: str) -> float:
    """Seconds since the epoch of what `utc` has written. Raises ValueError or TypeError."""
    return datetime.fromisoformat(text).timestamp()


def _cut(name: str, text: str) -> str:
    return text[: _LONGEST[name]]


def _scalar(value: Scalar) -> Scalar:
    if isinstance(value, str):
        return value[:_DETAIL]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: object) -> int | None:
    if value is not None and type(value) is not int:
        raise ValueError(f"not a number: {value!r}")
    return value
