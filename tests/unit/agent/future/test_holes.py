"""How much later a job starts for asking for a longer time, in a plan by nodes."""

from __future__ import annotations

import math

from penstock.future.cluster import Cluster
from penstock.future.holes import Longer, delays
from penstock_lab.testing import make_job, make_snapshot

NODES = ("n1", "n2", "n3", "n4")


def queue(*waiting, **more):
    """Of four nodes two are taken until 100; others of (nodes, seconds) wait."""
    jobs = [make_job(1, "n3", "n4", start=-100.0, end=100.0, time_limit=200.0)]
    jobs += [make_job(2 + i, num_nodes=n, time_limit=t, priority=9 - i, **more) for i, (n, t) in enumerate(waiting)]
    return Cluster.of(make_snapshot(jobs, nodes=NODES))


def test_enough_free_nodes_at_every_instant_need_not_be_the_same_ones():
    # One node is free all the time, but n1 and n2 are promised from 100 to 200, and n4 is taken until 100.
    cluster = queue((3, 100.0))
    assert delays(cluster, "batch", [Longer(1, 100.0, 250.0), Longer(1, 50.0, 100.0)]) == [100.0, 0.0]


def test_with_nobody_waiting_no_limit_is_too_long():
    assert delays(queue(), "batch", [Longer(2, 100.0, 1e9)]) == [0.0]


def test_what_never_starts_is_infinitely_late():
    assert delays(queue((4, math.inf)), "batch", [Longer(2, 100.0, 250.0)]) == [math.inf]


def test_all_tasks_of_an_array_are_placed_before_it():
    one, two = queue((1, 100.0), (4, 100.0)), queue((1, 100.0), (4, 100.0), tasks=2)
    wish = [Longer(1, 100.0, 150.0)]
    assert delays(one, "batch", wish) == [200.0], "n2 is left until 100"
    assert delays(two, "batch", wish) == [0.0], "no node is, so that neither time finds a hole before 200"
