"""Companions that the agent cannot ask for, because it is not the job's user: the application's launcher does.

The launcher hears of a request with the answers to its application's checks, and asks Slurm as its own user. What came
of it is read from Slurm alone: a job of that user and of a name that nobody could guess. An Operator may cancel it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api import Allocation

__all__ = ["LauncherRequest", "LauncherRequests"]


@dataclass(slots=True)
class LauncherRequest:
    """What is asked for, with a patience of so many seconds; `told` when the application first heard of it."""

    spec: Allocation
    patience: float
    since: float
    told: float | None = None

    def overdue(self, now: float) -> str:
        """Why it is given up; empty while it may yet succeed."""
        if self.told is None:
            over = now - self.since >= self.patience
            return f"the application did not check within {self.patience:g} s" if over else ""
        over = now - self.told >= self.patience + _GRACE
        return f"its launcher did not get the nodes within {self.patience:g} s" if over else ""


_GRACE = 5.0  # for the launcher to hear of it, and to withdraw its request


class LauncherRequests:
    """Those that are open, by the names of the jobs that they ask for."""

    def __init__(self) -> None:
        self._open: dict[str, LauncherRequest] = {}

    def of(self, name: str) -> LauncherRequest | None:
        """The request of this name, if it is open."""
        return self._open.get(name)

    def put(self, request: LauncherRequest) -> None:
        """The launcher is to do this."""
        self._open[request.spec.name] = request

    def tell(self, name: str, now: float) -> LauncherRequest | None:
        """What the launcher is to do; noted that it was told."""
        found = self._open.get(name)
        if found is not None and found.told is None:
            found.told = now
        return found

    def over(self, name: str) -> None:
        """Nothing is to be done any more."""
        self._open.pop(name, None)
