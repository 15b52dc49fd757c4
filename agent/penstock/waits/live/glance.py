"""Expected waits where a choice is made (a portal, a hub of notebooks): many at once, from the agent's last look alone.

Slurm is asked for nothing, however often and by however many this is asked. What was answered once counts until the
next look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.api import Geometry, Snapshot
from penstock.core.observe import Observer
from penstock.core.pace import Pace
from penstock.errors import NotFound, UserError
from penstock.host.clock import Clock
from penstock.state.store import Store
from penstock.waits.learners.base import BOUND
from penstock.waits.learners.geometry import classify, neighbours, parse
from penstock.waits.learners.hours import by_hour
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.report import calibration, predicted, scores
from penstock.waits.learners.wishes import changes, geometry_of_wish, is_sooner, misfit

__all__ = ["MOST_JOBS", "WaitGlance"]

MOST_JOBS: Final = 100
"""Jobs that one request may be about."""
_MOST_SOONER: Final = 20
"""Those of which it may be asked what would start sooner: ten predictions each, or more."""
_KEPT: Final = 5000
"""Answers that are kept until the next look."""
_JUDGED: Final = 1000
"""Waits by which it is judged how often predictions held, the newest ones."""
_NEVER: Final = 10 * 366 * 86400.0
"""Seconds; what is longer, or has no end, is said to be this long: not everybody reads a JSON with infinities."""
_SHARE: Final = "coverage_95"


class WaitGlance:
    """Answers from the last look. `judged` has what was expected of all jobs of the queue, `times_and_waits` their
    waits by the second of the day (UTC)."""

    def __init__(
        self,
        store: Store,
        model_store: ModelStore,
        observer: Observer,
        clock: Clock,
        judged: Callable[[], Judged | None],
        times_and_waits: Callable[[], Sequence[tuple[float, float]]],
    ) -> None:
        self._store = store
        self._model_store = model_store
        self._observer = observer
        self._clock = clock
        self._judged = judged
        self._times_and_waits = times_and_waits
        self._look = float("-inf")
        self._expected: dict[Geometry, dict[str, Any]] = {}
        self._reliability: dict[str, Any] = {}

    async def expect(self, jobs: object, user: str, *, sooner: bool) -> dict[str, Any]:
        """What each of these jobs (`waits.wishes.FIELDS`) would wait if `user` submitted it now, in their order; with
        `sooner` also what would start sooner. A job that is none, or that no partition starts, has an `error` instead.
        Raises UserError where `jobs` is no list, or too long."""
        if not isinstance(jobs, list):
            raise UserError("jobs: must be a list of jobs")
        if len(jobs) > MOST_JOBS:
            raise UserError(f"jobs: at most {MOST_JOBS} at once, not {len(jobs)}")
        if sooner and len(jobs) > _MOST_SOONER:
            raise UserError(f"sooner: of at most {_MOST_SOONER} jobs at once, not {len(jobs)}")
        snapshot, pace = self._observer.last, Pace()
        self._begin(snapshot)
        found = []
        for job in jobs:
            found.append(await self._answer(job, user, snapshot, pace, sooner=sooner))
        return {**self._frame(snapshot), "reliability": self._reliable(), "jobs": found}

    def owner(self, number: int) -> int | None:
        """The uid of the job's owner; None where the last look has no such job."""
        snapshot = self._observer.last
        job = None if snapshot is None else snapshot.jobs.get(number)
        return None if job is None else job.uid

    def turn(self, number: int, *, seen: bool = True) -> dict[str, Any]:
        """Where this job stands in the queue. Raises NotFound, also where it is not to be `seen` by who asks."""
        snapshot = self._observer.last
        job = None if snapshot is None else snapshot.jobs.get(number)
        if snapshot is None or job is None or not seen:
            raise NotFound(f"there is no job {number} in the last look at the queue")
        name = job.partition.partition(",")[0]
        queue = [one.id for one in snapshot.pending(name)] if job.pending and name in snapshot.partitions else []
        return {
            **self._frame(snapshot),
            "job": job.id,
            "partition": job.partition,
            "pending": job.pending,
            "reason": job.reason,
            "submit": job.submit,
            "place": queue.index(job.id) + 1 if job.id in queue else None,
            "of": len(queue),
            "slurm_start": job.start if job.pending else None,
        }

    def hours(self, offset: float) -> dict[str, Any]:
        """Waits by the hour of the day, by a clock that is `offset` seconds ahead of UTC."""
        return {**self._frame(self._observer.last), "hours": by_hour(self._times_and_waits(), offset)}

    def _frame(self, snapshot: Snapshot | None) -> dict[str, Any]:
        """From when the answer is, what is wrong with it, and what there is to choose from."""
        partitions = [] if snapshot is None else sorted(snapshot.partitions.values(), key=lambda p: p.name)
        return {
            "at": None if snapshot is None else snapshot.taken_at,
            "age": None if snapshot is None else max(self._clock.now() - snapshot.taken_at, 0.0),
            "stale_after": self._observer.stale_after,
            "problems": ["the agent has not looked at Slurm yet"] if snapshot is None else list(snapshot.problems),
            "partitions": [
                {
                    "name": p.name,
                    "nodes": len(p.nodes),
                    "max_nodes": len(p.nodes) if p.max_nodes is None else min(p.max_nodes, len(p.nodes)),
                    "max_time": p.max_time,
                    "default": p.default,
                    "up": p.up,
                }
                for p in partitions
            ],
        }

    def _begin(self, snapshot: Snapshot | None) -> None:
        """Forget what was answered from an earlier look."""
        at = float("-inf") if snapshot is None else snapshot.taken_at
        if at != self._look or len(self._expected) >= _KEPT:
            self._look, self._expected, self._reliability = at, {}, {}

    async def _answer(
        self, job: object, user: str, snapshot: Snapshot | None, pace: Pace, *, sooner: bool
    ) -> dict[str, Any]:
        try:
            geometry = replace(geometry_of_wish(job, snapshot), user=user)
        except UserError as e:
            return {"error": str(e)}
        asked = {"partition": geometry.partition, "nodes": geometry.nodes, "time_limit": geometry.time_limit}
        if snapshot is not None and (reason := misfit(geometry, snapshot)) is not None:
            return {**asked, "error": reason}
        found = await self._expect(geometry, pace)
        if not sooner:
            return {**asked, **found}
        return {**asked, **found, "sooner": await self._sooner(geometry, found, snapshot, pace)}

    async def _sooner(
        self, geometry: Geometry, found: dict[str, Any], snapshot: Snapshot | None, pace: Pace
    ) -> list[dict[str, Any]]:
        """The least shortening of the time limit that starts much sooner, and the partition that starts soonest."""
        if snapshot is None or found["p50"] is None:
            return []
        best: dict[str, tuple[Geometry, dict[str, Any]]] = {}
        for changed in changes(geometry, snapshot):
            what = "time_limit" if changed.partition == geometry.partition else "partition"
            if what == "time_limit" and what in best:
                continue  # longest first: the first that helps is the least change
            other = await self._expect(changed, pace)
            if other["p50"] is None or not is_sooner(found["p50"], other["p50"]):
                continue
            if what not in best or other["p50"] < best[what][1]["p50"]:
                best[what] = changed, other
        return [
            {
                "change": what,
                "partition": changed.partition,
                "time_limit": changed.time_limit,
                "p50": other["p50"],
                "p95": other["p95"],
            }
            for what, (changed, other) in best.items()
        ]

    async def _expect(self, geometry: Geometry, pace: Pace) -> dict[str, Any]:
        known = self._expected  # another request may begin a new look meanwhile
        if geometry not in known:
            known[geometry] = self._predict(geometry)
            await pace.give_way()  # a prediction takes milliseconds
        return known[geometry]

    def _predict(self, geometry: Geometry) -> dict[str, Any]:
        hints, key = self._model_store.hints(geometry), self._model_store.key(geometry)
        like = neighbours(parse(key) or classify(geometry), self._store.learning.wait_keys(), 1)
        own = self._store.learning.waits(key, _JUDGED) if like and not like[0][0] else ()
        known = bool(like) or "queue" in hints or "slurm" in hints
        _, quantiles = predicted(self._model_store, geometry)
        return {
            # What nothing is known of has a guess as well, which is of no use to somebody who has to choose.
            "p50": min(quantiles["50"], _NEVER) if known else None,
            "p95": min(quantiles["95"], _NEVER) if known else None,
            "known_waits": len(own),
            _SHARE: calibration(own)[_SHARE],
            "slurm": hints.get("slurm"),
        }

    def _reliable(self) -> dict[str, Any]:
        """How often predictions held: of all jobs of the queue, where it is watched, else of workflows."""
        if not self._reliability:
            judged = self._judged()
            rows = [] if judged is None else judged.rows()
            said = [(r["queue"], r["wait"], r[BOUND]) for r in rows if r["queue"] is not None and r["wait"] is not None]
            known = [(e, w, b) for e, w, b in said if e is not None and w is not None]
            found = scores(known[-_JUDGED:]) if known else calibration(self._store.learning.waits(None, _JUDGED))
            self._reliability = {name: found[name] for name in ("predictions", "within_10_min", "bounded", _SHARE)}
        return self._reliability
