"""What is left over for growth: examples by hand, and that nobody's promised start moves, whatever the queue."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mock_world import World
from named_profile import Profile

from penstock.api import Allocation, JobState, Partition, Reservation, Snapshot
from penstock.future.leftover import Leftover
from penstock.future.planner import Ask, Backfill
from penstock.future.queue import later, waiting
from penstock.future.turns import Turns, grant_of, turn_of
from penstock.slurm.states import parse_node_state
from penstock_lab.mock import views
from penstock_lab.mock.model import Scheduler
from penstock_lab.testing import make_job, make_snapshot

NOW, TURN = 10_000.0, 90.0


def waits(number, nodes, limit=3600.0, **more):
    """A job that Slurm has looked at long ago."""
    return make_job(number, **{"num_nodes": nodes, "time_limit": limit, **more})


def picture(*jobs, idle_since=0.0, **states):
    """Eight nodes at NOW; `states` are those of some that are not simply idle."""
    seen = make_snapshot(jobs, at=NOW)
    nodes = {
        n: replace(
            node,
            state=states.get(n, "IDLE"),
            idle_since=idle_since,
            usable=parse_node_state(states.get(n, "IDLE")).usable,
        )
        for n, node in seen.nodes.items()
    }
    return replace(seen, nodes=nodes)


def room(snapshot, until=3600.0, partition="batch"):
    """How many nodes are left over for a job that may run for so many more seconds, and the code of the reason."""
    turns = Turns(snapshot, TURN)
    me = make_job(99, "elsewhere", end=NOW + until, partition=partition)
    found = Leftover(turns.believed(), turns).room(me)
    return found.nodes, found.reason.code


def test_all_that_is_idle_is_left_over_while_nobody_waits():
    assert room(picture(make_job(1, "n1", "n2", end=NOW + 60))) == (6, "promised")


def test_nodes_that_are_cleared_planned_reserved_or_asleep_are_not():
    states = {"n1": "IDLE+COMPLETING", "n2": "IDLE+PLANNED", "n3": "IDLE+RESERVED", "n4": "IDLE+POWERED_DOWN"}
    seen = picture(**states)
    assert room(seen)[0] == 4
    assert seen.idle_nodes("batch") == ("n2", "n4", "n5", "n6", "n7", "n8")


def test_nothing_is_left_over_in_the_second_after_an_end():
    # As recorded on Slurm 22.05.8: two nodes became idle a moment ago, and the estimates are those of before.
    ahead = [make_job(1, "n1", "n4", "n5", end=NOW + 900), make_job(6, "n6", "n7", "n8", end=NOW + 590)]
    queue = [waits(n, 2, 600.0, start=NOW + 340 + 300 * n, reason="Priority", submit=NOW - 100) for n in range(7, 17)]
    seen = picture(*ahead, *queue, idle_since=NOW - 1)
    assert all(later(j, seen) for j in waiting(seen, "batch"))
    believed = Turns(seen, TURN).believed()
    assert not any(later(j, believed) for j in waiting(believed, "batch"))
    assert room(seen) == (0, "slurm-first")


def test_a_job_that_slurm_has_passed_over_keeps_what_it_was_promised_and_no_more():
    ahead = make_job(1, "n1", "n2", "n3", "n4", end=NOW + 300)
    # It could do with the four that are idle, but Slurm knows better: it needs something that comes free in 300 s.
    picky = waits(2, 3, 600.0, start=NOW + 300.0, submit=NOW - 500)
    assert room(picture(ahead, picky), until=300.0) == (4, "promised")
    assert room(picture(ahead, picky), until=301.0) == (4, "promised"), "n1 to n4 serve it, too"
    wide = replace(picky, num_nodes=6)
    assert room(picture(ahead, wide), until=300.0) == (4, "promised")
    assert room(picture(ahead, wide), until=301.0) == (2, "promised")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"submit": NOW - 10}, "slurm-first"),  # it has come a moment ago
        ({"eligible": NOW - 10}, "slurm-first"),
        ({"reason": "BeginTime"}, "promised"),
        ({"reason": "QOSMaxJobsPerUserLimit"}, "promised"),
        ({"num_nodes": 9, "min_nodes": 2, "submit": NOW - 10}, "slurm-first"),
        ({"num_nodes": 9, "submit": NOW - 10}, "promised"),
        ({"reservation": "mine", "submit": NOW - 10}, "promised"),
        ({"dependency": "expand:99", "submit": NOW - 10}, "promised"),
        ({"partition": "nosuch", "submit": NOW - 10}, "promised"),
    ],
)
def test_who_waits_for_nodes_and_fits_has_its_turn_first(changes, code):
    assert room(picture(waits(1, 2, **changes)))[1] == code


def test_where_slurm_does_not_say_since_when_a_node_is_idle_who_fits_comes_first():
    assert room(picture(waits(1, 2), idle_since=None)) == (0, "slurm-first")


def test_a_job_that_begins_later_gets_its_nodes_then():
    later = waits(1, 6, start=NOW + 500.0, reason="BeginTime", eligible=NOW + 500)
    assert [room(picture(later), until=u)[0] for u in (500.0, 501.0)] == [8, 2]


def test_nodes_are_kept_for_a_reservation_and_for_each_task_of_an_array():
    held = Reservation("r", NOW + 50, NOW + 99, ("n7", "n8"), frozenset(), frozenset(), frozenset(), False)
    assert room(replace(picture(), reservations=(held,)), until=51.0)[0] == 6
    ahead = make_job(1, "n1", "n2", "n3", end=NOW + 300)
    tasks = waits(2, 6, 100.0, tasks=3)
    assert [room(picture(ahead, tasks), until=u)[0] for u in (300.0, 301.0)] == [5, 2]
    small = waits(2, 1, 100.0, tasks=3, start=NOW + 300)
    busy = make_job(3, "n4", "n5", "n6", "n7", end=NOW + 900)
    assert [room(picture(ahead, busy, small), until=u)[0] for u in (300.0, 301.0)] == [1, 1]
    assert room(picture(ahead, busy, replace(small, tasks=4)), until=301.0)[0] == 0


def test_a_job_without_a_limit_keeps_its_nodes_for_ever():
    turns = Turns(picture(waits(1, 8), make_job(2, "n1", end=NOW + 60)), TURN)
    endless = make_job(99, "elsewhere", end=None)
    assert Leftover(turns.believed(), turns).room(endless).nodes == 0


def test_partitions_that_share_nodes_are_planned_together_and_others_are_nobodys_business():
    seen = picture(make_job(1, "n5", "n6", "n7", "n8", end=NOW + 600, partition="right"))
    names = tuple(seen.nodes)
    parts = {"left": names[:4], "middle": names[2:6], "right": names[4:]}
    seen = replace(seen, partitions={n: Partition(n, ns, True, False, None, None, None) for n, ns in parts.items()})

    def left(partition, *queue, until=3600.0):
        return room(replace(seen, jobs={**seen.jobs, **{j.id: j for j in queue}}), until, partition)[0]

    assert left("left") == 4
    # Four of the middle are to be had when the right ones are free, and two of them are left ones.
    assert left("left", waits(2, 4, partition="middle")) == 2
    # Who waits for the right ones comes before, and has them for an hour.
    both = waits(2, 4, priority=200, partition="right"), waits(3, 4, partition="middle")
    assert [left("left", *both, until=u) for u in (4200.0, 4201.0)] == [4, 2]
    # Of a partition with other nodes nobody takes any.
    alone = replace(seen, partitions={k: v for k, v in seen.partitions.items() if k != "middle"})
    assert room(replace(alone, jobs={**seen.jobs, 2: waits(2, 4, partition="right")}), partition="left")[0] == 4


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [
        ((), 90.0),
        (("bf_interval=1", "sched_interval=2", "bf_continue"), 3.0),
        (("bf_interval=60", "bf_max_time=30"), 120.0),
        (("bf_interval=10", "sched_interval=300"), 300.0),
        (("bf_interval=ten",), 90.0),
    ],
)
def test_how_long_slurm_takes_to_look_at_all(parameters, seconds):
    assert turn_of(frozenset(parameters)) == seconds


# -- nobody's start moves ----------------------------------------------------------------------------------------------

running = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), max_size=4)  # nodes, seconds to the limit
queues = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 60)), max_size=8)  # nodes, limit


@given(running, queues, st.integers(1, 120), st.permutations(range(8)))
@example([], [(3, 1), (6, 1), (1, 2), (1, 2)], 1, [0, 1, 6, 3, 4, 5, 2, 7])
def test_the_plan_with_the_growth_in_it_is_the_plan_without(busy, queue, until, order):
    nodes = [f"n{i + 1}" for i in range(8)]
    taken, jobs = 0, []
    for number, (width, seconds) in enumerate(busy):
        if mine := nodes[taken : taken + width]:
            jobs.append(make_job(100 + number, *mine, end=NOW + seconds))
            taken += width
    jobs += [waits(n, width, float(limit), priority=1000 - n) for n, (width, limit) in enumerate(queue)]
    seen = picture(*jobs)
    left, _ = room(seen, float(until))
    for protected in (math.inf, 1):  # conservative, EASY
        before, free = _starts(seen, None, protected)
        # The request comes last: Slurm chooses among the nodes that its own plan leaves free for that long.
        spare = free.free_during(NOW, NOW + until)
        idle = [n for i in order if (n := f"n{i + 1}") in spare and n in seen.idle_nodes()]
        after, _ = _starts(seen, make_job(98, *idle[:left], end=NOW + until) if left else None, protected)
        promised = before if protected == math.inf else dict(list(before.items())[:1])
        assert all(after.get(n, math.inf) <= at for n, at in promised.items()), (before, after, left)


def _starts(snapshot, growth, protected):
    """When those who wait would start by another planner than the one in question, and what is free beside them."""
    profile = Profile(list(snapshot.nodes), NOW)
    for job in [*snapshot.jobs.values(), *([growth] if growth else [])]:
        if job.state.holds_nodes:
            profile.claim(job.nodes, NOW, job.end)
    planner = Backfill(protected)
    planner.renew(profile.bits, (), NOW)
    asks = [Ask(j.id, j.num_nodes, j.time_limit or 0.0, profile.numbering.all) for j in snapshot.pending()]
    return {placed.id: placed.start for ask in asks if (placed := planner.place(ask, NOW)) is not None}, profile


def loan(snapshot, until=7200.0, shortest=60.0, grant=0.0):
    """How many nodes a job that can leave at any time is lent, and for how long."""
    turns = Turns(snapshot, TURN)
    found = Leftover(turns.believed(), turns, grant).room(make_job(99, "elsewhere", end=NOW + until), shortest)
    return found.nodes, found.seconds


def test_nodes_are_lent_until_somebody_is_given_them():
    """Four run for ten minutes, and one who waits gets all eight then."""
    seen = picture(make_job(1, "n1", "n2", "n3", "n4", end=NOW + 630), waits(2, 8, priority=9))
    assert room(seen) == (0, "promised") and loan(seen) == (4, 600.0)
    assert loan(seen, shortest=660.0) == (0, None), "for shorter than that they are of no use"
    assert loan(seen, shortest=math.inf) == (0, None)


def test_a_loan_that_slurm_grants_a_round_later_is_over_in_time_all_the_same():
    """Slurm starts nobody who could still run when the nodes are needed."""
    seen = picture(make_job(1, "n1", "n2", "n3", "n4", end=NOW + 630), waits(2, 8, priority=9))
    assert grant_of(()) == 90.0 and grant_of(("bf_interval=10", "bf_resolution=5")) == 15.0
    assert [loan(seen, grant=grant) for grant in (15.0, 30.0, 31.0)] == [(4, 600.0), (4, 600.0), (4, 540.0)]
    assert loan(seen, grant=600.0) == (0, None)


def test_nodes_that_slurm_has_planned_for_somebody_are_lent_until_its_turn_and_not_for_good():
    ahead = make_job(1, "n1", "n2", "n3", "n4", end=NOW + 630)
    planned = dict.fromkeys(("n5", "n6", "n7"), "IDLE+PLANNED")
    seen = picture(ahead, waits(2, 7, limit=36000.0, priority=9), **planned)
    assert room(seen, 7200.0) == (1, "promised") and loan(seen, 7200.0) == (1, None)
    assert room(seen, 1200.0) == (1, "promised") and loan(seen, 1200.0) == (4, 600.0)


def test_what_gives_most_node_time_is_lent():
    """Six for two minutes or for half an hour, or one to the job's end."""
    seen = picture(make_job(1, "n1", "n2", end=NOW + 150), waits(2, 7, limit=36000.0, priority=9))
    assert room(seen, 7200.0)[0] == 1 and loan(seen) == (1, None)
    soon = picture(make_job(1, "n1", "n2", end=NOW + 1800), waits(2, 7, limit=36000.0, priority=9))
    assert room(soon, 3600.0)[0] == 1 and loan(soon, 3600.0) == (6, 1800.0)


