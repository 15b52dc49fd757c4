"""Data versions of slurmrestd: which there are, which one to speak, and in what they differ for us. Pure.

Slurm writes JSON by a data version, such as v0.0.42; each release offers the three or four latest. What a release adds
is not needed here, so the newest version that this Penstock knows and the server offers is spoken; a server whose every
version is newer than that would be a release of years from now.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["KNOWN", "DataVersion", "unfit"]


@dataclass(frozen=True, slots=True)
class DataVersion:
    """One version. `number` is the last part of its name.

    `cancels_several`: several jobs, or some tasks of an array, can be cancelled at once. `allocates`: nodes can be had
    without a script. `reserves`: reservations can be made and deleted. `requeues`, `settings`: there are requests for
    these. `default_partition`: a partition says whether it is the default.
    """

    number: int

    @property
    def name(self) -> str:
        """As it stands in paths."""
        return f"v0.0.{self.number}"

    @property
    def cancels_several(self) -> bool:
        """Whether some tasks of an array can be cancelled."""
        return self.number >= 41

    @property
    def allocates(self) -> bool:
        """Whether nodes can be had without a script."""
        return self.number >= 41

    @property
    def reserves(self) -> bool:
        """Whether reservations can be made and deleted."""
        return self.number >= 43

    @property
    def requeues(self) -> bool:
        """Whether a job can be put back into the queue."""
        return self.number >= 45

    @property
    def settings(self) -> bool:
        """Whether the cluster's settings are told."""
        return self.number >= 45


KNOWN = tuple(DataVersion(number) for number in range(45, 38, -1))
"""Those that can be spoken, the newest first: of Slurm 26.05 to 23.02."""

_NAMED = re.compile(r"v0\.0\.([0-9]{1,4})")


def unfit(offered: Iterable[str]) -> str:
    """Why none of these paths or versions can be spoken."""
    numbers = sorted({int(found[1]) for word in offered if (found := _NAMED.search(word))})
    newest, oldest = KNOWN[0].name, KNOWN[-1].name
    if not numbers:
        return f"the server offers no data version from {oldest} to {newest}; is it a slurmrestd with its plug-ins?"
    names = ", ".join(f"v0.0.{number}" for number in numbers)
    older = numbers[-1] < KNOWN[-1].number
    way = "Slurm from 23.02 on has one; use `slurm.backend: cli` here" if older else "a newer Penstock may know one"
    return f"the server offers {names}, and Penstock speaks {oldest} to {newest}: {way}"
