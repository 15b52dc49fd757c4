"""The whole agent over the simulated Slurm in virtual time: workflows and malleable jobs, and what kills and faults
leave of them. The agent is "killed" by throwing it away, at a chosen pass or just before a chosen write or request."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

import penstock.app
from dmr import credential, wire
from penstock.api import Allocation, JobSpec, JobState
from penstock.app import App, make_policy
from penstock.config import Config
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted, OutcomeUnknown, SlurmUnavailable, UserError
from penstock.ipc.auth import Verifier
from penstock.ipc.handlers import RemoteDoor
from penstock.malleable.machine import Phase
from penstock.slurm.mock.backend import MockBackend, virtual_cluster
from penstock.slurm.mock.codec import CHANGING
from penstock.slurm.mock.faults import Fault, FaultKind, FaultyBackend
from penstock.slurm.mock.jobs import SimJob
from penstock.slurm.mock.model import ClusterConfig, PriorityType
from penstock.store import Store
from penstock.waits.base import BOUND
from penstock.waits.geometry import parse
from penstock.workflow.metrics import perceived_wait, run_metrics
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.state import RunPhase, WorkflowRun, run_from_dict

START = 1_000_000_000.0
SETTINGS: dict[str, Any] = {
    "agent": {"interval": 5, "idle_interval": 5, "seed": 7},
    "slurm": {"min_interval": 0.5},
    "asa": {"predictor": "asa-default", "alternatives": [2.0, 10.0, 20.0, 30.0]},
    "dmr": {"cooldown": 5, "accept_timeout": 30},
}


@pytest.fixture(autouse=True)
def _quick_and_quiet(monkeypatch):
    """No fsync, no log, no look through all installed distributions at every restart: these tests make thousands."""
    monkeypatch.setattr(penstock.app, "make_policy", functools.cache(make_policy))
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


class Killed(BaseException):
    """SIGKILL arrived; not an Exception, so that nothing handles it."""


class Fuse:
    """Counts the writes and requests of one life of an agent, and ends it just before number `at`."""

    def __init__(self, at: float = math.inf) -> None:
        self.at = at
        self.points = 0
        self.dead = False

    def point(self) -> None:
        self.points += 1
        if self.dead or self.points > self.at:
            self.dead = True
            raise Killed


class MortalStore(Store):
    """A store whose process may die before any write; after that nothing is written any more."""

    def __init__(self, path: Path, fuse: Fuse) -> None:
        self.fuse = Fuse()
        super().__init__(path)
        self._db.execute("PRAGMA synchronous=OFF")
        self.fuse = fuse

    def _execute(self, sql, args=()):
        if not sql.lstrip().startswith(("SELECT", "BEGIN")):
            self.fuse.point()
        return super()._execute(sql, args)


class MortalBackend(FaultyBackend):
    """The backend of one life: a changing request is a point at which the agent may die.

    `faults(method)` says what goes wrong with a call: an error that is raised instead of it, or "lost", then the call
    is made and its answer lost.
    """

    def __init__(self, inner: MockBackend, fuse: Fuse, faults: Callable[[str], Exception | str | None]) -> None:
        super().__init__(inner, self._what)
        self.fuse = fuse
        self.faults = faults

    def _what(self, method: str) -> Fault | None:
        fault = self.faults(method)
        if isinstance(fault, Exception):
            return Fault(FaultKind.ERROR, error=fault)
        return Fault(FaultKind.LOST_ANSWER) if fault == "lost" else None

    async def call(self, method, *args, **more):
        if method in CHANGING:
            self.fuse.point()
        elif self.fuse.dead:
            raise Killed
        return await super().call(method, *args, **more)


class World:
    """A simulated cluster, one agent after the other over the same state file, and the programs that run in jobs."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, **cluster: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.file = folder / "penstock.db"
        self.backend = virtual_cluster(ClusterConfig(**{"accrue_always": True, **cluster}), "alice", start=START)
        self.bob = self.backend.as_user("bob")
        self.clock = self.backend.clock
        self.engine = self.backend.engine
        merged = {k: {**v, **(settings or {}).get(k, {})} for k, v in SETTINGS.items()}
        self.config = Config.model_validate(merged)
        self.faults: Callable[[str], Exception | str | None] = lambda _method: None
        self.programs: list[Program] = []
        self.key = credential.Key(self.engine.uid_of("alice"), b"k" * 64)
        self.lives = 0
        self.passes = 0
        self.each_pass: Callable[[], Awaitable[None]] | None = None

    @property
    def now(self) -> float:
        return self.clock.now()

    @property
    def store(self) -> Store:
        return self.app.store

    async def boot(self, at: float = math.inf) -> None:
        """A new agent over the same file, which dies before its point number `at`."""
        self.fuse = Fuse(at)
        self.app = App(
            self.config,
            MortalBackend(self.backend, self.fuse, self.faults),
            self.clock,
            MortalStore(self.file, self.fuse),
        )
        await self.app.start()
        verifier = Verifier(self.key, None)
        self.door = RemoteDoor(
            self.app.malleable, self.app.observer, verifier, self.clock, lambda _uid: True, self.app.want_look
        )
        self.pass_at = self.now
        self.lives += 1

    def kill(self) -> None:
        """SIGKILL: nothing is written or asked any more, the file is closed by the kernel."""
        self.fuse.dead = True
        self.app.store._db.close()

    async def restart(self) -> None:
        self.kill()
        self.clock.advance(0.5)
        await self.boot()

    async def tick(self) -> None:
        """On to the next thing that happens: a program acts, or the agent makes a pass (dead, it is started again)."""
        try:
            await self._tick()
        except Killed:
            self.fuse.dead = True
        if self.fuse.dead:
            await self.restart()
        await asyncio.sleep(0)  # what tasks have to say at their end

    async def _tick(self) -> None:
        loop = self.app.loop
        assert loop is not None
        self.clock.advance_to(min([self.pass_at, *(p.next_at for p in self.programs)]))
        for program in self.programs:
            if program.next_at <= self.now:
                await program.step()
        self.pass_at = min(self.pass_at, max(loop.next_pass(), self.now))
        if loop.woken:
            self.pass_at = min(self.pass_at, self.now + 0.02)
        if self.now >= self.pass_at and not self.fuse.dead:
            await loop.one_pass()
            self.passes += 1
            self.pass_at = max(loop.next_pass(), self.now + 0.01)
            if self.each_pass is not None:
                await self.each_pass()

    async def until(self, what: Callable[[], Any], seconds: float = 2000.0) -> None:
        end = self.now + seconds
        while not what():
            assert self.now < end, f"not within {seconds:g} virtual seconds"
            await self.tick()

    async def say(self, request: wire.Request) -> wire.Reply | None:
        """One message of a program; None when nobody answers."""
        line = wire.encode(wire.signed(request, lambda digest: credential.sign_key(digest, self.key)))
        try:
            return wire.decode_reply(await self.door.answer(line))
        except Killed:
            self.fuse.dead = True
            return None

    # -- workflows -----------------------------------------------------------------------------------------------------

    async def submit(self, workflow: Workflow, strategy: str) -> int:
        assert self.app.workflows is not None
        number = await self.app.workflows.submit(0, workflow, strategy)
        self.pass_at = self.now
        return number

    def run(self, number: int) -> WorkflowRun:
        # Past the store's own methods, which a dead agent can no longer call.
        (state,) = [s for n, _u, s in self.app.store.runs() if n == number]
        return run_from_dict(state)

    async def finish(self, number: int, seconds: float = 2000.0) -> WorkflowRun:
        await self.until(lambda: not self.fuse.dead and self.run(number).phase.final, seconds)
        return self.run(number)

    def submissions(self) -> Counter[str]:
        """How many jobs Slurm has ever got of each stage."""
        return Counter(j.name.rsplit(".", 1)[1] for j in self.engine.records.values() if j.user == "alice")

    def living(self, user: str = "alice") -> list[SimJob]:
        return [j for j in self.engine.jobs.values() if j.user == user and not j.state.ended]

    # -- malleable jobs ------------------------------------------------------------------------------------------------

    async def malleable(self, seconds: float = 400.0, **more: Any) -> Program:
        """A job of two nodes in which a malleable program runs."""
        number = await self.backend.submit(JobSpec("solver", f"#!/bin/sh\nsleep {seconds:g}\n", 2, seconds + 600))
        program = Program(self, number, **more)
        self.programs.append(program)
        return program

    def resizers(self) -> list[SimJob]:
        """Resizers that wait for nodes or hold some."""
        jobs = self.engine.jobs.values()
        return [j for j in jobs if isinstance(j.spec, Allocation) and not j.state.ended]


