"""Workflows in slots of their own on the simulated Slurm in virtual time: followed, mended, and killed in between."""

from __future__ import annotations

import asyncio
import json
import math
import os
from dataclasses import replace

import pytest
from factories import hand

from penstock.api import JobState
from penstock.app import App
from penstock.config import config_of
from penstock.core.pauses import Pause
from penstock.errors import Infeasible, LeftAlone, NotNow
from penstock.state.store import Store
from penstock.values.allow import Rule
from penstock.workflow.documents import in_slots
from penstock.workflow.files.formats import parse_workflow
from penstock.workflow.model import workflow_to_dict
from penstock.workflow.phases import StagePhase as Stands
from penstock.workflow.state import StageSlot
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.model import ClusterConfig
from penstock_planning.hold.holds import Holds
from penstock_planning.hold.ledger import Ledger
from penstock_planning.hold.notices import notices_of
from penstock_planning.hold.passes import run_pass
from penstock_planning.hold.reservations import Reservations
from penstock_planning.hold.runs import ReservedRuns
from penstock_planning.plan.holding import HoldPhase, Limits, WantedSlot
from penstock_planning.plan.repair import Free

FLOW = """
name: flow
stages:
  - {name: a, nodes: 2, time: 10m, run: "#MOCK duration=DURATION exit=EXIT"}
  - {name: b, nodes: 2, time: 10m, run: "#MOCK duration=60 exit=0", after: a}
  - {name: c, nodes: 1, time: 10m, run: "#MOCK duration=60 exit=0", after: b}
"""


class Killed(Exception):
    """The process dies here."""


class Offered:
    """These slots, each for one stage of at most so many nodes, and what is given back."""

    def __init__(self, slots, most):
        self.left, self.most = sorted(slots), most

    def find(self, nodes, duration, after):
        return None if nodes > self.most else next((s for s in self.left if s.start >= after), None)

    def take(self, hole, duration):
        self.left = [slot for slot in self.left if slot != hole]

    def give(self, slot, duration):
        self.left = sorted([*self.left, slot])


class World:
    """Four nodes; root holds three slots of a workflow, from 1000, 2000 and 3000 s on."""

    def __init__(self, duration=300, exit=0, whole=None, flow=FLOW, limits=None):
        self.whole, self.limits = whole or {}, limits
        self.down = False
        self.backend = virtual_cluster(ClusterConfig(nodes=4), user="root")
        self.ledger = Ledger(":memory:")
        self.start = self.backend.now()
        self.offered = [Free(self.start + at, ("n3", "n4")) for at in (1500, 4000, 6000, 8000)]
        text = flow.replace("DURATION", str(duration)).replace("EXIT", str(exit))
        self.flow = parse_workflow(text.encode())
        self.partition = self.run(self.backend.partitions())[0].name
        self.again()

    def again(self, worth=0.0):
        """A process that knows only what is stored."""
        self.holds = Holds(self.backend, hand(self.backend), self.ledger, self.limits)
        self.runs = ReservedRuns(self.backend, hand(self.backend), self.holds, self.ledger, worth)

    def run(self, work):
        return asyncio.run(work)

    def begin(self, f=0.0):
        stages = {}
        for i, stage in enumerate(self.flow.order):
            wanted = WantedSlot(
                f"flow-1-{stage.name}", "root", "lab", stage.nodes, self.partition, self.start + 1000 * (i + 1),
                stage.time_limit, "reservation", 10.0, f,
            )  # fmt: skip
            number = self.run(self.holds.open(wanted))
            assert self.ledger.hold(number).phase is HoldPhase.HELD
            stages[stage.name] = StageSlot(wanted.name, number, whole=self.whole.get(stage.name))
        return self.run(self.runs.begin(in_slots("flow-1", self.flow, stages, self.start)))

    async def _tend(self):
        await self.holds.tick()

        async def holes(run):
            return Offered(self.offered, 1 if self.down else 4)

        return await self.runs.advance(holes)

    def to(self, seconds):
        self.backend.clock.advance_to(self.start + seconds)
        return self.run(self._tend())

    def state(self):
        (stored,) = self.ledger.runs()
        return stored

    def stages(self):
        return {stage.name: stage for stage in self.state().stages}

    def slot(self, stage):
        return self.stages()[stage].slot

    def jobs(self):
        return {j.id: j for j in self.run(self.backend.jobs())}

    def completed(self):
        records = self.run(self.backend.history(since=self.start - 1))
        return sorted(r.name.split("-")[2] for r in records if r.state is JobState.COMPLETED)

    def reservations(self):
        return sorted(r.name for r in self.run(self.backend.reservations()))

    def over(self):
        assert self.ledger.runs() == [] and self.reservations() == [] and self.ledger.holds() == {}
        assert all(j.state.ended for j in self.jobs().values())


