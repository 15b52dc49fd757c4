"""The order that all is off: who gave it, when and why. It lasts until `penstock on`, whatever is restarted."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from penstock.errors import LeftAlone
from penstock.host.logins import login
from penstock.state.schema import UNREADABLE
from penstock.state.store import Store

__all__ = ["CODE", "REFUSED", "Off", "keep_off", "merged", "off_in", "refusal"]

CODE: Final = "off"
"""The code of the reason for which nothing is done."""
REFUSED: Final = ("follow", "guide", "plan", "retry", "submit")
"""Operations that begin something new."""
_KEY: Final = "off"


@dataclass(frozen=True, slots=True)
class Off:
    """Given `by` whom (uid), and when (epoch s).

    `release`: stages that are kept back in the queue are released. `drop_slots`: slots that nobody uses are given up.
    `units` are those of systemd that were stopped for it (`off.units.Unit`, as text), to be started again.
    """

    by: int
    since: float
    why: str = ""
    release: bool = False
    drop_slots: bool = False
    units: tuple[str, ...] = ()

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        why = f": {self.why}" if self.why else ""
        return f"Penstock was turned off at {since} by {login(self.by)}{why} (`penstock on` turns it on again)"

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Off:
        """What `to_dict` gave; what a later release has added is left out."""
        known = {name: data[name] for name in cls.__slots__ if name in data}
        return cls(**{**known, "units": tuple(known.get("units", ()))})


def merged(before: Off | None, now: Off) -> Off:
    """An order that is given again: the first stays, with what the second asks for besides."""
    if before is None:
        return now
    return replace(
        before,
        why=now.why or before.why,
        release=before.release or now.release,
        drop_slots=before.drop_slots or now.drop_slots,
        units=tuple(dict.fromkeys((*before.units, *now.units))),
    )


def refusal(off: Off) -> LeftAlone:
    """What somebody hears who wants something begun."""
    return LeftAlone(f"{off}; until then nothing new is started. Plain `sbatch` still works")


def off_in(store: Store) -> Off | None:
    """What a state file says; None: it is not off. Raises StoreError."""
    stored = store.facts.get(_KEY)
    try:
        return Off.from_dict(json.loads(stored)) if stored else None
    except UNREADABLE as e:
        raise store.unreadable("the order that all is off") from e


def keep_off(store: Store, off: Off | None) -> None:
    """Write it down; None: it is on again."""
    store.facts.remember(_KEY, json.dumps(off.to_dict()) if off else "")