class Program:
    """Rank 0 of a malleable program with one rank on each node, as `dmr` makes it behave.

    It checks every `every` seconds; a resize takes `takes` seconds. `answers` is what it does with an offer: accept,
    ignore, refuse, or fail (accepts, then refuses).
    """

    def __init__(
        self, world: World, job: int, every: float = 4.0, takes: float = 1.0, answers: str = "accept", maximum: int = 8
    ) -> None:
        self.world = world
        self.job = job
        self.every = every
        self.takes = takes
        self.answers = answers
        self.maximum = maximum
        self.epoch = 0
        self.nodes: tuple[str, ...] = world.engine.job(job).nodes
        self.next_at = world.now + every
        self.under_way: wire.CheckReply | None = None
        self.sizes = [2]

    def _head(self, epoch: int) -> dict[str, Any]:
        return {"job": self.job, "epoch": epoch, "time": self.world.now}

    async def step(self) -> None:
        slurm = self.world.engine.jobs.get(self.job)
        if slurm is None or slurm.state is not JobState.RUNNING:
            self.next_at = math.inf
            return
        if not self.nodes:
            self.nodes = slurm.nodes
        assert set(self.nodes) <= set(slurm.nodes), "ranks were killed: Slurm took nodes on which they run"
        self.next_at = self.world.now + self.every
        if self.under_way is not None:
            await self._finish_resize(self.under_way)
            return
        size = len(self.nodes)
        reply = await self.world.say(
            wire.Check(**self._head(self.epoch), size=size, minimum=1, maximum=self.maximum, factor=2, nodes=self.nodes)
        )
        if not isinstance(reply, wire.CheckReply) or reply.action == "none" or self.answers == "ignore":
            return
        assert set(reply.nodes) <= set(slurm.nodes), "an offer of nodes that the job does not have"
        if self.answers == "refuse":
            await self.world.say(wire.Refuse(**self._head(reply.epoch), why="out of memory"))
        elif isinstance(await self.world.say(wire.Accept(**self._head(reply.epoch))), wire.Done):
            self.under_way = reply
            self.next_at = self.world.now + self.takes

    async def _finish_resize(self, reply: wire.CheckReply) -> None:
        self.under_way = None
        if self.answers == "fail":
            await self.world.say(wire.Refuse(**self._head(reply.epoch), why="the spawn failed"))
            return
        self.nodes, self.epoch = reply.nodes, reply.epoch
        self.sizes.append(reply.size)
        timings = {"spawn": self.takes}
        await self.world.say(
            wire.Finished(**self._head(reply.epoch), size=reply.size, nodes=reply.nodes, timings=timings)
        )


