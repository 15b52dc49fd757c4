"""With which shape a job ends first, by plans worked out by hand on eight nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.future.cluster import Cluster
from penstock.resize.waiting.choose import DELAY, RESTART, choose, choose_new, choose_restart
from penstock.resize.waiting.model import MoldableJob, MoldShape, read_shapes
from penstock_lab.testing import NODES, make_job, make_snapshot

HOUR = 3600.0
SHAPES = read_shapes("2:8h,4:4h,8:2h")


def waiting(number=10, nodes=2, hours=8.0, **more):
    return make_job(number, num_nodes=nodes, time_limit=hours * HOUR, uid=1000, **more)


def running(number, count, hours, first=0):
    return make_job(number, *NODES[first : first + count], end=hours * HOUR, time_limit=hours * HOUR)


def chosen(jobs, me=None, **partition):
    me = me or MoldableJob(10, 1000, SHAPES)
    snapshot = make_snapshot(jobs)
    if partition:
        changed = replace(snapshot.partitions["batch"], **partition)
        snapshot = replace(snapshot, partitions={"batch": changed})
    found = choose(Cluster.of(snapshot), {me.job: me})
    return found.get(me.job)


def test_on_an_empty_cluster_the_fastest_shape_is_taken():
    choice = chosen([waiting()])
    assert (choice.shape, choice.start, choice.end, choice.instead) == (MoldShape(8, 2 * HOUR), 0.0, 2 * HOUR, 8 * HOUR)


def test_a_start_now_on_fewer_nodes_beats_a_late_one_on_many():
    # Four nodes are free, the others for five hours more: 8 nodes would end at 7 h.
    choice = chosen([running(1, 4, 5.0), waiting(nodes=8, hours=2.0)])
    assert (choice.shape.nodes, choice.end, choice.instead) == (4, 4 * HOUR, 7 * HOUR)


def test_it_is_worth_waiting_for_many_where_that_ends_sooner():
    # Two nodes are free now and end at 8 h; all eight are free in an hour, and end at 3 h.
    assert chosen([running(1, 6, 1.0), waiting()]).shape.nodes == 8


def test_it_keeps_its_shape_where_little_is_gained():
    # With 4 it would end at 4 h, with 8 at 3 h 50 min.
    jobs = [running(1, 4, 1.0 + 50 / 60), waiting(nodes=4, hours=4.0)]
    assert chosen(jobs) is None
    assert chosen([running(1, 4, 1.5), *jobs[1:]]).shape.nodes == 8


def test_nobody_before_it_is_moved():
    # A job of eight nodes waits before it, and starts at 1 h: what fits before or behind it is left.
    first = make_job(5, num_nodes=8, time_limit=HOUR, priority=200)
    choice = chosen(
        [running(1, 2, 1.0), first, waiting(nodes=2, hours=0.5)], MoldableJob(10, 1000, read_shapes("2:30m,4:20m,8:5m"))
    )
    assert (choice.shape.nodes, choice.end) == (4, 20 * 60.0)


def test_what_the_partition_or_slurm_does_not_give_is_not_asked_for():
    assert chosen([waiting()], max_nodes=4).shape.nodes == 4
    assert chosen([waiting(nodes=8, hours=2.0)], max_time=3 * HOUR) is None
    assert chosen([waiting()], MoldableJob(10, 1000, SHAPES, refused=(8,))).shape.nodes == 4


@pytest.mark.parametrize("reason", ["Dependency", "JobHeldUser", "Licenses", "QOSMaxNodePerUserLimit"])
def test_who_waits_for_something_else_is_left(reason):
    assert chosen([waiting(reason=reason)]) is None


def test_a_job_that_was_put_back_counts_from_now_with_what_is_left():
    me = MoldableJob(10, 1000, SHAPES, asked=2, done=0.5)
    row = waiting(reason="BeginTime", eligible=120.0, restarts=1, nodes=4, hours=8.0)
    choice = chosen([row], me)
    assert (choice.shape.nodes, choice.start) == (8, 120.0)  # when Slurm lets it
    assert (choice.end, choice.instead) == (120.0 + HOUR, 120.0 + 4 * HOUR)


def test_two_jobs_are_planned_one_after_the_other():
    snapshot = make_snapshot([waiting(10, priority=20), waiting(11, priority=10)])
    jobs = {n: MoldableJob(n, 1000, SHAPES) for n in (10, 11)}
    found = choose(Cluster.of(snapshot), jobs)
    assert [(found[n].shape.nodes, found[n].start) for n in (10, 11)] == [(8, 0.0), (8, 2 * HOUR)]


def test_a_new_job_stands_behind_all_others():
    snapshot = make_snapshot([make_job(5, num_nodes=6, time_limit=10 * HOUR)])
    assert choose_new(Cluster.of(snapshot), "batch", SHAPES).shape.nodes == 2
    assert choose_new(Cluster.of(snapshot), "", SHAPES).shape.nodes == 2
    assert choose_new(Cluster.of(make_snapshot()), "nowhere", SHAPES).shape.nodes == 8


class TestRestart:
    """A job that has run for an hour of its eight on two nodes."""

    ME = MoldableJob(10, 1000, SHAPES)

    def choice(self, *others, me=ME, hours=8.0, at=HOUR, count=2):
        job = make_job(10, *NODES[:count], start=0.0, end=hours * HOUR, time_limit=hours * HOUR, num_nodes=count)
        return choose_restart(Cluster.of(make_snapshot([job, *others], at=at)), job, me, 600.0)

    def test_it_pays_where_all_is_free(self):
        choice = self.choice()
        assert (choice.shape.nodes, choice.start) == (8, HOUR + DELAY)
        assert choice.end == pytest.approx(HOUR + DELAY + RESTART + 7 / 8 * 2 * HOUR)
        assert choice.instead == 8 * HOUR

    def test_it_does_not_where_others_wait(self):
        first = make_job(5, num_nodes=8, time_limit=20 * HOUR)
        assert self.choice(first) is None

    def test_those_before_it_may_take_its_nodes(self):
        # Two nodes are what the first in line waits for: they are taken into account as gone.
        first = make_job(5, num_nodes=2, time_limit=20 * HOUR)
        assert self.choice(running(1, 6, 20.0, first=2), first) is None

    def test_it_does_not_near_its_end(self):
        assert self.choice(at=7.8 * HOUR) is None

    def test_nor_where_its_size_is_none_of_its_own(self):
        assert self.choice(count=3) is None


@given(
    busy=st.integers(0, 8),
    until=st.integers(1, 600),
    ahead=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 300)), max_size=4),
)
def test_no_shape_ends_sooner_than_the_one_that_is_chosen_for_a_new_job(busy, until, ahead):
    jobs = [running(1, busy, until / 60.0)] if busy else []
    jobs += [make_job(20 + i, num_nodes=n, time_limit=60.0 * m, priority=500 - i) for i, (n, m) in enumerate(ahead)]
    cluster = Cluster.of(make_snapshot(jobs))
    best = choose_new(cluster, "batch", SHAPES)
    assert best.end == min(choose_new(cluster, "batch", [shape]).end for shape in SHAPES)
