"""What keeps a job that is in the queue early from starting before its parents have ended."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Tie"]


class Tie(StrEnum):
    """How a job is kept behind parents that had not ended when it was submitted.

    All but AFTEROK and AGED leave the job eligible, so that it ages and is planned; its script then holds a guard.
    """

    NONE = "none"  # nothing has to: they had all completed
    AFTEROK = "afterok"  # a dependency on their success
    AGED = "aged"  # the same, with a begin time that comes at once and from which Slurm counts the job's age
    AFTER = "after"  # a dependency on a time after their starts, and the guard
    NODES = "nodes"  # it asks for a node that each of them holds, and the guard
    GUARD = "guard"  # the guard alone

    @property
    def guarded(self) -> bool:
        """Whether the job's script must wait for the parents itself."""
        return self in (Tie.AFTER, Tie.NODES, Tie.GUARD)

    @property
    def dependent(self) -> bool:
        """Whether Slurm itself starts the job only when the parents have succeeded."""
        return self in (Tie.AFTEROK, Tie.AGED)
