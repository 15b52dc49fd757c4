"""Which allocations a pool should ask for: what is known goes in, a verdict comes out."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_pool.auto.choose import (
    JOIN,
    RESERVE,
    AllocationShape,
    AutoCaps,
    NodeSize,
    PendingAllocation,
    RunningAllocation,
    candidates,
    decide,
)
from penstock_pool.demand import Demand, MemberLoad, TaskBatch

HOUR = 3600.0
SIZE = NodeSize(4.0)
CAPS = AutoCaps(8, 8, {"batch": 4 * HOUR})
AT_ONCE = (1.0, 1.0, 2.0, 5.0)


def demand(*batches: TaskBatch, members: tuple[MemberLoad, ...] = (), foreseen: tuple[TaskBatch, ...] = ()) -> Demand:
    return Demand(0.0, batches, foreseen, members)


def tasks(count: int, seconds: float = 300.0, after: float = 0.0) -> TaskBatch:
    return TaskBatch(1.0, 0, 0, seconds, count, seconds, after)


def waits(need: Demand, quantiles: tuple[float, ...] = AT_ONCE, caps: AutoCaps = CAPS):
    return dict.fromkeys(candidates(need, SIZE, caps), quantiles)


def shape(limit: float = 4 * HOUR, nodes: int = 1) -> AllocationShape:
    return AllocationShape(nodes, limit, "batch")


def member(job: str, left: float, work: float = 0.0) -> MemberLoad:
    return MemberLoad(job, f"n{job}", 4.0, None, 0, left, work, work / 4)


def asked(verdict) -> int:
    return sum(one.nodes * count for one, count in verdict.submit)


def test_all_nodes_at_once_where_there_is_work_for_all():
    need = demand(tasks(4000))
    verdict = decide(need, SIZE, [], [], CAPS, waits(need))
    assert asked(verdict) == 8
    assert "expected to start" in verdict.reasons[0]


def test_no_more_nodes_than_the_work_is_worth():
    need = demand(tasks(4, 30.0))
    assert asked(decide(need, SIZE, [], [], CAPS, waits(need))) == 1


def test_nothing_waits_nothing_is_asked_for():
    need = demand(members=(member("1", HOUR),))
    assert candidates(need, SIZE, CAPS) == []
    assert decide(need, SIZE, [], [], CAPS, {}).submit == ()


def test_what_is_queued_counts():
    need = demand(tasks(4000))
    pending = [PendingAllocation(f"p{n}", shape(), AT_ONCE) for n in range(8)]
    assert decide(need, SIZE, [], pending, CAPS, waits(need)).submit == ()


def test_a_short_one_may_fill_a_hole_while_the_long_ones_wait():
    need = demand(tasks(4000))
    pending = [PendingAllocation(f"p{n}", shape(), (20 * HOUR, 30 * HOUR, 40 * HOUR, 50 * HOUR)) for n in range(8)]
    late = (20 * HOUR, 30 * HOUR, 40 * HOUR, 50 * HOUR)
    known = {(s, c): AT_ONCE if s.limit <= 2 * HOUR else late for s, c in candidates(need, SIZE, CAPS)}
    verdict = decide(need, SIZE, [], pending, CAPS, known)
    assert asked(verdict) == 8
    assert all(one.limit <= 2 * HOUR for one, _ in verdict.submit)


def test_short_ones_that_wait_are_withdrawn_when_the_long_ones_are_there():
    need = demand(tasks(4000), members=tuple(member(str(n), 3 * HOUR) for n in range(8)))
    running = [RunningAllocation(f"r{n}", shape(), 3 * HOUR, joined=True) for n in range(8)]
    pending = [PendingAllocation("short", shape(HOUR), AT_ONCE), PendingAllocation("next", shape(), AT_ONCE)]
    verdict = decide(need, SIZE, running, pending, CAPS, waits(need))
    assert verdict.withdraw == ("short",)


def test_a_short_successor_of_one_that_ends_stays():
    need = demand(tasks(4000), members=tuple(member(str(n), 3 * HOUR) for n in range(8)))
    running = [RunningAllocation(f"r{n}", shape(), 3 * HOUR, joined=True) for n in range(7)]
    running.append(RunningAllocation("ends", shape(), 600.0, joined=True))
    pending = [PendingAllocation("next", shape(HOUR), AT_ONCE)]
    assert decide(need, SIZE, running, pending, CAPS, waits(need)).withdraw == ()


def test_a_successor_is_submitted_a_wait_ahead_and_not_before():
    caps = AutoCaps(1, 1, {"batch": 4 * HOUR})
    wait = (60.0, 120.0, 300.0, 600.0)
    ends = RESERVE + 300.0 + JOIN + 20.0  # before its limit nothing new begins any more, and that takes a while
    for left, expected in ((2.5 * HOUR, 0), (650.0 + ends, 0), (590.0 + ends, 1)):
        need = demand(tasks(4000), members=(member("1", left - RESERVE),))
        running = [RunningAllocation("r", shape(), left, joined=True)]
        verdict = decide(need, SIZE, running, [], caps, waits(need, wait, caps))
        assert asked(verdict) == expected, left


def test_one_that_is_queued_is_successor_enough():
    caps = AutoCaps(1, 1, {"batch": 4 * HOUR})
    need = demand(tasks(4000), members=(member("1", 300.0),))
    running = [RunningAllocation("r", shape(), 340.0, joined=True)]
    pending = [PendingAllocation("next", shape(), (60.0, 120.0, 300.0, 600.0))]
    assert decide(need, SIZE, running, pending, caps, waits(need, (60.0, 120.0, 300.0, 600.0), caps)).submit == ()


def test_the_old_one_goes_when_its_successor_has_joined_and_not_before():
    caps = AutoCaps(1, 1, {"batch": 4 * HOUR})
    need = demand(tasks(4000), members=(member("1", 300.0), member("2", 3 * HOUR)))
    old = RunningAllocation("old", shape(), 340.0, joined=True)
    for joined, drained in ((False, ()), (True, ("old",))):
        new = RunningAllocation("new", shape(), 4 * HOUR, joined=joined)
        assert decide(need, SIZE, [old, new], [], caps, waits(need, AT_ONCE, caps)).drain == drained


def test_tasks_longer_than_any_allocation_are_told_and_get_none():
    need = demand(tasks(3, 5 * HOUR))
    verdict = decide(need, SIZE, [], [], CAPS, waits(need))
    assert (verdict.unreachable, verdict.submit) == (3, ())


def test_a_task_larger_than_a_node_is_told():
    need = demand(TaskBatch(8.0, 0, 0, 60.0, 2, 60.0))
    assert decide(need, SIZE, [], [], CAPS, waits(need)).unreachable == 2


def test_what_is_foreseen_is_asked_for_too():
    need = demand(foreseen=(tasks(4000, after=HOUR),))
    long_wait = (HOUR, HOUR, HOUR, HOUR)
    assert asked(decide(need, SIZE, [], [], CAPS, waits(need, long_wait))) == 8


def test_a_limit_leaves_time_for_the_longest_task():
    need = demand(tasks(10, 2 * HOUR))
    assert all(s.limit >= 2 * HOUR + JOIN + RESERVE for s, _ in candidates(need, SIZE, CAPS))


def test_partitions_that_give_the_limit_are_named_together():
    caps = AutoCaps(4, 4, {"short": HOUR, "long": 4 * HOUR})
    named = {s.limit: s.partition for s, _ in candidates(demand(tasks(4000)), SIZE, caps)}
    assert named[4 * HOUR] == "long"
    assert named[min(named)] == "short,long"


def test_fewer_jobs_of_more_nodes_where_the_user_allows_few():
    caps = AutoCaps(8, 2, {"batch": 4 * HOUR})
    need = demand(tasks(4000))
    verdict = decide(need, SIZE, [], [], caps, waits(need, AT_ONCE, caps))
    assert {one.nodes for one, _ in verdict.submit} == {4}
    assert asked(verdict) == 8


QUANTILES = st.lists(st.floats(0, 1e6), min_size=4, max_size=4).map(lambda q: tuple(sorted(q)))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 20_000),
    st.floats(1, 3 * HOUR),
    st.lists(st.tuples(st.floats(0, 4 * HOUR), st.booleans()), max_size=10),
    st.lists(st.tuples(st.sampled_from([900.0, HOUR, 4 * HOUR]), QUANTILES), max_size=18),
    QUANTILES,
)
def test_no_verdict_breaks_the_caps(count, seconds, runs, waiting, quantiles):
    need = demand(tasks(count, seconds), members=tuple(member(str(n), left) for n, (left, _) in enumerate(runs)))
    running = [RunningAllocation(f"r{n}", shape(), left, joined) for n, (left, joined) in enumerate(runs)]
    pending = [PendingAllocation(f"p{n}", shape(limit), starts) for n, (limit, starts) in enumerate(waiting)]
    verdict = decide(need, SIZE, running, pending, CAPS, waits(need, quantiles))
    assert asked(verdict) + len(pending) <= max(2 * CAPS.max_nodes, len(pending))
    assert set(verdict.drain) <= {r.name for r in running if r.joined}
    assert set(verdict.withdraw) <= {p.name for p in pending}
    kept = sum(1 for r in running if r.joined and r.name not in verdict.drain)
    assert kept <= CAPS.max_nodes
    assert kept >= min(CAPS.max_nodes, sum(r.joined for r in running))
    assert all(one.limit <= 4 * HOUR for one, _ in verdict.submit)
    assert verdict.end is None or math.isfinite(verdict.end)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20_000), st.floats(1, 3 * HOUR), QUANTILES)
def test_where_nothing_is_there_something_is_asked_for(count, seconds, quantiles):
    need = demand(tasks(count, seconds))
    assert asked(decide(need, SIZE, [], [], CAPS, waits(need, quantiles))) >= 1
