"""Tells a pool what the graph will ask of it, so that it can have allocations by then."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from snakemake_executor_plugin_penstock.graph import SOONEST, foreseen, told_as, upcoming
from snakemake_executor_plugin_penstock.needs import JobNeeds
from snakemake_executor_plugin_penstock.poolline import PoolTasks

__all__ = ["Foresight"]

_UNKNOWN: Final = 60.0  # seconds that a job is thought to run of which nothing is known
_VALID: Final = 900.0
_SHARE: Final = 0.02  # of the time that may be spent on looking
_PAUSE: Final = 2.0  # seconds
_REMEMBERED: Final = 50  # jobs of a rule


class Foresight:
    """One source of what is foreseen. Times of jobs are those of their rule so far, or what the rule says at most."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._next = 0.0
        self._known = True  # the scheduler knows the request
        self._last: list[dict[str, Any]] = []
        self._at = 0.0
        self._seen: dict[str, list[float]] = defaultdict(list)

    def ran(self, rule: str, seconds: float) -> None:
        """A job of the rule took so long."""
        self._seen[rule].append(seconds)
        del self._seen[rule][:-_REMEMBERED]

    def tell(
        self,
        pool: PoolTasks,
        dag: Any,  # noqa: ANN401
        given: set[Any],
        needs: Callable[[Any], JobNeeds],
    ) -> None:
        """Tell what comes after the jobs that are `given`. Raises UnknownGraph."""
        begun = time.monotonic()
        if not self._known or begun < self._next:
            return

        def known(job: Any) -> JobNeeds | None:  # noqa: ANN401
            try:
                return needs(job)
            except Exception:  # of a function of the user's, whose input is not there yet
                return None

        def length(job: Any) -> float | None:  # noqa: ANN401
            if seen := self._seen.get(str(job.name)):
                return sum(seen) / len(seen)
            return None if (wanted := known(job)) is None else wanted.seconds

        def asked(job: Any) -> tuple[float, int | None] | None:  # noqa: ANN401
            if job.is_group() or job.is_local or job.rule.norun:
                return None
            wanted = known(job)
            return None if wanted is None or wanted.of_slurm else (wanted.cores, wanted.memory)

        told = told_as(foreseen(upcoming(dag), lambda job: job in given, length, asked, _UNKNOWN))
        if told or self._last:
            self._known = pool.foresee(self._source, told, _VALID)
            self._last, self._at = told, time.monotonic()
        ended = time.monotonic()
        self._next = ended + max((ended - begun) / _SHARE, _PAUSE)

    def again(self, pool: PoolTasks) -> None:
        """Say it once more before it is too old, where nothing new is known."""
        passed = time.monotonic() - self._at
        if self._known and self._last and passed > _VALID / 2:
            self._last = [{**one, "after": max(one["after"] - passed, SOONEST)} for one in self._last]
            self._at = time.monotonic()
            pool.foresee(self._source, self._last, _VALID)

    def forget(self, pool: PoolTasks) -> None:
        """Nothing comes any more."""
        if self._known and self._last:
            pool.foresee(self._source, [], _VALID)
            self._last = []
