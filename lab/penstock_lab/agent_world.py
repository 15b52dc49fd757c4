"""The whole agent over the simulated Slurm in virtual time, and what kills and faults leave of it.

The agent is "killed" by throwing it away, at a chosen pass or just before a chosen write or request.
"""

from __future__ import annotations

import asyncio
import functools
import math
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from dmr import credential, wire
from penstock.api import Allocation, JobSpec, JobState
from penstock.app import App
from penstock.audit.auditor import Auditor
from penstock.config import config_of
from penstock.errors import PenstockError
from penstock.ipc.auth import Verifier
from penstock.ipc.handlers import RemoteDoor
from penstock.resize.running.controller import MalleableController
from penstock.resize.running.part import MalleablePart
from penstock.resize.running.programs import Programs
from penstock.resize.running.words import ResizePhase
from penstock.resize.waiting.controller import MoldableController
from penstock.resize.waiting.part import MoldablePart
from penstock.shutdown.drain import Drain
from penstock.shutdown.part import OffPart
from penstock.state.connection import Holder, StateConnection
from penstock.state.store import Store
from penstock.workflow.documents import run_from_dict
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.part import WorkflowPart
from penstock.workflow.run.controller import WorkflowController
from penstock.workflow.state import WorkflowRun
from penstock_lab.mock.backend import MockBackend, virtual_cluster
from penstock_lab.mock.codec import CHANGING
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.faults import Fault, FaultKind, FaultyBackend
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig

START = 1_000_000_000.0
SETTINGS: dict[str, Any] = {
    "agent": {"interval": 5, "idle_interval": 5, "seed": 7},
    "slurm": {"min_interval": 0.5},
    "asa": {"predictor": "asa-default", "alternatives": [2.0, 10.0, 20.0, 30.0]},
    "dmr": {"policy": "wide", "cooldown": 5, "accept_timeout": 30},
}


# A site where the merge works, one where only a companion does, and one where the agent, an operator, has the job's
# launcher ask for it; and an application for each.
WAYS = ("merge", "companion", "launcher")
SITE: dict[str, dict[str, Any]] = {
    "merge": {},
    "companion": {"contain": True},
    "launcher": {"contain": True, "operator": True},
}
APP: dict[str, dict[str, Any]] = {
    "merge": {},
    "companion": {"companion": True, "method": "merge"},
    "launcher": {"companion": True, "method": "merge", "requests_nodes": True},
}


Failing = Callable[[str], PenstockError | str | None]
"""What goes wrong with a call of this method: an error that is raised instead of it, or "lost": the call is made, and
its answer lost."""


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


class MortalConnection(StateConnection):
    """That of a process which may die before any write; after that nothing is written any more."""

    def __init__(self, path: Path | str, holder: Holder | None = None, *, shared: bool = False, fuse: Fuse) -> None:
        self.fuse = Fuse()
        super().__init__(path, holder, shared=shared)
        self._db.execute("PRAGMA synchronous=OFF")
        self.fuse = fuse

    def execute(self, sql: str, args: Sequence[str | float | None] = ()) -> sqlite3.Cursor:
        if not sql.lstrip().startswith(("SELECT", "BEGIN")):
            self.fuse.point()
        return super().execute(sql, args)


class MortalBackend(FaultyBackend):
    """The backend of one life: a changing request is a point at which the agent may die."""

    def __init__(self, inner: MockBackend, fuse: Fuse, failing: Failing) -> None:
        super().__init__(inner, self._what)
        self.fuse = fuse
        self.failing = failing

    def _what(self, method: str) -> Fault | None:
        fault = self.failing(method)
        if isinstance(fault, PenstockError):
            return Fault(FaultKind.ERROR, error=fault)
        return Fault(FaultKind.LOST_ANSWER) if fault == "lost" else None

    async def call(self, method: str, *args: object, **more: object) -> object:
        if method in CHANGING:
            self.fuse.point()
        elif self.fuse.dead:
            raise Killed
        return await super().call(method, *args, **more)


