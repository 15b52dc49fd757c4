"""The agent's predictor of waits, joined: the store of learners, what the live queue and Slurm expect, and what
accounting and fair shares tell of the user."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from penstock.api import Geometry, Snapshot
from penstock.config import AsaSection, Config
from penstock.future.past import QueuePast
from penstock.host.clock import Clock
from penstock.host.logs import get_logger
from penstock.slurm.base import Reader
from penstock.state.store import Store
from penstock.values.waits import Distribution, Estimate, Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES
from penstock.waits.learners.geometry import key_of
from penstock.waits.learners.learners import DEFAULT, make
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_watch import QueueWatch
from penstock.waits.live.forecast import Forecast
from penstock.waits.live.history import FairShares, complete, defaults, learn_history
from penstock.waits.live.known import with_history
from penstock.waits.live.recorder import Recorder
from penstock.waits.live.starts import StartWatch

__all__ = ["Predictions"]

_log = get_logger(__name__)


class Predictions:
    """`model_store` predicts and learns; `forecast`, `recorder` and `starts` are to be shown every picture of Slurm.

    As configured when it was made.
    """

    def __init__(self, config: Config, backend: Reader, store: Store, clock: Clock) -> None:
        asa = config.asa
        self._backend = backend
        self._store = store
        self._clock = clock
        self._one_user = config.agent.serve == "own"
        self._period = asa.history
        self._cluster = ""
        self._usual: Mapping[str, str] = defaults(store)
        self._standing = FairShares(backend, clock, store)
        self.forecast = Forecast(
            backend,
            store,
            clock,
            watch=QueueWatch(QueueLearner(config.agent.seed or 0)) if _counts(asa, "queue") else None,
            ask_slurm=_counts(asa, "slurm"),
            say=_kept_aside,
        )
        self.recorder = Recorder(store, clock, _kept_aside)
        self.starts = StartWatch(store, clock, self.recorder.past, self.recorder.knows, _kept_aside)
        self.model_store = ModelStore(
            store.learning,
            clock.now,
            partial(make, asa.predictor, asa.alternatives or LIVE_ALTERNATIVES, asa.gamma),
            say=_kept_aside,
            hints=self.forecast.hints,
            complete=self._complete,
            per_user=asa.shared == "user",
            seed=config.agent.seed,
        )

    def start(self, cluster: str) -> None:
        """Take up what was learned of this cluster."""
        self._cluster = cluster
        self.forecast.start(cluster)
        self.recorder.start(cluster)
        self.starts.start(cluster)

    def _complete(self, geometry: Geometry) -> Geometry:
        usual, shares = (self._usual, self._standing.shares) if self._one_user else ({}, {})
        return complete(geometry, self._cluster, usual, shares, one_user=self._one_user)

    def past(self, snapshot: Snapshot) -> QueuePast:
        """What is known of the queue's past, by a look at it."""
        return self.recorder.past(snapshot)

    async def known_past(self, snapshot: Snapshot) -> QueuePast:
        """The same, with what accounting tells of the agent's user where that is too little."""
        return await with_history(self.past(snapshot), self._backend, self._period)

    async def prepare(self, geometries: Collection[Geometry]) -> bool:
        """These are about to be predicted: ask who has something to say; whether anybody has anything new."""
        news = self._one_user and await self._standing.refresh()
        # Slurm is asked for what the job asks for, which may leave more open than what it is learned under.
        return await self.forecast.prepare({key_of(self._complete(g)): g for g in geometries}) or news

    def predict(self, geometry: Geometry) -> Estimate:
        """The wait to count with."""
        return self.model_store.predict(geometry)

    def around(self, geometry: Geometry, estimate: Estimate) -> Distribution:
        """Waits to reckon with when that was predicted."""
        return self.model_store.around(geometry, estimate)

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        """Learn from a wait."""
        self.model_store.observe(geometry, observation, estimate)

    async def learn_history(self) -> None:
        """At the first start: what accounting knows of the user's waits."""
        await learn_history(self._backend, self._store, self.model_store, self._clock, self._period)
        self._usual = defaults(self._store)


def _counts(asa: AsaSection, hint: str) -> bool:
    """Whether the predictor counts with the expectation of the `queue` or of `slurm`, and it is not switched off."""
    wanted = asa.watch_queue if hint == "queue" else asa.ask_slurm
    return wanted and asa.predictor in (DEFAULT, hint)


def _kept_aside(key: str, why: str) -> None:
    _log.warning("what was learned cannot be used; it is kept aside and learning starts afresh", key=key, why=why)
