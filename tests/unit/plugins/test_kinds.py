"""What pending jobs will be like, learned from runs of their kind, and from how much of their limits others use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.api import Offer
from penstock.future.members import members_of
from penstock.future.speeds import Memory
from penstock_lab.testing import NODES, make_job, make_snapshot
from penstock_plugins.kinds import Kinds

LIMITS = {"minimum": 2, "maximum": 8, "preferred": 4}


class Watcher:
    """Kinds, and the memory of speeds that a policy has beside it."""

    def __init__(self):
        self.kinds, self.memory = Kinds(), Memory()

    def look(self, *rows, at=0.0):
        """Programs as (job, nodes, steps left, seconds of a step), and other jobs."""
        offers = [
            Offer(r[0], len(r[1]), nodes=r[1], steps_left=r[2], step_seconds=r[3], **LIMITS)
            for r in rows
            if isinstance(r, tuple)
        ]
        jobs = [make_job(o.job, *o.nodes) for o in offers] + [r for r in rows if not isinstance(r, tuple)]
        snapshot = make_snapshot(jobs, at=at)
        members = [m for group in members_of(self.memory, offers, snapshot).values() for m in group]
        self.kinds.learn(members, snapshot)
        return members


def pending(number, fewest, most, **more):
    return make_job(number, num_nodes=most, min_nodes=None if fewest == most else fewest, **more)


def test_a_kind_is_as_much_work_as_its_runs_and_scales_like_them():
    seen = Watcher()
    seen.look((1, NODES[:2], 100, 6.0))
    load = seen.kinds.pending(pending(7, 2, 4))
    assert (load.seconds(2), load.least, load.most) == (600.0, 2, 2), "how it scales is not known"
    seen.look((1, NODES[:4], 100, 4.0))  # 2 serial, 8 parallel
    load = seen.kinds.pending(pending(7, 2, 4))
    assert (load.least, load.most, load.start) == (2, 8, 4)
    assert [load.seconds(n) for n in (2, 4, 8)] == pytest.approx([600.0, 400.0, 300.0])
    assert seen.kinds.work(pending(7, 2, 8)) == pytest.approx(1200.0), "up to the maximum it is the same program"


def test_work_is_the_mean_of_runs_and_each_counts_once():
    seen = Watcher()
    seen.look((1, NODES[:2], 100, 6.0), (2, NODES[2:4], 100, 2.0))
    assert seen.kinds.work(pending(7, 2, 4)) == pytest.approx(800.0)
    seen.look((1, NODES[:2], 50, 6.0), (2, NODES[2:4], 50, 2.0), at=100.0)
    assert seen.kinds.work(pending(7, 2, 4)) == pytest.approx((2 * 400 + 2 * 200) / 2), "the latest word counts"


def test_a_stranger_is_rigid_for_what_its_owner_uses_of_its_limits():
    seen = Watcher()
    other = make_job(5, *NODES[4:], uid=1001)
    assert seen.kinds.pending(pending(7, 3, 4)).seconds(3) == 3600.0
    assert seen.kinds.rigid(other, 4, 600.0).seconds(4) == 3000.0
    seen.look(other, at=300.0)
    seen.look(at=900.0)  # it has ended
    assert seen.kinds.pending(pending(7, 3, 4, uid=1001)).seconds(3) == pytest.approx(900.0)
    assert seen.kinds.pending(pending(7, 3, 4)).seconds(3) == 3600.0, "another owner's"
    endless = replace(other, end=None, time_limit=None)
    assert seen.kinds.rigid(endless, 4, 0.0).seconds(4) == pytest.approx(7 * 86400 / 4)


def test_a_running_program_keeps_what_it_has_until_its_speeds_are_known():
    seen = Watcher()
    (member,) = seen.look((1, NODES[:4], 100, 4.0))
    load = seen.kinds.running(member)
    assert (load.seconds(4), load.least, load.most, load.nodes) == (400.0, 4, 4, 4)
    seen.look((1, NODES[:2], 100, 6.0))
    (member,) = seen.look((1, NODES[:4], 50, 4.0))
    load = seen.kinds.running(member)
    assert (load.least, load.most, load.nodes) == (2, 8, 4)
    assert [load.seconds(n) for n in (2, 4, 8)] == pytest.approx([300.0, 200.0, 150.0])


def test_what_a_program_last_said_counts_while_it_says_nothing():
    seen = Watcher()
    seen.look((1, NODES[:4], 100, 4.0))
    (member,) = seen.look((1, NODES[:4], None, None), at=150.0)
    assert seen.kinds.running(member).seconds(4) == pytest.approx(250.0)