class World:
    """A simulated cluster, one agent after the other over the same state file, and the programs that run in jobs."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any] | None = None,
        operator: bool = False,
        start: float = START,
        **cluster: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.file = folder / "penstock.db"
        self.backend = virtual_cluster(ClusterConfig(**{"accrue_always": True, **cluster}), "alice", start=start)
        self.bob = self.backend.as_user("bob")
        self.clock = self.backend.clock
        self.engine = self.backend.engine
        given = settings or {}
        self.agents = self.backend.as_user("root") if operator else self.backend
        if operator:
            given = {**given, "agent": {**given.get("agent", {}), "serve": "all"}}
        self.asked: dict[str, asyncio.Task[int]] = {}
        merged = {k: {**SETTINGS.get(k, {}), **given.get(k, {})} for k in {**SETTINGS, **given}}
        self.config = config_of(merged)
        self.failing: Failing = lambda _method: None
        self.programs: list[Program] = []
        self.key = credential.Key(self.engine.uid_of("alice"), b"k" * 64)
        self.lives = 0
        self.passes = 0
        self.each_pass: Callable[[], Awaitable[None]] | None = None
        self.auditor: Callable[[], Auditor] | None = None

    @property
    def now(self) -> float:
        return self.clock.now()

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def workflows(self) -> WorkflowController:
        return self.app.part(WorkflowPart).controller

    @property
    def malleables(self) -> MalleableController:
        return self.app.part(MalleablePart).controller

    @property
    def moldables(self) -> MoldableController:
        return self.app.part(MoldablePart).controller

    @property
    def drain(self) -> Drain:
        return self.app.part(OffPart).drain

    async def boot(self, at: float = math.inf) -> None:
        """A new agent over the same file, which dies before its point number `at`."""
        self.fuse = Fuse(at)
        self.app = App(
            self.config,
            MortalBackend(self.agents, self.fuse, self.failing),
            self.clock,
            Store(self.file, connect=partial(MortalConnection, fuse=self.fuse)),
            auditor=self.auditor() if self.auditor is not None else None,
        )
        await self.app.start()
        verifier = Verifier(self.key, None, lambda: self.now)
        heard = (self.malleables, self.app.observer, self.clock, lambda _uid: True, self.app.want_look)
        self.door = RemoteDoor(Programs(*heard), verifier, self.clock)
        self.pass_at = self.now
        self.lives += 1

    def kill(self) -> None:
        """SIGKILL: nothing is written or asked any more, the file is closed by the kernel."""
        self.fuse.dead = True
        self.app.store.connection._db.close()

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

    def launcher(self, wanted: wire.NodeRequest) -> None:
        """What `dmr.launch` does: it asks once, as the job's own user."""
        if wanted.name not in self.asked:
            spec = Allocation(wanted.name, wanted.node_count, wanted.time_limit, exclusive=wanted.exclusive)
            self.asked[wanted.name] = asyncio.ensure_future(self.backend.allocate(spec, wanted.patience))

    # -- workflows -----------------------------------------------------------------------------------------------------

    async def submit(self, workflow: Workflow, strategy: str) -> int:
        number = await self.workflows.submissions.submit(0, workflow, strategy)
        self.pass_at = self.now
        return number

    def run(self, number: int) -> WorkflowRun:
        # Past the store's own methods, which a dead agent can no longer call.
        (state,) = [s for n, _u, s in self.app.store.runs.latest() if n == number]
        return run_from_dict(state)

    async def finish(self, number: int, seconds: float = 2000.0) -> WorkflowRun:
        await self.until(lambda: not self.fuse.dead and self.run(number).phase.final, seconds)
        return self.run(number)

    def submissions(self) -> Counter[str]:
        """How many jobs Slurm has ever got of each stage."""
        return Counter(j.name.partition(".penstock.")[0] for j in self.engine.records.values() if j.user == "alice")

    def living(self, user: str = "alice") -> list[SimJob]:
        return [j for j in self.engine.jobs.values() if j.user == user and not j.state.ended]

    # -- malleable jobs ------------------------------------------------------------------------------------------------

    async def malleable(self, seconds: float = 400.0, limit: float | None = None, **more: Any) -> Program:
        """A job of two nodes in which a malleable program runs."""
        script = f"#!/bin/sh\nsleep {seconds:g}\n"
        number = await self.backend.submit(JobSpec("solver", script, 2, seconds + 600 if limit is None else limit))
        program = Program(self, number, **more)
        self.programs.append(program)
        return program

    def resizers(self, of: int | None = None) -> list[SimJob]:
        """Resizers and companions (of one job) that wait for nodes or hold some."""
        jobs = [j for j in self.engine.jobs.values() if isinstance(j.spec, Allocation) and not j.state.ended]
        return [j for j in jobs if of is None or j.name.startswith(f"penstock-{of}-")]


