"""The part of front programs: it answers what their users ask of Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from penstock.core.parts import Operation, Part, Site

if TYPE_CHECKING:  # commands ask this class, too, and do not pay for what only the agent needs
    from penstock.api import SiteConfig
    from penstock.core.families import Family, MetricSpec
    from penstock_fronts.door import ShimDoor

__all__ = ["FrontsPart"]


class FrontsPart(Part):
    """Answers where Slurm is reached by its own commands, whose output is what front programs print."""

    name: ClassVar[str] = "fronts"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._door: ShimDoor | None = None

    @staticmethod
    def metrics() -> Iterable[MetricSpec]:
        """See `Part`."""
        from penstock_fronts import figures  # slow to load

        return figures.METRICS.values()

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        from penstock.slurm.raw_looks import HasRunner, RawLooks
        from penstock_fronts.door import ShimDoor  # slow to load

        site, config = self._site, self._site.config()
        if not isinstance(site.reader, HasRunner):
            return
        looks = RawLooks(site.reader.runner, config.slurm.timeout)
        shared = config.agent.serve == "all"
        self._door = ShimDoor(looks, config.look_age, shared=shared, environment=site.reader.runner.environment)
        site.executor.on_act = self._door.touch  # it hears of what the agent does to jobs

    def operations(self) -> Mapping[str, Operation]:
        """See `Part`."""
        return {} if self._door is None else self._door.operations()

    def families(self) -> Iterable[Family]:
        """See `Part`."""
        from penstock_fronts import figures  # slow to load

        return figures.families(self._door)
