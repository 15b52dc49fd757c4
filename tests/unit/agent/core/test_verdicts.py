"""The executor before an act: is it the job that was meant, and may its owner have what it gets?"""

import asyncio
import os
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from factories import ManualClock

from penstock.api import HolderKind, Limit, LimitHolder, Node, OwnerLimits, Partition, Reservation, SiteConfig, Snapshot
from penstock.core.acts import (
    CancelJob,
    Expand,
    KnownJob,
    MergeNodes,
    Mold,
    ReleaseJob,
    RequeueJob,
    Retarget,
    SetLimit,
    SlurmAct,
)
from penstock.core.executor import Concern, Executor
from penstock.core.ownlimits import Extension, Growth, Joining, Shape
from penstock.errors import NotFound, NotNow, NotPermitted, SlurmUnavailable
from penstock.state.store import Store
from penstock_lab.testing import make_job

ME = os.geteuid()
SITE = SiteConfig(
    (22, 5, 8), "c", "select/linear", frozenset(), frozenset(), "priority/multifactor", frozenset(), 300.0,
    enforced=frozenset({"associations", "limits", "qos"}),
)  # fmt: skip
RUNS = make_job(1, "n1", "n2", uid=7, submit=50.0, start=100.0, end=700.0, time_limit=600.0)
WAITS = make_job(2, uid=7, submit=60.0, num_nodes=2, num_cpus=8)


@dataclass
class Slurm:
    """What it shows, and what it was asked to do."""

    rows: dict = field(default_factory=lambda: {1: RUNS, 2: WAITS})
    limits_of: tuple = ()
    kept: tuple = ()
    named: dict = field(default_factory=dict)
    done: list = field(default_factory=list)
    away: bool = False
    asked: list = field(default_factory=list)
    partitions_of: tuple = ("batch",)

    def whoami(self):
        return "agent"

    def on(self, _cluster):
        return self

    async def site(self):
        return SITE

    async def limits(self, owners):
        self.asked.append("limits")
        if self.away:
            raise SlurmUnavailable("slurmdbd is away")
        holder = LimitHolder(HolderKind.QOS, "QOS normal", self.limits_of)
        place = {n: Partition(n, ("n1",), True, True, None, None, None) for n in self.partitions_of}
        return [OwnerLimits(o, place.get(o.partition), (holder,), associated=True) for o in owners]

    async def charges(self, jobs):
        return {n: {"node": 2.0, "cpu": 8.0} for n in jobs}

    async def reservations(self):
        return self.kept

    async def find(self, name, uid=None):
        return self.named.get(name, ())

    async def look(self):
        nodes = {n: Node(n, "ALLOCATED", 4, True) for n in ("n1", "n2", "n3")}
        return Snapshot(200.0, self.rows, nodes, {})

    def __getattr__(self, name):
        async def do(*words, **more):
            self.done.append((name, *words))
            return 99

        return do


def act(slurm: Slurm, act: SlurmAct[Any], clock=None, **more):
    executor = Executor(Store(":memory:"), clock or ManualClock(200.0), slurm, look=slurm.look)
    return asyncio.run(executor.act(act, "job", {}, Concern("malleable", 7, **more)))


ACTS = [
    CancelJob(KnownJob.of(RUNS)), RequeueJob(KnownJob.of(RUNS)),
    ReleaseJob(KnownJob.of(WAITS)), Retarget(KnownJob.of(WAITS)),
    Mold(KnownJob.of(WAITS), Shape(4, 300.0)), SetLimit(KnownJob.of(RUNS), Extension(900.0)),
    Expand(KnownJob.of(RUNS), None, 1.0, Growth(1, 60.0)), MergeNodes(KnownJob.of(RUNS), 3, Joining(1)),
]  # fmt: skip
kind = pytest.mark.parametrize("one", ACTS, ids=lambda one: one.verb)


@kind
def test_the_job_that_was_meant_is_changed(one):
    slurm = Slurm()
    act(slurm, one)
    assert len(slurm.done) == 1