def virtual(body: Callable[..., Any]) -> Callable[..., None]:
    """The test's coroutine in an event loop of its own."""

    @functools.wraps(body)
    def test(*args: Any, **more: Any) -> None:
        async def quiet() -> None:
            # Tasks of killed agents end with Killed, which nobody awaits.
            asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
            await body(*args, **more)

        asyncio.run(quiet())

    return test


def chain(*seconds: float, nodes: int = 2, failing: str = "", name: str = "w") -> Workflow:
    """Stages a, b, c… one after the other, each as long as it is expected to be."""
    stages: list[Stage] = []
    for letter, length in zip("abcdef", seconds, strict=False):
        command = f"sleep {length:g}" + ("\nexit 3" if letter == failing else "")
        after = (stages[-1].name,) if stages else ()
        stages.append(Stage(letter, nodes, 600.0, length, command, after))
    return Workflow(name, tuple(stages))


def deviation(run: WorkflowRun, stage: str) -> float:
    """Seconds from (parent's expected end - estimate) to the submission."""
    entry = run.stage(stage)
    assert entry.submitted is not None and entry.parent_end is not None and entry.estimate is not None
    return entry.submitted - (entry.parent_end - entry.estimate)


def assert_in_order(run: WorkflowRun) -> None:
    for before, after in zip(run.stages, run.stages[1:], strict=False):
        assert before.end is not None and after.start is not None
        assert before.end <= after.start


# -- workflows ---------------------------------------------------------------------------------------------------------


@virtual
async def test_asa_submits_each_stage_its_estimate_before_the_parents_end(tmp_path):
    world = World(tmp_path)
    await world.boot()
    run = await world.finish(await world.submit(chain(61, 62, 63), "asa"))
    assert run.phase is RunPhase.COMPLETED
    assert_in_order(run)
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    for stage, parent in (("b", "a"), ("c", "b")):
        entry = run.stage(stage)
        assert abs(deviation(run, stage)) <= 1.0
        assert run.stage(parent).start < entry.submitted < run.stage(parent).end
        assert world.engine.records[entry.job].spec.dependency == f"afterok:{run.stage(parent).job}"
        assert world.engine.records[entry.job].spec.hold
        assert entry.released is not None
    # The machine is empty: with a dependency the next stage starts at its parent's very end.
    assert [perceived_wait(run, i) for i in (1, 2)] == [0.0, 0.0]


@virtual
async def test_perstage_submits_after_the_parents_end_without_a_dependency(tmp_path):
    world = World(tmp_path)
    await world.boot()
    run = await world.finish(await world.submit(chain(21, 22, 23), "perstage"))
    assert run.phase is RunPhase.COMPLETED
    assert_in_order(run)
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    for i in (1, 2):
        assert world.engine.records[run.stages[i].job].spec.dependency is None
        assert run.stages[i].submitted >= run.stages[i - 1].end
        assert 0 < perceived_wait(run, i) <= 5.5  # the time until the next look
    assert run.stages[0].estimate is None


@virtual
async def test_bigjob_submits_one_job_of_the_widest_stage_and_all_the_time(tmp_path):
    world = World(tmp_path)
    await world.boot()
    stages = (Stage("a", 2, 100, 20, "sleep 20"), Stage("b", 5, 200, 30, "sleep 30", ("a",)))
    run = await world.finish(await world.submit(Workflow("w", stages), "bigjob"))
    assert run.phase is RunPhase.COMPLETED
    (job,) = world.engine.records.values()
    assert (job.spec.nodes, job.spec.time_limit, job.spec.dependency) == (5, 300, None)
    assert "sleep 20" in job.spec.script
    assert "sleep 30" in job.spec.script


