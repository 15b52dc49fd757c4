"""Moldable jobs under the whole agent over the simulated Slurm, and what kills leave of them."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from penstock.api import JobSpec, JobState
from penstock.core.callers import Callers
from penstock.core.off import Off
from penstock.core.pauses import Pause
from penstock.errors import NotFound, NotPermitted, UserError
from penstock.resize.waiting.checkpoints import Checkpoints
from penstock.resize.waiting.model import Checkpoint, MoldPhase, SavedFile, read_shapes
from penstock.resize.waiting.requests import MoldableRequests
from penstock_lab.agent_world import World, virtual
from penstock_lab.mock.model import NodeLimits, Signalled

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

SHAPES = read_shapes("2:8h,4:4h,8:2h")
HOUR = 3600.0


class Molding(World):
    """Alice's job, which may have any of the shapes; what it saves, and when."""

    def __init__(self, folder, **more):
        super().__init__(folder, **more)
        self.files: dict[str, SavedFile] = {}
        self.signals: list[tuple[float, int]] = []
        self.saves = True
        self.freed = 0.0

    async def boot(self, at=float("inf")):
        await super().boot(at)
        self.moldables._checkpoints = Checkpoints(self.files.get)

    async def molded(self, nodes=2, hours=8.0, checkpoint=None, **more):
        spec = JobSpec("mold", f"#!/bin/sh\nsleep {30 * HOUR:g}\n", nodes, hours * HOUR, requeue=True, **more)
        job = await self.backend.submit(spec)
        await self.tell(job, checkpoint)
        return job

    async def tell(self, job, checkpoint=None):
        uid = self.engine.uid_of("alice")
        await self.moldables.register(uid, job, SHAPES, checkpoint)
        self.pass_at = self.now

    async def rival(self, nodes, hours, user="bob"):
        spec = JobSpec("rival", f"#!/bin/sh\nsleep {hours * HOUR:g}\n", nodes, hours * HOUR)
        return await self.backend.as_user(user).submit(spec)

    def job(self, number):
        return self.engine.records[number]

    def shape(self, number):
        found = self.job(number)
        return (found.num_nodes, found.time_limit / HOUR)

    def decided(self, number):
        return [(d["verb"], d["reasons"][0][0]) for d in self.store.decisions.of(f"job {number}")]


@pytest.fixture
def mine(monkeypatch, tmp_path):
    """The agent's own user is Alice, whose checkpoints it looks at."""
    alice = Molding(tmp_path / "probe").engine.uid_of("alice")
    monkeypatch.setattr(os, "geteuid", lambda: alice)


@virtual
async def test_the_nodes_of_a_waiting_job_follow_the_queue(tmp_path):
    world = Molding(tmp_path)
    await world.boot()
    blocker = await world.rival(8, 10)
    job = await world.molded()
    await world.until(lambda: world.shape(job) == (8, 2.0))
    assert world.job(job).state is JobState.PENDING
    # A second pass over a picture from before that asks for nothing.
    before = await world.app.observer.look(0.0)
    old = replace(before, jobs={**before.jobs, job: replace(before.jobs[job], num_nodes=2, time_limit=8 * HOUR)})
    old = replace(old, taken_at=world.moldables.jobs[job].since)
    assert await world.moldables.reconcile(old) == []
    # Four nodes become free six hours before the others.
    await world.backend.as_user("bob").cancel(blocker)
    assert world.engine.jobs[job].state is JobState.RUNNING  # at once, on all of them
    await world.until(lambda: world.decided(job) == [("change", "ends-first")])
    await world.backend.cancel(job)
    await world.until(lambda: not world.moldables.jobs)
    assert world.store.moldable.live() == [] and world.store.moldable.owner(job) == world.engine.uid_of("alice")


@virtual
async def test_it_shrinks_where_that_ends_sooner_and_keeps_its_place(tmp_path):
    world = Molding(tmp_path)
    await world.boot()
    await world.rival(4, 10)
    long = await world.rival(4, 9)
    job = await world.molded(8, 2.0)
    behind = await world.rival(8, 1)
    submitted = world.job(job).submit
    await world.until(lambda: world.shape(job) == (8, 2.0))
    await world.backend.as_user("bob").cancel(long)
    await world.until(lambda: world.job(job).state is JobState.RUNNING)
    assert (len(world.job(job).nodes), world.shape(job)) == (4, (4, 4.0))
    assert world.job(job).submit == submitted and world.job(behind).state is JobState.PENDING


