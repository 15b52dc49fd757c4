"""What happens that people may be told of. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from dmr.wire import clean

__all__ = ["KINDS", "Event", "paused"]

KINDS: Final = ("stage-failed", "deadline", "paused", "report")
"""A stage has failed; a reserved workflow will not end when its slots say; the agent has paused itself; the week."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at the instant `at` (epoch s). `uid` and `user`: whose it is; None: the site's, or the
    agent's own. `title` is one line, `text` some; `details` are JSON-able."""

    key: str
    kind: str
    at: float
    title: str
    text: str
    uid: int | None = None
    user: str = ""
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {**asdict(replace(self, details={})), "details": dict(self.details)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Event:
        """What `to_dict` gave."""
        return cls(**data)


def paused(until: float, why: str, count: int, *, now: float) -> Event:
    """The agent has paused all acts by itself until then (epoch s): the last `count` requests failed, the last of them
    because of `why`."""
    seconds = until - now
    return Event(
        f"paused until {until:.0f}",
        "paused",
        now,
        f"the agent has paused itself for {seconds / 60:.0f} minutes",
        f"The last {count} requests to change something in Slurm got no answer. The agent submits, releases and "
        f"resizes nothing for {seconds / 60:.0f} minutes, and then goes on by itself. Jobs go on meanwhile.\n\n"
        f"The last request: {clean(why)}\n\n"
        "Run `penstock doctor`, and look at Slurm itself (sdiag, slurmctld's log).\n",
        details={"until": until, "why": clean(why)},
    )
