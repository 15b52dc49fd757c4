"""What connects the ranks before and after a resize while their data moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Bridge"]


@dataclass(frozen=True, slots=True)
class Bridge:
    """One process's view of a resize under way.

    When all ranks are replaced, `comm` is the intercommunicator between the old ones and the new ones, and each process
    has one of the two ranks. When ranks stay, `comm` is an intracommunicator of all who were or will be there, and
    those who stay have both.

    `old[i]` is the rank in `comm` (in its group, where there are two) of the process that was rank i before; `new[i]`
    that of the process that will be rank i.
    """

    comm: MPI.Comm
    old: tuple[int, ...]
    new: tuple[int, ...]
    old_rank: int | None
    new_rank: int | None
