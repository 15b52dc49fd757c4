"""What `penstock off` tells of: an item for each thing of Penstock's that there is."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from penstock.host.logins import login

__all__ = ["ItemState", "OffItem", "jobs_text", "minute_text"]


class ItemState(StrEnum):
    """LEFT: in Slurm, and it should not be. ALONE: in Slurm, and it does without an agent. WAITS: it waits for
    `penstock on`, and nothing of it is in Slurm."""

    LEFT = "left"
    ALONE = "alone"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class OffItem:
    """One line. `kind`: resize, companion, stage, workflow, slot, bag or request; `uid` is whose it is.

    `pending`: Penstock is about to end it. `todo` are commands, each with what is to be known of it.
    """

    kind: str
    uid: int
    place: ItemState
    text: str
    jobs: tuple[int, ...] = ()
    pending: bool = False
    todo: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values, with the owner's name."""
        told = asdict(self)
        todo = [{"command": command, "note": note} for command, note in self.todo]
        return {**told, "user": login(self.uid), "place": self.place.value, "jobs": list(self.jobs), "todo": todo}


def jobs_text(jobs: Iterable[int]) -> str:
    """Such as "job 7", or "jobs 7 8"."""
    found = [str(job) for job in jobs]
    return f"job {found[0]}" if len(found) == 1 else f"jobs {' '.join(found)}"


def minute_text(when: float) -> str:
    """An instant on this host's clock, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
