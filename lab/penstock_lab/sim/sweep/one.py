"""Computes one combination of a sweep."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from penstock.errors import PenstockError
from penstock_lab.sim.estimates import parse_estimates
from penstock_lab.sim.loads import at_load
from penstock_lab.sim.replay import replay
from penstock_lab.sim.score import score
from penstock_lab.sim.sweep.grid import Combination
from penstock_lab.sim.swf import Log, load
from penstock_lab.sim.trace import Trace
from penstock_lab.sim.workloads import generate

__all__ = ["COLUMNS", "Row", "compute", "failed"]

Row = dict[str, Any]
"""A line of the result: the names of COLUMNS; None where there is nothing to say."""

COLUMNS: Final[dict[str, type]] = {
    "log": str, "model": str, "procs": int, "jobs": int, "kinds": str, "load": float, "seed": int, "filter": str,
    "estimates": str, "policy": str, "ties": str, "skip_bad": bool,
    "n": int, "dropped": int, "bad_lines": int, "total_wait_s": int, "mean_wait_s": float,
    "mean_bounded_slowdown": float, "utilisation": float, "makespan_s": int, "sha256": str, "cpu_s": float,
    "error": str,
}  # fmt: skip
"""`jobs` are those that a model was asked for, `n` those that were replayed; `cpu_s` is the replay's own time."""


def failed(combination: Combination, error: str) -> Row:
    """The row of a combination that has no figures."""
    return {**dict.fromkeys(COLUMNS), **asdict(combination), "error": error}


def compute(combination: Combination) -> Row:
    """Replay it. What goes wrong is in the row's `error`: one combination does not end a sweep."""
    try:
        return _compute(combination)
    except PenstockError as e:
        return failed(combination, str(e))
    except Exception as e:  # a mistake of ours, or no memory; the other combinations may do
        return failed(combination, f"{type(e).__name__}: {e}")


def _compute(it: Combination) -> Row:
    trace, dropped, bad = _log(it) if it.log is not None else (_model(it), 0, 0)
    estimate = parse_estimates(it.estimates).of(trace, it.seed or 0)
    trace = replace(trace, estimate=estimate)
    began = time.process_time()
    starts = replay(trace, it.procs, it.policy, it.ties)
    took = time.process_time() - began
    result = score(trace, starts, it.procs)
    return {
        **asdict(it),
        "n": result.jobs,
        "dropped": dropped,
        "bad_lines": bad,
        "total_wait_s": result.total_wait,
        "mean_wait_s": result.mean_wait,
        "mean_bounded_slowdown": result.mean_slowdown,
        "utilisation": result.utilisation,
        "makespan_s": result.makespan,
        "sha256": result.sha256,
        "cpu_s": round(took, 3),
        "error": None,
    }


# Combinations with the same jobs come one after the other: what was read or made last is kept.


def _log(it: Combination) -> tuple[Trace, int, int]:
    assert it.log is not None and it.filter is not None
    log = _loaded(it.log, it.procs, it.filter, it.skip_bad)
    trace = log.trace if it.load is None else at_load(log.trace, it.procs, it.load)
    return trace, log.dropped, log.bad


@lru_cache(maxsize=1)
def _loaded(path: str, procs: int, keep: str, skip_bad: bool) -> Log:
    return load(Path(path), procs, keep, "actual" if keep == "singh" else "user", skip_bad)


def _model(it: Combination) -> Trace:
    assert it.model is not None and it.jobs is not None and it.seed is not None
    return _generated(it.model, it.jobs, it.procs, it.seed, it.load, it.kinds or "both")


@lru_cache(maxsize=1)
def _generated(model: str, jobs: int, procs: int, seed: int, load: float | None, kinds: str) -> Trace:
    return generate(model, jobs, procs, seed, load, kinds).trace
