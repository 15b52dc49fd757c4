"""How far a message to people is."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["MessageState"]


class MessageState(StrEnum):
    """What became of a message. UNKNOWN: the agent died while it was on its way, and it is not sent again."""

    OPEN = "open"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"
    UNKNOWN = "unknown"
