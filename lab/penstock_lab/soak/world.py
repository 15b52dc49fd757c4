"""The virtual world of a soak: a simulated cluster, one agent after the other over one state file, programs in jobs.

The agent is the production code with its loop, doors and store; simulated are Slurm, the programs and the weather. It
dies between any two of its lines, or just before any write or request. Parts are those of the unit tests.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog

import penstock
from dmr import credential, wire
from penstock.api import JobSpec, JobState, Step
from penstock.app import App
from penstock.config import config_of
from penstock.core.executor import Executor
from penstock.errors import NotNow, StoreError
from penstock.ipc.auth import FRESH, Verifier
from penstock.ipc.handlers import LocalDoor, RemoteDoor
from penstock.resize.running.part import MalleablePart
from penstock.resize.running.programs import Programs
from penstock.state.ownership import ledger_path
from penstock.state.store import Store
from penstock.waits.part import WaitsPart
from penstock.workflow.scripts import read_job_name
from penstock_lab.agent_world import Fuse, Killed, MortalConnection, Program
from penstock_lab.mock.backend import MockBackend
from penstock_lab.mock.codec import CHANGING
from penstock_lab.mock.engine import Engine, made_up_uid
from penstock_lab.mock.faults import Fault, FaultKind, FaultyBackend
from penstock_lab.mock.jobs import SimJob
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.speedup import Work
from penstock_lab.soak.invariants import Act
from penstock_planning.hold.ledger import Ledger
from penstock_planning.hold.reservations import Reservations

__all__ = ["NOT_THE_AGENT", "OWNER", "START", "Killed", "Simulated", "Violated", "World"]

START: Final = 1_000_000_000.0
OWNER: Final = "alice"
_AFTER_FAILURE = 5.0  # as the loop's own
_GATHER = 0.025
_LINES = 5000  # requests, more than an hour of them as a rule
_SLEEP = re.compile(r"\bsleep ([0-9.]+)")
_GUARD = re.compile(r"^#PENSTOCK-GUARD .*?^unset -f penstock_guard$", re.MULTILINE | re.DOTALL)
_AGAIN = re.compile(r'^\[ ! -e "\$penstock_marks/', re.MULTILINE)
_AGENT = str(Path(penstock.__file__).parent)
# What the simulated Slurm uses while the agent waits for it, and the agent does nothing in that a kill could break.
NOT_THE_AGENT: Final = tuple(str(Path(_AGENT) / name) + os.sep for name in ("api", "future", "values"))


class Violated(Exception):
    """Something that must hold does not."""

    def __init__(self, what: list[str]) -> None:
        super().__init__("\n".join(what))
        self.what = what


class Bomb:
    """Ends an agent's life before one of the next lines that it executes, whichever file of it that is in."""

    def __init__(self, fuse: Fuse, lines: int) -> None:
        self.fuse = fuse
        self._left = lines
        self.where = ""

    def arm(self) -> None:
        """From the next call of a function on."""
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        return self._line if name.startswith(_AGENT) and not name.startswith(NOT_THE_AGENT) else None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Callable[..., Any] | None:
        if event == "line":
            self._left -= 1
            if self._left < 0 or self.fuse.dead:
                sys.settrace(None)
                self.fuse.dead = True
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise Killed
        return self._line


class SoakConnection(MortalConnection):
    """On a disk that may be full, or so nearly full that only some writes fail."""

    def __init__(self, path: Path, world: World) -> None:
        self._world = world
        super().__init__(path, fuse=world.fuse)

    def execute(self, sql: str, args: Any = ()) -> Any:
        full = self._world.draw.random() < self._world.disk_full
        if full and not sql.lstrip().startswith(("SELECT", "BEGIN", "ROLLBACK")):
            self.errors += 1
            raise StoreError(f"the state file {self.path}: database or disk is full")
        return super().execute(sql, args)


class SoakBackend(FaultyBackend):
    """Slurm as the agent finds it: it may die at every change, calls go wrong, and its clock may be another."""

    def __init__(self, world: World, fuse: Fuse) -> None:
        super().__init__(world.backend, world.fault)
        self._world = world
        self._fuse = fuse

    def now(self) -> float:
        return self._world.now + self._world.offset

    async def call(self, method: str, *args: Any, **more: Any) -> Any:
        if self._fuse.dead:
            raise Killed
        if method in CHANGING:
            self._fuse.point()
            if args and isinstance(args[0], int):
                self._world.acts.append(Act(method, args[0], self._world.now))
            self._world.tell(f"agent: {method} {_short(args)}")
        self._world.calls[method] += 1
        answer = await super().call(method, *args, **more)
        if self._fuse.dead:  # it died while it waited for the answer
            raise Killed
        return answer


