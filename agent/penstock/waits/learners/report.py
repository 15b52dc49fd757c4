"""What there is to tell of waits: an outlook on one job, and how good the predictions have been. Values as for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, Final, Protocol

from penstock.api import Geometry
from penstock.values.waits import Estimate, Known
from penstock.waits.learners.alternatives import log_error
from penstock.waits.learners.base import BOUND, PROMISE
from penstock.waits.learners.geometry import Class, classify, neighbours, parse
from penstock.waits.learners.judged import Judged
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.share_mix import ShareMix

__all__ = ["FLOOR", "accuracy", "calibration", "outlook", "pinball", "predicted", "scores", "survey"]

FLOOR: Final = 60.0
"""Seconds; shorter waits and estimates are taken as this long when they are judged."""

_EXPERTS: Final = ("history", "queue", "slurm")

Rows = Sequence[Mapping[str, Any]]


class ReportedWaits(Protocol):
    """Where observed waits are kept (the agent's store)."""

    def wait_keys(self) -> Sequence[str]:
        """The keys that have any."""
        ...

    def waits(self, key: str | None, limit: int) -> Rows:
        """The latest waits, oldest first: `key`, `estimate`, `bound` and `wait` in seconds, `censored` a `Known`."""
        ...


def pinball(bound: float, wait: float, promise: float = PROMISE) -> float:
    """What a bound costs. With x = log10(wait / bound), both at least `FLOOR`: promise * x if the wait lies beyond it,
    (1 - promise) * -x if within. On average the true quantile costs least."""
    beyond = math.log10(max(wait, FLOOR) / max(bound, FLOOR))
    return max(promise * beyond, (promise - 1.0) * beyond)


def scores(said: Sequence[tuple[float, float, float | None]]) -> dict[str, Any]:
    """How right estimates were, of (estimate, wait, bound) in seconds: how many `predictions`, the mean
    |log10(estimate / wait)| with both at least `FLOOR`, the shares that were off by at most one and ten minutes, the
    share of waits within their bound, which is meant to be 0.95, and the mean `pinball`; None where there are none."""
    bounded = [(bound, wait) for _, wait, bound in said if bound is not None]
    return {
        "predictions": len(said),
        "log10_error": fmean(log_error(estimate, wait, FLOOR) for estimate, wait, _ in said) if said else None,
        "within_1_min": fmean(abs(estimate - wait) <= 60 for estimate, wait, _ in said) if said else None,
        "within_10_min": fmean(abs(estimate - wait) <= 600 for estimate, wait, _ in said) if said else None,
        "bounded": len(bounded),
        "coverage_95": fmean(wait <= bound for bound, wait in bounded) if bounded else None,
        "pinball_95": fmean(pinball(*each) for each in bounded) if bounded else None,
    }


def calibration(rows: Rows) -> dict[str, Any]:
    """The `scores` of the exact waits among these that were predicted."""
    exact = [row for row in rows if row["censored"] == Known.EXACT and row["estimate"] is not None]
    return scores([(row["estimate"], row["wait"], row["bound"]) for row in exact])


def accuracy(own: Rows, slurm: Judged, queue: Judged | None) -> list[dict[str, Any]]:
    """How right who was, of which jobs. `jobs` is "predicted" (the `own` waits, kept by the store) or "all" (those of
    the queue that were seen to come and to start). Where Slurm said something, too, both are judged `beside` each other
    on the same jobs."""
    told = [{"jobs": "predicted", "who": "penstock", "beside": None, **calibration(own)}]
    told += _beside("predicted", slurm, "penstock", None, "slurm", "sbatch --test-only")
    if queue is not None:
        said = [(r["queue"], r["wait"], r[BOUND]) for r in queue.rows()]
        known = [(estimate, wait, bound) for estimate, wait, bound in said if estimate is not None and wait is not None]
        told.append({"jobs": "all", "who": "penstock", "beside": None, **scores(known)})
        told += _beside("all", queue, "queue", BOUND, "squeue", "squeue --start")
    return told


def _beside(jobs: str, judged: Judged, ours: str, bound: str | None, theirs: str, command: str) -> list[dict[str, Any]]:
    """Both on the jobs of which both said something."""
    mine: list[tuple[float, float, float | None]] = []
    slurms: list[tuple[float, float, float | None]] = []
    for row in judged.rows():
        wait, own, other = row["wait"], row[ours], row[theirs]
        if wait is not None and own is not None and other is not None:
            mine.append((own, wait, row[bound] if bound else None))
            slurms.append((other, wait, None))
    return [
        {"jobs": jobs, "who": "penstock", "beside": command, **scores(mine)},
        {"jobs": jobs, "who": command, "beside": "penstock", **scores(slurms)},
    ]


def survey(kept: ReportedWaits, limit: int = 50_000) -> dict[str, Any]:
    """The newest waits by class of geometries, those with the most first, and the calibration over all of them."""
    rows = kept.waits(None, limit)
    by_key: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(row["key"], []).append(row)
    classes = [(found, own) for key, own in by_key.items() if (found := parse(key)) is not None]
    classes.sort(key=lambda item: (-len(item[1]), item[0].key))
    return {
        "calibration": calibration(rows),
        "geometries": [
            {
                **_described(found),
                "waits": len(own),
                "last": own[-1]["wait"],
                "median": median(row["wait"] for row in own),
                **calibration(own),
            }
            for found, own in classes
        ],
    }


def _described(found: Class) -> dict[str, Any]:
    """A class in words: its nodes from and to, its longest time limit in seconds (None: no end)."""
    longest = 900.0 * 2.0**found.limit if found.limit < 12 else None
    return {
        "cluster": found.cluster,
        "partition": found.partition,
        "qos": found.qos,
        "account": found.account,
        "user": found.user,
        "nodes": [2**found.size, 2 ** (found.size + 1) - 1],
        "time_limit": longest,
        "gres": found.gres,
        "memory_gb": 2**found.memory if found.memory >= 0 else None,
        "features": found.features,
        "fair_share_band": found.band if found.band >= 0 else None,
    }


def outlook(model_store: ModelStore, kept: ReportedWaits, geometry: Geometry) -> dict[str, Any]:
    """The wait (s) to expect of a job of this geometry that is submitted now, and what that is based on."""
    learner, key = model_store.learner(geometry), model_store.key(geometry)
    estimate, quantiles = predicted(model_store, geometry)
    found = parse(key) or classify(geometry)
    like = neighbours(found, kept.wait_keys(), 4)
    return {
        "predictor": model_store.name,
        "partition": geometry.partition,
        "nodes": geometry.nodes,
        "time_limit": geometry.time_limit,
        "estimate": estimate.seconds,
        "quantiles": quantiles,
        "known_waits": len(kept.waits(key, 10_000)) if any(not apart for apart, _ in like) else 0,
        "like_geometries": sum(1 for apart, _ in like if apart),
        "experts": {name: estimate.said[name] for name in _EXPERTS if name in estimate.said},
        "trust": learner.weights() if isinstance(learner, ShareMix) else {},
        "calibration": calibration(kept.waits(key, 10_000)),
    }


def predicted(model_store: ModelStore, geometry: Geometry) -> tuple[Estimate, dict[str, float]]:
    """The wait (s) to expect of a job of this geometry that is submitted now, and its quantiles by their percent."""
    estimate = model_store.predict(geometry)
    spread = model_store.around(geometry, estimate)
    half = estimate.seconds
    most = max(half, estimate.said.get(BOUND, spread.quantile(0.95)))
    return estimate, {"50": half, "75": min(max(half, spread.quantile(0.75)), most), "95": most}
