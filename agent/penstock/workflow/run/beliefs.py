"""What is believed of waits where workflows are planned and stepped over, and what is learned from their jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from penstock.api import Geometry, Snapshot
from penstock.core.pace import Pace
from penstock.core.parts import Waits
from penstock.future.cluster import Cluster
from penstock.future.past import ENOUGH
from penstock.future.turns import believed
from penstock.values.waits import Estimate
from penstock.workflow.model import Workflow
from penstock.workflow.run.instructions import Observe
from penstock.workflow.strategy import BetterCut, Rules
from penstock.workflow.submit.forecast import better_cut

__all__ = ["Beliefs"]


class Beliefs:
    """Of one agent, by all that is known of `waits`."""

    def __init__(self, waits: Waits, rules: Rules) -> None:
        self._waits, self._rules = waits, rules
        self._expected: tuple[Snapshot | None, dict[Geometry, float]] = (None, {})

    async def prepare(self, geometries: Collection[Geometry]) -> bool:
        """These are about to be predicted; whether there is anything new of any of them."""
        return await self._waits.prepare(geometries)

    def predict(self, geometry: Geometry) -> Estimate:
        """The wait to count with for a job that is submitted now."""
        return self._waits.model_store.predict(geometry)

    def learn(self, observed: Iterable[Observe]) -> None:
        """So long have jobs waited."""
        for one in observed:
            self._waits.model_store.observe(one.geometry, one.observation, one.estimate)

    def expecting(self, known: dict[Geometry, float]) -> Callable[[Geometry], float]:
        """Says the expected wait (s) of a geometry. Each is worked out once, and kept in `known`."""
        return partial(self._expect, known)

    def _expect(self, known: dict[Geometry, float], geometry: Geometry) -> float:
        if geometry not in known:
            known[geometry] = self._waits.model_store.expected(geometry)
        return known[geometry]

    def expected_at(self, snapshot: Snapshot) -> dict[Geometry, float]:
        """The waits that were expected at this look: all that is planned at one look is to go by the same."""
        if self._expected[0] is not snapshot:
            self._expected = snapshot, {}
        return self._expected[1]

    async def better_cut(self, workflow: Workflow, snapshot: Snapshot) -> BetterCut | None:
        """What forecasts of the queue as it is say against a plain chain. Nothing before the queue has been watched for
        long enough: who comes next must be known before a longer job can be better beyond doubt."""
        past = self._waits.past(snapshot)
        if not past.hours or len(past.used) < ENOUGH:
            return None
        return await Pace().walk(better_cut(workflow, Cluster.of(believed(snapshot)), past, self._rules))
