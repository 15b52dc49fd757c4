"""The replay of a queue's future, against the laboratory's EASY and by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from given_futures import Arrival, Given
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import Partition, Reservation
from penstock.core.pace import at_once
from penstock.future.cluster import Cluster
from penstock.future.drawn import OwnJob, Span
from penstock.future.present import Present, Running, Waiting
from penstock.future.replay import replay
from penstock_lab.sim.replay import replay as in_the_laboratory
from penstock_lab.sim.trace import Trace
from penstock_lab.testing import NODES, make_job, make_snapshot


def present(procs, running=(), waiting=(), now=0.0):
    """One area: running as (nodes, end by the limit), waiting as (nodes, limit)."""
    held = tuple(Running((n,), now, end - now, end) for n, end in running)
    queue = tuple(Waiting(n, 0, limit, now) for n, limit in waiting)
    return Present(now, (1,), ((0,),), (procs - sum(n for n, _ in running),), held, queue, (), {"batch": 0})


def spans(*args, **options):
    return at_once(replay(*args, **options))


@st.composite
def traces(draw):
    procs = draw(st.integers(1, 12))
    jobs = draw(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(1, procs), st.integers(1, 30), st.integers(0, 30)),
            min_size=1,
            max_size=25,
        )
    )
    return procs, [(submit, nodes, run, run + more) for submit, nodes, run, more in sorted(jobs, key=lambda j: j[0])]


def _agrees(procs, jobs, ours, policy="replan"):
    """Whether the job at place `ours` starts when the laboratory has it start; those before it in the same second, too.

    Ours are submitted at the beginning, so all jobs before it in the trace wait at that moment.
    """
    trace = Trace.of((i, submit, run, nodes, limit) for i, (submit, nodes, run, limit) in enumerate(jobs))
    starts = in_the_laboratory(trace, procs, policy, ties="batch")
    waiting, mine, coming = jobs[:ours], jobs[ours], jobs[ours + 1 :]
    drawn = Given(
        runs=[float(run) for _, _, run, _ in waiting],
        arrivals=[Arrival(float(s), n, 0, float(limit), float(run)) for s, n, run, limit in coming],
    )
    seen = present(procs, waiting=[(nodes, float(limit)) for _, nodes, _, limit in waiting])
    protect = 1 if policy == "easy" else float("inf")
    found = spans(seen, drawn, [OwnJob(mine[1], float(mine[3]), float(mine[2]))], protect=protect, depth=1000)
    assert found[0].start == starts[ours]
    assert found[0].end == starts[ours] + mine[2]


@settings(deadline=None, max_examples=150)
@given(traces(), st.integers(0, 24), st.sampled_from(["easy", "replan"]))
def test_it_agrees_with_the_laboratory_to_the_second(drawn, place, policy):
    procs, jobs = drawn
    ours = min(place, len(jobs) - 1)
    jobs = [(0 if i <= ours else max(submit, 1), *rest) for i, (submit, *rest) in enumerate(jobs)]
    _agrees(procs, jobs, ours, policy)


@pytest.mark.parametrize("policy", ["easy", "replan"])
def test_it_agrees_on_a_longer_queue(policy):
    rng = random.Random(5)
    jobs = []
    for i in range(400):
        run = rng.randint(1, 3000)
        submit = 0 if i < 80 else 1 + (i - 80) * 40
        jobs.append((submit, rng.choice((1, 1, 2, 4, 8, 16, 30)), run, rng.randint(run, 4 * run)))
    for ours in (0, 20, 79):
        _agrees(32, jobs, ours, policy)


# -- ours, in order ----------------------------------------------------------------------------------------------------


def test_a_job_comes_when_those_it_depends_on_have_ended():
    jobs = [OwnJob(2, 20.0, 10.0), OwnJob(1, 20.0, 5.0), OwnJob(1, 9.0, 9.0, (0, 1))]
    assert spans(present(3), Given(), jobs) == [Span(0.0, 10.0), Span(0.0, 5.0), Span(10.0, 19.0)]


@pytest.mark.parametrize(("by_submission", "start"), [(False, 60.0), (True, 10.0)])
def test_a_dependent_job_stands_behind_those_who_came_before_it_was_eligible_or_not(by_submission, start):
    """One node: ours runs to 10, another has come at 5 and asks for 50 s."""
    drawn = Given(arrivals=[Arrival(5.0, 1, 0, 50.0, 50.0)])
    jobs = [OwnJob(1, 10.0, 10.0), OwnJob(1, 10.0, 10.0, (0,))]
    assert spans(present(1), drawn, jobs, by_submission=by_submission)[1].start == start


def test_who_waits_already_stands_before_ours_and_what_may_start_later_keeps_its_place():
    seen = present(1, waiting=[(1, 10.0), (1, 10.0)])
    later = (seen.waiting[0]._replace(after=15.0), seen.waiting[1])
    seen = Present(0.0, (1,), ((0,),), (1,), (), later, (), {})
    # the second runs to 10, ours to 40; the first may start at 15, and must wait for ours
    assert spans(seen, Given(runs=[10.0, 10.0]), [OwnJob(1, 30.0, 30.0)])[0].start == 10.0
    # it stands before those of ours that come later
    jobs = [OwnJob(1, 30.0, 30.0), OwnJob(1, 1.0, 1.0, (0,))]
    assert spans(seen, Given(runs=[10.0, 10.0]), jobs, by_submission=True)[1].start == 50.0


def test_what_never_starts_has_no_end_and_ends_the_replay():
    assert spans(present(2), Given(), [OwnJob(3, 1.0, 1.0)]) == [Span(float("inf"), float("inf"))]
    stuck = present(2, running=[(1, float("inf"))])
    assert spans(stuck, Given(ends=[float("inf")]), [OwnJob(2, 1.0, 1.0), OwnJob(1, 1.0, 1.0)])[1].start == 0.0


def test_a_job_that_ends_early_gives_its_nodes_back_early():
    seen = present(4, running=[(4, 100.0)])
    assert spans(seen, Given(ends=[30.0]), [OwnJob(4, 10.0, 10.0)])[0].start == 30.0


# -- what a cluster shows ----------------------------------------------------------------------------------------------


def shown(jobs, at=0.0, partitions=None, reservations=(), down=()):
    snapshot = make_snapshot(jobs, at=at, down=down)
    known = {
        name: Partition(name, tuple(nodes), True, name == "batch", None, 600.0, None)
        for name, nodes in (partitions or {"batch": NODES}).items()
    }
    return Cluster.of(replace(snapshot, partitions=known, reservations=tuple(reservations)))


def test_the_present_of_a_cluster():
    jobs = [
        make_job(1, "n1", "n2", start=-100.0, end=500.0, time_limit=600.0),
        make_job(2, num_nodes=7, time_limit=50.0, priority=9),
        make_job(3, num_nodes=1, time_limit=60.0, tasks=3, priority=8),
        make_job(4, num_nodes=1, eligible=None),
    ]
    seen = Present.of(shown(jobs, down=["n8"]), "batch")
    assert seen.free == (5,) and seen.areas == ((1 << 8) - 1,)
    assert seen.running == (Running((2,), -100.0, 600.0, 500.0, user="alice"),)
    assert [(w.nodes, w.limit) for w in seen.waiting] == [(7, 50.0)] + 3 * [(1, 60.0)]
    assert {w.user for w in seen.waiting} == {"alice"}
    assert seen.left_out == 1 and not seen.shared
    with pytest.raises(ValueError, match="'none' has no nodes"):
        Present.of(shown(jobs), "none")


def test_partitions_that_share_nodes_are_counted_together_and_others_left_out():
    partitions = {"batch": NODES[:4], "wide": NODES[:6], "far": NODES[6:]}
    jobs = [
        make_job(1, "n1", partition="wide", end=100.0, time_limit=100.0),
        make_job(2, "n7", partition="far", end=100.0),
        make_job(3, num_nodes=6, partition="wide", time_limit=10.0, priority=9),
        make_job(4, num_nodes=9, partition="far", priority=8),
    ]
    cluster = shown(jobs, partitions=partitions)
    seen = Present.of(cluster, "batch")
    assert dict(seen.by_partition) == {"batch": 0, "wide": 1}
    assert sorted(zip(seen.cells, seen.free, strict=True)) == [((0, 1), 3), ((1,), 2)]
    assert [w.nodes for w in seen.waiting] == [6]
    # Job 3 needs all six nodes at 100: who would delay it must wait until it has ended, also in the other partition.
    drawn = Given(ends=[100.0], runs=[10.0])
    assert spans(seen, drawn, [OwnJob(2, 99.0, 1.0)])[0].start == 0.0
    assert spans(seen, drawn, [OwnJob(2, 101.0, 1.0)])[0].start == 110.0


def test_a_job_of_the_wider_partition_takes_first_what_the_other_cannot_use():
    cluster = shown(
        [make_job(3, num_nodes=2, partition="wide", time_limit=10.0)], partitions={"batch": NODES[:6], "wide": NODES}
    )
    seen = Present.of(cluster, "batch")
    assert spans(seen, Given(runs=[10.0]), [OwnJob(6, 10.0, 10.0)])[0].start == 0.0


def test_no_job_starts_that_could_reach_into_a_reservation():
    maintenance = Reservation("m", 100.0, 200.0, NODES, frozenset({"root"}), frozenset(), frozenset(), False)
    seen = Present.of(shown([], reservations=[maintenance]), "batch")
    assert spans(seen, Given(), [OwnJob(8, 100.0, 5.0)])[0].start == 0.0
    assert spans(seen, Given(), [OwnJob(8, 101.0, 5.0)])[0].start == 200.0
    half = replace(maintenance, nodes=NODES[:4])
    seen = Present.of(shown([make_job(9, num_nodes=3, time_limit=500.0)], reservations=[half]), "batch")
    assert spans(seen, Given(runs=[300.0]), [OwnJob(1, 500.0, 5.0)])[0].start == 0.0
    # two more could reach into it only on nodes of the reservation
    assert spans(seen, Given(runs=[300.0]), [OwnJob(2, 500.0, 5.0)])[0].start == 200.0


def test_nodes_of_a_reservation_in_force_come_back_with_its_end():
    held = Reservation("m", -10.0, 50.0, NODES[:6], frozenset({"root"}), frozenset(), frozenset(), True)
    inside = make_job(1, "n1", "n2", start=-10.0, end=40.0, time_limit=50.0, reservation="m")
    seen = Present.of(shown([inside], reservations=[held]), "batch")
    assert seen.free == (2,)
    found = spans(seen, Given(ends=[20.0]), [OwnJob(2, 9.0, 9.0), OwnJob(8, 10.0, 10.0)])
    assert [span.start for span in found] == [0.0, 50.0]
