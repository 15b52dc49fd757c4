"""Whatever a program says, its job gets nothing that its owner could not have had by an own request."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmr import wire
from penstock.api import Allocation, JobSpec, JobState, Reason, ResizeVerdict, Step
from penstock.errors import SlurmUnavailable
from penstock.resize.running.part import MalleablePart
from penstock.resize.running.words import ResizePhase
from penstock_lab.agent_world import APP, Program, World, settled, the_phase, virtual
from penstock_lab.mock.clock import VirtualClock
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import NodeLimits, PartitionConfig

pytestmark = pytest.mark.usefixtures("quick_and_quiet")

ENFORCED = frozenset({"associations", "limits", "qos"})
MEMBERS = {"physics": ("alice", "bob")}


def site(**more: Any) -> dict[str, Any]:
    """A site that enforces limits, whose agent is an Operator without an account, as the guide sets it up."""
    return {"operator": True, "enforced": ENFORCED, "members": MEMBERS, **more}


class Wants:
    """A policy that wants one size for all."""

    name = "wants"

    def __init__(self, size: int) -> None:
        self.size = size

    def decide(self, offer, job, snapshot):
        return ResizeVerdict(self.size, (Reason("wanted", "the test wants it"),))


class Raises:
    """What limits were set, and with how many nodes the job of that number was then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, float, int]] = []
        update = Controller.update

        def spied(controller, user, job, *, time_limit=None, **more):
            if time_limit is not None:
                self.seen.append((job, time_limit, len(controller.engine.job(job).nodes)))
            return update(controller, user, job, time_limit=time_limit, **more)

        monkeypatch.setattr(Controller, "update", spied)


@pytest.fixture
def raises(monkeypatch):
    return Raises(monkeypatch)


def codes(world: World, job: int) -> set[str]:
    return {code for d in world.store.decisions.of(f"job {job}") for code, _ in d["reasons"]}


async def rest(world: World, seconds: float = 60.0) -> None:
    end = world.now + seconds
    await world.until(lambda: world.now >= end, seconds + 60)


# -- D1 ----------------------------------------------------------------------------------------------------------------

CLAIMS = {"steps_left": 30_000, "step_seconds": 1.0}


@pytest.mark.parametrize("extend", [None, True])
@pytest.mark.parametrize("answers", ["fail", "refuse", "accept"])
@virtual
async def test_a_claim_of_many_steps_gets_no_time_beyond_the_qos(tmp_path, raises, answers, extend):
    """MaxWall=3, `-N2 -t2`, a check that claims 30,000 s, a waiting job; accept, then refuse. It got 18 h 32 min."""
    configured = {"malleable": {"extend": extend}, "dmr": {"policy": "throughput", "cooldown": 0}}
    world = World(tmp_path, configured, **site(nodes=2, qos_limits={"normal": NodeLimits(max_wall=180.0)}))
    await world.boot()
    one = {"minimum": 1, "maximum": 2, "preferred": 1}
    program = await world.malleable(seconds=110, limit=120.0, every=1.0, answers=answers, **one, **CLAIMS)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 5\n", 1, 60))
    await world.until(lambda: world.engine.records[program.job].state.ended, 300)
    assert ("max-wall" if extend else "no-time") in codes(world, program.job)
    if answers == "accept" and extend:  # it has really shrunk, at a time when its owner could have what that earns
        assert raises.seen == [(program.job, 180.0, 1)] and rival
    else:
        assert raises.seen == [] and world.engine.records[program.job].time_limit == 120.0


async def to_shrink(tmp_path: Path, extend: bool = True, **more: Any) -> tuple[World, Program]:
    """A job of 4 nodes whose shrink to two needs more than its hour, and a policy that wants it."""
    world = World(tmp_path, {"malleable": {"extend": extend}, "dmr": {"cooldown": 0}}, **site(**more))
    await world.boot()
    number = await world.backend.submit(JobSpec("solver", "#!/bin/sh\nsleep 3400\n", 4, 3600.0))
    program = Program(world, number, maximum=4, factor=2, steps_left=3000, step_seconds=1.0, **APP["launcher"])
    program.sizes = [4]
    world.programs.append(program)
    world.malleables.settings.policy = Wants(2)
    return world, program


