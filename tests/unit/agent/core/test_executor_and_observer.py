"""Acting and looking under failure: journaled, backed off, held; no clock but a manual one."""

from __future__ import annotations

import asyncio
import os

import pytest
from factories import Doing, ManualClock

from penstock.api import License, Reservation
from penstock.core.acts import KnownJob
from penstock.core.executor import Concern, Executor
from penstock.core.observe import Observer
from penstock.core.pauses import Pause
from penstock.core.verdicts import FRESH
from penstock.errors import (
    Infeasible,
    LeftAlone,
    NoCluster,
    NotFound,
    NotNow,
    NotPermitted,
    OutcomeUnknown,
    SlurmUnavailable,
    StoreError,
)
from penstock.state.store import Store
from penstock.values.allow import Rule
from penstock_lab.testing import make_job, make_snapshot

ABOUT = Concern("workflows", os.geteuid())


async def _fail(error):
    raise error


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "s.db")


@pytest.mark.parametrize(
    ("error", "left_open"), [(OutcomeUnknown("lost"), 1), (SlurmUnavailable("away"), 0), (Infeasible("never"), 0)]
)
def test_every_act_is_in_the_journal(store, error, left_open):
    executor = Executor(store, ManualClock(), None)
    with pytest.raises(type(error)):
        run(executor.act(Doing(lambda _: _fail(error)), "workflow 1/a", {"name": "x"}, ABOUT))
    assert len(store.intents.unsettled()) == left_open


def test_the_intent_is_written_before_the_request(store):
    seen = []

    async def request(_):
        seen.extend(store.intents.unsettled())
        return 5

    assert run(Executor(store, ManualClock(), None).act(Doing(request), "w", {"name": "x"}, ABOUT)) == 5
    assert seen[0].payload == {"name": "x"} and not store.intents.unsettled()


def test_failures_back_off_per_subject_and_success_forgets_them(store):
    clock = ManualClock()
    executor = Executor(store, clock, None)
    waits = []
    for _ in range(3):
        with pytest.raises(NotNow):
            run(executor.act(Doing(lambda _: _fail(SlurmUnavailable("away")), "merge"), "job 1", {}, ABOUT))
        assert not executor.ready("job 1") and executor.ready("job 2")
        waits.append(executor.ready_at("job 1") - clock.at)
        clock.at = executor.ready_at("job 1")
    assert waits == sorted(waits) and waits[0] < waits[-1]

    async def fine(_):
        return None

    run(executor.act(Doing(fine, "merge"), "job 1", {}, ABOUT))
    assert executor.ready("job 1")


def test_many_failures_in_a_row_pause_everything(store):
    clock = ManualClock()
    executor = Executor(store, clock, None)
    for number in range(10):
        with pytest.raises(NotNow):
            run(executor.act(Doing(lambda _: _fail(SlurmUnavailable("away")), "submit"), f"w{number}", {}, ABOUT))
    assert not executor.ready("somebody else")
    clock.at = executor.paused_until
    assert executor.ready("somebody else")


@pytest.mark.parametrize("trouble", [None, StoreError("disk full")])
def test_people_are_told_of_that_and_the_pause_matters_more_than_the_word(store, trouble):
    executor, told = Executor(store, ManualClock(1e6), None), []

    def tell(event):
        told.append(event)
        if trouble is not None:
            raise trouble

    executor.tell = tell
    for number in range(10):
        with pytest.raises(SlurmUnavailable):
            run(executor.act(Doing(lambda _: _fail(SlurmUnavailable("away")), "submit"), f"w{number}", {}, ABOUT))
    (event,) = told
    assert (event.kind, event.uid, event.at, event.details["until"]) == ("paused", None, 1e6, executor.paused_until)
    assert event.title == "the agent has paused itself for 10 minutes" and "submit w9: away" in event.text
    assert executor.paused


def test_a_clock_that_is_set_back_prolongs_no_pause(store):
    clock = ManualClock(1e9)
    executor = Executor(store, clock, None)
    for _ in range(10):
        with pytest.raises(NotNow):
            run(executor.act(Doing(lambda _: _fail(SlurmUnavailable("away")), "submit"), "w", {}, ABOUT))
    assert executor.paused and executor.paused_until == executor.ready_at("other") == clock.at + 600
    clock.at -= 7200
    assert not executor.paused and executor.paused_until == 0.0
    assert executor.ready("w") and executor.ready("other")


