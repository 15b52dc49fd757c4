"""The simulated clusters behind `penstock bench provision`: nobody is lost, and best effort is what the queue gives."""

from __future__ import annotations

import random

from penstock.bench.provision_world import World, best_effort, with_second_copy
from penstock.provision.dag import one_site
from penstock.sim.replay import replay
from penstock.sim.trace import Trace


def some_jobs(count=300, seed=4):
    rng = random.Random(seed)
    return sorted((rng.randint(0, 20_000), rng.randint(1, 900), rng.randint(1, 8)) for _ in range(count))


def test_figure_2_keeps_the_machine_like_conservative_backfilling():
    """Starts may differ a little, for the table keeps processors apart; the work and the ends nearly agree."""
    jobs = some_jobs()
    world = World(8, jobs)
    counts = []
    for submit, _, _ in jobs:
        world.to(submit)
        counts.append(len(world.advertised()))
    trace = Trace.of((i, s, r, p, r) for i, (s, r, p) in enumerate(jobs))
    starts = replay(trace, 8, "conservative")
    ours = max(world.ends)
    theirs = max(start + run for start, (_, run, _) in zip(starts, jobs, strict=True))
    assert abs(ours - theirs) < 0.1 * theirs
    assert max(counts) > 2


def test_best_effort_alone_and_among_others():
    dag = one_site([("a", 8, 10, ()), ("b", 8, 10, ("a",))])
    empty = World(8, [(0, 1, 1)])
    assert best_effort(empty.copy(), dag, 100) == 20
    busy = World(8, [(0, 1, 1), (105, 50, 8)])
    assert best_effort(busy, dag, 100) == 70  # the other comes while the first task runs, and is ahead of the second


def test_a_second_copy_comes_a_week_later():
    jobs = some_jobs(100)
    more = with_second_copy(jobs, 0.5, 1)
    assert 120 < len(more) < 180 and more == sorted(more)
    assert with_second_copy(jobs, 0, 1) == jobs