@virtual
async def test_a_limit_is_raised_when_the_nodes_are_seen_to_have_gone_and_by_what_they_are_worth(tmp_path, raises):
    world, program = await to_shrink(tmp_path)
    await world.until(lambda: program.sizes[-1] == 2 and settled(world, program))
    await world.until(lambda: raises.seen)
    ((job, limit, nodes),) = raises.seen
    assert (job, nodes) == (program.job, 2)
    assert 6600 <= limit <= 7000, "3,000 s on half the nodes, and a tenth more"
    await rest(world)
    me = world.malleables.jobs[program.job]
    assert (me.owed, me.before, me.earned) == (0, 0, 0) and world.engine.job(program.job).time_limit == limit


@virtual
async def test_a_claim_is_worth_no_more_than_what_the_limit_has_left(tmp_path, raises):
    world, program = await to_shrink(tmp_path)
    program.more["steps_left"] = 10_000_000
    await world.until(lambda: raises.seen)
    ((_, limit, nodes),) = raises.seen
    assert nodes == 2 and limit <= 2 * 3600 / 0.9 + 120, "the node-time that it gave back"


@pytest.mark.parametrize("answers", ["ignore", "refuse", "fail"])
@virtual
async def test_without_the_shrink_there_is_no_raise(tmp_path, raises, answers):
    world, program = await to_shrink(tmp_path)
    program.answers = answers
    await rest(world, 600)
    assert raises.seen == [] and len(world.engine.job(program.job).nodes) == 4


@virtual
async def test_done_without_having_left_keeps_nodes_and_limit(tmp_path, raises, monkeypatch):
    """It says that it has shrunk; its step still runs everywhere."""
    world, program = await to_shrink(tmp_path)
    everywhere = lambda _clock, job: [Step(job, "0", world.engine.job(job).nodes)]  # noqa: E731
    monkeypatch.setattr(VirtualClock, "steps", everywhere)
    await world.until(lambda: program.sizes[-1] == 2)
    await rest(world, 300)
    assert world.malleables.jobs[program.job].phase is ResizePhase.RELEASING
    program.more["steps_left"] = 10
    await world.say(wire.Refuse(job=program.job, epoch=1, time=world.now, why="after all"))
    await rest(world, 300)
    assert raises.seen == [] and len(world.engine.job(program.job).nodes) == 4


@virtual
async def test_by_default_an_agent_for_all_raises_no_limit(tmp_path, raises):
    world = World(tmp_path, {"dmr": {"cooldown": 0}}, **site())
    await world.boot()
    assert world.malleables.settings.extend is False
    own = World(tmp_path / "own")
    await own.boot()
    assert own.app.part(MalleablePart).controller.settings.extend is True


@virtual
async def test_a_raise_that_is_no_longer_allowed_is_left_and_the_program_is_told(tmp_path, raises):
    """Allowed when it was decided; the limit came while the program moved its data."""
    world, program = await to_shrink(tmp_path)
    program.takes = 30.0
    await world.until(lambda: program.under_way is not None)
    limit(world, qos_limits={"normal": NodeLimits(max_wall=3600.0)})
    await world.until(lambda: len(world.engine.job(program.job).nodes) == 2)
    await rest(world)
    assert raises.seen == [] and world.engine.job(program.job).time_limit == 3600.0
    assert "its time limit is not raised: QOS normal has MaxWall 60 min" in program.told


