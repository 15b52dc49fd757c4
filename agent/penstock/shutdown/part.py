"""The part of `penstock off`: while all is off it hands back what is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from penstock.api import SiteConfig
from penstock.core.parts import Controller, Operation, Part, Site
from penstock.resize.running.part import MalleablePart
from penstock.shutdown.drain import Drain
from penstock.shutdown.requests import OffRequests
from penstock.workflow.part import WorkflowPart

__all__ = ["OffPart"]


class OffPart(Part):
    """`parts` are all that the agent has. `turned` is called when all was turned off or on, with why; `end` has the
    agent end, if it can. Its `drain` is there from `begin` on."""

    name: ClassVar[str] = "off"
    drain: Drain
    _requests: OffRequests

    def __init__(
        self,
        site: Site,
        workflows: WorkflowPart,
        malleable: MalleablePart,
        parts: Callable[[], Iterable[Part]],
        turned: Callable[[str], None],
        end: Callable[[], bool],
    ) -> None:
        self._site, self._workflows, self._malleable, self._parts = site, workflows, malleable, parts
        self._turned, self._end = turned, end

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        site, workflows = self._site, self._workflows
        accrues = workflows.rules.accrues
        self.drain = Drain(site, workflows.controller, self._malleable.controller, self._parts, accrues=accrues)
        self._requests = OffRequests(self.drain, site, self._turned, self._end)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self.drain,)

    def operations(self) -> Mapping[str, Operation]:
        """See `Part`."""
        return self._requests.operations()

    def around(self, operations: Mapping[str, Operation]) -> Mapping[str, Operation]:
        """See `Part`."""
        return self._requests.around(operations)
