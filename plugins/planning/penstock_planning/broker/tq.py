"""How long a bag's jobs would wait on a candidate (Tq): the agent's learners of waits, for whatever cluster.

What an agent has learned of its cluster is read from its state file. Of any other cluster accounting tells the user's
own waits of the last month, and the queue as it stands is looked at, and Slurm asked, as an agent would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from penstock.api import AccountingRecord, Geometry, JobSpec, JobState
from penstock.config import Config
from penstock.errors import Infeasible, NotPermitted, PenstockError, StoreError
from penstock.state.ownership import is_readable, state_path
from penstock.state.store import Store
from penstock.waits.learners.accounting import waits_of
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES
from penstock.waits.learners.base import BOUND, LIMITS, PLANNED, Hints
from penstock.waits.learners.geometry import parse
from penstock.waits.learners.learners import make
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_watch import QueueWatch
from penstock.waits.live.history import complete, known_shares, usual
from penstock.waits.live.known import kept_past, known_by
from penstock_planning.broker.clusters import ClusterView
from penstock_planning.broker.partitions import Candidate
from penstock_planning.broker.shape import JobShape
from penstock_planning.select.buckets import Waited, mean_wait
from penstock_planning.select.ranking import Wait
from penstock_planning.select.rework import Preemptions, rate_of

__all__ = ["Expectations", "expectations", "preemptions"]

_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.9)
_BOUND: Final = 0.95


class Expectations:
    """What is expected of the waits in one cluster. `usual` are the user's usual account and QOS, `past` is
    what became of jobs there, with the user's own by accounting; waits are learned under the user's fair-share factors
    by account, `shares`."""

    def __init__(
        self,
        config: Config,
        view: ClusterView,
        records: Sequence[AccountingRecord],
        state: Store | None,
        shares: Mapping[str, float],
    ) -> None:
        self._view = view
        self._records = records
        self.usual = usual(records)
        self.past = known_by(kept_past(config, view.cluster, view.snapshot)[0], records)
        self._watch = QueueWatch(QueueLearner(config.agent.seed or 0))
        self._hints: Hints = {}
        # Nothing is kept of what is imported: accounting is read anew each time.
        self._store = state or Store(":memory:")
        if state is not None:
            with suppress(ValueError, StoreError):
                learned = state.learning.learned(f"queue-watch {view.cluster}")
                if learned is not None:
                    self._watch.restore(learned)
        self._watch.see(view.snapshot)
        self._filled = partial(complete, cluster=view.cluster, usual=self.usual, shares=shares, one_user=True)
        fresh = partial(make, config.asa.predictor, config.asa.alternatives or LIVE_ALTERNATIVES, config.asa.gamma)
        self._model_store = ModelStore(
            self._store.learning,
            view.backend.now,
            fresh,
            complete=self._filled,
            hints=lambda _: self._hints,
            seed=config.agent.seed,
        )
        if state is None:
            self._model_store.import_waits(waits_of(records))

    def close(self) -> None:
        """Close what was opened."""
        self._store.close()

    async def slurm(self, candidate: Candidate, shape: JobShape, options: Mapping[str, str]) -> float | None:
        """Slurm's own estimate (s) of such a job, and as long as its nodes take to be awake, if it names one that is
        asleep; None where it has none. `Infeasible` when it would never run it."""
        spec = JobSpec(
            name="penstock.estimate",
            script=f"#!/bin/sh\n{shape.directives}true\n",
            nodes=shape.nodes,
            time_limit=shape.limit,
            partition=candidate.partition.name,
            account=options.get("account"),
            qos=options.get("qos"),
        )
        try:
            estimate = await self._view.backend.estimate(spec)
        except Infeasible:
            raise
        except PenstockError:
            return None
        snapshot = self._view.snapshot
        asleep = any(name in snapshot.nodes and snapshot.nodes[name].asleep for name in estimate.nodes)
        return max(estimate.start - self._view.backend.now(), 0.0) + (snapshot.wakes_in if asleep else 0.0)

    def wait(
        self, candidate: Candidate, shape: JobShape, options: Mapping[str, str], slurm: float | None, plan: float | None
    ) -> Wait:
        """The wait of a job of this shape that is submitted now; `slurm` is what Slurm estimates (s), `plan` what our
        plan of the queue says."""
        geometry = self._geometry(candidate, shape, options)
        hints: dict[str, float] = {} if slurm is None else {"slurm": slurm}
        # What has learned from no start yet plans by limits alone, which is late.
        learned = candidate.whole and len(self._watch.learner) > 0
        seen = self._watch.expect(geometry, self._view.backend.whoami()) if learned else plan
        if plan is not None:
            hints[LIMITS] = plan
        if seen is not None:
            hints["queue"] = seen
            most = self._watch.bound(seen) if learned else None
            if most is not None:
                hints[PLANNED] = most
        self._hints = hints
        estimate = self._model_store.predict(geometry)
        spread = self._model_store.around(geometry, estimate)
        last = max(estimate.said.get(BOUND, spread.quantile(_BOUND)), estimate.seconds)
        pairs = [(q, spread.quantile(q)) for q in _QUANTILES]
        rising, least = [], 0.0
        for q, seconds in [*pairs, (_BOUND, last)]:
            least = max(least, min(seconds, last))
            rising.append((q, least))
        return Wait(estimate.seconds, tuple(rising))

    def share(self, options: Mapping[str, str]) -> float | None:
        """The fair-share factor (0 to 1, more is better) under which such jobs wait; None where none counts."""
        return self._filled(Geometry("", "", 1, 60.0, account=options.get("account", ""))).share

    def preemptions(self, candidate: Candidate) -> Preemptions | None:
        """How often jobs are preempted there; None: never, as far as is known."""
        return preemptions(candidate, self._records)

    def last_week(self, candidate: Candidate, shape: JobShape) -> float | None:
        """The paper's way: the mean wait (s) of the user's similar jobs of the last seven days, by XDMoD's ranges."""
        each = candidate.rig.cpus
        jobs = [
            Waited("", geometry.partition, geometry.time_limit, geometry.nodes * each, wait, start)
            for geometry, wait, start in waits_of(self._records)
        ]
        cpus = shape.nodes * (each if shape.whole else shape.cores)
        return mean_wait(jobs, "", candidate.partition.name, shape.limit, cpus, self._view.backend.now())

    def _geometry(self, candidate: Candidate, shape: JobShape, options: Mapping[str, str]) -> Geometry:
        return Geometry(
            partition=candidate.partition.name,
            qos=options.get("qos", ""),
            nodes=shape.nodes,
            time_limit=shape.limit,
            account=options.get("account", ""),
            cluster=candidate.cluster,
            gres=",".join(f"gpu:{m}:{n}" if m else f"gpu:{n}" for m, n in shape.gpus.items()),
            memory=None if shape.memory is None else shape.memory / 2**20,
            features=candidate.constraint,
        )