@virtual
async def test_a_shrink_whose_raise_is_no_longer_allowed_is_withdrawn(tmp_path, raises):
    world, program = await to_shrink(tmp_path)
    program.answers = "ignore"
    await world.until(lambda: the_phase(world, program) is ResizePhase.PROPOSED)
    limit(world, qos_limits={"normal": NodeLimits(max_wall=3600.0)})
    await world.until(lambda: world.malleables.jobs[program.job].phase is ResizePhase.IDLE, 25.0)
    program.answers = "accept"
    await rest(world, 100)
    assert program.sizes == [4] and raises.seen == []


@virtual
async def test_a_raise_waits_while_nothing_can_be_said_of_the_owners_limits(tmp_path, raises):
    world, program = await to_shrink(tmp_path)
    program.takes = 10.0
    await world.until(lambda: program.under_way is not None)
    world.failing = world.app.backend.failing = lambda name: SlurmUnavailable("away") if name == "limits" else None
    await world.until(lambda: len(world.engine.job(program.job).nodes) == 2)
    await rest(world)
    assert raises.seen == [] and world.malleables.jobs[program.job].owed
    assert "cannot be looked at right now" in program.told
    await world.restart()
    world.failing = world.app.backend.failing = lambda _name: None
    await world.until(lambda: raises.seen)
    assert raises.seen[0][2] == 2


@virtual
async def test_a_job_that_did_not_stay_small_has_its_limit_lowered_again(tmp_path, raises):
    """Its user merged nodes of an own request into it right after: that is theirs to do, without the longer limit."""
    world, program = await to_shrink(tmp_path)
    await world.until(lambda: raises.seen)
    grown = await world.backend.allocate(Allocation("mine", 2, 600.0, expands=program.job), 1.0)
    await world.backend.merge(grown, program.job)
    await world.until(lambda: len(raises.seen) == 2)
    assert raises.seen[1] == (program.job, 3600.0, 4)
    await rest(world)
    assert world.engine.job(program.job).time_limit == 3600.0


@virtual
async def test_an_agent_killed_around_a_raise_raises_or_not_and_never_twice_as_much(tmp_path, raises):
    limits = set()
    for k in itertools.count():
        world, program = await to_shrink(tmp_path / str(k))
        await world.until(lambda w=world, p=program: w.malleables.jobs.get(p.job, None) is not None)
        await world.until(lambda w=world, p=program: w.malleables.jobs[p.job].phase is ResizePhase.RELEASING)
        world.fuse.at = world.fuse.points + k
        await rest(world, 120)
        limits.add(world.engine.job(program.job).time_limit)
        blown = world.lives > 1
        me = world.malleables.jobs[program.job]
        assert (me.owed, me.before) == (0, 0), k
        world.kill()
        if not blown:
            break
    assert k > 6 and all(3600.0 < limit < 7100 for limit in limits), limits
    assert all(nodes == 2 for _, _, nodes in raises.seen)


# -- growth ------------------------------------------------------------------------------------------------------------


def limit(world: World, **more: Any) -> None:
    """What an administrator changes while all runs."""
    world.engine.config = replace(world.engine.config, **more)
    world.engine.enforcement._config = world.engine.config


LIMITS: dict[str, dict[str, Any]] = {
    "max-tres-per-job": {"qos_limits": {"normal": NodeLimits(max_nodes=4)}},
    "max-tres-per-user": {"qos_limits": {"normal": NodeLimits(per_user=4)}},
    "grp-tres": {"account_limits": {"physics": NodeLimits(group=4)}},
    "max-wall": {"qos_limits": {"normal": NodeLimits(max_wall=600.0)}},
    "partition-max-nodes": {"partitions": (PartitionConfig(max_nodes=4),)},
}
"""By the code of the reason: what lets a job of two nodes and an hour grow to four and not to eight (of MaxWall: not at
all, for its administrator has lowered that since it began)."""


