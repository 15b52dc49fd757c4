"""`penstock try`, answered by the agent: what a workflow may expect on the queue as it is. Submits nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from penstock.api import Snapshot
from penstock.core.observe import Observer
from penstock.core.pace import Pace
from penstock.errors import NotNow
from penstock.future.cluster import Cluster
from penstock.future.past import QueuePast
from penstock.future.turns import believed
from penstock.state.store import Store
from penstock.workflow.model import Workflow
from penstock.workflow.stored import earlier_runs
from penstock.workflow.strategy import Rules
from penstock.workflow.submit.expectations import expected_by
from penstock.workflow.submit.forecast import PATIENT, compare

__all__ = ["Trial"]


class Trial:
    """`past` says what is known of the queue's past, by a look at it; `rules` and `parameters` (SchedulerParameters)
    are the cluster's."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        past: Callable[[Snapshot], Awaitable[QueuePast]],
        rules: Rules,
        parameters: Collection[str],
    ) -> None:
        self._store = store
        self._observer = observer
        self._past = past
        self._rules = rules
        self._parameters = parameters

    async def answer(self, uid: int, workflow: Workflow) -> Mapping[str, Any]:
        """See `forecast.CutComparison.told`. UserError for a workflow that the cluster cannot run, NotNow while Slurm
        does not answer."""
        snapshot = await self._observer.look()
        if not snapshot.usable or not snapshot.partitions:
            raise NotNow("there is no forecast, as Slurm does not answer: " + "; ".join(snapshot.problems))
        if any(stage.guessed for stage in workflow.stages):
            workflow = expected_by(workflow, earlier_runs(self._store, uid))
        cluster, past = Cluster.of(believed(snapshot, self._parameters)), await self._past(snapshot)
        found = await Pace().walk(compare(workflow, cluster, past, self._rules, work=PATIENT))
        return {"live": True, **found.told()}
