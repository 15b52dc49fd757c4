"""Messages. Instants are seconds since 1970, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.answers import Answer, AnswerPart, Document

__all__ = ["ANSWERS", "Messages", "Tests"]


class Tried(AnswerPart):
    """A channel, and why it did not send."""

    channel: str
    sent: bool
    why: str | None


class Tests(Answer):
    """By channel."""

    tests: list[Tried]


class Event(Document):
    """What a message is about."""

    user: str
    title: str
    text: str


class Message(AnswerPart):
    """A message, and how far it is: `due` is when it is tried next, `outcome` what became of it."""

    id: int
    key: str
    channel: str
    at: float
    event: Event
    state: str
    tries: int
    due: float
    closed: float | None
    outcome: str


class Messages(Answer):
    """Oldest first."""

    messages: list[Message]


ANSWERS: Final[Mapping[str, Any]] = {"message list": Messages, "message test": Tests}
"""By the words after `penstock`."""