@pytest.mark.parametrize("code", LIMITS)
@virtual
async def test_no_growth_past_a_limit_of_the_owner(tmp_path, code):
    partitions = LIMITS[code] if code.startswith("partition") else {}
    world = World(tmp_path, {"dmr": {"cooldown": 0}}, **site(**partitions))
    await world.boot()
    program = await world.malleable(seconds=1000, limit=3600.0, **APP["launcher"])
    limit(world, **LIMITS[code])
    world.malleables.settings.policy = Wants(8)
    await rest(world)
    assert program.sizes == ([2] if code == "max-wall" else [2, 4]) and code in codes(world, program.job)
    told = [t for d in world.store.decisions.of(f"job {program.job}") for c, t in d["reasons"] if c == code]
    assert code == "max-wall" or any(text.endswith(": it only grows to 4") for text in told)
    if len(program.sizes) == 2:
        (companion,) = world.resizers(program.job)
        assert companion.user == "alice", "charged to the owner"


@virtual
async def test_where_nothing_can_be_said_of_the_limits_nothing_grows_and_that_is_said(tmp_path):
    world = World(tmp_path, {"dmr": {"cooldown": 0}}, **site())
    await world.boot()
    world.app.backend.failing = lambda name: SlurmUnavailable("slurmdbd is away") if name == "limits" else None
    program = await world.malleable(seconds=1000, **APP["launcher"])
    await rest(world, 120)
    assert program.sizes == [2] and world.resizers() == []
    texts = [t for d in world.store.decisions.of(f"job {program.job}") for c, t in d["reasons"] if c == "not-seen"]
    assert texts and "slurmdbd is away" in texts[0]
    world.app.backend.failing = lambda _name: None
    await world.until(lambda: program.sizes[-1] == 8)


@virtual
async def test_a_job_that_changes_between_the_decision_and_the_request_does_not_grow(tmp_path, monkeypatch):
    from penstock.resize.running import grow

    world = World(tmp_path, {"dmr": {"cooldown": 0}}, **site(qos={"normal": 0, "low": 0}))
    await world.boot()
    asks = grow.Grower.ask

    async def changed(grower, order, job, snapshot):
        world.engine.job(job.id).qos = "low"
        world.clock.advance(1.5)
        await asks(grower, order, job, snapshot)

    monkeypatch.setattr(grow.Grower, "ask", changed)
    program = await world.malleable(seconds=1000, **APP["launcher"])
    await world.until(lambda: world.store.resizes.latest())
    (resize, *_) = world.store.resizes.latest()
    assert "the job's QOS has changed since this was decided" in resize["outcome"] and world.resizers() == []
    assert program.sizes == [2]


@virtual
async def test_twenty_growths_at_once_use_one_look_and_one_reading_of_the_limits(tmp_path):
    limits = {"qos_limits": {"normal": NodeLimits(per_user=60)}}
    more = {"dmr": {"cooldown": 0}, "slurm": {"min_interval": 10.0, "request_burst": 1000}}
    world = World(tmp_path, more, **site(nodes=100, **limits))
    await world.boot()
    programs = [await world.malleable(seconds=3000, **APP["launcher"]) for _ in range(20)]
    world.malleables.settings.policy = Wants(2)
    await world.until(lambda: len(world.malleables.jobs) == 20)
    await rest(world, 30)
    asked: list[str] = []
    world.app.backend.failing = lambda name: asked.append(name)
    world.malleables.settings.policy = Wants(4)
    before = world.passes
    await world.until(lambda: all(world.malleables.jobs[p.job].phase is not ResizePhase.IDLE for p in programs[:10]))
    assert world.passes == before + 1
    assert (asked.count("limits"), asked.count("charges")) == (1, 1), asked
    assert asked.count("jobs") <= 2, "the pass's own, and one that is younger than a second"
    await rest(world, 60)
    held = sum(len(j.nodes) for j in world.engine.running if j.user == "alice")
    assert held == 60, "as many as the owner may have, and no more by growing at once"


# -- what a launcher makes of its request ------------------------------------------------------------------------------


