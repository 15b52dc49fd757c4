"""Licences: counters that belong to no node. A job takes what it asks for when it starts and gives it back at its end.

Like Slurm without bf_licenses, the plan does not know when one will be free: a job that waits for a licence gets no
reservation and lets others pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.api import License
from penstock.errors import Infeasible

__all__ = ["Licenses"]

_ONE = re.compile(r"([A-Za-z0-9_.@-]+)(?:[:*=](\d+))?", re.ASCII)


class Licenses:
    """All licences of a cluster."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self._totals = dict(totals)
        self._used = dict.fromkeys(self._totals, 0)

    def parse(self, text: str | None) -> dict[str, int]:
        """How many of which, from `matlab:2,ansys`. `Infeasible` when there never are so many."""
        wanted: dict[str, int] = {}
        for part in (text or "").split(",") if text else ():
            match = _ONE.fullmatch(part.strip())
            if match is None:
                raise Infeasible(f"Invalid license specification: {text!r}")
            wanted[match[1]] = wanted.get(match[1], 0) + int(match[2] or 1)
        if any(count > self._totals.get(name, 0) for name, count in wanted.items()):
            raise Infeasible(f"Invalid license specification: {text!r}")
        return wanted

    def available(self, wanted: Mapping[str, int]) -> bool:
        """Whether they can be had now."""
        return all(self._used[name] + count <= self._totals[name] for name, count in wanted.items())

    def take(self, wanted: Mapping[str, int]) -> None:
        """A job that asks for them starts."""
        for name, count in wanted.items():
            self._used[name] += count

    def give_back(self, wanted: Mapping[str, int]) -> None:
        """It has ended."""
        for name, count in wanted.items():
            self._used[name] -= count

    def view(self) -> list[License]:
        """What `scontrol show licenses` would say."""
        return [License(name, total, self._used[name]) for name, total in sorted(self._totals.items())]
