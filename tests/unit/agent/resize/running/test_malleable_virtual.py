"""Malleable jobs under the whole agent over the simulated Slurm: what kills and faults leave of them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from penstock.api import Allocation, JobSpec, JobState
from penstock.errors import Infeasible, NotNow, NotPermitted, OutcomeUnknown, SlurmUnavailable
from penstock.resize.running.words import ResizePhase
from penstock.workflow.phases import RunPhase
from penstock_lab.agent_world import APP, SITE, START, WAYS, Killed, Program, World, chain, settled, the_phase, virtual
from penstock_lab.mock.codec import CHANGING
from penstock_plugins.noop import Noop

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


async def breathe(world: World, program: Program) -> None:
    """Grow on idle nodes, shrink for a pending job, grow again when it has gone."""
    await world.until(lambda: program.sizes[-1] == 8)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED)
    await world.until(lambda: program.sizes[-1] == 8 and len(program.sizes) >= 4)
    await world.until(lambda: settled(world, program))


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_a_malleable_job_grows_on_idle_nodes_and_shrinks_for_a_pending_job(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(**APP[way])
    await breathe(world, program)
    # A companion is given back as a whole, and what the pending job leaves is grown onto at once.
    assert program.sizes == ([2, 8, 4, 8] if way == "merge" else [2, 8, 2, 4, 8])
    kinds = [(r["kind"], r["old_size"], r["new_size"], r["outcome"]) for r in world.store.resizes.latest()]
    steps = zip(program.sizes, program.sizes[1:], strict=False)
    assert kinds == [("expand" if b > a else "shrink", a, b, "completed") for a, b in steps]
    marks = world.store.resizes.latest()[0]["marks"]
    granted = marks["merged" if way == "merge" else "joined"]
    assert marks["decided"] <= marks["granted"] <= granted <= marks["accepted"] <= marks["done"]
    assert marks["app_spawn"] == 1.0
    shrink = world.store.resizes.latest()[1]["marks"]
    assert shrink["decided"] <= shrink["accepted"] <= shrink["done"] <= shrink["released"]
    await world.until(lambda: world.engine.records[program.job].state.ended)
    await world.until(lambda: not world.malleables.jobs)
    assert world.store.malleable.live() == []
    assert world.engine.owner == {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.few(1)
@virtual
async def test_an_agent_thrown_away_at_any_pass_of_a_resize_leaves_no_resizer(tmp_path, way):
    k, passes, phases = 0, 1, set()
    while k < passes:
        world = World(tmp_path / str(k), **SITE[way])
        await world.boot()
        program = await world.malleable(seconds=600, takes=6.0, **APP[way])

        async def throw_away(world=world, program=program, k=k):
            if world.passes == k + 1 and world.lives == 1:
                me = world.malleables.jobs.get(program.job)
                phases.add(me.phase if me else None)
                world.fuse.dead = True

        world.each_pass = throw_away
        await breathe(world, program)
        passes = world.passes
        await world.until(lambda w=world, p=program: w.engine.records[p.job].state.ended)
        await world.until(lambda w=world: not w.malleables.jobs)
        assert world.engine.owner == {}, k
        world.kill()
        k += 1
    first = ResizePhase.MERGING if way == "merge" else ResizePhase.JOINING
    assert {first, ResizePhase.OFFERED, ResizePhase.RESIZING, ResizePhase.PROPOSED, ResizePhase.LEAVING} <= phases, (
        phases
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.few(1)
@virtual
async def test_an_agent_killed_before_any_write_or_request_of_a_resize_leaves_no_resizer(tmp_path, way):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k), **SITE[way])
        await world.boot()
        program = await world.malleable(seconds=600, **APP[way])
        world.fuse.at = world.fuse.points + k
        await breathe(world, program)
        blown = world.lives > 1
        used = {c.job for c in world.malleables.jobs[program.job].companions}
        left = [j for j in world.engine.records.values() if isinstance(j.spec, Allocation) and j.id not in used]
        assert all(j.state in (JobState.COMPLETED, JobState.CANCELLED) for j in left), k
        world.kill()
        k += 1
    assert k > 30


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "fault", ["lost", NotNow("busy"), SlurmUnavailable("down"), OutcomeUnknown("never sent"), Infeasible("no")]
)
@pytest.mark.parametrize("method", ["allocate", "merge", "shrink", "cancel", "find", "jobs", "steps"])
@pytest.mark.few(35)
@virtual
async def test_a_call_that_fails_in_a_resize_delays_it_and_leaves_no_resizer(tmp_path, method, fault, way):
    if fault == "lost" and method not in CHANGING:
        pytest.skip("only a changing call can have done something before its answer is lost")
    if isinstance(fault, Infeasible) and method not in ("allocate", "merge"):
        pytest.skip("not an answer that this call can give")
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(seconds=3000, **APP[way])
    left = {method: 2}

    def first_two(name):
        if left.get(name, 0) > 0:
            left[name] -= 1
            return fault
        return None

    world.app.backend.failing = first_two
    await breathe(world, program)
    assert settled(world, program)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("answers", ["ignore", "refuse", "fail"])
@virtual
async def test_nodes_that_the_program_does_not_take_up_go_back(tmp_path, answers, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(seconds=3000, answers=answers, **APP[way])
    await world.until(lambda: len(world.engine.owner) == 8)
    merged = world.now
    await world.until(lambda: len(world.engine.owner) == 2, seconds=60)
    # accept_timeout is 30 s
    assert (30 < world.now - merged < 40) if answers == "ignore" else world.now - merged < 20
    await world.until(lambda: settled(world, program), seconds=20)
    assert program.sizes == [2]
    assert next(r["outcome"] for r in world.store.resizes.latest()) != "completed"


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_a_program_that_ignores_a_shrink_keeps_its_nodes(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(seconds=300, **APP[way])
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    program.answers = "ignore"
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED)
    assert program.sizes == [2, 8]
    assert world.engine.records[rival].start >= world.engine.records[program.job].end


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_a_shrink_that_is_no_longer_wanted_is_withdrawn(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await world.malleable(seconds=3000, **APP[way])
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    program.answers = "ignore"
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.malleables.jobs[program.job].phase is ResizePhase.PROPOSED)
    await world.bob.cancel(rival)
    await world.until(lambda: settled(world, program))
    program.answers = "accept"
    before = world.now
    await world.until(lambda: world.now > before + 30)
    assert program.sizes == [2, 8]


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_two_malleable_jobs_do_not_count_the_same_idle_nodes(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    both = [await world.malleable(seconds=2000, **APP[way]) for _ in range(2)]
    before = world.now
    await world.until(lambda: world.now > before + 200)
    sizes = sorted(len(p.nodes) for p in both)
    assert sizes in ([2, 4], [4, 4])
    await world.until(lambda: all(settled(world, p) for p in both))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", list(ResizePhase))
@virtual
async def test_a_job_that_ends_in_any_phase_leaves_nothing(tmp_path, phase, way):
    if phase in ((ResizePhase.JOINING,) if way == "merge" else (ResizePhase.MERGING, ResizePhase.GIVING_BACK)):
        pytest.skip("no phase of this way")
    world = World(tmp_path, **SITE[way])
    await world.boot()
    answers = "ignore" if phase is ResizePhase.GIVING_BACK else "accept"
    program = await world.malleable(seconds=3000, answers=answers, **APP[way])
    if phase is ResizePhase.JOINING:
        blind = world.app.backend.call

        async def not_after_the_grant(method, *args, **more):
            if method == "jobs" and the_phase(world, program) is phase:
                raise SlurmUnavailable("down")
            return await blind(method, *args, **more)

        world.app.backend.call = not_after_the_grant
    if phase is ResizePhase.ALLOCATING:
        # An allocation that Slurm lets wait, as a busy one does.
        async def forever(*_args):
            await asyncio.Event().wait()

        world.app.backend.allocate = forever
    if phase is ResizePhase.CLEANING:
        world.app.backend.failing = lambda method: NotNow("busy") if method == "allocate" else None
        world.launcher = lambda wanted: None
    if phase in (ResizePhase.GIVING_BACK, ResizePhase.RELEASING):
        world.app.backend.failing = lambda method: SlurmUnavailable("down") if method in ("shrink", "steps") else None
    if phase in (ResizePhase.PROPOSED, ResizePhase.LEAVING, ResizePhase.RELEASING):
        await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
        await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: the_phase(world, program) is phase)
    if phase is ResizePhase.JOINING:
        world.app.backend.call = blind
    await world.backend.cancel(program.job)
    await world.until(lambda: not world.malleables.jobs, seconds=60)
    before = world.now
    await world.until(lambda: world.now > before + 100)
    assert world.resizers() == []
    assert world.engine.owner == {}
    assert world.store.malleable.live() == []
    assert world.malleables._grower.waiting == {}


@virtual
async def test_workflows_and_malleable_jobs_live_side_by_side(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=1000)
    await world.until(lambda: program.sizes[-1] == 8)
    run = await world.finish(await world.submit(chain(60, 61, 62, nodes=4), "asa"))
    assert run.phase is RunPhase.COMPLETED
    assert 4 in program.sizes
    await world.until(lambda: settled(world, program))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.few(9)
@virtual
async def test_whatever_fails_a_resize_leaves_no_resizer_and_no_lost_node(tmp_path, seed, way):
    draw = random.Random(1000 + seed)
    world = World(tmp_path, **SITE[way])

    def sometimes(method):
        if draw.random() > 0.1:
            return None
        choices: list[Exception | str] = [SlurmUnavailable(f"{method}: no answer")]
        if method in CHANGING:
            choices += ["lost", OutcomeUnknown(f"{method}: never sent")]
        return draw.choice(choices)

    await world.boot()
    program = await world.malleable(seconds=20_000, **APP[way])
    end = world.now + 1500
    world.app.backend.failing = sometimes
    while world.now < end:
        await world.tick()
        if draw.random() < 0.03:
            await world.restart()
            world.app.backend.failing = sometimes
        if draw.random() < 0.01 and not world.living("bob"):
            await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    world.app.backend.failing = lambda _method: None
    await world.until(lambda: settled(world, program), seconds=3000)
    assert len(program.sizes) > 2


@pytest.mark.parametrize("answers", ["refuse", "fail"])
@virtual
async def test_nodes_go_back_even_if_the_last_look_is_older_than_the_merge(tmp_path, answers):
    slow = {"slurm": {"min_interval": 10}, "agent": {"interval": 60, "idle_interval": 60}}
    world = World(tmp_path, slow)
    await world.boot()
    program = await world.malleable(seconds=3000, answers=answers, every=1.0)
    await world.until(lambda: len(world.engine.job(program.job).nodes) == 8)
    await world.until(lambda: len(world.engine.job(program.job).nodes) == 2, seconds=120)
    await world.until(lambda: settled(world, program), seconds=120)


@virtual
async def test_where_jobs_cannot_grow_resizers_are_not_asked_for_again_and_again(tmp_path):
    world = World(tmp_path, contain=True)
    await world.boot()
    await world.malleable(seconds=3000)
    await world.until(lambda: world.now > START + 600)
    assert sum(isinstance(j.spec, Allocation) for j in world.engine.records.values()) <= 3
    assert world.resizers() == []


@virtual
async def test_a_merge_that_is_not_permitted_gives_the_resizers_nodes_back(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000)
    denied = NotPermitted("Access/permission denied")
    world.app.backend.failing = lambda method: denied if method == "merge" else None
    await world.until(lambda: the_phase(world, program) is ResizePhase.CLEANING, seconds=60)
    world.app.backend.failing = lambda method: NotNow("busy") if method == "allocate" else None
    await world.until(lambda: not world.resizers(), seconds=60)


@pytest.mark.parametrize("phase", [ResizePhase.MERGING, ResizePhase.OFFERED])
@virtual
async def test_a_program_ahead_of_the_agents_state_file_leaves_no_resizer(tmp_path, phase):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000)
    await world.until(lambda: the_phase(world, program) is phase)
    program.epoch = 7
    await program.step()
    before = world.now
    await world.until(lambda: world.now > before + 100)
    await world.until(lambda: settled(world, program))


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_a_policy_that_fails_for_one_job_holds_up_no_other(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    first, second = await world.malleable(seconds=3000, **APP[way]), await world.malleable(seconds=3000, **APP[way])
    real = world.malleables.settings.policy

    class FailsForTheFirst:
        name = "fails-for-the-first"

        def decide(self, offer, job, snapshot):
            if job.id == first.job:
                raise KeyError(job.partition)
            return real.decide(offer, job, snapshot)

    world.malleables.settings.policy = FailsForTheFirst()
    await world.until(lambda: second.sizes[-1] > 2, seconds=100)
    said = world.store.decisions.of(f"job {first.job}")[-1]
    text = "the policy fails-for-the-first has failed: KeyError: 'main'"
    assert (said["verb"], said["reasons"]) == ("hold", [["policy-failed", text]])


@virtual
async def test_a_policy_for_all_that_fails_or_gives_what_is_no_verdict_is_told_of_each_job(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000)

    def last():
        return [{"verb": ""}, *world.store.decisions.of(f"job {program.job}")][-1]

    class Fails:
        name = "fails"

        def decide_all(self, offers, snapshot):
            raise ValueError("oh")

    class Forgets:
        name = "forgets"

        def decide(self, offer, job, snapshot):
            "It forgets to return anything."

    texts = []
    for policy in (Fails(), Forgets()):
        world.malleables.settings.policy = policy
        await world.until(lambda: last()["verb"] == "hold", seconds=100)
        texts += last()["reasons"]
        world.malleables.settings.policy = Noop()
        await world.until(lambda: last()["verb"] == "nothing", seconds=100)
    assert texts == [
        ["policy-failed", "the policy fails has failed: ValueError: oh"],
        ["policy-failed", "the policy forgets has failed: TypeError: it gave None in place of a ResizeVerdict"],
    ]


@virtual
async def test_a_resizer_that_surfaces_long_after_the_agent_was_killed_is_cancelled(tmp_path):
    """The killed agent's request was under way; it reaches Slurm when the restarted one has stopped waiting for it."""
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=900, answers="ignore")
    sent = []

    async def allocate(spec, patience):
        sent.append(spec)
        world.fuse.dead = True
        raise Killed

    world.app.backend.allocate = allocate
    await world.until(lambda: sent and world.lives > 1)
    await world.until(lambda: world.malleables.jobs[program.job].resizer_name != sent[0].name)
    late = await world.backend.allocate(replace(sent[0], nodes=1), 1.0)
    begun = world.now
    await world.until(lambda: world.engine.job(late).state.ended, 200)
    assert world.now - begun < 130