def test_all_is_lent_for_good_while_nobody_waits():
    assert loan(picture()) == (8, None)


arrivals = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 40)), min_size=1, max_size=12)


@given(
    arrivals,
    st.integers(5, 120),
    st.sampled_from([Scheduler.REPLAN, Scheduler.CONSERVATIVE, Scheduler.EASY]),
    st.booleans(),
)
def test_jobs_that_waited_at_a_growth_start_when_they_would_have_without_it(jobs, seconds, scheduler, lent):
    if lent:  # in minutes
        seconds, jobs = 60 * seconds, [(60 * pause, width, 60 * limit) for pause, width, limit in jobs]
    starts = {}
    for grows in (False, True):
        world = World(nodes=5, scheduler=scheduler)
        me = world.submit(seconds=seconds, limit=seconds, nodes=1, user="alice")
        for pause, width, limit in jobs:  # who runs as long as its limit says
            world.to(world.engine.now + pause)
            world.submit(seconds=limit, limit=limit, nodes=width, user="bob")
        waiting_now = [j.id for j in world.engine.jobs.values() if j.state is JobState.PENDING]
        promised = {j: world.engine.jobs[j].planned for j in waiting_now}
        if grows and me in world.engine.jobs:
            taken_at = world.engine.now
            seen = Snapshot(
                taken_at,
                {j.id: j for j in views.jobs(world.engine)},
                {n.name: n for n in views.nodes(world.engine)},
                {p.name: p for p in views.partitions(world.engine)},
            )
            turns = Turns(seen, 0.0)  # the simulated Slurm takes no time
            job = seen.jobs[me]
            found = Leftover(turns.believed(), turns).room(job, 60.0 if lent else math.inf)
            if found.nodes and job.end is not None and job.end > taken_at:
                limit = found.seconds or job.end - taken_at
                world.do("allocate", Allocation("r", found.nodes, limit, last=True), user="alice")
        world.to(world.engine.now + 100_000)
        starts[grows] = {j: world.engine.records[j].start for j in waiting_now}
    if scheduler is Scheduler.EASY:  # which promises a start to the first alone
        assert all(starts[True][j] <= at for j, at in promised.items() if at is not None)
    else:
        assert starts[True] == starts[False]
