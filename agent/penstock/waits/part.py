"""The part of waits: learns them from every look, and tells them."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from penstock.api import SiteConfig
from penstock.core.parts import Controller, Operation, Part, Site
from penstock.waits.live.glance import WaitGlance
from penstock.waits.live.outlook import WaitOutlook
from penstock.waits.live.predictor import Predictions
from penstock.waits.requests import WaitRequests

__all__ = ["WaitsPart"]


class WaitsPart(Part):
    """`predictions` are those that all parts have as `site.waits`."""

    name: ClassVar[str] = "waits"

    def __init__(self, site: Site, predictions: Predictions) -> None:
        self.predictions = predictions
        forecast, known = predictions.forecast, (site.store, predictions.model_store, site.observer)
        outlook = WaitOutlook(*known, predictions.prepare, lambda: forecast.judged)
        glance = WaitGlance(*known, site.clock, lambda: forecast.judged, forecast.times_and_waits)
        self._requests = WaitRequests(outlook, glance, site.callers, lambda: site.config().asa.told_to)

    def begin(self, slurm: SiteConfig) -> None:
        """See `Part`."""
        self.predictions.start(slurm.cluster)

    def controllers(self) -> Sequence[Controller]:
        """See `Part`."""
        return (self.predictions.forecast, self.predictions.recorder, self.predictions.starts)

    def operations(self) -> Mapping[str, Operation]:
        """See `Part`."""
        return self._requests.operations()

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """See `Part`."""
        yield self.predictions.learn_history()

    async def close(self) -> None:
        """See `Part`."""
        await self.predictions.forecast.close()
        self.predictions.recorder.close()
        await self.predictions.starts.close()