class Surroundings(Protocol):
    """What a program needs of the world in which it runs."""

    @property
    def now(self) -> float:
        """Slurm's time."""

    @property
    def engine(self) -> Engine:
        """The simulated Slurm."""

    async def say(self, request: wire.Request) -> wire.Reply | None:
        """One message to the agent; None when nobody answers."""

    def launcher(self, wanted: wire.NodeRequest) -> None:
        """Ask Slurm for nodes in the agent's place."""


class Program:
    """Rank 0 of a malleable program with one rank on each node, as `dmr` makes it behave.

    It checks every `every` seconds; a resize takes `takes` seconds. `answers` is what it does with an offer: accept,
    ignore, refuse, or fail (accepts, then refuses). `more` goes into every check (method, companion, steps…).
    """

    def __init__(
        self,
        world: Surroundings,
        job: int,
        every: float = 4.0,
        takes: float = 1.0,
        answers: str = "accept",
        maximum: int = 8,
        minimum: int = 1,
        factor: int = 2,
        **more: Any,
    ) -> None:
        self.world = world
        self.job = job
        self.every = every
        self.takes = takes
        self.answers = answers
        self.bounds: dict[str, Any] = {"minimum": minimum, "maximum": maximum, "factor": factor}
        self.more = more
        self.companions: list[int] = []
        self.epoch = 0
        self.nodes: tuple[str, ...] = world.engine.job(job).nodes
        self.next_at = world.now + every
        self.under_way: wire.CheckReply | None = None
        self.sizes = [2]
        self.told = ""  # the last reason that it was given

    def granted(self, companions: list[int] | None = None) -> set[str]:
        """All nodes that Slurm has given to the job and to its companions."""
        jobs = [
            self.world.engine.jobs.get(n) for n in [self.job, *(self.companions if companions is None else companions)]
        ]
        return {n for j in jobs if j is not None and j.state is JobState.RUNNING for n in j.nodes}

    async def announce(self, size: int, in_seconds: float) -> wire.Reply | None:
        return await self.world.say(wire.Announce(**self._head(self.epoch), size=size, in_seconds=in_seconds))

    def _head(self, epoch: int) -> dict[str, Any]:
        return {"job": self.job, "epoch": epoch, "time": self.world.now}

    async def step(self) -> None:
        slurm = self.world.engine.jobs.get(self.job)
        if slurm is None or slurm.state is not JobState.RUNNING:
            self.next_at = math.inf
            return
        if not self.nodes:
            self.nodes = slurm.nodes
        assert set(self.nodes) <= self.granted(), "ranks were killed: Slurm took nodes on which they run"
        self.next_at = self.world.now + self.every
        if self.under_way is not None:
            await self._finish_resize(self.under_way)
            return
        size = len(self.nodes)
        reply = await self.world.say(
            wire.Check(**self._head(self.epoch), size=size, nodes=self.nodes, **self.bounds, **self.more)
        )
        if isinstance(reply, wire.CheckReply):
            self.told = reply.reason or self.told
        if isinstance(reply, wire.CheckReply) and reply.node_request is not None:
            self.world.launcher(reply.node_request)
        if not isinstance(reply, wire.CheckReply) or reply.action == "none" or self.answers == "ignore":
            return
        offered = [*self.companions, *([reply.companion] if reply.companion else [])]
        assert set(reply.nodes) <= self.granted(offered), "an offer of nodes that the job does not have"
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
        self.companions += [reply.companion] if reply.companion else []
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


def settled(world: World, program: Program) -> bool:
    """Nothing is on its way, and the job has the nodes on which its ranks run, no more and no less."""
    me = world.app.part(MalleablePart).controller.jobs.get(program.job)
    return (
        me is not None
        and me.phase is ResizePhase.IDLE
        and {j.id for j in world.resizers(program.job)} == {c.job for c in me.companions} <= set(program.companions)
        and program.granted([c.job for c in me.companions]) == set(program.nodes) == set(me.nodes)
    )


def the_phase(world: World, program: Program) -> ResizePhase | None:
    me = world.app.part(MalleablePart).controller.jobs.get(program.job)
    return me.phase if me else None