def preemptions(candidate: Candidate, records: Iterable[AccountingRecord]) -> Preemptions | None:
    """How often jobs are preempted there: by the site file, else by what became of the user's own."""
    if candidate.preempted is not None:
        return Preemptions(candidate.preempted / 3600, "the site file") if candidate.preempted else None
    runs = [
        (record.end - record.start, record.state is JobState.PREEMPTED)
        for record in records
        if record.partition == candidate.partition.name and record.start is not None and record.end is not None
    ]
    rate, seen = rate_of(runs), sum(preempted for _, preempted in runs)
    return None if rate is None else Preemptions(rate, f"of {len(runs)} runs of yours there {seen} were preempted")


async def expectations(config: Config, view: ClusterView) -> tuple[Expectations, str | None]:
    """What there is to know of a cluster's waits, and what is wrong with it, if anything."""
    state = _learned_of(config, view.cluster)
    problem: str | None = None
    records: list[AccountingRecord] = []
    try:
        records = list(await view.backend.history(since=view.backend.now() - (config.asa.history or 7 * 86400.0)))
    except PenstockError as e:
        problem = f"cluster {view.cluster}: accounting tells no waits: {e}"
    return Expectations(config, view, records, state, await _shares(view, state)), problem


async def _shares(view: ClusterView, state: Store | None) -> Mapping[str, float]:
    """The user's fair-share factors there, where they count: as the cluster's agent knows them, or as Slurm says."""
    if view.site.priority_type != "priority/multifactor":
        return {}
    if state is not None and (known := known_shares(state)) is not None:
        return known[1]
    with suppress(PenstockError):
        return await view.backend.shares()
    return {}


def _learned_of(config: Config, cluster: str) -> Store | None:
    """The agent's state file, if its agent learns of this cluster."""
    path = state_path(config)
    try:
        if not is_readable(path):
            return None
        store = Store.read_only(path)
    except (NotPermitted, StoreError):
        return None
    if any((known := parse(key)) is not None and known.cluster == cluster for key in store.learning.wait_keys()):
        return store
    store.close()
    return None