@virtual
async def test_under_load_asa_hides_the_waits_that_perstage_shows(tmp_path):
    waits = {}
    for strategy in ("asa", "perstage"):
        world = World(tmp_path / strategy, {"asa": {"predictor": "asa-default", "alternatives": [80.0]}}, nodes=4)
        await world.boot()

        async def keep_a_queue(world=world):
            pending = [j for j in world.living("bob") if j.state is JobState.PENDING]
            for _ in range(4 - len(pending)):
                await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 20\n", 2, 25))

        world.each_pass = keep_a_queue
        run = await world.finish(await world.submit(chain(100, 101, 102), strategy))
        assert run.phase is RunPhase.COMPLETED
        waits[strategy] = [perceived_wait(run, i) for i in (1, 2)]
    assert sum(waits["asa"]) < sum(waits["perstage"]) / 2, waits
    assert min(waits["perstage"]) > 10, waits


RULES = {"default": {"accrue_always": False}, "accrue-always": {}, "basic": {"priority": PriorityType.BASIC}}


@pytest.mark.parametrize("rules", RULES)
@virtual
async def test_under_load_auto_hides_the_waits_whatever_the_rules_of_the_site(tmp_path, rules):
    """At no extra node-second; asa with its dependency hides little of them where dependent jobs do not age."""
    waits = {}
    for strategy in ("auto", "perstage"):
        world = World(tmp_path / strategy, nodes=4, **RULES[rules])
        await world.boot()

        async def keep_a_queue(world=world):
            pending = [j for j in world.living("bob") if j.state is JobState.PENDING]
            for _ in range(4 - len(pending)):
                await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 20\n", 2, 25))

        world.each_pass = keep_a_queue
        run = await world.finish(await world.submit(chain(100, 101, 102), strategy))
        assert_in_order(run)
        metrics = run_metrics(run)
        assert (metrics.overhead_node_hours, metrics.misses) == (0, 0)
        assert metrics.node_hours == pytest.approx(303 * 2 / 3600, rel=0.01)
        waits[strategy] = [perceived_wait(run, i) for i in (1, 2)]
        assert world.submissions() == {"a": 1, "b": 1, "c": 1}
        if strategy == "auto":
            codes = {code for d in world.store.decisions("workflow 1") for code, _ in d["reasons"]}
            assert {"auto-handover", "pinned"} <= codes
    assert sum(waits["auto"]) < sum(waits["perstage"]) / 4, waits
    assert min(waits["perstage"]) > 10, waits


@virtual
async def test_a_start_that_is_too_early_idles_in_virtual_time_as_well(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [15.0]}})
    await world.boot()
    run = await world.finish(await world.submit(chain(60, 60, 60), "asa-naive"))
    assert run.phase is RunPhase.COMPLETED and run_metrics(run).misses == 0
    assert all(b.end >= a.end + 60 for a, b in zip(run.stages, run.stages[1:], strict=False))
    assert run_metrics(run).overhead_node_hours > 20 / 3600


@virtual
async def test_an_estimate_longer_than_the_parent_is_submitted_at_once(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [500.0]}})
    await world.boot()
    run = await world.finish(await world.submit(chain(60, 60, 60), "asa"))
    assert run.phase is RunPhase.COMPLETED
    assert_in_order(run)
    assert run.stages[1].submitted - run.stages[0].submitted < 5
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("strategy", ["asa", "perstage"])
@virtual
async def test_a_failing_middle_stage_fails_the_run_and_cancels_what_was_submitted_ahead(tmp_path, strategy):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [30.0]}})
    await world.boot()
    run = await world.finish(await world.submit(chain(40, 41, 42, failing="b"), strategy))
    assert run.phase is RunPhase.FAILED
    assert world.living() == []
    assert "b" in run.why
    assert [s.phase.value for s in run.stages] == ["done", "failed", "cancelled"]
    assert world.submissions() == ({"a": 1, "b": 1, "c": 1} if strategy == "asa" else {"a": 1, "b": 1})
    assert all(j.start is None for j in world.engine.records.values() if j.name.endswith(".c"))


@virtual
async def test_a_cancelled_workflow_leaves_no_job(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "asa-default", "alternatives": [30.0]}})
    await world.boot()
    number = await world.submit(chain(40, 40, 40), "asa")
    await world.until(lambda: world.submissions()["c"] == 1)
    world.app.workflows.cancel(number, "cancelled by the user")
    run = await world.finish(number)
    assert (run.phase, run.why) == (RunPhase.CANCELLED, "cancelled by the user")
    assert world.living() == []
    assert world.app.workflows.runs == {}


@virtual
async def test_a_workflow_wider_than_the_partition_is_refused_with_nothing_submitted(tmp_path):
    world = World(tmp_path)
    await world.boot()
    with pytest.raises(UserError, match=r"stages\[0\]\.nodes: must be at most 8"):
        await world.submit(chain(10, 10, nodes=9), "asa")
    for _ in range(3):
        await world.tick()
    assert world.engine.records == {}
    assert world.store.runs() == []


