"""An owner's jobs in the order that a policy ranks them: who is put back, and what the agent does for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import JobSpec
from penstock.core.pauses import Pause
from penstock.resize.running.order import put_back
from penstock_lab.agent_world import World, virtual
from penstock_lab.mock.model import PriorityType
from penstock_lab.testing import make_job, make_snapshot

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


def moved(jobs, ranks):
    return [(w.job.id, w.nice, w.behind.id) for w in put_back(make_snapshot(jobs), ranks)]


def line(*priorities, **more):
    return [make_job(number, priority=priority, **more) for number, priority in enumerate(priorities, 1)]


def test_a_long_job_goes_behind_the_last_shorter_one():
    assert moved(line(90, 80, 70), {1: 5, 2: 3, 3: 3}) == [(1, 1020, 3)]
    assert moved(line(90, 80, 70), {1: 3, 2: 5, 3: 3}) == [(2, 1010, 3)]


def test_who_stands_right_stays():
    assert moved(line(90, 80, 70), {1: 3, 2: 3, 3: 5}) == []
    assert moved(line(90, 80, 70), {1: 3, 2: 3, 3: 3}) == []
    assert moved(line(90, 80, 70), {}) == []


def test_nobody_is_put_back_for_somebody_else():
    mine, other = make_job(1, priority=90), make_job(2, priority=80, uid=1001, user="bob")
    elsewhere = make_job(3, priority=70, partition="debug")
    assert moved([mine, other, elsewhere], {1: 5, 2: 3, 3: 3}) == []


def test_nobody_is_put_back_behind_what_has_no_rank_or_is_anothers():
    jobs = line(90, 80, 70, 60)
    assert moved(jobs, {1: 5, 2: 3, 4: 3}) == [(1, 11, 2)], "as far as the third, and just behind the second"
    assert moved(jobs, {1: 5, 3: 3, 4: 3}) == []
    other = make_job(5, priority=75, uid=1001, user="bob")
    assert moved([*jobs, other], {1: 5, 2: 3, 3: 3, 4: 3, 5: 3}) == [(1, 11, 2)]


def test_who_is_held_or_runs_is_left_alone():
    held, running = make_job(1, priority=0), make_job(2, "n1", priority=90)
    assert moved([held, running, *line(0, 0, 50)[2:]], {1: 5, 2: 5, 3: 3}) == []


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(1, 10_000), st.integers(0, 3), st.sampled_from([1000, 1001])),
        max_size=12,
        unique_by=lambda row: row[0],
    )
)
def test_after_it_an_owners_neighbours_stand_by_rank_and_nobody_else_has_lost_a_place(rows):
    jobs = [make_job(n, priority=10**6 + p, uid=uid) for n, (p, _, uid) in enumerate(rows)]
    ranks = {n: rank for n, (_, rank, _) in enumerate(rows) if rank}
    nices = {w.job.id: w.nice for w in put_back(make_snapshot(jobs), ranks)}
    assert all(nice > 0 for nice in nices.values()), "nobody is put ahead"
    place = {j.id: (j.priority, -j.id) for j in jobs}
    after = {j.id: (j.priority - nices.get(j.id, 0), -j.id) for j in jobs}
    before = sorted(jobs, key=lambda j: place[j.id], reverse=True)
    for one, next_one in pairwise(before):
        shorter = ranks.get(next_one.id, 9) < ranks.get(one.id, 0)
        if one.uid == next_one.uid and shorter and next_one.id not in nices:
            assert after[one.id] < after[next_one.id]
    for a in jobs:
        for b in jobs:
            if place[a.id] > place[b.id] and a.id not in nices:
                assert after[a.id] > after[b.id], "who is not put back keeps all who were behind"
            strangers = a.uid != b.uid or b.id not in ranks
            if place[a.id] > place[b.id] and strangers and b.id not in nices:
                assert after[a.id][0] >= after[b.id][0], "no stranger has come before one that was put back"


class Ranking:
    """Leaves sizes alone, and ranks jobs as it is told."""

    name = "ranking"

    def __init__(self):
        self.said = {}

    def decide_all(self, offers, snapshot):
        return {}

    def ranks(self, snapshot):
        if self.said is None:
            raise RuntimeError("does not know")
        return self.said


async def with_two_waiting(tmp_path, **more):
    """All nodes taken, one malleable program, and two jobs of its owner that wait: the first and the second."""
    world = World(tmp_path, priority=PriorityType.BASIC, **more)
    await world.boot()
    world.malleables.settings.policy = policy = Ranking()
    await world.malleable()
    await world.bob.submit(JobSpec("full", "#!/bin/sh\nsleep 900\n", 6, 900))
    first, second = [await world.backend.submit(JobSpec(n, "#!/bin/sh\nsleep 60\n", 4, 600)) for n in ("a", "b")]
    return world, policy, first, second


@virtual
async def test_the_agent_puts_a_job_back_once(tmp_path):
    world, policy, first, second = await with_two_waiting(tmp_path)
    priority = world.engine.priority
    jobs = world.engine.records
    await world.until(lambda: world.passes > 3)
    assert priority(jobs[first]) > priority(jobs[second])
    policy.said = {first: 2, second: 1}
    await world.until(lambda: priority(jobs[first]) < priority(jobs[second]))
    nice = jobs[first].nice
    assert nice > 0 and jobs[second].nice == 0
    policy.said = {first: 1, second: 2}
    passes = world.passes
    await world.until(lambda: jobs[second].nice > 0)
    policy.said = {first: 2, second: 1}
    await world.until(lambda: world.passes > passes + 5)
    assert jobs[first].nice == nice, "once is enough"


@virtual
async def test_once_is_enough_after_a_restart_too(tmp_path):
    world, policy, first, second = await with_two_waiting(tmp_path)
    policy.said = {first: 2, second: 1}
    await world.until(lambda: world.engine.records[first].nice > 0)
    await world.bob.as_user("root").update(first, nice=0)  # an administrator gives it its place again
    await world.restart()
    world.malleables.settings.policy = policy
    passes = world.passes
    await world.until(lambda: world.passes > passes + 5)
    assert world.engine.records[first].nice == 0


@virtual
async def test_a_policy_that_fails_to_rank_harms_nobody(tmp_path):
    world, policy, first, _second = await with_two_waiting(tmp_path)
    policy.said = None
    passes = world.passes
    await world.until(lambda: world.passes > passes + 3)
    assert world.engine.records[first].nice == 0


@virtual
async def test_what_is_paused_is_not_reordered(tmp_path):
    world, policy, first, second = await with_two_waiting(tmp_path)
    world.app.executor.pause_control.pause(Pause("malleable"))
    policy.said = {first: 2, second: 1}
    passes = world.passes
    await world.until(lambda: world.passes > passes + 3)
    assert world.engine.records[first].nice == 0
