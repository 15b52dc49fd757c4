"""How dear waits are: an update with a prediction, a learner's place in the store, a view of the queue, a refit.

    python -m penstock_lab.bench.waits

Ends with 1 when a goal is missed. Times are CPU time, the median of 5 rounds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from penstock.api import Geometry, Job, JobState, Node, Partition, Snapshot
from penstock.state.store import Store
from penstock.values.waits import Observation
from penstock.waits.learners.alternatives import LIVE_ALTERNATIVES
from penstock.waits.learners.base import Learner
from penstock.waits.learners.learners import PREDICTORS, make
from penstock.waits.learners.model_store import ModelStore
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_view import FEATURES, View
from penstock.waits.learners.queue_watch import QueueWatch

ROUNDS = 5
GEOMETRIES = 10_000


def timed(work: Callable[[], object], times: int) -> float:
    """Seconds of CPU of one call, the median of the rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(times):
            work()
        rounds.append((time.process_time() - begin) / times)
    return statistics.median(rounds)


def taught(name: str, waits: int = 300) -> tuple[Learner, np.random.Generator]:
    """A learner that has seen waits scattered over the alternatives."""
    learner, rng = make(name, LIVE_ALTERNATIVES), np.random.default_rng(1)
    for wait in (10 ** rng.uniform(1, 4.5, waits)).tolist():
        learner.update(Observation(wait), learner.predict(rng, {"queue": wait, "slurm": 2 * wait}), rng)
    return learner, rng


def once(learner: Learner, rng: np.random.Generator) -> None:
    """A prediction and the update that follows."""
    wait = float(10 ** rng.uniform(1, 4.5))
    learner.update(Observation(wait), learner.predict(rng, {"queue": wait, "slurm": 2 * wait}), rng)


def queue(waiting: int, running: int = 200, nodes: int = 1000) -> Snapshot:
    """A machine full of running jobs, and a queue."""
    rng = np.random.default_rng(2)
    names = tuple(f"n{i}" for i in range(nodes))
    jobs = {}
    for i in range(running + waiting):
        runs = i < running
        held = names[i * nodes // running : (i + 1) * nodes // running] if runs else ()
        jobs[i + 1] = Job(
            i + 1, 1000, f"u{i % 50}", "a", "batch", "normal",
            JobState.RUNNING if runs else JobState.PENDING, "Priority",
            0.0, 0.0, 0.0 if runs else None, 1000.0 + rng.integers(86400) if runs else None,
            float(rng.integers(60, 86400)), len(held) or int(rng.integers(1, 64)), 1, held, int(rng.integers(1, 9999)),
        )  # fmt: skip
    partition = Partition("batch", names, True, True, None, None, None)
    return Snapshot(500.0, jobs, {n: Node(n, "ALLOCATED", 1, True) for n in names}, {"batch": partition})


def fill(path: Path) -> float:
    """Megabytes of a state file with so many geometries, each learned by the default as far as it ever grows."""
    store = Store(path)
    store.connection.execute("PRAGMA synchronous=OFF")
    state = taught("share-mix")[0].to_state()
    models = ModelStore(store.learning, lambda: 1.0, partial(make, "share-mix", LIVE_ALTERNATIVES))
    with store.together():
        for i in range(GEOMETRIES):
            geometry = Geometry(f"p{i % 10}", "normal", 2 ** (i % 11), 3600, account=f"a{i // 110}", cluster="c")
            store.learning.save_learned(f"share-mix {models.key(geometry)}", state, 1.0)
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    return path.stat().st_size / 1e6


def main() -> int:
    """Print the table; 1 if a goal is missed."""
    rows: list[tuple[str, str, float, float | None]] = []
    goals = {"share": 50e-6, "share-mix": 1e-3}
    for name in PREDICTORS:
        learner, rng = taught(name)
        seconds = timed(partial(once, learner, rng), 300)
        rows.append((f"update and prediction, {name}", "us", seconds * 1e6, goals.get(name, 0) * 1e6 or None))
    with tempfile.TemporaryDirectory() as folder:
        rows.append((f"state file with {GEOMETRIES:,} geometries, share-mix", "MB", fill(Path(folder) / "p.db"), 50.0))
        store = Store(Path(folder) / "q.db")
        models = ModelStore(store.learning, lambda: 1.0, partial(make, "share-mix", LIVE_ALTERNATIVES))
        geometry = Geometry("batch", "normal", 4, 3600)
        for _ in range(60):
            models.observe(geometry, Observation(60.0), models.predict(geometry))
        rows.append(
            (
                "prediction through the store, at hand",
                "us",
                timed(lambda: models.predict(geometry), 200) * 1e6,
                None,
            )
        )
        observe = partial(models.observe, geometry, Observation(60.0), models.predict(geometry))
        rows.append(("observation, learned and saved", "us", timed(observe, 50) * 1e6, None))
        fresh = Geometry("batch", "normal", 8, 3600)
        rows.append(
            (
                "start of a fresh geometry from its neighbours",
                "ms",
                timed(lambda: models._read(fresh), 5) * 1e3,
                None,
            )
        )
        store.close()
    watch = QueueWatch(QueueLearner())
    watch.see(queue(1000))
    ask = Geometry("batch", "normal", 4, 3600)
    rows.append(
        ("expectation of a queue of 1,000 waiting jobs", "ms", timed(lambda: watch.expect(ask, "u1"), 20) * 1e3, None)
    )
    expert, rng2 = QueueLearner(), np.random.default_rng(3)
    for row in rng2.uniform(0, 1e5, (15_000, len(FEATURES))).tolist():
        expert.add(View(tuple(row), 5.0), row[4])
    rows.append(("refit of the queue's learner on 15,000 examples", "s", timed(expert.refit, 1), None))
    rows.append(("its state", "MB", len(json.dumps(expert.to_state())) / 1e6, None))
    missed = 0
    print("| what | measured | goal | reached |\n|---|---|---|---|")
    for what, unit, value, goal in rows:
        missed += goal is not None and value > goal
        verdict = "-" if goal is None else "yes" if value <= goal else "NO"
        print(f"| {what} | {value:.3g} {unit} | {'-' if goal is None else f'{goal:g} {unit}'} | {verdict} |")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