class _Skewed:
    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now + self._world.offset


class World:
    """`tell` keeps the last events, `wrong` what has been seen to be wrong. `offset` is how much the agent's clock is
    ahead, `disk_full` (the share of writes that fail) and `fault` are the weather, `away_until` is when the controller
    is back."""

    def __init__(self, folder: Path, seed: int, settings: Mapping[str, Any], cluster: ClusterConfig) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "penstock.db"
        self.draw = random.Random(f"world {seed}")
        self.last: deque[str] = deque(maxlen=400)
        self.wrong: list[str] = []
        self.acts: list[Act] = []
        self.calls: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.latencies: list[float] = []
        self._of_stage: dict[tuple[str, str], list[int]] = {}
        self.idle_jobs: set[int] = set()  # found that an earlier attempt had done their work
        self.engine = Engine(cluster, START, duration=self._work, uid_of=_uid_of)
        self.backend = MockBackend(self.engine, OWNER)
        self.bob = self.backend.as_user("bob")
        self.clock = self.backend.clock
        self.clock.steps = self._steps  # type: ignore[method-assign]
        (folder / "own").mkdir()
        ledger = {"ledger": folder / "own" / "ledger.db"}
        self.config = config_of({**settings, "provision": ledger})
        self.slots: dict[str, float] = {}
        """When each slot that was held begins, by its name."""
        self.reservations_config = config_of(
            {"agent": {"state_dir": folder / "own"}, "slurm": {"backend": "mock"}, "provision": ledger}
        )
        self.key = credential.Key(self.engine.uid_of(OWNER), b"k" * 64)
        self.programs: list[Simulated] = []
        self.offset = 0.0
        self.disk_full = 0.0
        self.away_until = -math.inf
        self.faults: Callable[[str], Fault | None] = lambda _method: None
        self.agenda: list[float] = []  # when the driver wants to act
        self.alive = False
        self.boot_at = START
        self.pass_at = START
        self.lives = self.passes = 0
        self._used: deque[tuple[float, bytes]] = deque(maxlen=_LINES)
        self._draw_used = random.Random(f"used {seed}")
        self._bomb: Bomb | None = None
        self.app: App
        self.fuse = Fuse()
        structlog.configure(processors=[self._hear], cache_logger_on_first_use=False)

    @property
    def now(self) -> float:
        """Slurm's time."""
        return self.clock.now()

    def tell(self, text: str) -> None:
        """Remember an event."""
        self.last.append(f"{(self.now - START) / 3600:9.4f} h  {text}")

    def fault(self, method: str) -> Fault | None:
        """What goes wrong with the agent's next call."""
        if self.now < self.away_until:
            return Fault(FaultKind.ERROR)
        return self.faults(method)

    def _hear(self, _logger: object, _method: str, event: Any) -> Any:
        """The agent's log: whatever it did not foresee is a finding."""
        error = sys.exc_info()[1]
        if event.get("exc_info") and not isinstance(error, StoreError | NotNow):
            place = None if error is None else error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = "" if place is None else f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
            self.wrong.append(f"the agent did not foresee: {event.get('event')}: {error!r} at {where}")
        raise structlog.DropEvent

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _work(self, spec: JobSpec) -> Work:
        """What a script has to do, its guard apart; nothing where an earlier attempt has left its mark."""
        script = _GUARD.sub("", spec.script)
        seconds = sum(map(float, _SLEEP.findall(script))) or 1.0
        if spec.name in self.slots:  # it idles until its slot begins
            return Work(max(self.slots[spec.name] - self.clock.now(), 0.0) + seconds)
        work = Work(seconds, 3 if "exit 3" in script else 0)
        said = read_job_name(spec.name)
        if said is None:
            return work
        key = said.run, said.stage
        known = self._of_stage.setdefault(key, [])
        # The one that starts now is not yet among them.
        alike = (j for j in self.engine.jobs.values() if j.name == spec.name and j.state is JobState.RUNNING)
        job = next(j.id for j in alike if j.work is None)
        records = self.engine.records
        done = any(records[n].state is JobState.COMPLETED for n in known if n in records and n != job)
        known.append(job)
        if _AGAIN.search(spec.script) and done:
            self.idle_jobs.add(job)
            return Work(0.5)
        return work

    def _steps(self, job: int) -> list[Step]:
        """Where the ranks of the malleable program run that this job belongs to, as `squeue -s` would show it."""
        found = []
        for program in self.programs:
            asked = program.under_way
            jobs = {program.job, *program.companions, *([asked.companion] if asked is not None else [])}
            slurm = self.engine.jobs.get(job)
            if job in jobs and slurm is not None:
                busy = {*program.nodes, *(asked.nodes if asked is not None else ())} & set(slurm.nodes)
                found += [Step(job, "0", tuple(sorted(busy)))] if busy else []
        return found

    def living(self, user: str | None = None) -> list[SimJob]:
        """Jobs that have not ended."""
        return [j for j in self.engine.jobs.values() if not j.state.ended and (user is None or j.user == user)]

    # -- the agent's life ----------------------------------------------------------------------------------------------

    async def boot(self) -> None:
        """A new agent over the same file, if Slurm and the disk let it start; else it tries again later."""
        self.fuse = Fuse()
        store: Store | None = None
        try:
            if self._bomb is not None:  # some die while they start
                self._bomb.fuse = self.fuse
            with self._mortal():
                store = Store(self.file, connect=lambda path, *_who, **_how: SoakConnection(path, self))
                self.app = App(self.config, SoakBackend(self, self.fuse), _Skewed(self), store)
                await self.app.start()
        except (Killed, NotNow, StoreError) as e:
            if store is not None:
                store.connection._db.close()
            self.counts["starts that failed"] += 1
            self._bomb = None
            self.boot_at = self.now + 20.0
            self.tell(f"the agent could not start: {e!r}")
            return
        self._bomb, app = None, self.app
        malleable, serves = app.part(MalleablePart).controller, {self.key.uid}.__contains__
        desk = Programs(malleable, app.observer, app.clock, serves, app.want_look)
        self.remote = RemoteDoor(desk, Verifier(self.key, None, lambda: self.now), app.clock)
        self.local = LocalDoor(app.operations)
        self._used.clear()  # a new agent does not know them (docs/security.md)
        self.alive, self.pass_at = True, self.now
        self.lives += 1
        self.tell(f"the agent lives ({self.lives})")

    def arm(self, lines: int) -> None:
        """The agent dies so many lines from now."""
        self._bomb = Bomb(self.fuse, lines)

    @contextmanager
    def _mortal(self) -> Iterator[None]:
        """What runs here is the agent. Users and the simulated Slurm run code of the agent's, too, and do not die."""
        if self._bomb is not None:
            self._bomb.arm()
        try:
            yield
        finally:
            sys.settrace(None)

    def kill(self, downtime: float, *, while_it_starts: int | None = None) -> None:
        """SIGKILL: nothing is written or asked any more, and what was not committed is gone. The next one may die so
        many lines after its start."""
        where = f" at {self._bomb.where}" if self._bomb is not None and self._bomb.where else ""
        self._bomb = None
        self.fuse.dead = True
        self.app.store.connection._db.close()
        self.alive = False
        self.boot_at = self.now + downtime
        self.counts["kills"] += 1
        self.tell(f"the agent is killed{where}, down for {downtime:.0f} s")
        if while_it_starts is not None:
            self._bomb = Bomb(self.fuse, while_it_starts)

    # -- time ----------------------------------------------------------------------------------------------------------

    async def tick(self, latest: float) -> None:
        """On to the next thing that happens, `latest` at the latest."""
        agent = self.pass_at if self.alive else self.boot_at
        due = [
            agent,
            latest,
            *(p.next_at for p in self.programs),
            *self.agenda,
        ]
        self.clock.advance_to(max(min(due), self.now))
        for program in self.programs:
            if program.next_at <= self.now:
                try:
                    await program.step()
                except AssertionError as e:
                    self.wrong.append(f"job {program.job}: {e}")
                    program.next_at = math.inf
        self.programs = [p for p in self.programs if p.next_at < math.inf]
        if not self.alive:
            if self.now >= self.boot_at:
                await self.boot()
        else:
            try:
                await self._pass_if_due()
            except Killed:
                self.fuse.dead = True
        if self.alive and self.fuse.dead:
            self.kill(self.draw.choice((0.5, 5.0, 60.0, 900.0)))
        await asyncio.sleep(0)

    async def _pass_if_due(self) -> None:
        loop = self.app.loop
        assert loop is not None
        if loop.woken:
            self.pass_at = min(self.pass_at, self.now + _GATHER)
        else:
            self.pass_at = min(self.pass_at, self.now + max(loop.next_pass() - self.app.clock.now(), _GATHER))
        if self.now < self.pass_at or self.fuse.dead:
            return
        try:
            with self._mortal():
                await loop.one_pass()
            self.passes += 1
            # What the agent does beside its event loop shall not depend on this machine's speed.
            if (task := self.app.part(WaitsPart).predictions.forecast._task) is not None:
                await asyncio.wait({task})
        except Exception as e:
            self.counts["failed passes"] += 1
            if not (self.disk_full and isinstance(e, StoreError)):
                self.wrong.append(f"a pass failed: {e!r}")
            self.pass_at = self.now + _AFTER_FAILURE
            return
        self.pass_at = self.now + max(loop.next_pass() - self.app.clock.now(), 2 * _GATHER)

    @contextmanager
    def reservations(self) -> Iterator[Reservations]:
        """The ledger of the agent's user, as the user's own command works with it."""
        store = Store(self.file.parent / "acts.db")
        reservations = Reservations(self.reservations_config, self.backend, Executor(store, self.clock, self.backend))
        try:
            yield reservations
        finally:
            reservations.close()
            store.close()

    def held(self) -> dict[int, str]:
        """The slots that are not settled, by their phase."""
        with closing(Ledger.copy_of(ledger_path(self.reservations_config))) as ledger:
            return {number: str(hold.phase) for number, hold in ledger.holds().items()}

    # -- the doors -----------------------------------------------------------------------------------------------------

    async def say(self, request: wire.Request) -> wire.Reply | None:
        """One message of a program of the agent's user; None when nobody answers."""
        line = wire.encode(wire.signed(request, lambda digest: credential.sign_key(digest, self.key)))
        reply = await self.hear(line)
        if reply is not None and not (isinstance(reply, wire.Failure) and reply.error == "not-permitted"):
            self._used.append((request.time, line))
        return reply

    def launcher(self, wanted: wire.NodeRequest) -> None:
        """No program of a soak has a launcher, so none may be told to ask for nodes."""
        self.wrong.append(f"a program without a launcher was told to ask for nodes: {wanted}")

    async def hear(self, line: bytes) -> wire.Reply | None:
        """One line at the applications' door."""
        if not self.alive or self.fuse.dead:
            return None
        began = time.perf_counter()
        try:
            with self._mortal():
                answer = await self.remote.answer(line)
        except Killed:
            self.fuse.dead = True
            return None
        self.latencies.append(time.perf_counter() - began)
        return wire.decode_reply(answer)

    def used_lines(self) -> list[bytes]:
        """Of what this agent has let in: the last, and one that is as old as a good one by its clock of this moment.

        What it refused was not used: sent while its clock was an hour off, it may be good once the clock is right.
        """
        if not self._used:
            return []
        clock = self.now + self.offset
        fresh = [line for made, line in self._used if abs(clock - made) <= FRESH]
        return [self._used[-1][1], *([self._draw_used.choice(fresh)] if fresh else [])]

    async def ask(self, op: str, uid: int | None = None, **arguments: Any) -> dict[str, Any] | None:
        """One request of a command; None when nobody answers."""
        if not self.alive or self.fuse.dead:
            return None
        began = time.perf_counter()
        line = json.dumps({"op": op, **arguments}).encode() + b"\n"
        try:
            with self._mortal():
                answer = await self.local.answer(os.geteuid() if uid is None else uid, line)
        except Killed:
            self.fuse.dead = True
            return None
        self.latencies.append(time.perf_counter() - began)
        reply: dict[str, Any] = json.loads(answer)
        return reply

    # -- malleable jobs ------------------------------------------------------------------------------------------------

    async def malleable(self, nodes: int, seconds: float, **more: Any) -> Simulated:
        """A job in which a malleable program runs."""
        script = f"#!/bin/sh\nsleep {seconds:g}\n"
        number = await self.backend.submit(JobSpec("solver", script, nodes, seconds + 600))
        program = Simulated(self, number, **more)
        self.programs.append(program)
        return program


