"""The part of moldable jobs: they wait with the shape that ends first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from penstock.core.pace import Pace
from penstock.core.parts import Controller, Operation, Part, Site, StatusShare
from penstock.resize.waiting.controller import MoldableController
from penstock.resize.waiting.requests import MoldableRequests

__all__ = ["MoldablePart"]


class MoldablePart(Part):
    """See `penstock.resize.waiting.controller`."""

    name: ClassVar[str] = "moldable"

    def __init__(self, site: Site) -> None:
        self._site = site
        self.controller = MoldableController(site)
        self._requests = MoldableRequests(self.controller, site.callers)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self.controller,)

    def operations(self) -> Mapping[str, Operation]:
        """See `Part`."""
        return self._requests.operations()

    async def status(self, uid: int, pace: Pace) -> StatusShare:
        """See `Part`."""
        return self._requests.status(uid)

    def owner(self, kind: str, number: int) -> int | None:
        """See `Part`."""
        stored = self._site.store.moldable.owner
        return self._site.owner_of_job(number, self.controller.jobs, stored) if kind == "job" else None

    def growing(self) -> Iterable[int]:
        """See `Part`."""
        return self.controller.jobs