@virtual
async def test_the_queue_and_slurm_itself_are_asked_what_they_expect(tmp_path):
    world = World(tmp_path, {"asa": {"predictor": "share-mix"}})
    await world.boot()
    blocker = JobSpec("big", "#!/bin/sh\nsleep 100\n", 8, 600)
    await world.bob.submit(blocker)
    world.clock.advance(1)
    number = await world.submit(chain(30, 31), "asa")
    await world.until(lambda: world.run(number).stages[1].estimate is not None)
    for stage in world.run(number).stages:
        said = stage.estimate_said
        assert {"slurm", "queue", "history", BOUND} <= said.keys()
        assert 100 <= said["queue"] <= 700 and 0 < said["slurm"] <= 700
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    await world.app.predictions.forecast.close()
    state = world.store.learned(f"queue-watch {(await world.backend.site()).cluster}")
    assert state is not None and state["learner"]["examples"], "its own jobs and those of others teach it"


@virtual
async def test_concurrent_workflows_share_what_is_learned(tmp_path):
    world = World(tmp_path)
    await world.boot()
    numbers = [await world.submit(chain(30, 31, 32, name=f"w{i}"), "asa") for i in range(3)]
    for number in numbers:
        assert (await world.finish(number)).phase is RunPhase.COMPLETED
    waits = world.store.waits()
    assert len(waits) == 9
    (key,) = {w["key"] for w in waits}
    known = parse(key)
    assert known is not None and (known.partition, known.size, known.limit) == ("main", 1, 0)
    assert known.cluster == (await world.backend.site()).cluster
    rows = world.store._rows("SELECT key FROM learned")
    assert [r["key"] for r in rows] == [f"asa-default {key}"]
    before = world.store.learned("asa-default main//n2/t0")
    await world.restart()
    assert world.store.learned("asa-default main//n2/t0") == before


@virtual
async def test_a_job_that_vanished_from_the_queue_is_looked_up_in_accounting(tmp_path):
    """The agent is down for longer than Slurm remembers ended jobs."""
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(30, 31), "perstage")
    await world.until(lambda: world.run(number).stage("a").phase.value == "running")
    world.kill()
    world.clock.advance(3600)
    await world.boot()
    run = await world.finish(number)
    assert run.phase is RunPhase.COMPLETED
    assert run.stage("a").end - run.stage("a").start == 30
    assert world.submissions() == {"a": 1, "b": 1}


@pytest.mark.parametrize("strategy", ["asa", "auto", "perstage", "bigjob"])
@virtual
async def test_an_agent_thrown_away_at_any_pass_submits_each_stage_exactly_once(tmp_path, strategy):
    k, passes = 0, 1
    while k < passes:
        world = World(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(26, 27, 28), strategy)
        while not world.run(number).phase.final:
            if world.passes == k and world.lives == 1:
                await world.restart()
            await world.tick()
        passes = world.passes
        assert world.run(number).phase is RunPhase.COMPLETED, k
        assert set(world.submissions().values()) == {1}, (k, world.submissions())
        assert len(world.submissions()) == (1 if strategy == "bigjob" else 3)
        world.kill()
        k += 1
    assert k >= (3 if strategy == "bigjob" else 10)


@virtual
async def test_an_agent_restarted_at_every_single_pass_still_gets_on(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(26, 27, 28), "asa")
    while not world.run(number).phase.final:
        assert world.now < START + 1000
        await world.tick()
        await world.restart()
    assert world.run(number).phase is RunPhase.COMPLETED
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    assert len(world.store.waits()) == 3


@pytest.mark.parametrize("strategy", ["asa", "auto", "perstage"])
@virtual
async def test_an_agent_killed_before_any_write_or_request_submits_each_stage_exactly_once(tmp_path, strategy):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(26, 27, 28), strategy)
        world.fuse.at = world.fuse.points + k
        run = await world.finish(number)
        blown = world.lives > 1
        assert run.phase is RunPhase.COMPLETED, k
        assert world.submissions() == {"a": 1, "b": 1, "c": 1}, k
        assert len(world.store.waits()) == 3, k
        assert world.living() == []
        world.kill()
        k += 1
    assert k > 30


@pytest.mark.parametrize("answer", ["lost", OutcomeUnknown("never sent"), SlurmUnavailable("down")])
@pytest.mark.parametrize("strategy", ["asa", "perstage"])
@virtual
async def test_a_submission_without_an_answer_is_neither_lost_nor_repeated(tmp_path, strategy, answer):
    world = World(tmp_path)
    seen = Counter()

    def every_first(method):
        seen[method] += 1
        return answer if method == "submit" and seen[method] % 2 == 1 else None

    world.faults = every_first
    await world.boot()
    run = await world.finish(await world.submit(chain(50, 51, 52), strategy))
    assert run.phase is RunPhase.COMPLETED
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    assert_in_order(run)


