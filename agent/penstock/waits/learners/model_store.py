"""Every geometry's learner, kept in the agent's store: predict, observe, remember."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np

from penstock.api import Geometry
from penstock.values.waits import Distribution, Estimate, Known, Observation
from penstock.waits.learners.base import BOUND, NO_HINTS, PLANNED, Hints, Learner
from penstock.waits.learners.common import Common
from penstock.waits.learners.geometry import classify, parse
from penstock.waits.learners.pooling import WaitStore, begin
from penstock.waits.learners.share_mix import ShareMix

__all__ = ["LearnerStorage", "ModelStore"]

_SEED: Final = 2000
"""Predicted waits that bounds begin with where what all classes have learned together is gone or of no use."""
_SEED_ALONE: Final = 400
"""Waits that nobody predicted, from accounting: a learner is asked afterwards what it would have said."""
_AT_HAND: Final = 256
"""Learners kept in memory between predictions; a stored one takes a third of a millisecond to read."""


class LearnerStorage(WaitStore, Protocol):
    """Where learned state is kept (the agent's store)."""

    def learned(self, key: str) -> dict[str, Any] | None:
        """A learner's saved state. ValueError when it is damaged."""
        ...

    def save_learned(self, key: str, state: Mapping[str, Any], now: float) -> None:
        """Save a learner's state."""
        ...

    def set_aside(self, key: str, now: float) -> None:
        """Keep a state that is of no use where a person can find it."""
        ...

    def add_wait(
        self, key: str, estimate: float | None, wait: float, censored: int, now: float, bound: float | None = None
    ) -> None:
        """Keep an observed wait."""
        ...


class ModelStore:
    """A learner per class of geometries over a `LearnerStorage`, so that concurrent workflows share what is learned
    (ASA paper, 4.3); `per_user` false: users, too. What all classes of a cluster learn together is in a `Common`.

    `fresh` makes a learner that knows nothing, which then begins with the waits of geometries like its own. Saved state
    that is damaged, newer, or learned over other alternatives is set aside and `say(key, why)` told so, once; learning
    starts afresh. `complete` fills in what the site knows of a geometry, `hints` says what others expect of its job
    that is submitted now. `seed` only for demos and tests.
    """

    def __init__(
        self,
        memory: LearnerStorage,
        now: Callable[[], float],
        fresh: Callable[[], Learner],
        *,
        say: Callable[[str, str], None] = lambda key, why: None,
        hints: Callable[[Geometry], Hints] = lambda geometry: NO_HINTS,
        complete: Callable[[Geometry], Geometry] = lambda geometry: geometry,
        per_user: bool = True,
        seed: int | None = None,
    ) -> None:
        self._memory = memory
        self._now = now
        self._fresh = fresh
        self._say = say
        self._hints = hints
        self._complete = complete
        self._per_user = per_user
        self._rng = np.random.default_rng(seed)
        # With whether it has learned itself; else it knows others' waits only.
        self._at_hand: OrderedDict[str, tuple[Learner, bool]] = OrderedDict()
        self._common_at_hand: dict[str, Common] = {}
        self.name = fresh().name  # a wrong setting fails here, not at the first workflow

    def key(self, geometry: Geometry) -> str:
        """What the geometry's waits are kept under."""
        return classify(self._complete(geometry), per_user=self._per_user).key

    def learner(self, geometry: Geometry) -> Learner:
        """What is known of a geometry. It is not to be changed."""
        key = self.key(geometry)
        if key not in self._at_hand:
            self._at_hand[key] = self._read(geometry)
            if len(self._at_hand) > _AT_HAND:
                self._at_hand.popitem(last=False)
        self._at_hand.move_to_end(key)
        return _trusting(self._at_hand[key][0], self.common(geometry))

    def common(self, geometry: Geometry) -> Common:
        """What is known of the waits of all classes of its cluster. It is not to be changed."""
        cluster = self._complete(geometry).cluster
        if cluster not in self._common_at_hand:
            self._common_at_hand[cluster] = self._read_common(cluster)
        return self._common_at_hand[cluster]

    def hints(self, geometry: Geometry) -> Hints:
        """What others expect of a job of this geometry that is submitted now."""
        return self._hints(self._complete(geometry))

    def predict(self, geometry: Geometry) -> Estimate:
        """The wait to count with for a job of this geometry."""
        learner, hints = self.learner(geometry), self.hints(geometry)
        estimate = learner.predict(self._rng, hints)
        bound = learner.bound(hints)
        if bound is None:
            bound = self.common(geometry).bound(estimate, hints)
        planned = {PLANNED: hints[PLANNED]} if PLANNED in hints else {}
        return replace(estimate, said={**estimate.said, **planned, BOUND: bound})

    def around(self, geometry: Geometry, estimate: Estimate) -> Distribution:
        """Waits to reckon with when `estimate` was predicted; the learner's belief while too few waits are known."""
        known = self.common(geometry).bounds.around(estimate.seconds)
        return known or self.learner(geometry).distribution(self.hints(geometry))

    def expected(self, geometry: Geometry) -> float:
        """The wait (s) that is believed of a job of this geometry now: the median, the same however often it is asked
        for. `predict` is what is learned by, and a learner may draw it at random."""
        return self.learner(geometry).distribution(self.hints(geometry)).point

    def observe(self, geometry: Geometry, observation: Observation, estimate: Estimate | None) -> None:
        """Learn from a wait; `estimate` is its prediction, None where there was none."""
        if observation.known is Known.NOTHING:
            return
        now, key = self._now(), self.key(geometry)
        # From the store, and none at hand: what is learned inside a transaction may yet be undone.
        # What others began with is no longer all that is known.
        for old in [k for k, (_, own) in self._at_hand.items() if k == key or not own]:
            del self._at_hand[old]
        cluster = self._complete(geometry).cluster
        self._common_at_hand.pop(cluster, None)
        common = self._read_common(cluster)
        learner = _trusting(self._read(geometry)[0], common)
        said = (None, None) if estimate is None else (estimate.seconds, estimate.said.get(BOUND))
        self._memory.add_wait(key, said[0], observation.seconds, int(observation.known), now, said[1])
        learner.update(observation, estimate, self._rng)
        self._memory.save_learned(f"{self.name} {key}", learner.to_state(), now)
        if estimate is not None:
            common.learn(observation, estimate)
            self._memory.save_learned(self._common_name(cluster), common.to_state(), now)

    def import_waits(self, waits: Iterable[tuple[Geometry, float, float]]) -> int:
        """Keep waits (geometry, seconds, when the job started) that nobody predicted, say from accounting; how many.

        Learners of geometries that have none yet begin with them.
        """
        count = 0
        for geometry, seconds, at in waits:
            self._memory.add_wait(self.key(geometry), None, seconds, int(Known.EXACT), at)
            count += 1
        self._at_hand.clear()
        self._common_at_hand.clear()
        return count

    def _common_name(self, cluster: str) -> str:
        return f"{self.name} common {cluster}"

    def _read_common(self, cluster: str) -> Common:
        """As the store has it; else it begins with the waits that are there already."""
        common, name = Common(), self._common_name(cluster)
        try:
            state = self._memory.learned(name)
            if state is not None:
                common.restore(state)
                return common
        except ValueError as error:
            self._memory.set_aside(name, self._now())
            self._say(name, str(error))
        self._begin_common(common, cluster)
        return common

    def _begin_common(self, common: Common, cluster: str) -> None:
        rows = self._memory.waits(None, _SEED)
        learners: dict[str, Learner] = {}
        for number, row in enumerate(rows, start=-len(rows)):
            key, observation, said = row["key"], Observation(row["wait"], Known(row["censored"])), row["estimate"]
            found = parse(key)
            if found is None or found.cluster != cluster:
                continue
            if said is None and number >= -_SEED_ALONE:
                if key in learners:  # of its first wait nobody could have said anything
                    said = learners[key].predict(self._rng).seconds
                learners.setdefault(key, self._fresh()).update(observation, None, self._rng)
            if said is not None:
                common.bounds.add(observation, said)

    def _read(self, geometry: Geometry) -> tuple[Learner, bool]:
        """The learner as the store has it, and whether it has learned itself; else it begins with others' waits."""
        wanted = classify(self._complete(geometry), per_user=self._per_user)
        learner, name = self._fresh(), f"{self.name} {wanted.key}"
        try:
            state = self._memory.learned(name)
            if state is not None:
                learner.restore(state)
                return learner, True
        except ValueError as error:
            self._memory.set_aside(name, self._now())
            self._say(name, str(error))
            learner = self._fresh()
        begin(learner, wanted, self._memory, self._rng)
        return learner, False


def _trusting(learner: Learner, common: Common) -> Learner:
    """The learner with the trust that all classes have in common."""
    if isinstance(learner, ShareMix):
        learner.trust = common.trust
    return learner