@kind
def test_another_job_of_the_same_user_and_number_is_left_alone(one):
    slurm = Slurm()
    slurm.rows = {n: replace(row, submit=row.submit + 30.0) for n, row in slurm.rows.items()}
    with pytest.raises(NotFound, match="has given its number to another job"):
        act(slurm, one, ends=True)
    assert slurm.done == []


@kind
def test_a_job_that_changed_hands_is_left_alone(one):
    slurm = Slurm()
    slurm.rows = {n: replace(row, uid=8, user="bob") for n, row in slurm.rows.items()}
    with pytest.raises(NotPermitted, match="now belongs to bob"):
        act(slurm, one, ends=True)
    assert slurm.done == []


@kind
def test_a_job_that_is_gone_is_not_asked_for_by_its_number(one):
    slurm = Slurm(rows={})
    with pytest.raises(NotFound):
        act(slurm, one, ends=True)
    assert slurm.done == []


def test_a_job_that_no_look_has_shown_yet_is_known_by_its_name():
    slurm, young = Slurm(named={"stage-a": (1,)}), CancelJob(KnownJob.named(1, 7, "stage-a"))
    act(slurm, young)
    slurm.named = {"stage-a": (5,)}
    with pytest.raises(NotFound):
        act(slurm, young)
    assert slurm.done == [("cancel", 1, ())]


def test_of_an_array_one_of_its_tasks_is_enough_to_know_it_by():
    slurm = Slurm()
    rows = [make_job(11, "n1", uid=7, submit=5.0, array_job=10), make_job(12, uid=7, submit=90.0, array_job=10)]
    slurm.rows = {row.id: row for row in rows}
    act(slurm, CancelJob(KnownJob(10, 7, 5.0)))
    with pytest.raises(NotFound):
        act(slurm, CancelJob(KnownJob(10, 7, 6.0)))
    assert len(slurm.done) == 1


WISHES = [
    (Mold(KnownJob.of(WAITS), Shape(4, 660.0)), Limit("MaxWall", 600)),
    (Mold(KnownJob.of(WAITS), Shape(4, 300.0)), Limit("MaxTRESPerJob", 3, "node")),
    (Mold(KnownJob.of(WAITS), Shape(1, 300.0, judged=False)), Limit("GrpTRES", 100, "node", 0)),
    (SetLimit(KnownJob.of(RUNS), Extension(900.0)), Limit("MaxWall", 600)),
    (Expand(KnownJob.of(RUNS), None, 1.0, Growth(2, 60.0)), Limit("MaxTRESPerUser", 3, "node", 2)),
    (MergeNodes(KnownJob.of(RUNS), 3, Joining(2)), Limit("MaxTRESPerJob", 3, "node")),
]


@pytest.mark.parametrize(("one", "limit"), WISHES, ids=lambda value: getattr(value, "verb", getattr(value, "name", "")))
def test_what_the_owner_may_not_have_is_not_asked_for_and_what_is_not_known_waits(one, limit):
    slurm = Slurm(limits_of=(limit,))
    with pytest.raises(NotPermitted, match=limit.name):
        act(slurm, one, ends=True)
    slurm.away = True
    with pytest.raises(NotNow, match="cannot be looked at"):
        act(slurm, one, ends=True)
    assert slurm.done == []
    slurm.limits_of, slurm.away = (), False
    act(slurm, one)
    assert len(slurm.done) == 1


def test_a_limit_is_lowered_though_nobody_says_what_the_owner_may_have():
    slurm = Slurm(away=True)
    act(slurm, SetLimit(KnownJob.of(RUNS), Extension(300.0), raises=False))
    assert slurm.done and not slurm.asked


def test_a_reservation_that_was_made_after_the_decision_counts():
    slurm = Slurm(kept=(Reservation("m", 800.0, 2000.0, ("n2",), frozenset(), frozenset(), frozenset(), False),))
    act(slurm, SetLimit(KnownJob.of(RUNS), Extension(660.0)))
    with pytest.raises(NotPermitted, match="the reservation m has its nodes"):
        act(slurm, SetLimit(KnownJob.of(RUNS), Extension(720.0)))
    assert len(slurm.done) == 1


