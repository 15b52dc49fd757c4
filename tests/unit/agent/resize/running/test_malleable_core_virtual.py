"""What the core does to malleable jobs beside the policy, under the whole agent over the simulated Slurm: companions
that end, limits, announcements, priorities, ends of a job in every phase."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from dmr import wire
from penstock.api import Allocation, JobSpec, JobState, Reason, ResizeVerdict
from penstock.errors import NotNow
from penstock.resize.running.words import ResizePhase
from penstock_lab.agent_world import APP, SITE, WAYS, Program, World, settled, the_phase, virtual
from penstock_lab.mock.jobs import SimJob

pytestmark = pytest.mark.usefixtures("quick_and_quiet")


class Wants:
    """A policy that wants one size for all."""

    name = "wants"

    def __init__(self, size: int) -> None:
        self.size = size

    def decide(self, offer, job, snapshot):
        return ResizeVerdict(self.size, (Reason("wanted", "the test wants it"),))


def codes(world: World, program: Program) -> set[str]:
    return {code for d in world.store.decisions.of(f"job {program.job}") for code, _ in d["reasons"]}


async def grown(world: World, **more) -> Program:
    """A program that has grown from two nodes of its own to four, two of them of a companion where that is the way."""
    program = await world.malleable(seconds=3000, **more)
    world.malleables.settings.policy = Wants(4)
    await world.until(lambda: program.sizes[-1] == 4 and settled(world, program), seconds=200)
    return program


async def rest(world: World, seconds: float = 60.0) -> None:
    before = world.now
    await world.until(lambda: world.now >= before + seconds, seconds + 60)


# -- companions --------------------------------------------------------------------------------------------------------


@virtual
async def test_each_growth_has_a_companion_and_the_last_leaves_first(tmp_path):
    world = World(tmp_path, **SITE["companion"])
    await world.boot()
    program = await grown(world, **APP["companion"])
    world.malleables.settings.policy = Wants(8)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    first, second = world.malleables.jobs[program.job].companions
    assert world.engine.job(first.job).limit_at <= world.engine.job(program.job).limit_at + 60
    world.malleables.settings.policy = Wants(4)
    await world.until(lambda: program.sizes[-1] == 4 and settled(world, program))
    assert world.engine.job(second.job).state is JobState.CANCELLED
    assert world.engine.job(first.job).state is JobState.RUNNING
    world.malleables.settings.policy = Wants(1)
    await world.until(lambda: program.sizes[-1] == 1 and settled(world, program))
    assert program.sizes == [2, 4, 8, 4, 1]
    assert len(world.engine.owner) == 1
    assert {"by-companion"} <= codes(world, program)


def scancel(world: World, companion: SimJob) -> None:
    world.engine.end(companion, JobState.CANCELLED)


def time_limit(world: World, companion: SimJob) -> None:
    world.engine.end(companion, JobState.TIMEOUT)


def dead_node(world: World, companion: SimJob) -> None:
    world.engine.fail_node(companion.nodes[0])


@pytest.mark.parametrize("end", [scancel, time_limit, dead_node])
@virtual
async def test_a_companion_that_ends_by_itself_is_no_longer_counted_with(tmp_path, end):
    world = World(tmp_path, **SITE["companion"])
    await world.boot()
    program = await grown(world, **APP["companion"])
    world.malleables.settings.policy = Wants(8)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    last = world.malleables.jobs[program.job].companions[-1]
    end(world, world.engine.job(last.job))
    program.next_at = math.inf  # its ranks hang in a call to the dead ones
    await rest(world)
    me = world.malleables.jobs[program.job]
    assert len(me.companions) == 1 and len(me.nodes) == 4 and "ended by itself" in me.note
    assert world.malleables.jobs[program.job].phase is ResizePhase.IDLE
    # One that survives says where it runs now, and is served again.
    program.nodes = program.nodes[:4]
    program.next_at = world.now
    world.malleables.settings.policy = Wants(2)
    await world.until(lambda: program.sizes[-1] == 2 and settled(world, program))
    assert world.resizers() == []


@pytest.mark.parametrize(
    "phase", [ResizePhase.JOINING, ResizePhase.OFFERED, ResizePhase.RESIZING, ResizePhase.PROPOSED, ResizePhase.LEAVING]
)
@virtual
async def test_a_companion_that_ends_in_a_resize_leaves_nothing(tmp_path, phase):
    world = World(tmp_path, **SITE["companion"])
    await world.boot()
    shrink = phase in (ResizePhase.PROPOSED, ResizePhase.LEAVING)
    program = await (grown(world, **APP["companion"]) if shrink else world.malleable(seconds=3000, **APP["companion"]))
    world.malleables.settings.policy = Wants(2 if shrink else 4)
    program.takes = 5.0
    await world.until(lambda: the_phase(world, program) is phase)
    (companion,) = world.resizers()
    scancel(world, companion)
    world.malleables.settings.policy = Wants(2)
    program.under_way = None
    program.nodes = world.engine.job(program.job).nodes
    program.answers = "ignore"  # it cannot tell an offer that is dead
    await world.until(lambda: settled(world, program), seconds=60)
    program.answers = "accept"
    assert world.resizers() == [] and len(world.engine.owner) == 2
    world.malleables.settings.policy = Wants(4)
    await world.until(lambda: program.sizes[-1] == 4 and settled(world, program))


@pytest.mark.parametrize("lives", [True, False])
@virtual
async def test_companions_of_a_job_that_ended_while_no_agent_ran_are_found_by_name(tmp_path, lives):
    world = World(tmp_path, **SITE["companion"])
    await world.boot()
    program = await grown(world, **APP["companion"])
    world.kill()
    world.fuse.dead = True
    if not lives:
        await world.backend.cancel(program.job)
    world.clock.advance(100)
    assert len(world.resizers()) == 1
    await world.boot()
    await rest(world)
    if lives:
        assert settled(world, program)
    else:
        assert world.resizers() == [] and world.engine.owner == {} and world.store.malleable.live() == []


@virtual
async def test_a_second_program_in_the_same_job_gives_back_what_the_first_had(tmp_path):
    world = World(tmp_path, **SITE["companion"])
    await world.boot()
    program = await grown(world, **APP["companion"])
    world.malleables.settings.policy = Wants(2)
    program.nodes, program.epoch = world.engine.job(program.job).nodes, 0
    await world.until(lambda: world.resizers() == [] and settled(world, program), seconds=60)


@virtual
async def test_a_companion_that_waits_for_its_nodes_is_no_job_of_the_queue_for_the_policy(tmp_path):
    world = World(tmp_path, **SITE["companion"])
    await world.boot()
    program = await world.malleable(seconds=3000, **APP["companion"])
    shown = []

    class Watches(Wants):
        def decide(self, offer, job, snapshot):
            shown.append({j.id for j in snapshot.jobs.values() if j.pending})
            return super().decide(offer, job, snapshot)

    other = await world.malleable(seconds=3000, maximum=2, minimum=2)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 300\n", 8, 400))
    await world.until(lambda: other.job in world.malleables.jobs and program.job in world.malleables.jobs)
    waiting = []

    async def allocate(spec, patience):
        number = await world.bob.as_user("alice").submit(JobSpec(spec.name, "#!/bin/sh\n", 8, 60.0))
        waiting.append(number)
        await rest_forever.wait()

    rest_forever = asyncio.Event()
    world.app.backend.allocate = allocate
    world.malleables.settings.policy = Watches(4)
    await world.until(lambda: waiting)
    shown.clear()
    await rest(world, 30)
    assert shown and all(rival in s and waiting[0] not in s for s in shown)


# -- how and when ------------------------------------------------------------------------------------------------------


@virtual
async def test_where_neither_way_works_the_reason_is_told(tmp_path):
    world = World(tmp_path, contain=True)
    await world.boot()
    program = await world.malleable(seconds=3000)
    await rest(world)
    assert "no-expansion" in codes(world, program) and world.resizers() == []


@pytest.mark.parametrize("gres", [True, False])
@virtual
async def test_a_job_with_gres_is_asked_for_once(tmp_path, gres):
    world = World(tmp_path)
    await world.boot()
    asked = []

    async def holds_gres(job):
        asked.append(job)
        return gres

    world.app.backend.holds_gres = holds_gres
    settings = world.malleables.settings
    assert settings.site is not None
    settings.site = replace(settings.site, select_type="select/cons_tres")
    program = await world.malleable(seconds=3000)
    await rest(world)
    assert asked == [program.job] and (program.sizes == [2, 8]) is not gres
    (resizers,) = [[j.spec for j in world.engine.records.values() if isinstance(j.spec, Allocation)]]
    assert all(spec.exclusive for spec in resizers)


@pytest.mark.parametrize("operator", [True, False])
@virtual
async def test_a_resizer_comes_behind_all_who_wait(tmp_path, operator):
    world = World(tmp_path, operators=("alice",) if operator else ())
    await world.boot()
    program = await world.malleable(seconds=3000)
    world.malleables.settings.policy = Wants(4)
    await world.bob.submit(JobSpec("wide", "#!/bin/sh\nsleep 9\n", 8, 60))  # it waits for the program's end
    await world.until(lambda: program.job in world.malleables.jobs)
    await rest(world, 30)
    asked = [j for j in world.engine.records.values() if isinstance(j.spec, Allocation)]
    assert asked and all(j.spec.last and j.fixed_priority == 1 for j in asked)
    assert program.sizes[-1] == 4, "nodes that nobody can use before the program's end are left over"


@pytest.mark.parametrize(("ends", "grows"), [(1700, True), (2000, False)])
@virtual
async def test_nothing_grows_onto_nodes_that_somebody_was_promised_before_its_end(tmp_path, ends, grows):
    # The job that waits needs six nodes: two that are idle, and four that a running job may keep until its limit.
    world = World(tmp_path)
    await world.boot()
    await world.bob.submit(JobSpec("ahead", "#!/bin/sh\nsleep 9999\n", 4, 1800))
    program = await world.malleable(seconds=1500, limit=ends)
    world.malleables.settings.policy = Wants(4)
    await world.bob.submit(JobSpec("wide", "#!/bin/sh\nsleep 9\n", 6, 60))
    await world.until(lambda: program.job in world.malleables.jobs)
    await rest(world, 200)
    assert (program.sizes, "promised" in codes(world, program)) == (([2, 4], False) if grows else ([2], True))


@virtual
async def test_a_shrink_that_the_remaining_steps_forbid_is_told_and_an_operator_extends(tmp_path):
    for operators in ((), ("alice",)):
        world = World(tmp_path / f"{len(operators)}", operators=operators)
        await world.boot()
        # 4,000 s of limit for steps that take 3,000 s on the two nodes it has.
        program = await world.malleable(seconds=3500, limit=4000, steps_left=3000, step_seconds=1.0)
        world.malleables.settings.policy = Wants(1)
        await rest(world, 100)
        limit = world.engine.job(program.job).time_limit
        if operators:
            assert program.sizes == [2, 1] and 6600 <= limit <= 7000, limit
            assert "limit-extended" in codes(world, program)
        else:
            assert program.sizes == [2] and limit == 4000
            assert "no-time" in codes(world, program)
        world.kill()


@virtual
async def test_an_extended_job_takes_its_companions_along(tmp_path):
    world = World(tmp_path, contain=True, operators=("alice",))
    await world.boot()
    program = await world.malleable(seconds=3500, limit=4000, **APP["companion"])
    world.malleables.settings.policy = Wants(4)
    await world.until(lambda: program.sizes[-1] == 4 and settled(world, program))
    world.malleables.settings.policy = Wants(8)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    program.more |= {"steps_left": 3000, "step_seconds": 1.0}
    world.malleables.settings.policy = Wants(4)
    await world.until(lambda: program.sizes[-1] == 4 and settled(world, program), seconds=300)
    (companion,) = world.malleables.jobs[program.job].companions
    job, held = world.engine.job(program.job), world.engine.job(companion.job)
    assert job.time_limit > 6000 and abs(job.limit_at - held.limit_at) < 1


@virtual
async def test_a_job_about_to_end_is_left_alone(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000, steps_left=10, step_seconds=1.0)
    await rest(world)
    assert program.sizes == [2] and "too-late" in codes(world, program)


@virtual
async def test_the_cost_of_a_resize_is_the_median_of_those_before(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=9000, takes=40.0)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    assert 40 <= world.malleables._registry.cost(15.0) < 50
    await world.restart()
    assert 40 <= world.malleables._registry.cost(15.0) < 50


@virtual
async def test_nobody_grows_onto_a_node_that_another_job_gave_back_a_moment_ago(tmp_path):
    world = World(tmp_path, {"dmr": {"cooldown": 0}, "agent": {"interval": 1, "idle_interval": 1}})
    await world.boot()
    first = await grown(world, every=0.5)
    second = await world.malleable(seconds=3000, every=0.5)

    class Swaps(Wants):
        def decide(self, offer, job, snapshot):
            return ResizeVerdict(2 if job.id == first.job else 6, (Reason("swap", "the test wants it"),))

    await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 3000\n", 2, 3600))  # no idle node is left
    await rest(world, 10)
    second.bounds["factor"] = 1
    world.malleables.settings.policy = Swaps(0)
    await world.until(lambda: first.sizes[-1] == 2 and settled(world, first))
    given = world.now
    second.bounds["maximum"] = 4

    class Takes(Swaps):
        def decide(self, offer, job, snapshot):
            return ResizeVerdict(2 if job.id == first.job else 4, (Reason("swap", "the test wants it"),))

    world.malleables.settings.policy = Takes(0)
    await world.until(lambda: second.sizes[-1] == 4)
    resizer = next(j for j in world.engine.records.values() if j.name.startswith(f"penstock-{second.job}-"))
    assert resizer.start >= given + 4 and "just-given-back" in codes(world, second)


@virtual
async def test_how_far_an_application_has_got_is_not_written_at_every_check(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000, minimum=2, maximum=2)
    await rest(world, 20)
    written = []
    real = world.store.malleable.save
    world.app.store.malleable.save = lambda *a, **k: (written.append(a), real(*a, **k))
    for step in range(50):
        program.more = {"steps_left": 1000 - step, "step_seconds": 1.0 + step / 100}
        await program.step()
    assert written == [] and world.malleables.jobs[program.job].offer.steps_left == 951


# -- announcements -----------------------------------------------------------------------------------------------------


@virtual
async def test_announced_nodes_are_there_when_the_phase_begins(tmp_path):
    world = World(tmp_path, weight_age=0.0)
    await world.boot()
    program = await world.malleable(seconds=3000)
    world.malleables.settings.policy = Wants(2)
    waits = []

    async def expected(geometry):
        waits.append(geometry)
        return 100.0

    world.malleables._decider._expected_wait = expected
    await world.until(lambda: program.job in world.malleables.jobs)
    begins = world.now + 300
    assert isinstance(await program.announce(8, 300.0), wire.Done)
    await world.until(lambda: world.resizers() or program.sizes[-1] == 8)
    assert 100 <= begins - world.now <= 130, "as long ahead as the nodes wait, and a resize takes"
    assert (waits[0].nodes, waits[0].partition, waits[0].user) == (6, "main", "alice")
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    assert world.now < begins and world.malleables.jobs[program.job].announced is None
    assert "announced" in codes(world, program)


@virtual
async def test_an_announced_growth_waits_in_the_queue_for_as_long_as_its_phase_is_off(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000)
    world.malleables.settings.policy = Wants(2)
    await world.until(lambda: program.job in world.malleables.jobs)
    patience = []
    refuse = world.app.backend.call

    async def call(method, *args, **more):
        if method == "allocate":
            patience.append(args[1])
            raise NotNow("no nodes")
        return await refuse(method, *args, **more)

    world.app.backend.call = call
    await program.announce(4, 10.0)
    await world.until(lambda: patience)
    assert 40 <= patience[0] <= 50
    await rest(world, 100)
    assert world.malleables.jobs[program.job].announced is None, "one attempt, then it is over"


@virtual
async def test_an_announcement_survives_the_agent_and_expires(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000)
    world.malleables.settings.policy = Wants(2)
    await world.until(lambda: program.job in world.malleables.jobs)
    await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 2000\n", 6, 2400))
    await program.announce(8, 100.0)
    await world.restart()
    world.malleables.settings.policy = Wants(2)
    assert world.malleables.jobs[program.job].announced is not None
    await rest(world, 200)
    assert world.malleables.jobs[program.job].announced is None and program.sizes == [2]
    await program.announce(2, 100.0)
    await rest(world, 10)
    assert world.malleables.jobs[program.job].announced is None
    assert "announcement-over" in codes(world, program)


@virtual
async def test_a_smaller_size_can_be_announced_and_an_unknown_job_cannot(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await grown(world)
    await program.announce(2, 50.0)
    begins = world.now + 50
    await world.until(lambda: program.sizes[-1] == 2)
    assert begins <= world.now <= begins + 20
    nobody = await world.malleable(seconds=3000)
    reply = await nobody.announce(4, 10.0)
    assert isinstance(reply, wire.Failure) and reply.error == "unknown-job"


# -- ends and wrong messages -------------------------------------------------------------------------------------------


def by_limit(world: World, program: Program) -> None:
    world.engine.end(world.engine.job(program.job), JobState.TIMEOUT)


def by_node(world: World, program: Program) -> None:
    world.engine.fail_node(world.engine.job(program.job).nodes[0])


def by_requeue(world: World, program: Program) -> None:
    world.engine.requeue(world.engine.job(program.job))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", [by_limit, by_node, by_requeue])
@pytest.mark.parametrize(
    "phase",
    [
        ResizePhase.IDLE,
        ResizePhase.MERGING,
        ResizePhase.JOINING,
        ResizePhase.OFFERED,
        ResizePhase.RESIZING,
        ResizePhase.PROPOSED,
        ResizePhase.LEAVING,
    ],
)
@virtual
async def test_however_a_job_ends_in_a_resize_nothing_is_left(tmp_path, phase, end, way):
    if phase is (ResizePhase.JOINING if way == "merge" else ResizePhase.MERGING):
        pytest.skip("no phase of this way")
    world = World(tmp_path, **SITE[way], requeue_delay=10_000.0)
    await world.boot()
    if phase in (ResizePhase.IDLE, ResizePhase.PROPOSED, ResizePhase.LEAVING):
        program = await grown(world, **APP[way])
        world.malleables.settings.policy = Wants(4 if phase is ResizePhase.IDLE else 2)
    else:
        program = await world.malleable(seconds=3000, **APP[way])
        world.malleables.settings.policy = Wants(4)
    await world.until(lambda: the_phase(world, program) is phase)
    end(world, program)
    await world.until(lambda: not world.malleables.jobs, seconds=60)
    await rest(world, 100)
    assert world.resizers() == [] and world.engine.owner == {} and world.store.malleable.live() == []


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_two_resizes_back_to_back_and_checks_in_between(tmp_path, way):
    world = World(tmp_path, {"dmr": {"cooldown": 0}}, **SITE[way])
    await world.boot()
    program = await world.malleable(seconds=3000, takes=12.0, **APP[way])
    world.malleables.settings.policy = Wants(4)
    await world.until(lambda: the_phase(world, program) is ResizePhase.RESIZING)
    asked = wire.Check(**program._head(program.epoch + 1), size=2, minimum=1, maximum=8, nodes=program.nodes)
    reply = await world.say(asked)
    assert isinstance(reply, wire.CheckReply) and reply.action == "none", "one resize at a time"
    assert the_phase(world, program) is ResizePhase.RESIZING
    await world.until(lambda: program.sizes[-1] == 4)
    world.malleables.settings.policy = Wants(2)
    await world.until(lambda: program.sizes[-1] == 2)
    world.malleables.settings.policy = Wants(8)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    assert program.sizes == [2, 4, 2, 8]


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_old_messages_and_sizes_out_of_bounds_change_nothing(tmp_path, way):
    world = World(tmp_path, **SITE[way])
    await world.boot()
    program = await grown(world, **APP[way])
    before = world.malleables.jobs[program.job]
    for request in (
        wire.Accept(**program._head(0)),
        wire.Accept(**program._head(99)),
        wire.Refuse(**program._head(0), why="late"),
        wire.Finished(**program._head(0), size=2),
        wire.Finished(**program._head(99), size=2),
    ):
        await world.say(request)
        assert world.malleables.jobs[program.job] == before
    for size in (-1, 0, 3, 5, 9, 10_000):
        world.malleables.settings.policy = Wants(size)
        await rest(world, 20)
        assert program.sizes == [2, 4] and settled(world, program)
    assert "unreachable" in codes(world, program)


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_a_shrink_that_is_accepted_and_never_finished_holds_up_nobody_else(tmp_path, way):
    world = World(tmp_path, {"malleable": {"resize_timeout": 100}}, **SITE[way])
    await world.boot()
    stuck = await grown(world, **APP[way])
    other = await world.malleable(seconds=3000, **APP[way])
    world.malleables.settings.policy = Wants(4)
    await world.until(lambda: other.sizes[-1] == 4 and settled(world, other))
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 2, 60))

    class For(Wants):
        def decide(self, offer, job, snapshot):
            waits = rival in snapshot.jobs and snapshot.jobs[rival].pending
            size = offer.size if not waits or (job.id == other.job and not stuck.under_way) else 2
            return ResizeVerdict(size, (Reason("for", "the rival"),), rival if size != offer.size else None)

    stuck.takes = math.inf
    world.malleables.settings.policy = For(0)
    await world.until(lambda: the_phase(world, stuck) is ResizePhase.LEAVING)
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED, seconds=400)
    assert other.sizes[-1] == 2 and the_phase(world, stuck) is ResizePhase.LEAVING


@virtual
async def test_few_idle_nodes_go_to_each_in_turn(tmp_path):
    """Two nodes for three jobs that want them again and again, and are asked about in the same passes."""

    class Breathes(Wants):
        def decide(self, offer, job, snapshot):
            return replace(super().decide(offer, job, snapshot), size=2 if offer.size == 4 else 4)

    world = World(tmp_path)
    await world.boot()
    world.malleables.settings.policy = Breathes(4)
    programs = [await world.malleable(seconds=3000, maximum=4) for _ in range(3)]
    await rest(world, 1500)
    counts = [len(p.sizes) for p in programs]
    assert min(counts) >= max(counts) - 4 and min(counts) > 10, counts


@virtual
async def test_one_whose_ranks_do_not_fill_its_nodes_is_left_alone_and_holds_up_nobody(tmp_path):
    world = World(tmp_path, {"dmr": {"policy": "throughput"}})
    await world.boot()
    number = await world.backend.submit(JobSpec("odd", "#!/bin/sh\nsleep 3000\n", 3, 3600))
    odd = Program(world, number, minimum=2, factor=1, preferred=2, per_node=2)
    world.programs.append(odd)
    other = await world.malleable(seconds=3000, maximum=2, preferred=1)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED)
    assert other.sizes == [2, 1] and odd.sizes == [2] and "part-of-a-node" in codes(world, odd)