@pytest.mark.parametrize("seed", range(12))
@virtual
async def test_whatever_calls_fail_each_stage_is_submitted_exactly_once(tmp_path, seed):
    """Any call fails with some probability in any of its ways, and now and then the agent is killed besides."""
    draw = random.Random(seed)
    world = World(tmp_path)

    def sometimes(method):
        if draw.random() > 0.15:
            return None
        choices: list[Exception | str] = [SlurmUnavailable(f"{method}: no answer")]
        if method in CHANGING:
            choices += ["lost", OutcomeUnknown(f"{method}: never sent")]
        return draw.choice(choices)

    await world.boot()
    number = await world.submit(chain(50, 51, 52), draw.choice(["asa", "auto", "eager", "perstage"]))
    world.app.backend.faults = sometimes
    while not world.run(number).phase.final:
        assert world.now < START + 40_000
        await world.tick()
        if draw.random() < 0.03:
            await world.restart()  # without faults: an agent that starts waits until Slurm answers
            world.app.backend.faults = sometimes
    assert world.run(number).phase is RunPhase.COMPLETED
    assert world.submissions() == {"a": 1, "b": 1, "c": 1}
    assert_in_order(world.run(number))


@virtual
async def test_while_slurm_does_not_answer_nothing_is_done_and_the_reason_is_kept(tmp_path):
    world = World(tmp_path)
    await world.boot()
    number = await world.submit(chain(30, 31), "perstage")
    await world.until(lambda: world.run(number).stage("a").phase.value == "running")
    world.app.backend.faults = lambda _method: SlurmUnavailable("slurmctld is down")
    before = world.now
    await world.until(lambda: world.now > before + 300)
    assert world.submissions() == {"a": 1}
    (last,) = world.store.decisions("agent")[-1:]
    assert last["verb"] == "hold"
    assert "slurmctld is down" in last["reasons"][0][1]
    assert world.app.observer.looks < 100
    world.app.backend.faults = lambda _method: None
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    assert world.store.decisions("agent")[-1]["verb"] == "nothing"


@virtual
async def test_a_stage_that_slurm_refuses_for_good_fails_the_workflow(tmp_path):
    world = World(tmp_path)
    await world.boot()
    world.app.backend.faults = lambda method: Infeasible("Invalid qos specification") if method == "submit" else None
    run = await world.finish(await world.submit(chain(30, 31), "asa"))
    assert run.phase is RunPhase.FAILED
    assert "Invalid qos" in run.why
    assert world.engine.records == {}


@virtual
async def test_an_agent_killed_while_it_accepts_a_workflow_starts_again_with_all_of_it_or_nothing(tmp_path):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        world.fuse.at = world.fuse.points + k
        try:
            await world.submit(chain(10, 11), "perstage")
            blown = False
        except Killed:
            await world.restart()
        await world.until(lambda w=world: w.now > START + 100)
        assert world.submissions() in ({}, {"a": 1, "b": 1}), k
        k += 1
    assert k > 1


@virtual
async def test_a_run_that_ended_is_finished_in_the_file_whenever_the_agent_is_killed(tmp_path):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        number = await world.submit(chain(26, 27), "perstage")
        world.fuse.at = world.fuse.points + k
        await world.finish(number)
        before = world.now
        await world.until(lambda w=world, b=before: w.now > b + 15)
        blown = world.lives > 1
        assert world.store.runs(live_only=True) == [], k
        assert world.app.workflows.runs == {}, k
        world.kill()
        k += 1


@virtual
async def test_a_submission_that_is_not_permitted_fails_its_workflow_and_no_other(tmp_path):
    world = World(tmp_path)
    await world.boot()
    bad = await world.submit(chain(10, 11, name="bad"), "asa")
    good = await world.submit(chain(10, 11, name="good"), "asa")
    real = world.backend.submit

    async def submit(spec):
        if ".bad." in spec.name:
            raise NotPermitted("Access/permission denied")
        return await real(spec)

    world.app.backend.submit = submit
    assert (await world.finish(good, 200)).phase is RunPhase.COMPLETED
    assert (await world.finish(bad, 200)).phase is RunPhase.FAILED


@virtual
async def test_accounting_that_lags_is_asked_less_and_less_often(tmp_path):
    """A job has left the queue, and accounting still says that it runs."""
    world = World(tmp_path, min_job_age=1.0)
    await world.boot()
    number = await world.submit(chain(20, 21), "perstage")
    calls = []
    real = world.backend.history

    async def history(**query):
        calls.append(world.now)
        late = world.now < START + 220
        return [replace(r, state=JobState.RUNNING, end=None) if late else r for r in await real(**query)]

    world.app.backend.history = history
    assert (await world.finish(number)).phase is RunPhase.COMPLETED
    assert len(calls) < 30


@virtual
async def test_a_cancel_of_a_job_that_slurm_has_forgotten_holds_up_nobody(tmp_path):
    world = World(tmp_path)
    await world.boot()
    bad = await world.submit(chain(40, 40, name="bad"), "asa")
    good = await world.submit(chain(40, 40, name="good"), "asa")
    await world.until(lambda: world.submissions()["a"] == 2)
    world.app.backend.faults = lambda method: NotFound("Invalid job id specified") if method == "cancel" else None
    world.app.workflows.cancel(bad, "not wanted")
    assert (await world.finish(good)).phase is RunPhase.COMPLETED
    assert (await world.finish(bad)).phase is RunPhase.CANCELLED


# -- malleable jobs ----------------------------------------------------------------------------------------------------