@pytest.mark.parametrize("trick", ["more nodes", "longer", "no limit of its own"])
@virtual
async def test_a_companion_of_more_than_was_ordered_is_not_used_and_is_cancelled(tmp_path, trick):
    world = World(tmp_path, {"dmr": {"cooldown": 0}}, **site(nodes=16))
    await world.boot()
    program = await world.malleable(seconds=900, limit=1000.0, **APP["launcher"])
    world.malleables.settings.policy = Wants(4)

    def tricks(wanted: wire.NodeRequest) -> None:
        more = {"more nodes": {"node_count": wanted.node_count + 2}, "longer": {"time_limit": wanted.time_limit + 120}}
        changed = replace(wanted, **more.get(trick, {"time_limit": 365 * 86400.0}))
        honest(changed)

    honest, world.launcher = world.launcher, tricks  # type: ignore[method-assign]
    await world.until(lambda: world.store.resizes.latest())
    (resize, *_) = world.store.resizes.latest()
    assert "requested" in resize["outcome"] and program.sizes == [2]
    got = [j for j in world.engine.records.values() if isinstance(j.spec, Allocation)]
    assert got and got[0].state is JobState.CANCELLED


# -- whatever it says --------------------------------------------------------------------------------------------------

SIZES = st.integers(1, 12)
CHECK = st.fixed_dictionaries(
    {
        "size": SIZES,
        "bounds": st.tuples(SIZES, SIZES),
        "factor": st.integers(1, 3),
        "per_node": st.integers(1, 2),
        "nodes": st.sampled_from(["own", "all", "others", "none"]),
        "method": st.sampled_from(wire.METHODS),
        "companion": st.booleans(),
        "requests_nodes": st.booleans(),
        "steps": st.sampled_from([None, 0, 10, 3000, 10_000_000]),
        "seconds": st.sampled_from([None, 0.0, 1.0, 1e6]),
    }
)
SAID = st.one_of(
    st.tuples(st.just("check"), CHECK),
    st.tuples(st.sampled_from(["honest", "comply", "break-off"]), st.integers(1, 8)),
    st.tuples(st.sampled_from(["accept", "refuse", "done"]), st.integers(-1, 1)),
    st.tuples(st.just("announce"), SIZES),
    st.tuples(st.sampled_from(["launch", "launch-more", "launch-longer", "launch-twice"]), st.integers(1, 6)),
    st.tuples(st.just("rival"), st.integers(1, 6)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
)


class Hostile:
    """A program that says anything in any order, and what Slurm has of its job at any time."""

    NODES, LONGEST = 5, 1200.0  # what the owner may have

    def __init__(self, world: World, job: int, raises: list[tuple[int, float, int]]) -> None:
        self.world, self.job, self.raises = world, job, raises
        self.epoch = 0
        self.wanted: wire.NodeRequest | None = None
        self.asked = 0

    def head(self, off: int = 0) -> dict[str, Any]:
        me = self.world.malleables.jobs.get(self.job)
        epoch = max(0, (me.epoch if me else 0) + off)
        return {"job": self.job, "epoch": epoch, "time": self.world.now}

    def nodes_of(self, kind: str) -> tuple[str, ...]:
        own = self.world.engine.records[self.job].nodes
        every = self.world.engine.config.node_names
        return {"own": own, "all": every, "others": tuple(n for n in every if n not in own), "none": ()}[kind]

    async def check(self, said: dict[str, Any]) -> None:
        low, high = sorted(said["bounds"])
        reply = await self.world.say(
            wire.Check(
                **self.head(),
                size=said["size"],
                minimum=low,
                maximum=high,
                factor=said["factor"],
                per_node=said["per_node"],
                nodes=self.nodes_of(said["nodes"]),
                method=said["method"],
                companion=said["companion"],
                requests_nodes=said["requests_nodes"],
                steps_left=said["steps"],
                step_seconds=said["seconds"],
            )
        )
        if isinstance(reply, wire.CheckReply) and reply.node_request is not None:
            self.wanted = reply.node_request

    async def launch(self, how: str, count: int) -> None:
        if (wanted := self.wanted) is None:
            return
        nodes = wanted.node_count + (count if how == "launch-more" else 0)
        longer = 3600.0 if how == "launch-longer" else 0.0
        for _ in range(2 if how == "launch-twice" else 1):
            spec = Allocation(wanted.name, nodes, wanted.time_limit + longer)
            try:
                await self.world.backend.allocate(spec, 1.0)
            except Exception:  # Slurm itself refuses it
                continue

    async def do(self, what: str, how: Any) -> None:
        match what:
            case "check":
                await self.check(how)
            case "honest":
                own = self.nodes_of("own")
                said = {"size": len(own), "bounds": (1, how), "factor": 1, "per_node": 1, "nodes": "own"}
                await self.check(
                    {**said, "method": "merge", "companion": True, "requests_nodes": True, "steps": 400, "seconds": 1.0}
                )
            case "comply" | "break-off":
                await self.do("honest", how)
                await rest(self.world, 6.0)
                await self.launch("launch", 0)
                await rest(self.world, 6.0)
                await self.do("accept", 0)
                if what == "comply":
                    await self.do("done", 0)
                else:
                    await rest(self.world, 12.0)
                    await self.do("refuse", 0)
            case "accept":
                await self.world.say(wire.Accept(**self.head(how)))
            case "refuse":
                await self.world.say(wire.Refuse(**self.head(how), why="no"))
            case "done":
                await self.world.say(wire.Finished(**self.head(how), size=7, nodes=self.nodes_of("all")))
            case "announce":
                await self.world.say(wire.Announce(**self.head(), size=how, in_seconds=1.0))
            case "rival":
                await self.world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 20\n", how, 30.0))
            case "wait":
                await rest(self.world, float(how))
            case _:
                await self.launch(what, how)
        self.look()

    def look(self) -> None:
        jobs: list[SimJob] = [j for j in self.world.engine.running if j.user == "alice"]
        for job in jobs:
            assert job.time_limit <= self.LONGEST, (job, self.world.now)
            assert len(job.nodes) <= self.NODES
        assert sum(len(job.nodes) for job in jobs) <= self.NODES
        assert all(nodes < 3 for job, _, nodes in self.raises if job == self.job), "raised with all of its nodes"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(SAID, min_size=3, max_size=30), seed=st.integers(0, 2**16), stay=st.booleans())