class Shown:
    """A queue that counts how often it is looked at, and whom it is asked as."""

    def __init__(self, *jobs):
        self.seen, self.looks, self.cancelled = jobs, 0, []

    async def jobs(self):
        self.looks += 1
        return self.seen

    async def cancel(self, job, tasks=()):
        self.cancelled.append(job)

    def whoami(self):
        return "agent"


def test_twenty_acts_at_once_share_one_look_and_none_touches_anothers_job(store):
    clock = ManualClock()
    slurm = Shown(*(make_job(n, "n1", uid=7 + n % 2) for n in range(20)), make_job(99, "n1", uid=7, user="agent"))
    executor = Executor(store, clock, slurm)
    for n in range(20):
        work = executor.cancel(KnownJob(n, 7), f"job {n}", Concern("malleable", 7))
        if n % 2:
            with pytest.raises(NotPermitted, match=f"job {n} now belongs to alice"):
                run(work)
        else:
            run(work)
    run(executor.cancel(KnownJob(99, os.geteuid()), "job 99", ABOUT))
    run(executor.cancel(KnownJob(500, os.geteuid()), "job 500", ABOUT))
    assert slurm.cancelled == [*range(0, 20, 2), 99, 500] and slurm.looks == 1
    assert len(store.connection.rows("SELECT * FROM intents")) == len(slurm.cancelled), "what is refused is no intent"
    clock.at += FRESH
    slurm.seen = ()
    run(executor.cancel(KnownJob(1, 7), "job 1", Concern("malleable", 7)))
    assert slurm.looks == 2


def test_a_job_that_is_gone_is_as_its_cancel_wanted_it(store):
    """It ended between the look that showed it and the act, or Slurm says so itself."""
    slurm = Shown(make_job(5, "n1", uid=7, submit=20.0), make_job(6, "n1", uid=7))
    executor = Executor(store, ManualClock(), slurm)
    for known in (KnownJob(4, 7, submit=10.0), KnownJob(5, 7, submit=10.0)):
        run(executor.cancel(known, "job 5/clean", Concern("malleable", 7)))
    assert slurm.cancelled == []

    async def gone(_job, _tasks=()):
        raise refusal

    slurm.cancel, refusal = gone, NotFound("Invalid job id specified")
    run(executor.cancel(KnownJob(6, 7), "job 6/clean", Concern("malleable", 7)))
    refusal = NoCluster("far")
    with pytest.raises(NoCluster):
        run(executor.cancel(KnownJob(6, 7), "bag 1", Concern("select", 7)))


def test_a_job_of_another_cluster_is_looked_at_there(store):
    far = Shown(make_job(5, "n1", uid=7))
    near = Shown(make_job(5, "n1", uid=8))
    near.on = {"far": far}.__getitem__
    executor = Executor(store, ManualClock(), near)
    run(executor.cancel(KnownJob(5, 7), "bag 1", Concern("select", 7, cluster="far")))
    assert (near.looks, far.looks) == (0, 1)
    with pytest.raises(NotPermitted):
        run(executor.cancel(KnownJob(5, 7), "bag 1", Concern("select", 7)))


def test_an_act_is_refused_where_it_is_paused_and_an_end_is_not(store):
    slurm = Shown()
    executor = Executor(store, ManualClock(), slurm)
    executor.pause_control.pause(Pause("slots"))

    async def submit(slurm):
        return slurm.cancelled.append(0)

    with pytest.raises(LeftAlone, match="slots paused by root"):
        run(executor.act(Doing(submit, "submit"), "hold 1", {}, Concern("slots", 0)))
    run(executor.act(Doing(submit, "submit"), "workflow 1", {}, Concern("workflows", 0)))
    run(executor.cancel(KnownJob(3, 0), "hold 1", Concern("slots", 0)))
    executor.pause_control.rules = [Rule(partitions=("batch",))]
    with pytest.raises(LeftAlone, match=r"limits\.allow"):
        run(executor.act(Doing(submit, "submit"), "workflow 1", {}, Concern("workflows", 0, ("gpu",))))
    assert slurm.cancelled == [0, 3] and len(store.connection.rows("SELECT * FROM intents")) == 2