def test_stages_run_in_their_slots_and_give_back_what_is_left_of_them():
    world = World()
    world.begin()
    assert world.to(900) == []
    assert world.reservations() == ["flow-1-a", "flow-1-b", "flow-1-c"]
    world.offered = []
    assert world.to(1400) == [] and world.reservations() == ["flow-1-b", "flow-1-c"], "a has ended early"
    for at in (2001, 2100, 3001, 3100):
        assert world.to(at) == []
    world.over()
    assert world.completed() == ["a", "b", "c"]
    starts = sorted(r.start - world.start for r in world.run(world.backend.history(since=world.start - 1)))
    assert [s // 1000 for s in starts] == [1, 2, 3]


def test_a_job_that_its_user_cancels_takes_what_comes_after_it_along():
    world = World()
    world.begin()
    world.run(world.backend.cancel(world.stages()["b"].job))
    assert world.to(900) == ["flow-1: stage c is given up: stage b, which it comes after, has failed"]
    assert world.reservations() == ["flow-1-a"]
    world.to(1400)
    world.over()
    assert world.completed() == ["a"]


def test_a_slot_that_was_missed_is_exchanged_and_later_stages_follow():
    world = World()
    world.begin()
    world.run(world.backend.hold(world.stages()["a"].job))
    assert world.to(1200) == ["flow-1: stage a gets another slot: it did not begin in time"]
    assert world.slot("a").name == "flow-1-a-1" and "flow-1-a" not in world.reservations()
    said = [line for at in (1210, 1220) for line in world.to(at)]
    late = "what it comes after ends too late for its slot"
    assert said == [f"flow-1: stage {name} gets another slot: {late}" for name in "bc"]
    world.offered = []
    for at in (1500, 1900, 4001, 4100, 6001, 6100):
        world.to(at)
    world.over()
    assert world.completed() == ["a", "b", "c"]


def test_an_earlier_slot_is_taken_and_its_price_paid_only_if_it_is_worth_it():
    world = World()
    world.begin(f=100.0)
    assert world.to(1400) == [], "giving up b's slot costs 10"
    world.again(worth=0.1)
    assert world.to(1410) == ["flow-1: stage b gets another slot: it can begin earlier"]
    assert world.slot("b").name == "flow-1-b-1"
    kinds = {(line.hold, line.kind): line.amount for line in world.ledger.lines()}
    assert kinds[2, "penalty"] == pytest.approx(10.0) and kinds[2, "refund"] == -110.0
    assert (4, "charge") in kinds
    world.offered = []
    for at in (1501, 1600, 3001, 3100):
        world.to(at)
    world.over()


def test_a_slot_that_is_of_no_use_is_exchanged_without_notice_and_for_an_earlier_one_only_with_it():
    world = World(limits=Limits(notice=900))
    world.begin()
    world.run(world.backend.hold(world.stages()["a"].job))
    assert world.to(1200) == ["flow-1: stage a gets another slot: it did not begin in time"]
    world = World(limits=Limits(notice=150))
    world.begin()
    world.offered.insert(1, Free(world.start + 1600, ("n3", "n4")))
    assert world.to(1400) == ["flow-1: stage b gets another slot: it can begin earlier"]
    assert world.ledger.hold(world.slot("b").hold).wanted.start == world.start + 1600, "1500 is too soon"


def test_nobody_is_told_of_an_earlier_slot_that_cannot_be_had():
    world = World()
    world.begin()

    async def busy(*_what):
        raise NotNow("Requested nodes are busy")

    move, world.backend.move_reservation = world.backend.move_reservation, busy
    assert world.to(1400) == [] and told(world) == [], "b keeps the slot that was planned"
    assert world.ledger.hold(world.slot("b").hold).wanted.start == world.start + 2000
    world.backend.move_reservation = move
    assert world.to(1410) == ["flow-1: stage b gets another slot: it can begin earlier"]
    assert told(world) == []


def test_what_comes_after_a_failed_stage_is_given_up_with_its_slots():
    world = World(exit=1)
    world.begin()
    world.offered = []
    world.to(1200)
    said = world.to(1400)
    assert [line.split(" is given up")[0] for line in said] == ["flow-1: stage b", "flow-1: stage c"]
    world.to(1410)
    world.over()


def test_a_stage_that_takes_longer_than_its_short_slot_gets_one_of_its_whole_limit():
    world = World(duration=900, whole={"a": 1800})
    world.begin()
    said = world.to(1700)
    assert said == ["flow-1: stage a takes longer than its slot", "flow-1: stage a gets another slot: its slot is gone"]
    stage = world.stages()["a"]
    assert (stage.slot.name, stage.slot.whole) == ("flow-1-a-1", None)
    hold = world.ledger.hold(stage.slot.hold).wanted
    assert (hold.start - world.start, hold.duration) == (4000, 1800)
    assert hold.base == pytest.approx(10.0 * 1860 / 660), "a longer slot costs more"
    late = "what it comes after ends too late for its slot"
    assert world.to(1710) == [f"flow-1: stage b gets another slot: {late}"]
    assert world.to(1720) == [f"flow-1: stage c gets another slot: {late}"]
    world.offered = []
    for at in (4001, 5000, 6001, 6100, 8001, 8100):
        world.to(at)
    world.over()
    assert world.completed() == ["a", "b", "c"]


NARROW = FLOW.replace("{name: b, nodes: 2", "{name: b, nodes: 1")


def test_what_comes_after_a_stage_without_a_slot_waits_until_there_is_one():
    world = World(duration=900, whole={"a": 1200}, flow=NARROW)
    world.begin()
    world.offered = [Free(world.start + at, ("n3", "n4")) for at in (3000, 4500, 6000, 8000, 12000, 16000)]
    world.down = True  # for a there are no nodes, for b and c there are
    said = [line for at in (1001, 1661, 1720, 1780, 2100) for line in world.to(at)]
    assert [line for line in said if "afterok" in line or "ependency" in line] == []
    assert "flow-1: stage b gets another slot: what it comes after ends too late for its slot" in said
    assert world.stages()["b"].job is None and world.state().leaving == ()
    world.down = False
    assert "flow-1: stage a gets another slot: its slot is gone" in world.to(2400)
    world.to(2410)
    assert all(stage.job is not None for stage in world.stages().values())
    for at in (2420, 3001, 3910, 4501, 4700, 6001, 6100, 8001, 8100, 12001, 12100):
        world.to(at)
    world.over()
    assert world.completed() == ["a", "b", "c"]


@pytest.mark.parametrize("seen", ["with the overrun", "after it", "after the other slot"])
def test_jobs_that_slurm_cancels_behind_a_stage_that_takes_longer_are_submitted_again(seen, monkeypatch):
    world = World(duration=900, whole={"a": 1200})
    world.begin()
    world.to(1001)
    first = world.stages()
    world.backend.clock.advance_to(world.start + 1690)

    def hopeless():
        """What slurmctld does under kill_invalid_depend."""
        for name in "bc":
            world.run(world.backend.cancel(first[name].job))

    if seen == "with the overrun":
        hopeless()
        world.to(1700)
    elif seen == "after it":
        offered, world.offered = world.offered, []
        world.to(1700)
        hopeless()
        world.to(1710)
        world.offered = offered
    else:
        update = world.backend.update

        async def late(job, **what):
            if "dependency" in what:
                raise Infeasible("Job has already finished")
            return await update(job, **what)

        monkeypatch.setattr(world.backend, "update", late)
        hopeless()
        jobs = world.backend.jobs

        async def before():
            hidden = {first[name].job for name in "bc"}
            return [replace(job, state=JobState.PENDING) if job.id in hidden else job for job in await jobs()]

        monkeypatch.setattr(world.backend, "jobs", before)
        world.to(1700)
        monkeypatch.undo()
    for at in (1720, 1730, 1740):
        world.to(at)
    stages = world.stages()
    assert {name: stage.phase for name, stage in stages.items()} == dict.fromkeys("abc", Stands.QUEUED)
    assert all(stage.job is not None and stage.job != first[name].job for name, stage in stages.items())
    world.offered = []
    for at in (4001, 5000, 6001, 6100, 8001, 8100):
        world.to(at)
    world.over()
    assert world.completed() == ["a", "b", "c"]


def test_nothing_follows_from_a_cancelled_job_until_it_is_known_what_became_of_the_one_before(monkeypatch):
    world = World(duration=900, whole={"a": 1200})
    world.begin()
    world.to(1001)
    first = world.stages()
    world.backend.clock.advance_to(world.start + 1690)
    world.run(world.backend.cancel(first["b"].job))
    jobs, history = world.backend.jobs, world.backend.history

    async def without_a():
        return [job for job in await jobs() if job.id != first["a"].job]

    async def lagging(ids=(), **more):
        return [] if first["a"].job in ids else await history(ids=ids, **more)

    with monkeypatch.context() as patched:
        patched.setattr(world.backend, "jobs", without_a)
        patched.setattr(world.backend, "history", lagging)
        world.offered = []
        world.to(1700)
        assert world.stages()["b"].phase is Stands.QUEUED
    assert world.to(1710) == ["flow-1: stage a takes longer than its slot"]
    stage = world.stages()["b"]
    assert (stage.phase, stage.job) == (Stands.WAITING, None)


def test_a_stage_that_takes_longer_than_its_whole_limit_has_failed():
    world = World(duration=900)
    world.begin()
    world.offered = []
    said = world.to(1700)
    assert [line.split(" is given up")[0] for line in said] == ["flow-1: stage b", "flow-1: stage c"]
    world.to(1710)
    world.over()


def test_what_cannot_be_done_is_said_once_and_the_others_go_on():
    world = World()
    world.begin()
    world.run(world.backend.hold(world.stages()["a"].job))
    world.ledger.set_budget("lab", 35.0)
    said = world.to(1200)
    assert len(said) == 1 and "stage a gets no other slot, although it did not begin in time" in said[0]
    assert "would be enough" in said[0], "the budget is exhausted"
    assert world.to(1210) == [] and world.slot("a").name == "flow-1-a"
    world.ledger.set_budget("lab", 100.0)
    assert world.to(1220) == ["flow-1: stage a gets another slot: it did not begin in time"]


def test_slurm_takes_not_all_jobs_and_everything_is_given_back():
    world = World()
    submit, count = world.backend.submit, []

    async def refusing(spec):
        count.append(spec)
        if len(count) == 2:
            raise Infeasible("no")
        return await submit(spec)

    world.backend.submit = refusing
    with pytest.raises(Infeasible):
        world.begin()
    world.over()


CHANGES = ("submit", "cancel", "reserve", "unreserve", "update", "move_reservation")


def moves_up(world):
    """Slots before all that a plan has."""
    world.offered = [Free(world.start + at, ("n3", "n4")) for at in (100, 800, 1500)]


def test_a_whole_plan_moves_up_and_its_jobs_keep_their_numbers():
    world = World()
    world.begin()
    before = {name: stage.job for name, stage in world.stages().items()}
    moves_up(world)
    why = "gets another slot: it can begin earlier"
    assert world.to(10) == [f"flow-1: stage {name} {why}" for name in "abc"]
    assert {r.name: r.start - world.start for r in world.run(world.backend.reservations())} == {
        "flow-1-a": 100,
        "flow-1-b": 800,
        "flow-1-c": 1500,
    }
    assert {name: stage.job for name, stage in world.stages().items()} == before
    assert [hold.wanted.start - world.start for hold in world.ledger.holds().values()] == [100, 800, 1500]
    world.offered = []
    assert [line for at in (101, 410, 801, 900, 1501, 1600) for line in world.to(at)] == []
    world.over()
    assert world.completed() == ["a", "b", "c"]


def test_where_a_slot_does_not_move_those_behind_it_do_not_either():
    world = World()
    world.begin()
    moves_up(world)
    move = world.backend.move_reservation

    async def busy(name, *where):
        if name == "flow-1-a":
            raise NotNow("Requested nodes are busy")
        return await move(name, *where)

    world.backend.move_reservation = busy
    assert world.to(10) == []
    assert [hold.wanted.start - world.start for hold in world.ledger.holds().values()] == [1000, 2000, 3000]


def test_a_job_that_begins_while_it_is_moved_keeps_its_slot():
    world = World()
    world.begin(f=10.0)  # at a price: such a slot is exchanged for another
    world.again(worth=1.0)
    moves_up(world)
    update = world.backend.update

    async def late(job, **what):
        raise Infeasible(f"Job {job} is no longer pending execution")

    world.backend.update = late
    assert world.to(10) == [] and world.reservations() == ["flow-1-a", "flow-1-b", "flow-1-c"]
    world.backend.update = update
    assert len(world.to(20)) == 3, "at the next pass"


def test_a_slot_that_an_operator_has_moved_is_where_its_reservation_is():
    world = World()
    world.begin()
    world.offered = []
    world.run(world.backend.move_reservation("flow-1-b", world.start + 1700, 600.0, ("n1", "n2")))
    world.to(10)
    wanted = world.ledger.hold(world.slot("b").hold).wanted
    assert (wanted.start - world.start, wanted.nodelist) == (1700, ("n1", "n2"))


def killed_after(backend, call):
    """The process dies right after its changing request number `call` (from 0) was done; the next ones are as ever."""
    left = [call]

    def dying(name):
        real = getattr(type(backend), name)

        async def method(*args, **more):
            answer = await real(backend, *args, **more)
            left[0] -= 1
            if left[0] < 0:
                for each in CHANGES:
                    delattr(backend, each)
                raise Killed
            return answer

        return method

    for each in CHANGES:
        setattr(backend, each, dying(each))


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("call", range(12))
def test_killed_at_any_request_it_goes_on_from_the_store(call, up):
    """The process dies after the n-th changing request of Slurm was done, and another takes over."""
    world = World()
    world.begin()
    if up:
        moves_up(world)
    killed_after(world.backend, call)
    for at in (10, 20, 30, 101, 410, 801, 900, 1400, 1410, 1420, 1501, 1600, 1700, 3001, 3100, 3110):
        try:
            world.to(at)
        except Killed:
            world.again()
            world.to(at)
    world.over()
    assert world.completed() == ["a", "b", "c"], "each has run once"


def test_the_agent_looks_after_a_ledger_unless_somebody_else_is_at_it(tmp_path):
    config = config_of({"agent": {"state_dir": tmp_path}})
    world = World()
    world.run(run_pass(config, world.backend, hand(world.backend)))
    assert not (tmp_path / "ledger.db").exists(), "nothing was ever held here"
    reservations = Reservations(config, world.backend, hand(world.backend))
    wanted = WantedSlot(
        "slot", "root", "lab", 1, world.partition, world.start + 100, 60.0, "reservation", 1.0, 0.0, margin=60.0
    )
    number = world.run(reservations.holds.open(wanted))
    world.backend.clock.advance_to(world.start + 500)

    async def crowded():
        async with reservations.alone(0.0):
            await run_pass(config, world.backend, hand(world.backend))
            with pytest.raises(NotNow, match="another process is at work"):
                async with Reservations(config, world.backend, hand(world.backend)).alone(0.0):
                    pass

    world.run(crowded())
    assert not reservations.ledger.hold(number).phase.final
    world.run(run_pass(config, world.backend, hand(world.backend)))
    assert reservations.ledger.hold(number).phase.final and world.reservations() == []
    reservations.close()


def test_a_pause_holds_reserved_workflows_too(tmp_path):
    config = config_of({"agent": {"state_dir": tmp_path, "socket": tmp_path / "socket"}})
    world = World()
    reservations = Reservations(config, world.backend, hand(world.backend))
    world.ledger = reservations.ledger
    world.again()
    world.begin()
    app = App(config, world.backend, world.backend.clock, Store(":memory:"))
    world.run(world.backend.hold(world.stages()["a"].job))
    world.backend.clock.advance_to(world.start + 1200)  # a's slot is missed, and it should have another

    def tended():
        before = world.state()
        world.run(run_pass(config, world.backend, app.executor))
        return world.state() if world.state().stages != before.stages else None

    pause_control = app.executor.pause_control
    for pause in (Pause(), Pause("workflows"), Pause(partition=world.partition), Pause(uid=os.geteuid())):
        pause_control.pause(pause)
        assert tended() is None
        pause_control.resume([pause])
    assert world.state().told[""].startswith("left alone: everything of ")
    pause_control.rules = [Rule(accounts=("physics",))]
    assert tended() is None
    pause_control.rules = None
    pause_control.pause(Pause("malleable"))
    assert tended().stages[0].slot.moves == 1
    reservations.close()


@pytest.mark.parametrize("how", ["paused", "not allowed", "paused later"])
def test_a_pause_holds_a_slot_that_was_asked_for(tmp_path, how):
    config = config_of({"agent": {"state_dir": tmp_path, "socket": tmp_path / "socket"}})
    world = World()
    app = App(config, world.backend, world.backend.clock, Store(":memory:"))
    reservations = Reservations(config, world.backend, app.executor)
    wanted = WantedSlot(
        "idles", "root", "lab", 1, world.partition, world.start + 900, 60.0, "var", 1.0, math.inf,
        submit_at=world.start + 100, run_time=900.0,
    )  # fmt: skip
    if how == "paused later":
        world.run(reservations.holds.open(wanted))
    if how == "not allowed":
        app.executor.pause_control.rules = []
    else:
        app.executor.pause_control.pause(Pause())
    if how != "paused later":
        with pytest.raises(LeftAlone):
            world.run(reservations.holds.open(wanted))
    world.backend.clock.advance_to(world.start + 200)
    world.run(run_pass(config, world.backend, app.executor))
    assert world.jobs() == {} and not app.store.intents.unsettled()
    app.executor.pause_control.rules = None
    app.executor.pause_control.resume([*app.executor.pause_control.pauses])
    world.run(run_pass(config, world.backend, app.executor))
    assert len(world.jobs()) == (how == "paused later")
    acts = app.store.connection.rows("SELECT verb, subject, state FROM intents")
    assert [tuple(act) for act in acts] == ([("submit", "hold 1", "done")] if how == "paused later" else [])
    reservations.close()


def told(world):
    """What people would be told of the workflow: kind and stage."""
    events = notices_of(world.ledger.run("flow-1"), uid=0, user="root", now=world.backend.now())
    return [(event.kind, event.details["stage"]) for event in events]


def test_people_are_told_of_a_slot_that_was_lost_and_of_stages_that_fail():
    world = World()
    world.begin()
    world.to(900)
    assert told(world) == []
    world.run(world.backend.hold(world.stages()["a"].job))
    world.to(1200)
    assert ("deadline", "a") in told(world)
    world.run(world.backend.cancel(world.stages()["b"].job))
    world.to(1210)
    assert {("stage-failed", "b"), ("stage-failed", "c")} <= set(told(world))


def test_the_agent_shows_what_it_looked_after_also_when_that_is_over(tmp_path):
    config = config_of({"agent": {"state_dir": tmp_path}})
    world = World()
    reservations = Reservations(config, world.backend, hand(world.backend))
    world.ledger = reservations.ledger
    world.again()
    world.begin()
    for stage in world.stages().values():
        world.run(world.backend.cancel(stage.job))
    shown = []
    world.run(run_pass(config, world.backend, hand(world.backend), shown.append))
    assert world.ledger.runs() == []
    ((run,),) = shown
    assert {stage.phase.value for stage in run.stages} == {"failed", "cancelled"}
    world.run(run_pass(config, world.backend, hand(world.backend), shown.append))
    assert shown[1] == []
    reservations.close()


def of_0_1_0(run, **stages):
    """The document that release 0.1.0 kept of a workflow in slots: stages by name, and words of their own."""
    words = {"queued": "waiting", "running": "running", "done": "done", "failed": "failed", "cancelled": "failed"}
    told = {
        stage.name: {
            "slot": stage.slot.name,
            "hold": stage.slot.hold,
            "job": stage.job,
            "standing": words[stage.phase.value],
            "moves": stage.slot.moves,
            "whole": stage.slot.whole,
            "behind": list(stage.depends_on),
            "killed": None,
            **stages.get(stage.name, {}),
        }
        for stage in run.stages
    }
    flow = workflow_to_dict(run.workflow)
    return {"name": run.name, "flow": flow, "stages": told, "leaving": [list(one) for one in run.leaving], "told": {}}


def older(world, **stages):
    """What is stored is as release 0.1.0 had it."""
    document = json.dumps(of_0_1_0(world.state(), **stages))
    world.ledger._execute("UPDATE runs SET state = ?", document)
    world.again()


@pytest.mark.parametrize("at", [0, 900, 1010, 1400, 2010, 2100, 3010])
def test_a_workflow_that_release_0_1_0_left_at_any_time_goes_on(at):
    world = World()
    world.begin()
    world.offered = []
    for when in (900, 1010, 1400, 2010, 2100, 3010):
        if when <= at:
            world.to(when)
    jobs = {stage.name: stage.job for stage in world.state().stages}
    older(world)
    assert {stage.name: stage.job for stage in world.state().stages} == jobs
    for when in (900, 1010, 1400, 2010, 2100, 3010, 3100):
        if when > at:
            world.to(when)
    world.over()
    assert world.completed() == ["a", "b", "c"]
    records = world.run(world.backend.history(since=world.start - 1))
    assert sorted(r.id for r in records) == sorted(jobs.values()), "nothing was submitted once more"


def test_a_job_that_0_1_0_had_submitted_right_before_it_was_killed_is_found():
    world = World()
    world.begin()
    jobs = {stage.name: stage.job for stage in world.state().stages}
    older(world, b={"job": None, "behind": []}, c={"job": None, "behind": []})
    world.offered = []
    world.to(900)
    assert {stage.name: stage.job for stage in world.state().stages} == jobs
    for when in (1010, 1400, 2010, 2100, 3010, 3100):
        world.to(when)
    world.over()
    assert world.completed() == ["a", "b", "c"]


def test_a_job_that_slurm_had_cancelled_in_vain_under_0_1_0_is_not_taken_for_a_new_one():
    world = World()
    world.begin()
    killed = world.stages()["c"].job
    world.run(world.backend.cancel(killed))
    older(world, c={"job": None, "behind": [], "killed": killed})
    world.offered = []
    for when in (10, 50, 90, 900, 1010, 1400, 2010, 2100, 3010, 3100):
        world.to(when)
    world.over()
    assert world.completed() == ["a", "b", "c.2"]