def test_a_job_that_waits_in_several_partitions_has_to_fit_into_each():
    slurm = Slurm(partitions_of=("batch", "long"))
    slurm.rows[2] = replace(WAITS, partition="batch,long")
    one = Mold(KnownJob.of(WAITS), Shape(4, 300.0))
    act(slurm, one)
    slurm.partitions_of = ("batch",)
    with pytest.raises(NotNow):
        act(slurm, one)


def test_growths_of_one_second_count_with_each_other():
    slurm, clock = Slurm(limits_of=(Limit("MaxTRESPerUser", 4, "node", 2),)), ManualClock(200.0)
    executor = Executor(Store(":memory:"), clock, slurm, look=slurm.look)
    one = Expand(KnownJob.of(RUNS), None, 1.0, Growth(2, 60.0))

    async def both():
        work = (executor.act(one, f"job {n}", {}, Concern("malleable", 7)) for n in range(2))
        return await asyncio.gather(*work, return_exceptions=True)

    first, second = asyncio.run(both())
    assert first == 99 and isinstance(second, NotPermitted) and slurm.asked == ["limits"]


def test_limits_of_the_qos_that_the_job_has_now_count():
    """Its owner changes it between the decision and the act."""
    slurm, one = Slurm(), Mold(KnownJob.of(WAITS), Shape(4, 300.0))

    async def limits(owners):
        short = LimitHolder(HolderKind.QOS, "QOS short", (Limit("MaxWall", 60),))
        place = Partition("batch", ("n1",), True, True, None, None, None)
        return [OwnerLimits(o, place, (short,) if o.qos == "short" else (), associated=True) for o in owners]

    slurm.limits = limits
    act(slurm, one)
    slurm.rows[2] = replace(WAITS, qos="short")
    with pytest.raises(NotPermitted, match="QOS short has MaxWall"):
        act(slurm, one)
    assert len(slurm.done) == 1


def test_a_clock_that_is_set_back_makes_no_old_limits_new():
    slurm, clock = Slurm(), ManualClock(200.0)
    executor = Executor(Store(":memory:"), clock, slurm, look=slurm.look)
    one = Mold(KnownJob.of(WAITS), Shape(4, 300.0))
    asyncio.run(executor.act(one, "job", {}, Concern("malleable", 7)))
    slurm.limits_of = (Limit("MaxWall", 60),)
    clock.at -= 7200.0
    with pytest.raises(NotPermitted, match="MaxWall"):
        asyncio.run(executor.act(one, "job", {}, Concern("malleable", 7)))


def test_longer_limits_of_one_second_count_with_each_other():
    slurm = Slurm(limits_of=(Limit("GrpTRESRunMins", 25.0, "node", 20.0),))
    slurm.rows[3] = replace(RUNS, id=3)
    executor = Executor(Store(":memory:"), ManualClock(200.0), slurm, look=slurm.look)

    async def both():
        for row in (RUNS, slurm.rows[3]):  # two nodes for two minutes more, each
            act = SetLimit(KnownJob.of(row), Extension(720.0))
            await executor.act(act, f"job {row.id}/limit", {}, Concern("malleable", 7))

    with pytest.raises(NotPermitted, match="GrpTRESRunMins"):
        asyncio.run(both())
    assert len(slurm.done) == 1


def test_a_job_that_was_requeued_since_it_was_seen_is_the_same_under_its_name():
    slurm = Slurm(named={"stage-a": (1,)})
    slurm.rows[1] = replace(RUNS, submit=900.0, restarts=1)
    act(slurm, CancelJob(KnownJob(1, 7, 50.0, "stage-a")), ends=True)
    for known in (KnownJob(1, 7, 50.0, "other"), KnownJob(1, 7, 50.0), KnownJob(1, 7, 50.0, "stage-a", restarts=1)):
        with pytest.raises(NotFound):
            act(slurm, CancelJob(known), ends=True)
    assert len(slurm.done) == 1
