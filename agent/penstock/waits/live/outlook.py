"""`penstock waits`, answered by the agent with a look at the queue, or from its state file while none runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from penstock.api import Geometry, Snapshot
from penstock.config import Config
from penstock.core.observe import Observer
from penstock.errors import UserError
from penstock.state.store import Store
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES
from penstock.waits.learners.geometry import parse
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.learners import make
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_watch import QueueWatch
from penstock.waits.learners.report import accuracy, outlook, survey
from penstock.waits.live.history import complete, defaults, known_shares

__all__ = ["WaitOutlook", "from_store", "geometry_of"]

_JUDGED: Final = 50_000
"""Waits that are judged, the newest ones."""
_ANY: Final = Geometry("", "", 1, 60.0)
"""What all classes have in common is asked for by any job of the cluster."""


class WaitOutlook:
    """The agent's answer. `prepare` is told of a geometry that is about to be predicted, `judged` has what was expected
    of all jobs of the queue."""

    def __init__(
        self,
        store: Store,
        model_store: ModelStore,
        observer: Observer,
        prepare: Callable[[Collection[Geometry]], Awaitable[bool]],
        judged: Callable[[], Judged | None],
    ) -> None:
        self._store = store
        self._model_store = model_store
        self._observer = observer
        self._prepare = prepare
        self._judged = judged

    async def answer(self, geometry: Geometry | None) -> dict[str, Any]:
        """What is learned and, of a geometry, what is expected. UserError for one that the cluster cannot run."""
        told: dict[str, Any] = {
            "live": True,
            **survey(self._store.learning),
            "accuracy": self._accuracy(),
            "outlook": None,
        }
        if geometry is not None:
            geometry = _placed(geometry, await self._observer.look())
            await self._prepare([geometry])
            told["outlook"] = outlook(self._model_store, self._store.learning, geometry)
        return told

    def _accuracy(self) -> list[dict[str, Any]]:
        own = self._store.learning.waits(None, _JUDGED)
        return accuracy(own, self._model_store.common(_ANY).judged, self._judged())


def geometry_of(fields: Mapping[str, Any]) -> Geometry:
    """A geometry as a request gives it. UserError when it is none."""
    try:
        geometry = Geometry(**fields)
        nodes, limit = int(geometry.nodes), float(geometry.time_limit)
        memory = None if geometry.memory is None else float(geometry.memory)
    except (TypeError, ValueError) as e:
        raise UserError(f"not a geometry: {e}") from None
    if nodes < 1 or not 0 < limit < 1e12:
        raise UserError("not a geometry: it must have nodes and a time limit")
    return Geometry(
        str(geometry.partition or ""),
        str(geometry.qos or ""),
        nodes,
        limit,
        account=str(geometry.account or ""),
        gres=str(geometry.gres or ""),
        memory=memory,
        features=str(geometry.features or ""),
    )


def _placed(geometry: Geometry, snapshot: Snapshot) -> Geometry:
    """With the default partition where none is named."""
    partitions = snapshot.partitions
    name = geometry.partition or next((p.name for p in partitions.values() if p.default), "")
    if not partitions:
        return replace(geometry, partition=name)  # Slurm does not answer: what was learned is there all the same
    for part in name.split(","):
        if part not in partitions:
            raise UserError(f"-p: there is no partition {part!r} (partitions: {', '.join(sorted(partitions))})")
        widest = min(len(partitions[part].nodes), partitions[part].max_nodes or geometry.nodes)
        if geometry.nodes > widest:
            raise UserError(f"-N: partition {part} has {widest} nodes at most, not {geometry.nodes}")
    return replace(geometry, partition=name)


def from_store(config: Config, store: Store, geometry: Geometry | None, now: Callable[[], float]) -> dict[str, Any]:
    """What a state file tells by itself."""
    known = {found for key in store.learning.wait_keys() if (found := parse(key)) is not None}
    cluster = min((c.cluster for c in known), default="")
    asa, one_user = config.asa, config.agent.serve == "own"
    shares = known_shares(store)
    filled = partial(
        complete,
        cluster=cluster,
        usual=defaults(store) if one_user else {},
        shares=shares[1] if one_user and shares else {},
        one_user=one_user,
    )
    fresh = partial(make, asa.predictor, asa.alternatives or LIVE_ALTERNATIVES, asa.gamma)
    model_store = ModelStore(store.learning, now, fresh, complete=filled, per_user=asa.shared == "user")
    judged = accuracy(store.learning.waits(None, _JUDGED), model_store.common(_ANY).judged, _queue_of(store, cluster))
    told: dict[str, Any] = {**survey(store.learning), "accuracy": judged, "outlook": None}
    if geometry is None:
        return told
    if not geometry.partition:
        partitions = sorted({c.partition for c in known})
        if len(partitions) > 1:
            raise UserError(f"-p: without an agent the partition must be named ({', '.join(partitions)})")
        geometry = replace(geometry, partition=partitions[0] if partitions else "")
    told["outlook"] = outlook(model_store, store.learning, geometry)
    return told


def _queue_of(store: Store, cluster: str) -> Judged | None:
    """What was expected of all jobs of the queue, as the agent has saved it last."""
    watch = QueueWatch(QueueLearner())
    with suppress(ValueError):  # the agent says so when it reads it
        state = store.learning.learned(f"queue-watch {cluster}")
        if state is not None:
            watch.restore(state)
            return watch.judged
    return None
