"""What comes in and what goes wrong in a virtual storm: an agenda of random instants, each with what happens then."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from dmr import credential, wire
from penstock.api import FAR, JobSpec, JobState
from penstock.errors import OutcomeUnknown, SlurmUnavailable
from penstock.workflow.model import workflow_to_dict
from penstock.workflow.phases import Submitter
from penstock_lab.mock.codec import CHANGING
from penstock_lab.mock.faults import Fault, FaultKind
from penstock_lab.soak.invariants import Forgery
from penstock_lab.soak.load import VIRTUAL, WorkflowPlan, random_rigid, random_workflow
from penstock_lab.soak.world import OWNER, World
from penstock_planning.plan.holding import WantedSlot

__all__ = ["Handed", "Storm"]

MINUTE: Final = 60.0
HOUR: Final = 3600.0
# A request that Slurm carries out twice does no harm if it says what should be; nobody repeats the others unasked.
_REPEATABLE: Final = frozenset({"cancel", "release", "update", "shrink", "merge"})
_DEAREST_LOOK: Final = 40.0


@dataclass(slots=True)
class Handed:
    """A workflow that was handed over: its plan and, once the agent has taken it, its run. Where its user has submitted
    the jobs, these are `jobs`."""

    plan: WorkflowPlan
    run: int | None = None
    jobs: dict[str, int] | None = None

    @property
    def name(self) -> str:
        return self.plan.workflow.name


class Storm:
    """Puts work in and makes things go wrong. `begin` and `end` bound an episode; what is still unmade is handed over
    in `settle`, when the weather is fine again."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._draw = random.Random(f"storm {seed}")
        self._number = count(1)
        self._order = count()
        self._agenda: list[tuple[float, int, Callable[[], Awaitable[None]]]] = []
        self.handed: list[Handed] = []
        self.malleable: dict[int, str] = {}
        self.guided: dict[int, tuple[str, str]] = {}
        self.forgeries: list[Forgery] = []
        self._share = 0.0
        self._raging = False
        world.faults = self._fault

    # -- the agenda ----------------------------------------------------------------------------------------------------

    def begin(self, *, kills: bool, load: float, fair: bool = False) -> None:
        """An episode: `kills` makes the agent die now and then, `load` is how much work comes in; `fair`: nothing goes
        wrong."""
        self._raging = True
        self._share = 0.0 if fair else self._draw.choice((0.0, 0.02, 0.1))
        whats: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (25 * MINUTE / load, self._workflow),
            (90 * MINUTE / load, self._guided),
            (50 * MINUTE / load, self._malleable),
            (12 * MINUTE / load, self._rigid),
            (70 * MINUTE / load, self._slot),
            (20 * MINUTE, self._forge),
            (40 * MINUTE, self._look),
        ]
        if not fair:
            whats += [
                (60 * MINUTE, self._weather),
                (5 * HOUR, self._controller_away),
                (6 * HOUR, self._node_dies),
                (9 * HOUR, self._disk_fills),
                (11 * HOUR, self._clock_steps),
            ]
        if kills:
            whats.append((35 * MINUTE, self._kill))
        for mean, what in whats:
            self._soon(mean, what)

    def end(self) -> None:
        """The weather is fine again, at once."""
        world = self.world
        self._agenda.clear()
        world.agenda.clear()
        self._raging, self._share = False, 0.0
        world.offset, world.disk_full, world.away_until = 0.0, 0.0, -1.0
        for node in list(world.engine.out_of_order):
            world.engine.resume_node(node)

    async def act(self) -> None:
        """What is due."""
        while self._agenda and self._agenda[0][0] <= self.world.now:
            await heapq.heappop(self._agenda)[2]()
        self._shown()

    def _soon(self, mean: float, what: Callable[[], Awaitable[None]]) -> None:
        """Again and again, so many seconds apart on average."""

        async def again() -> None:
            await what()
            if self._raging:
                self._soon(mean, what)

        self._at(self.world.now + self._draw.expovariate(1 / mean), again)

    def _at(self, instant: float, what: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._agenda, (instant, next(self._order), what))
        self._shown()

    def _again(self, what: Callable[[], Awaitable[None]]) -> None:
        if self._raging:
            self._at(self.world.now + 5 * MINUTE, what)

    def _shown(self) -> None:
        self.world.agenda[:] = [self._agenda[0][0]] if self._agenda else []

    # -- work ----------------------------------------------------------------------------------------------------------

    async def _workflow(self) -> None:
        plan = random_workflow(self._draw, next(self._number), VIRTUAL)
        self.handed.append(Handed(plan))
        self.world.counts["workflows"] += 1
        await self._hand_over(self.handed[-1])

    async def _hand_over(self, one: Handed) -> None:
        """As a user who tries again where there was no answer, and looks first whether it was taken."""
        world, name = self.world, one.name
        one.run = self._taken(Submitter.AGENT, name)
        if one.run is not None:
            return
        request = workflow_to_dict(one.plan.workflow)
        reply = await world.ask("submit", workflow=request, strategy=one.plan.strategy)
        if reply is not None and reply["ok"]:
            one.run = reply["result"]["run"]
            world.tell(f"{name} is workflow {one.run} under {one.plan.strategy}")
        else:
            world.tell(f"{name} was not taken: {reply}")
            self._again(lambda: self._hand_over(one))

    def _taken(self, submitter: Submitter, name: str) -> int | None:
        """The run of that name that the agent has already, as a user sees it by `penstock status`."""
        if not self.world.alive or self.world.fuse.dead:
            return None
        runs = self.world.app.store.runs.latest(submitter=submitter)
        for number, _uid, state in runs:
            if state and state["name"] == name:
                return number
        return None

    async def settle(self) -> None:
        """In the calm: users hand over what was not taken yet, and cancel what waits behind a stage that failed."""
        world = self.world
        for one in self.handed:
            if one.run is None:
                await (self._hand_over(one) if one.jobs is None else self._guide(one))
            jobs = [world.engine.records[n] for n in (one.jobs or {}).values() if n in world.engine.records]
            if any(j.state.ended and j.state is not JobState.COMPLETED for j in jobs):
                await world.ask("cancel", run=one.run)
                for job in jobs:
                    if job.state is JobState.PENDING:
                        await world.backend.cancel(job.id)

    async def _guided(self) -> None:
        """Jobs that the user submits, and asks the agent to release in time."""
        world = self.world
        plan = random_workflow(self._draw, next(self._number), VIRTUAL)
        name = f"g{plan.workflow.name}"
        numbers: dict[str, int] = {}
        for stage in plan.workflow.order:
            after = [numbers[p] for p in stage.after]
            dependency = "afterok:" + ":".join(map(str, after)) if after else None
            spec = JobSpec(
                f"{name}.{stage.name}", f"#!/bin/sh\n{stage.command}\n", stage.nodes, stage.time_limit,
                dependency=dependency, begin=FAR if after else None,
            )  # fmt: skip
            numbers[stage.name] = await world.backend.submit(spec)
            self.guided[numbers[stage.name]] = (name, stage.name)
        one = Handed(WorkflowPlan(replace(plan.workflow, name=name), "asa", plan.fails), jobs=numbers)
        self.handed.append(one)
        world.counts["guided workflows"] += 1
        await self._guide(one)

    async def _guide(self, one: Handed) -> None:
        world = self.world
        assert one.jobs is not None
        one.run = self._taken(Submitter.OWNER, one.name)
        if one.run is not None:
            return
        stages = [
            {
                "name": s.name,
                "job": one.jobs[s.name],
                "after": s.after,
                "expect": s.run_time,
                "kept": "begin" if s.after else "",
            }
            for s in one.plan.workflow.order
        ]
        reply = await world.ask("guide", workflow=one.name, strategy="asa", stages=stages, run=None)
        if reply is not None and reply["ok"]:
            one.run = reply["result"]["run"]
            world.tell(f"{one.name} is guided as workflow {one.run}")
        else:
            world.tell(f"{one.name} is not guided yet: {reply}")
            self._again(lambda: self._guide(one))

    async def _malleable(self) -> None:
        draw, world = self._draw, self.world
        companion = draw.random() < 0.5
        more: dict[str, Any] = {"companion": True, "method": "merge"} if companion else {}
        program = await world.malleable(
            draw.choice((1, 2, 2, 4)),
            draw.uniform(5, 120) * MINUTE,
            every=draw.choice((5.0, 20.0, 60.0)),
            takes=draw.choice((1.0, 10.0)),
            answers=draw.choice(("accept",) * 6 + ("ignore", "refuse", "fail")),
            **more,
        )
        self.malleable[program.job] = "solver"
        world.counts["malleable jobs"] += 1
        world.tell(f"job {program.job} is malleable")

    async def _rigid(self) -> None:
        draw, world = self._draw, self.world
        rigid = random_rigid(draw, next(self._number), VIRTUAL)
        whose = draw.choice((world.bob, world.bob, world.backend))
        array = f"1-{rigid.tasks}" if rigid.tasks > 1 else None
        await whose.submit(
            JobSpec(rigid.name, f"#!/bin/sh\nsleep {rigid.seconds:g}\n", rigid.nodes, rigid.limit, array=array)
        )
        world.counts["rigid jobs"] += rigid.tasks

    async def _slot(self) -> None:
        """A slot that a job holds which idles until it begins; now and then it is given up again."""
        draw, world = self._draw, self.world
        name, now = f"slot{next(self._number)}", world.now
        nodes, length = draw.choice((1, 2)), draw.uniform(1, 20) * MINUTE
        submit_at = now + draw.choice((0.0, draw.uniform(0, 30) * MINUTE))
        start = float(math.ceil(submit_at + draw.uniform(1, 60) * MINUTE))
        wanted = WantedSlot(
            name, OWNER, "lab", nodes, "batch", start, length, "var", base=nodes * length, f=math.inf,
            submit_at=submit_at, run_time=start + length - submit_at,
            command=f"sleep {length * draw.uniform(0.2, 0.9):.0f}",
        )  # fmt: skip
        world.slots[name] = start
        with world.reservations() as reservations:
            number = await reservations.holds.open(wanted)
        world.counts["slots"] += 1
        world.tell(f"{name} is hold {number}")
        if draw.random() < 0.3:

            async def give_up() -> None:
                with world.reservations() as reservations:
                    await reservations.holds.cancel(number)
                world.tell(f"hold {number} is given up")

            self._at(now + draw.uniform(0, 2) * (start - now), give_up)

    async def _look(self) -> None:
        """Somebody asks how it goes."""
        draw = self._draw
        await self.world.ask("status")
        runs = [h.run for h in self.handed if h.run is not None]
        if runs:
            await self.world.ask("explain", subject=f"workflow {draw.choice(runs)}")

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def _fault(self, method: str) -> Fault | None:
        draw = self._draw
        if self._share == 0.0 or draw.random() > self._share:
            return None
        self.world.counts["calls that went wrong"] += 1
        choices = [Fault(FaultKind.ERROR, error=SlurmUnavailable(f"{method}: no answer")), Fault(FaultKind.HANG)]
        choices.append(Fault(FaultKind.LATE, draw.uniform(1, _DEAREST_LOOK)))
        if method in CHANGING:
            choices += [Fault(FaultKind.LOST_ANSWER)] * 2
            choices.append(Fault(FaultKind.ERROR, error=OutcomeUnknown(f"{method}: never sent")))
        if method in _REPEATABLE:
            choices.append(Fault(FaultKind.REPEAT))
        return draw.choice(choices)

    async def _weather(self) -> None:
        self._share = self._draw.choice((0.0, 0.0, 0.02, 0.1, 0.4))
        self.world.tell(f"{self._share:.0%} of the calls go wrong")

    async def _kill(self) -> None:
        world, draw = self.world, self._draw
        if not world.alive:
            return
        how = draw.choice(("now", "write", "line", "line", "line"))
        if how == "now":
            starts = draw.randint(0, 4000) if draw.random() < 0.3 else None
            world.kill(draw.choice((0.5, 5.0, 60.0, 1800.0)), while_it_starts=starts)
        elif how == "write":
            world.fuse.at = world.fuse.points + draw.randint(0, 30)
        else:
            world.arm(draw.randint(0, 6000))

    async def _controller_away(self) -> None:
        self.world.away_until = self.world.now + self._draw.uniform(5, 900)
        self.world.counts["controller restarts"] += 1
        self.world.tell("the controller is restarted")

    async def _node_dies(self) -> None:
        world, draw = self.world, self._draw
        node = draw.choice(world.engine.config.node_names)
        if node in world.engine.out_of_order or len(world.engine.out_of_order) >= 2:
            return
        world.engine.fail_node(node)
        world.counts["node failures"] += 1
        world.tell(f"{node} dies")

        async def back() -> None:
            world.engine.resume_node(node)

        self._at(world.now + draw.uniform(2, 60) * MINUTE, back)

    async def _disk_fills(self) -> None:
        world = self.world
        world.disk_full = self._draw.choice((1.0, 0.3))
        world.counts["times the disk was full"] += 1
        world.tell(f"the disk is full: {world.disk_full:.0%} of the writes fail")

        async def room() -> None:
            world.disk_full = 0.0
            world.tell("the disk has room again")

        self._at(world.now + self._draw.uniform(10, 1200), room)

    async def _clock_steps(self) -> None:
        world, draw = self.world, self._draw
        world.offset += draw.choice((-3600.0, -120.0, -10.0, 10.0, 120.0, 3600.0))
        world.counts["clock steps"] += 1
        world.tell(f"the agent's clock is now {world.offset:+.0f} s off")

        async def right() -> None:
            world.offset = 0.0
            world.counts["clock steps"] += 1
            world.tell("the agent's clock is right again")

        self._at(world.now + draw.uniform(2, 90) * MINUTE, right)

    # -- those who ask for what is not theirs --------------------------------------------------------------------------

    async def _forge(self) -> None:
        world, draw = self.world, self._draw
        mine = [j.id for j in world.living(OWNER) if j.state is JobState.RUNNING]
        theirs = [j.id for j in world.living("bob") if j.state is JobState.RUNNING]
        made: list[tuple[str, Any]] = []
        if mine:
            job = draw.choice(mine)
            bobs = credential.Key(world.engine.uid_of("bob"), b"b" * 64)
            made.append((f"bob's request for {OWNER}'s job {job}", await world.hear(_check(world, job, bobs))))
            own = _check(world, job, world.key)
            damaged = own.replace(b'"size":1', b'"size":2')
            assert damaged != own
            made.append((f"a changed request for job {job}", await world.hear(damaged)))
            if world.offset == 0.0:
                old = _check(world, job, world.key, age=4000)
                made.append((f"an old request for job {job}", await world.hear(old)))
        if theirs:
            job = draw.choice(theirs)
            made.append((f"{OWNER}'s request for bob's job {job}", await world.hear(_check(world, job, world.key))))
        for line in world.used_lines():
            made.append(("a request that was used before", await world.hear(line)))
        for what, reply in made:
            if reply is not None:
                # A job that was not in the last look yet: nothing is said of it, and nothing remembered.
                unseen = isinstance(reply, wire.CheckReply) and "not seen this job" in reply.reason
                self.forgeries.append(Forgery(what, not isinstance(reply, wire.Failure) and not unseen, repr(reply)))
        await self._forge_commands()

    async def _forge_commands(self) -> None:
        world, stranger = self.world, 4242
        runs = [h.run for h in self.handed if h.run is not None] or [1]
        number = self._draw.choice(runs)
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("cancel", {"run": number}),
            ("retry", {"run": number}),
            ("explain", {"subject": f"workflow {number}"}),
            ("submit", {"workflow": {}, "strategy": "auto"}),
            ("pause", {}),
            ("queue", {}),
            ("waits", {}),
            ("guide", {"workflow": "x", "strategy": "asa", "stages": []}),
        ]
        for op, arguments in wanted:
            reply = await world.ask(op, uid=stranger, **arguments)
            if reply is not None:
                self.forgeries.append(Forgery(f"{op} by a stranger", bool(reply["ok"]), repr(reply)))
        reply = await world.ask("status", uid=stranger)
        if reply is not None:
            shown = reply.get("result") or {}
            seen = [key for key in ("workflows", "malleable", "resizes") if shown.get(key)]
            self.forgeries.append(Forgery("status for a stranger", bool(seen), f"it shows {seen}"))


def _check(world: World, job: int, key: credential.Key, age: float = 0.0) -> bytes:
    request = wire.Check(job=job, epoch=0, time=world.now - age, size=1, minimum=1, maximum=1)
    return wire.encode(wire.signed(request, lambda digest: credential.sign_key(digest, key)))