class Simulated(Program):
    """A malleable program that may wait in the queue, and that dies when one of its nodes does."""

    world: World

    async def step(self) -> None:
        world = self.world
        job = world.engine.jobs.get(self.job)
        if job is None or job.state.ended:
            self.next_at = math.inf
            return
        if job.state is not JobState.RUNNING:
            self.next_at = world.now + self.every
            return
        if not self.nodes:
            self.nodes = job.nodes
            self.sizes = [len(job.nodes)]
        lost = set(self.nodes) - self.granted()
        if lost and self._died(job):
            world.tell(f"job {self.job} dies with {sorted(lost)}")
            world.engine.end(job, JobState.FAILED, 1)
            self.next_at = math.inf
            return
        before = self.sizes[-1]
        await super().step()
        if self.sizes[-1] != before:
            world.counts["resizes"] += 1

    def _died(self, job: SimJob) -> bool:
        """Whether a companion has ended otherwise than by the agent's hand."""
        ended = [self.world.engine.records.get(n) for n in self.companions]
        return any(c is not None and c.state in (JobState.NODE_FAIL, JobState.TIMEOUT) for c in ended)


def _uid_of(user: str) -> int:
    return os.geteuid() if user == OWNER else made_up_uid(user)


def _short(args: tuple[Any, ...]) -> str:
    words = [a.name if hasattr(a, "name") else str(a) for a in args]
    return " ".join(words)[:120]