@virtual
async def test_what_slurm_does_not_give_its_owner_is_not_asked_for_again(tmp_path):
    enforced = frozenset({"associations", "limits", "qos"})
    world = Molding(tmp_path, enforced=enforced, qos_limits={"normal": NodeLimits(max_nodes=4)})
    await world.boot()
    for _ in range(2):
        await world.rival(4, 10)
    job = await world.molded()
    await world.until(lambda: world.shape(job) == (4, 4.0))
    assert world.moldables.jobs[job].refused == (8,)
    asked = [d for d in world.decided(job) if d[1] == "ends-first"]
    await world.until(lambda: world.passes > 30)
    assert [d for d in world.decided(job) if d[1] == "ends-first"] == asked


@virtual
async def test_where_not_even_the_smallest_is_given_it_waits_as_it_is(tmp_path):
    enforced = frozenset({"associations", "limits", "qos"})
    world = Molding(tmp_path, enforced=enforced, qos_limits={"normal": NodeLimits(max_nodes=1)})
    await world.boot()
    job = await world.molded()
    me = world.moldables.jobs[job]
    world.moldables._put(replace(me, refused=(2, 4, 8)))
    await world.until(lambda: world.passes > 5)
    seen = await world.app.observer.look(0.0)
    assert seen.jobs[job].reason.startswith("QOS")
    assert await world.moldables.reconcile(seen) == []
    assert world.shape(job) == (2, 8.0) and job in world.moldables.jobs


@virtual
async def test_it_is_left_while_all_is_off_paused_or_held(tmp_path):
    world = Molding(tmp_path)
    await world.boot()
    await world.rival(8, 10)
    world.app.executor.pause_control.turn_off(Off(0, world.now, "work on Slurm"))
    job = await world.molded()
    passes = world.passes
    await world.until(lambda: world.passes > passes + 5)
    assert world.shape(job) == (2, 8.0)
    await world.backend.hold(job)
    world.app.executor.pause_control.turn_on()
    passes = world.passes
    await world.until(lambda: world.passes > passes + 5)
    assert world.shape(job) == (2, 8.0)
    await world.backend.release(job)
    await world.until(lambda: world.shape(job) == (8, 2.0))


@virtual
async def test_a_pause_costs_nothing_and_a_size_given_by_hand_stays(tmp_path):
    world = Molding(tmp_path)
    await world.boot()
    await world.rival(8, 10)
    alice = world.engine.uid_of("alice")
    world.app.executor.pause_control.pause(Pause("malleable", alice, None, 0, world.now, "by hand"))
    job = await world.molded()
    saved, passes = [], world.passes
    keep, world.store.moldable.save = world.store.moldable.save, lambda *state: saved.append(state)
    await world.until(lambda: world.passes > passes + 5)
    assert world.shape(job) == (2, 8.0) and not saved
    world.store.moldable.save = keep
    await world.backend.update(job, nodes=3)
    world.app.executor.pause_control.resume(world.app.executor.pause_control.pauses)
    await world.until(lambda: not world.moldables.jobs)
    assert world.shape(job) == (3, 8.0) and ("hold", "changed") in world.decided(job)


@virtual
async def test_only_a_job_of_the_callers_may_be_told_of(tmp_path):
    world = Molding(tmp_path)
    await world.boot()
    await world.rival(8, 10)
    theirs = await world.rival(1, 1)
    array = await world.backend.submit(JobSpec("array", "#!/bin/sh\n", 1, 60.0, array="1-3"))
    for job, error in ((theirs, NotFound), (array, UserError)):
        with pytest.raises(error):
            await world.tell(job)
    assert not world.moldables.jobs
    # One that may be on its way: nobody is told whose it is before a look has shown that.
    await world.tell(12345)
    assert world.moldables._announced and world.app.owner_of("job 12345") is None
    await world.until(lambda: not world.moldables._announced, 30.0)
    assert not world.moldables.jobs and world.store.moldable.live() == []


def answering(world, job, delay=5.0):
    """The program writes its file so long after each signal."""
    take = world.engine.take_effects

    def seen():
        effects = take()
        for effect in effects:
            if isinstance(effect, Signalled):
                world.signals.append((world.now, effect.number))
                if world.saves:
                    world.files["/state"] = SavedFile(world.now + delay, 10)
        return effects

    world.engine.take_effects = seen
    return Checkpoint(signal.SIGUSR1, "/state")


async def stuck_on_two(world):
    """Alice's job has begun on two nodes, beside one that ends long before it was to."""
    rival = await world.rival(6, 20)
    job = await world.molded(2, 8.0)
    await world.until(lambda: world.job(job).state is JobState.RUNNING)
    saves = answering(world, job)
    await world.tell(job, saves)
    await world.until(lambda: world.now > world.job(job).start + 700, 5000.0)
    world.freed = world.now - world.job(job).start
    await world.backend.as_user("bob").cancel(rival)
    return job