def test_a_pause_that_comes_while_the_job_is_looked_at_holds_for_the_act(store):
    slurm = Shown()
    executor = Executor(store, ManualClock(), slurm)
    glance = slurm.jobs

    async def jobs():  # somebody is told that it is paused before the request has gone out
        executor.pause_control.pause(Pause("malleable"))
        return await glance()

    slurm.jobs = jobs
    with pytest.raises(LeftAlone, match="malleable paused by root"):
        run(executor.act(Doing(lambda s: s.cancel(0), job=KnownJob(0, 7)), "job 0", {}, Concern("malleable", 7)))
    assert slurm.cancelled == [] and store.connection.rows("SELECT * FROM intents") == []


RESERVATION = Reservation("maint", 10.0, 20.0, ("n1",), frozenset({"root"}), frozenset(), frozenset({"MAINT"}), False)


class FakeSlurm:
    def __init__(self):
        self.calls = []
        self.error = None

    async def _answer(self, name, value):
        self.calls.append(name)
        if self.error:
            raise self.error
        return value

    async def partitions(self):
        return await self._answer("partitions", list(make_snapshot().partitions.values()))

    async def reservations(self):
        return await self._answer("reservations", [RESERVATION])

    async def licenses(self):
        return await self._answer("licenses", [License("matlab", 4, 1)])

    async def nodes(self):
        return await self._answer("nodes", list(make_snapshot().nodes.values()))

    async def jobs(self):
        return await self._answer("jobs", [make_job(1, "n1")])


def test_many_callers_share_one_look():
    slurm, clock = FakeSlurm(), ManualClock()
    observer = Observer(slurm, clock, min_interval=10, stale_after=120)

    async def many():
        return await asyncio.gather(*(observer.look() for _ in range(50)))

    pictures = run(many())
    assert len({id(s) for s in pictures}) == 1
    assert pictures[0].reservations == (RESERVATION,) and pictures[0].licenses[0].used == 1
    assert slurm.calls.count("jobs") == 1
    clock.at += 11
    run(observer.look())
    assert slurm.calls.count("jobs") == 2 and slurm.calls.count("partitions") == 1


def test_a_failed_look_keeps_the_old_picture_and_says_so():
    slurm, clock = FakeSlurm(), ManualClock()
    observer = Observer(slurm, clock, min_interval=10, stale_after=120)
    good = run(observer.look())
    assert good.usable
    slurm.error = SlurmUnavailable("no answer in 30 s", again_in=5.0)
    clock.at += 11
    assert not run(observer.look()).usable and observer.failures == 0 and observer.next_look() == clock.at + 5
    slurm.error = SlurmUnavailable("no answer in 30 s")
    clock.at += 11
    held = run(observer.look())
    assert not held.usable and "no answer" in held.problems[0] and held.jobs == good.jobs
    before = len(slurm.calls)
    clock.at += 1
    assert not run(observer.look()).usable
    assert len(slurm.calls) == before, "it backs off"
    slurm.error = None
    clock.at += 1000
    assert run(observer.look()).usable


def test_a_clock_that_is_set_back_makes_nobody_blind():
    slurm, clock = FakeSlurm(), ManualClock(1e9)
    observer = Observer(slurm, clock, min_interval=10, stale_after=120)
    assert run(observer.look()).usable
    slurm.error = SlurmUnavailable("no answer")
    clock.at += 11
    assert not run(observer.look()).usable
    slurm.error = None
    clock.at -= 7200
    assert observer.next_look() == clock.at
    assert run(observer.look()).usable
    assert slurm.calls.count("partitions") == 2, "they are not taken for newer than they are"


def test_no_answer_at_all_gives_an_empty_unusable_picture():
    slurm = FakeSlurm()
    slurm.error = SlurmUnavailable("away")
    snapshot = run(Observer(slurm, ManualClock(), min_interval=10, stale_after=120).look())
    assert not snapshot.usable and not snapshot.jobs


def test_who_keeps_looks_hears_of_every_job_that_something_was_asked_for(store):
    executor, heard = Executor(store, ManualClock(), None), []
    executor.on_act = lambda jobs, owner: heard.append((list(jobs), owner))

    async def made(_):
        return 5

    run(executor.act(Doing(made, "submit"), "w", {}, ABOUT))
    with pytest.raises(OutcomeUnknown):
        run(executor.act(Doing(lambda _: _fail(OutcomeUnknown("lost")), "submit"), "w", {}, ABOUT))
    assert heard == [([5], ABOUT.owner)]
