"""penstock off and on under the whole agent over the simulated Slurm: in every phase of a resize, with workflows of
both kinds, and with kills in between."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise

import pytest

from penstock.api import FAR, Allocation, JobSpec, JobState
from penstock.core.offitems import ItemState
from penstock.errors import LeftAlone, NotPermitted, UserError
from penstock.resize.running.words import ResizePhase
from penstock.workflow.phases import Kept, RunPhase
from penstock_lab.agent_world import APP, SITE, WAYS, Killed, World, chain, settled, the_phase, virtual
from penstock_planning.hold.reservations import Reservations
from penstock_planning.plan.holding import WantedSlot

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

ME = os.geteuid()


async def ask(world: World, op: str, uid: int = ME, **request):
    return await world.app.operations[op](uid, request)


async def turn_off(world: World, **request):
    """Off, and on with the world until nothing more happens by itself."""
    while True:
        told = await ask(world, "off", **request)
        lives = world.lives
        world.pass_at = world.now
        await world.until(lambda w=world, n=lives: w.lives > n or w.drain.settled)
        if world.lives == lives:
            return told


async def turn_on(world: World) -> None:
    await ask(world, "on")
    world.pass_at = world.now


def left(world: World) -> list[tuple[str, str]]:
    assert world.drain.report is not None
    return [(i.kind, i.text) for i in world.drain.report.items if i.place is ItemState.LEFT]


# -- malleable jobs ----------------------------------------------------------------------------------------------------


async def phase_of(world: World, program, phase: ResizePhase) -> None:
    """Until the job is in this phase of a growth or of a shrink."""
    if phase in (ResizePhase.PROPOSED, ResizePhase.LEAVING, ResizePhase.RELEASING):
        await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
        await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: the_phase(world, program) is phase or program.sizes[-1] == 8)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", ["grown", *ResizePhase])
@pytest.mark.few(13)
@virtual
async def test_off_in_any_phase_leaves_a_job_with_its_own_nodes_and_on_grows_it_again(tmp_path, phase, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(seconds=900, takes=6.0, **APP[way])
    if phase == "grown":
        await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    else:
        await phase_of(world, program, phase)
    await turn_off(world, why="maintenance")
    assert left(world) == []
    assert world.resizers() == []
    assert world.engine.records[program.job].state is JobState.RUNNING
    # Where the ranks run is what the job has, and a merge that was taken up stays: those nodes are its own.
    assert set(program.nodes) == program.granted([]) == set(world.engine.job(program.job).nodes)
    assert len(program.nodes) == 2 or way == "merge"
    sizes, before = list(program.sizes), world.now
    await world.until(lambda: world.now > before + 100)
    assert program.sizes == sizes, "nothing is begun while it is off"
    await turn_on(world)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    await world.until(lambda: world.engine.records[program.job].state.ended)
    assert world.engine.records[program.job].state is JobState.COMPLETED
    await world.until(lambda: not world.malleables.jobs)
    assert world.engine.owner == {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["growing", "grown"])
@pytest.mark.few(2)
@virtual
async def test_off_killed_before_any_write_or_request_is_repeated_and_leaves_nothing(tmp_path, way, when):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k), **SITE[way])
        await world.boot()
        program = await world.malleable(seconds=900, **APP[way])
        if when == "grown":
            await world.until(lambda p=program, w=world: p.sizes[-1] == 8 and settled(w, p))
        else:
            phases = (ResizePhase.MERGING, ResizePhase.JOINING, ResizePhase.OFFERED)
            await world.until(lambda p=program, w=world, some=phases: the_phase(w, p) in some)
        world.fuse.at = world.fuse.points + k
        try:
            await ask(world, "off")
        except Killed:
            await world.restart()
            await ask(world, "off")
        world.pass_at = world.now
        await world.until(lambda w=world: not w.fuse.dead and w.drain.settled)
        blown = world.lives > 1
        assert left(world) == [] and world.resizers() == [], k
        assert world.app.executor.pause_control.off is not None, "it outlives the agent"
        assert set(program.nodes) == set(world.engine.job(program.job).nodes)
        world.kill()
        k += 1
    assert k > (2 if (way, when) == ("merge", "grown") else 8)


@pytest.mark.parametrize("way", ["companion", "launcher"])
@virtual
async def test_what_a_program_does_not_give_back_is_listed_and_its_job_goes_on(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(seconds=300, **APP[way])
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    program.answers = "ignore"
    await ask(world, "off")
    before = world.now
    await world.until(lambda: world.now > before + 60)
    assert not world.drain.settled
    told = await ask(world, "left")
    companions = [i for i in told["report"]["items"] if i["kind"] == "companion"]
    (held,) = companions
    assert held["place"] == "left" and held["pending"] and held["jobs"] == [program.companions[-1]]
    assert held["todo"][0]["command"] == f"scancel {program.companions[-1]}"
    # Who is neither the owner nor an operator hears nothing of it.
    assert (await ask(world, "left", uid=ME + 7))["report"]["items"] == []
    await world.until(lambda: world.engine.records[program.job].state.ended)
    assert world.engine.records[program.job].state is JobState.COMPLETED
    await world.until(lambda: world.drain.settled)
    assert left(world) == [] and world.engine.owner == {}


@virtual
async def test_a_program_whose_work_would_not_fit_keeps_its_companion_and_its_limit(tmp_path):
    world = World(tmp_path, contain=True, operator=False)
    await world.boot()
    more = APP["companion"] | {"steps_left": 100, "step_seconds": 5.0}
    program = await world.malleable(seconds=500, limit=700, **more)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    limit = world.engine.job(program.job).time_limit
    await turn_off(world)
    ((kind, text),) = left(world)
    assert kind == "companion" and "the ranks stay there: on 2 processes the 100 steps that are left would take" in text
    assert world.engine.job(program.job).time_limit == limit
    assert world.resizers()


# -- workflows of the agent's own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["perstage", "asa", "eager", "asa-naive", "asa-after", "handover", "bigjob"])
@virtual
async def test_jobs_of_a_workflow_go_on_in_order_and_what_was_not_submitted_waits(tmp_path, strategy):
    for seconds in (1, 9, 31, 55):
        world = World(tmp_path / str(seconds), nodes=4)
        await world.boot()
        number = await world.submit(chain(40.0, 30.0, 20.0, nodes=3), strategy)
        at = world.now + seconds
        await world.until(lambda t=at, w=world: w.now >= t)
        await turn_off(world)
        assert left(world) == []
        submitted = world.submissions()
        names = {j.id: j.name.split(".")[0] for j in world.living()}
        for job in await world.backend.jobs():  # nothing waits for an agent, and nothing may start before its time
            if job.pending and names[job.id] in "bc":
                assert job.priority > 0 and "afterok:" in job.dependency, (seconds, job)
        before = world.now
        await world.until(lambda t=before, w=world: w.now > t + 300)
        assert world.submissions() == submitted, "nothing is submitted while it is off"
        assert not world.living()
        await turn_on(world)
        run = await world.finish(number)
        assert run.phase is RunPhase.COMPLETED, run.why
        assert all(count == 1 for count in world.submissions().values()), world.submissions()
        records = {j.name.split(".")[0]: j for j in world.engine.records.values()}
        order = [records[letter] for letter in "abc" if letter in records]
        for parent, child in pairwise(order):
            assert parent.end <= child.start
        world.kill()


@virtual
async def test_what_begins_something_is_refused_and_what_ends_something_is_not(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(300.0, 30.0), "perstage")
    await world.until(lambda: world.living())
    await turn_off(world, why="a new release")
    for op in ("submit", "guide", "plan", "retry"):
        with pytest.raises(LeftAlone, match=r"turned off at .*: a new release \(`penstock on` .*sbatch"):
            await ask(world, op)
    told = await ask(world, "status")
    assert told["problems"][0].startswith("Penstock was turned off at") and told["off"]["why"] == "a new release"
    assert (await ask(world, "pauses"))[-1]["why"].startswith("Penstock was turned off")
    with pytest.raises(NotPermitted, match="operator"):
        await ask(world, "off", uid=ME + 7)
    with pytest.raises(NotPermitted, match="operator"):
        await ask(world, "on", uid=ME + 7)
    with pytest.raises(UserError, match="units"):
        await ask(world, "off", units=["system sshd.service enabled"])
    await ask(world, "cancel", run=number)
    await world.until(lambda: not world.living())
    await turn_on(world)
    with pytest.raises(UserError, match="not off"):
        await ask(world, "end")
    assert (await world.finish(number)).phase is RunPhase.CANCELLED


@virtual
async def test_a_submission_without_an_answer_is_found_while_it_is_off(tmp_path):
    world = World(tmp_path)
    await world.boot()
    world.failing = lambda method: "lost" if method == "submit" else None
    number = await world.submit(chain(30.0, 30.0), "perstage")
    await world.until(lambda: world.submissions())
    world.failing = lambda _method: None
    await turn_off(world)
    assert left(world) == [] and world.submissions() == {"a": 1}
    await turn_on(world)
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    assert world.submissions() == {"a": 1, "b": 1}


# -- workflows whose owners have submitted the jobs --------------------------------------------------------------------


async def own_jobs(world: World, strategy: str, kept: Kept = Kept.BEGIN) -> tuple[int, list[int]]:
    """Stages a, b, c of alice's own, b and c kept back; the workflow's number and the jobs."""
    jobs: list[int] = []
    stages = []
    for letter in "abc":
        behind = f"afterok:{jobs[-1]}" if jobs else None
        how = kept if jobs else Kept.NOT
        script = "#!/bin/sh\nsleep 30\n"
        ways = {"hold": how is Kept.HOLD, "begin": FAR if how is Kept.BEGIN else None}
        jobs.append(await world.backend.submit(JobSpec(letter, script, 2, 60, dependency=behind, requeue=True, **ways)))
        after = [stages[-1]["name"]] if stages else []
        stages.append({"name": letter, "job": jobs[-1], "after": after, "kept": how.value, "expect": 30.0})
    uid = world.engine.uid_of("alice")
    asked = {"workflow": "w", "strategy": strategy, "stages": stages}
    return await world.workflows.registrations.register(uid, asked), jobs


def site_of_all(folder, **cluster) -> World:
    return World(folder, operator=True, **cluster)


@pytest.mark.parametrize("kept", [Kept.BEGIN, Kept.HOLD])
@pytest.mark.parametrize("strategy", ["asa", "perstage"])
@virtual
async def test_stages_kept_back_are_listed_with_what_to_type_and_go_on_when_it_is_on_again(tmp_path, strategy, kept):
    world = site_of_all(tmp_path)
    await world.boot()
    number, jobs = await own_jobs(world, strategy, kept)
    await world.until(lambda: world.engine.job(jobs[0]).state is JobState.RUNNING)
    await turn_off(world)
    told = await ask(world, "left")
    waiting = [i for i in told["report"]["items"] if i["place"] == "left"]
    if strategy == "perstage":
        (item,) = waiting
        assert item["uid"] == world.engine.uid_of("alice") and item["jobs"] == jobs[1:] and not item["pending"]
        both = f"{jobs[1]},{jobs[2]}"
        free = {
            Kept.HOLD: f"scontrol release {both}",
            Kept.BEGIN: f"scontrol update jobid={both} StartTime=now ResetAccrueTime",
        }
        assert item["todo"][0]["command"] == free[kept]
        assert item["todo"][1]["command"] == f"scancel {jobs[1]} {jobs[2]}"
    before = world.now
    await world.until(lambda: world.now > before + 200)
    assert world.engine.records[jobs[0]].state is JobState.COMPLETED
    await turn_on(world)
    await world.until(lambda: number not in world.workflows.runs)
    assert [world.engine.records[j].state for j in jobs] == [JobState.COMPLETED] * 3


@pytest.mark.parametrize("kept", [Kept.BEGIN, Kept.HOLD])
@pytest.mark.parametrize("strategy", ["asa", "perstage"])
@pytest.mark.parametrize("seconds", [1, 20, 40])
@virtual
async def test_released_stages_run_in_order_without_an_agent(tmp_path, strategy, seconds, kept):
    world = site_of_all(tmp_path)
    await world.boot()
    number, jobs = await own_jobs(world, strategy, kept)
    begun = world.now
    await world.until(lambda: world.now > begun + seconds)
    await turn_off(world, release=True)
    assert left(world) == []
    assert not any(job.held or job.put_off for job in await world.backend.jobs() if job.pending)
    # Only jobs go on from here: time passes, and nobody makes a pass.
    for _ in range(400):
        world.clock.advance(1.0)
    ran = [world.engine.records[j] for j in jobs]
    assert [job.state for job in ran] == [JobState.COMPLETED] * 3
    assert ran[0].end <= ran[1].start and ran[1].end <= ran[2].start
    await turn_on(world)
    await world.until(lambda: number not in world.workflows.runs)


@virtual
async def test_a_lost_dependency_is_put_back_before_a_stage_is_released_and_a_foreign_hold_stays(tmp_path):
    world = site_of_all(tmp_path)
    await world.boot()
    _number, jobs = await own_jobs(world, "perstage")
    await world.until(lambda: world.engine.job(jobs[0]).state is JobState.RUNNING)
    await world.backend.update(jobs[1], dependency="")  # its begin time still keeps it
    await world.backend.as_user("root").hold(jobs[2])
    await turn_off(world, release=True)
    seen = {job.id: job for job in await world.backend.jobs()}
    assert seen[jobs[1]].dependency.startswith(f"afterok:{jobs[0]}") and not seen[jobs[1]].put_off
    assert seen[jobs[2]].reason == "JobHeldAdmin", "an administrator's hold is left alone"


@virtual
async def test_a_stage_behind_one_that_failed_stays_and_is_listed(tmp_path):
    world = site_of_all(tmp_path)
    await world.boot()
    _number, jobs = await own_jobs(world, "perstage")
    await world.until(lambda: world.engine.job(jobs[0]).state is JobState.RUNNING)
    await world.backend.cancel(jobs[0])
    before = world.now
    await world.until(lambda: world.now > before + 10)
    await turn_off(world, release=True)
    ((kind, text),) = left(world)
    assert kind == "stage" and f"b (job {jobs[1]}), c (job {jobs[2]})" in text


@pytest.mark.parametrize("release", [False, True])
@virtual
async def test_off_killed_anywhere_with_workflows_of_both_kinds_loses_no_stage_and_runs_none_twice(tmp_path, release):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k), nodes=8)
        await world.boot()
        own = await world.submit(chain(40.0, 30.0, 20.0, nodes=3), "handover")
        number, jobs = await own_jobs(world, "perstage")
        begun = world.now
        await world.until(lambda w=world, t=begun: w.now > t + 5)
        world.fuse.at = world.fuse.points + k
        try:
            await ask(world, "off", release=release)
        except Killed:
            await world.restart()
            await ask(world, "off", release=release)
        world.pass_at = world.now
        await world.until(lambda w=world: not w.fuse.dead and w.drain.settled)
        blown = world.lives > 1
        world.fuse.at = math.inf
        assert [kind for kind, _ in left(world)] == ([] if release else ["stage"]), k
        await turn_on(world)
        assert (await world.finish(own)).phase is RunPhase.COMPLETED
        await world.until(lambda w=world, n=number: n not in w.workflows.runs)
        assert [world.engine.records[j].state for j in jobs] == [JobState.COMPLETED] * 3
        names = Counter(j.name for j in world.engine.records.values())
        assert set(names.values()) == {1}, names
        world.kill()
        k += 1
    assert k > 4


@virtual
async def test_a_stage_that_its_owner_wants_later_is_listed_with_that_time(tmp_path):
    world = site_of_all(tmp_path)
    await world.boot()
    script = "#!/bin/sh\nsleep 30\n"
    first = await world.backend.submit(JobSpec("a", script, 2, 60))
    second = await world.backend.submit(JobSpec("b", script, 2, 60, dependency=f"afterok:{first}", begin=FAR))
    stages = [
        {"name": "a", "job": first, "after": []},
        {"name": "b", "job": second, "after": ["a"], "kept": "begin", "begin": world.now + 3600},
    ]
    asked = {"workflow": "w", "strategy": "asa", "stages": stages}
    await world.workflows.registrations.register(world.engine.uid_of("alice"), asked)
    await world.until(lambda: world.engine.job(first).state is JobState.RUNNING)
    await turn_off(world, release=True)
    (item,) = [i for i in world.drain.report.items if i.place is ItemState.LEFT]
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(stages[1]["begin"]))
    assert item.todo[0][0] == f"scontrol update jobid={second} StartTime={when} ResetAccrueTime"


# -- slots and bags ----------------------------------------------------------------------------------------------------


def wanted(world: World, name: str, at: float, method: str = "reservation", **more) -> WantedSlot:
    return WantedSlot(name, "root", "default", 2, "main", world.now + at, 600.0, method, 1.0, 0.0, **more)


@pytest.mark.parametrize("drop", [False, True])
@virtual
async def test_slots_are_listed_and_those_that_nobody_uses_are_dropped_on_request(tmp_path, drop):
    ledger = str(tmp_path / "ledger.db")
    world = World(tmp_path, {"provision": {"ledger": ledger}}, operator=True, nodes=16)
    await world.boot()
    with closing(Reservations(world.config, world.app.backend, world.app.executor)) as reservations:
        unused = await reservations.holds.open(wanted(world, "unused", 3000))
        used = await reservations.holds.open(wanted(world, "used", 4000))
        idles = await reservations.holds.open(wanted(world, "idles", 500, "var", submit_at=world.now, run_time=1200.0))
        later = await reservations.holds.open(
            wanted(world, "later", 9000, "var", submit_at=world.now + 8000, run_time=1200.0)
        )
    root = world.backend.as_user("root")
    job = await root.submit(JobSpec("mine", "#!/bin/sh\nsleep 60\n", 1, 120, reservation="used"))
    idling = lambda: [j for j in world.engine.jobs.values() if j.name == "idles" and not j.state.ended]  # noqa: E731
    await world.until(lambda: any(j.state is JobState.RUNNING for j in idling()))
    await turn_off(world, drop_slots=drop)
    items = {i.text.split()[1]: i for i in world.drain.report.items if i.kind == "slot"}
    left_alone = {"used"} if drop else {"used", "unused"}
    if drop:
        assert set(items) == {str(used)} and idling() == []
    else:
        places = {
            str(unused): ItemState.LEFT,
            str(used): ItemState.LEFT,
            str(idles): ItemState.LEFT,
            str(later): ItemState.WAITS,
        }
        assert {number: item.place for number, item in items.items()} == places
        assert items[str(unused)].todo[0][0] == f"penstock hold cancel {unused}"
    assert {r.name for r in await root.reservations()} == left_alone
    assert items[str(used)].jobs == (job,) and items[str(used)].todo == ()
    with closing(Reservations(world.config, world.app.backend, world.app.executor)) as reservations:
        with pytest.raises(LeftAlone, match="turned off at"):
            await reservations.holds.open(wanted(world, "new", 5000))
        await reservations.tick()
    assert {r.name for r in await root.reservations()} == left_alone


@virtual
async def test_a_resizer_that_no_state_knows_is_cancelled_if_it_is_the_agents_own(tmp_path):
    world = World(tmp_path)
    await world.boot()
    mine = await world.backend.allocate(Allocation("penstock-77-0123456789ab", 2, 600), 10.0)
    other = await world.bob.allocate(Allocation("penstock-78-0123456789ab", 2, 600), 10.0)
    kept = await world.backend.submit(JobSpec("penstock-79", "#!/bin/sh\nsleep 600\n", 1, 700))
    await turn_off(world)
    assert world.engine.records[mine].state.ended
    assert world.engine.records[other].state is JobState.RUNNING, "whoever names a job so has not given it to us"
    assert world.engine.records[kept].state is JobState.RUNNING
    assert left(world) == []