@virtual
async def test_a_running_job_is_put_back_where_it_ends_much_sooner(tmp_path, mine):
    world = Molding(tmp_path)
    await world.boot()
    job = await stuck_on_two(world)
    begun = world.now
    await world.until(lambda: world.job(job).restarts == 1 and world.job(job).state is JobState.RUNNING)
    assert (len(world.job(job).nodes), world.shape(job)) == (8, (8, 2.0))
    assert 120.0 < world.now - begun < 200.0  # the two minutes are Slurm's
    assert [number for _at, number in world.signals] == [signal.SIGUSR1]
    me = world.moldables.jobs[job]
    await world.until(lambda: world.moldables.jobs[job].phase is MoldPhase.WAITING)
    assert me.done == pytest.approx(world.freed / (8 * HOUR), abs=0.01)
    await world.until(lambda: world.now > begun + 2000, 5000.0)
    assert world.job(job).restarts == 1  # and not again


@virtual
async def test_nobody_looks_at_the_files_of_another_user(tmp_path):
    world = Molding(tmp_path)
    await world.boot()
    job = await stuck_on_two(world)
    end = world.now + 2000
    await world.until(lambda: world.now > end, 5000.0)
    assert world.job(job).restarts == 0 and not world.signals


@virtual
async def test_it_goes_on_where_no_checkpoint_comes(tmp_path, mine):
    world = Molding(tmp_path)
    await world.boot()
    world.saves = False
    job = await stuck_on_two(world)
    await world.until(lambda: ("hold", "no-checkpoint") in world.decided(job), 1000.0)
    await world.until(lambda: world.passes > 200, 5000.0)
    assert world.job(job).restarts == 0 and world.job(job).state is JobState.RUNNING
    assert len(world.signals) == 1


@virtual
async def test_it_goes_on_where_the_nodes_are_gone_when_it_has_saved(tmp_path, mine):
    world = Molding(tmp_path)
    await world.boot()
    job = await stuck_on_two(world)
    await world.until(lambda: world.signals)
    await world.rival(6, 20)
    await world.until(lambda: ("hold", "overtaken") in world.decided(job), 1000.0)
    assert world.job(job).restarts == 0


@virtual
async def test_killed_before_any_write_or_request_it_runs_in_the_end(tmp_path, mine):
    deaths = 0
    while True:
        world = Molding(tmp_path / str(deaths))
        await world.boot()
        job = await stuck_on_two(world)
        world.fuse.at = world.fuse.points + deaths
        first = world.fuse
        await world.until(lambda: world.job(job).restarts == 1 and world.job(job).state is JobState.RUNNING, 9000.0)  # noqa: B023
        if not first.dead:
            break
        await world.until(lambda: not world.fuse.dead and world.moldables.jobs[job].phase is MoldPhase.WAITING)  # noqa: B023
        assert len(world.job(job).nodes) in (2, 8)
        assert world.job(job).restarts == 1
        deaths += 1
    assert deaths > 8


def asks(world, serves):
    callers = Callers(world.backend.operators, world.clock, serves)
    return MoldableRequests(world.moldables, callers).operations()


@virtual
async def test_the_door_takes_what_an_owner_says_and_nothing_else(tmp_path):
    world = Molding(tmp_path)
    await world.boot()
    await world.rival(6, 10)
    job = await world.backend.submit(JobSpec("mold", "#!/bin/sh\n", 4, 4 * HOUR))
    uid, door = world.engine.uid_of("alice"), asks(world, lambda uid: uid == 7)
    alices = asks(world, lambda _uid: True)
    said = {"shapes": "2:8h,4:4h", "checkpoint": "USR1:/x"}
    assert await alices["shape"](uid, said) == {"nodes": 2, "limit": 8 * HOUR}
    assert await alices["mold"](uid, {**said, "job": job}) == {"job": job, "puts_back": False}
    assert world.moldables.jobs[job].checkpoint == Checkpoint(signal.SIGUSR1, "/x")
    assert world.app.owner_of(f"job {job}") == uid
    for request, error in (
        ({**said, "job": "7"}, "job: must be the number"),
        ({**said, "job": True}, "job: must be the number"),
        ({"job": job, "shapes": 4}, "shapes: must be a text"),
        ({"job": job, "shapes": "2"}, "shapes: must be NODES:TIME"),
        ({"job": job, "shapes": "2:1h,4:1h", "checkpoint": "x"}, "checkpoint: must be SIGNAL:FILE"),
    ):
        with pytest.raises(UserError, match=error):
            await alices["mold"](uid, request)
    for op in ("shape", "mold"):
        with pytest.raises(NotPermitted):
            await door[op](uid, {**said, "job": job})