def settled(world: World, program: Program) -> bool:
    """Nothing is on its way, and the job has the nodes on which its ranks run, no more and no less."""
    me = world.app.malleable.jobs.get(program.job)
    slurm = world.engine.job(program.job)
    return (
        me is not None
        and me.phase is Phase.IDLE
        and not world.resizers()
        and set(slurm.nodes) == set(program.nodes) == set(me.nodes)
    )


async def breathe(world: World, program: Program) -> None:
    """Grow on idle nodes, shrink for a pending job, grow again when it has gone."""
    await world.until(lambda: program.sizes[-1] == 8)
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED)
    await world.until(lambda: program.sizes[-1] == 8 and len(program.sizes) >= 4)
    await world.until(lambda: settled(world, program))


@virtual
async def test_a_malleable_job_grows_on_idle_nodes_and_shrinks_for_a_pending_job(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable()
    await breathe(world, program)
    assert program.sizes == [2, 8, 4, 8]
    kinds = [(r["kind"], r["old_size"], r["new_size"], r["outcome"]) for r in world.store.resizes()]
    assert kinds == [("expand", 2, 8, "completed"), ("shrink", 8, 4, "completed"), ("expand", 4, 8, "completed")]
    marks = world.store.resizes()[0]["marks"]
    assert marks["decided"] <= marks["granted"] <= marks["merged"] <= marks["accepted"] <= marks["done"]
    assert marks["app_spawn"] == 1.0
    shrink = world.store.resizes()[1]["marks"]
    assert shrink["decided"] <= shrink["accepted"] <= shrink["done"] <= shrink["released"]
    await world.until(lambda: world.engine.records[program.job].state.ended)
    await world.until(lambda: not world.app.malleable.jobs)
    assert world.store.malleable() == []
    assert world.engine.owner == {}


@virtual
async def test_an_agent_thrown_away_at_any_pass_of_a_resize_leaves_no_resizer(tmp_path):
    k, passes, phases = 0, 1, set()
    while k < passes:
        world = World(tmp_path / str(k))
        await world.boot()
        program = await world.malleable(seconds=600, takes=6.0)

        async def throw_away(world=world, program=program, k=k):
            if world.passes == k + 1 and world.lives == 1:
                me = world.app.malleable.jobs.get(program.job)
                phases.add(me.phase if me else None)
                world.fuse.dead = True

        world.each_pass = throw_away
        await breathe(world, program)
        passes = world.passes
        assert world.resizers() == [], k
        await world.until(lambda w=world, p=program: w.engine.records[p.job].state.ended)
        await world.until(lambda w=world: not w.app.malleable.jobs)
        assert world.engine.owner == {}, k
        world.kill()
        k += 1
    assert {Phase.MERGING, Phase.OFFERED, Phase.RESIZING, Phase.PROPOSED, Phase.LEAVING} <= phases, phases


@virtual
async def test_an_agent_killed_before_any_write_or_request_of_a_resize_leaves_no_resizer(tmp_path):
    k, blown = 0, True
    while blown:
        world = World(tmp_path / str(k))
        await world.boot()
        program = await world.malleable(seconds=600)
        world.fuse.at = world.fuse.points + k
        await breathe(world, program)
        blown = world.lives > 1
        assert world.resizers() == [], k
        resizers = [j for j in world.engine.records.values() if isinstance(j.spec, Allocation)]
        assert all(j.state in (JobState.COMPLETED, JobState.CANCELLED) for j in resizers), k
        world.kill()
        k += 1
    assert k > 30


@pytest.mark.parametrize(
    "fault", ["lost", NotNow("busy"), SlurmUnavailable("down"), OutcomeUnknown("never sent"), Infeasible("no")]
)
@pytest.mark.parametrize("method", ["allocate", "merge", "shrink", "cancel", "find", "jobs", "steps"])
@virtual
async def test_a_call_that_fails_in_a_resize_delays_it_and_leaves_no_resizer(tmp_path, method, fault):
    if fault == "lost" and method not in CHANGING:
        pytest.skip("only a changing call can have done something before its answer is lost")
    if isinstance(fault, Infeasible) and method not in ("allocate", "merge"):
        pytest.skip("not an answer that this call can give")
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000)
    left = {method: 2}

    def first_two(name):
        if left.get(name, 0) > 0:
            left[name] -= 1
            return fault
        return None

    world.app.backend.faults = first_two
    await breathe(world, program)
    assert world.resizers() == []


@pytest.mark.parametrize("answers", ["ignore", "refuse", "fail"])
@virtual
async def test_nodes_that_the_program_does_not_take_up_go_back(tmp_path, answers):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000, answers=answers)
    await world.until(lambda: len(world.engine.job(program.job).nodes) == 8)
    merged = world.now
    await world.until(lambda: len(world.engine.job(program.job).nodes) == 2, seconds=60)
    # accept_timeout is 30 s
    assert (30 < world.now - merged < 40) if answers == "ignore" else world.now - merged < 20
    assert settled(world, program)
    assert program.sizes == [2]
    assert next(r["outcome"] for r in world.store.resizes()) != "completed"