def test_whatever_a_program_says_its_job_stays_within_what_its_owner_could_request(monkeypatch, said, seed, stay):
    asyncio.run(_say_all(monkeypatch, said, seed, stay))


async def _say_all(monkeypatch: pytest.MonkeyPatch, said: list[Any], seed: int, stay: bool) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    draw = random.Random(seed)

    class Draws:
        name = "draws"

        def decide(self, offer, job, snapshot):
            size = draw.choice([*offer.reachable(), offer.size])
            return ResizeVerdict(size, (Reason("drawn", "by lot"),))

    with TemporaryDirectory() as folder, monkeypatch.context() as patched:
        spied = Raises(patched)
        if stay:  # its processes run on all of its nodes, whatever it says
            patched.setattr(VirtualClock, "steps", lambda _clock, job: [Step(job, "0", world.engine.job(job).nodes)])
        limits = {"normal": NodeLimits(max_wall=Hostile.LONGEST, max_nodes=Hostile.NODES, per_user=Hostile.NODES)}
        configured = {"malleable": {"extend": True}, "dmr": {"cooldown": 0, "accept_timeout": 20}}
        world = World(Path(folder), configured, **site(nodes=10, qos_limits=limits))
        await world.boot()
        world.malleables.settings.policy = Draws()
        job = await world.backend.submit(JobSpec("solver", "#!/bin/sh\nsleep 800\n", 3, 850.0))
        program = Hostile(world, job, spied.seen)
        await rest(world, 10.0)
        for what, how in said:
            if world.engine.records[job].state.ended:
                break
            await program.do(what, how)
            await rest(world, 3.0)
        await rest(world, 30.0)
        program.look()
        world.kill()