@virtual
async def test_a_program_that_ignores_a_shrink_keeps_its_nodes(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=300)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    program.answers = "ignore"
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.engine.records[rival].state is JobState.COMPLETED)
    assert program.sizes == [2, 8]
    assert world.engine.records[rival].start >= world.engine.records[program.job].end


@virtual
async def test_a_shrink_that_is_no_longer_wanted_is_withdrawn(tmp_path):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000)
    await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
    program.answers = "ignore"
    rival = await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: world.app.malleable.jobs[program.job].phase is Phase.PROPOSED)
    await world.bob.cancel(rival)
    await world.until(lambda: settled(world, program))
    program.answers = "accept"
    before = world.now
    await world.until(lambda: world.now > before + 30)
    assert program.sizes == [2, 8]


@virtual
async def test_two_malleable_jobs_do_not_count_the_same_idle_nodes(tmp_path):
    world = World(tmp_path)
    await world.boot()
    both = [await world.malleable(seconds=2000) for _ in range(2)]
    before = world.now
    await world.until(lambda: world.now > before + 200)
    sizes = sorted(len(p.nodes) for p in both)
    assert sizes in ([2, 4], [4, 4])
    await world.until(lambda: all(settled(world, p) for p in both))


def the_phase(world: World, program: Program) -> Phase | None:
    me = world.app.malleable.jobs.get(program.job)
    return me.phase if me else None


@pytest.mark.parametrize("phase", list(Phase))
@virtual
async def test_a_job_that_ends_in_any_phase_leaves_nothing(tmp_path, phase):
    world = World(tmp_path)
    await world.boot()
    program = await world.malleable(seconds=3000, answers="ignore" if phase is Phase.GIVING_BACK else "accept")
    if phase is Phase.ALLOCATING:
        # An allocation that Slurm lets wait, as a busy one does.
        async def forever(*_args):
            await asyncio.Event().wait()

        world.app.backend.allocate = forever
    if phase is Phase.CLEANING:
        world.app.backend.faults = lambda method: NotNow("busy") if method == "allocate" else None
    if phase in (Phase.GIVING_BACK, Phase.RELEASING):
        world.app.backend.faults = lambda method: SlurmUnavailable("down") if method == "shrink" else None
    if phase in (Phase.PROPOSED, Phase.LEAVING, Phase.RELEASING):
        await world.until(lambda: program.sizes[-1] == 8 and settled(world, program))
        await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    await world.until(lambda: the_phase(world, program) is phase)
    await world.backend.cancel(program.job)
    await world.until(lambda: not world.app.malleable.jobs, seconds=60)
    before = world.now
    await world.until(lambda: world.now > before + 100)
    assert world.resizers() == []
    assert world.engine.owner == {}
    assert world.store.malleable() == []
    assert world.app.malleable._allocating == {}


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


@pytest.mark.parametrize("seed", range(8))
@virtual
async def test_whatever_fails_a_resize_leaves_no_resizer_and_no_lost_node(tmp_path, seed):
    draw = random.Random(1000 + seed)
    world = World(tmp_path)

    def sometimes(method):
        if draw.random() > 0.1:
            return None
        choices: list[Exception | str] = [SlurmUnavailable(f"{method}: no answer")]
        if method in CHANGING:
            choices += ["lost", OutcomeUnknown(f"{method}: never sent")]
        return draw.choice(choices)

    await world.boot()
    program = await world.malleable(seconds=20_000)
    end = world.now + 1500
    world.app.backend.faults = sometimes
    while world.now < end:
        await world.tick()
        if draw.random() < 0.03:
            await world.restart()
            world.app.backend.faults = sometimes
        if draw.random() < 0.01 and not world.living("bob"):
            await world.bob.submit(JobSpec("rival", "#!/bin/sh\nsleep 30\n", 4, 60))
    world.app.backend.faults = lambda _method: None
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
    world.app.backend.faults = lambda method: denied if method == "merge" else None
    await world.until(lambda: the_phase(world, program) is Phase.CLEANING, seconds=60)
    world.app.backend.faults = lambda method: NotNow("busy") if method == "allocate" else None
    await world.until(lambda: not world.resizers(), seconds=60)


@pytest.mark.parametrize("phase", [Phase.MERGING, Phase.OFFERED])
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


@virtual
async def test_a_policy_that_fails_for_one_job_holds_up_no_other(tmp_path):
    world = World(tmp_path)
    await world.boot()
    first, second = await world.malleable(seconds=3000), await world.malleable(seconds=3000)
    real = world.app.malleable.policy

    class FailsForTheFirst:
        name = "fails-for-the-first"

        def decide(self, offer, job, snapshot):
            if job.id == first.job:
                raise KeyError(job.partition)
            return real.decide(offer, job, snapshot)

    world.app.malleable.policy = FailsForTheFirst()
    await world.until(lambda: second.sizes[-1] > 2, seconds=100)


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
    await world.until(lambda: world.app.malleable.jobs[program.job].resizer_name != sent[0].name)
    late = await world.backend.allocate(replace(sent[0], nodes=1), 1.0)
    begun = world.now
    await world.until(lambda: world.engine.job(late).state.ended, 200)
    assert world.now - begun < 130
