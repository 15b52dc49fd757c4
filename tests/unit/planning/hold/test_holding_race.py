"""Jobs that wait in the queue beside slots that were asked for, on the simulated Slurm: whichever comes first, once."""

from __future__ import annotations

import pytest
from test_holding_runs import Killed, World, killed_after

from penstock.api import JobSpec, JobState, ReservationSpec
from penstock.errors import NotPermitted
from penstock.workflow.documents import in_slots, run_from_dict, run_to_dict
from penstock.workflow.state import StageSlot
from penstock_planning.hold import requests
from penstock_planning.hold.holds import RequestFolder
from penstock_planning.plan.holding import HoldPhase, WantedSlot
from penstock_planning.plan.racing import Beside, RaceMove, race
from penstock_planning.plan.repair import StageProgress

ALL = ["flow-1-a", "flow-1-b", "flow-1-c"]
KEY = b"a key of sixteen bytes"
WAITING, RUNNING, DONE = StageProgress.WAITING, StageProgress.RUNNING, StageProgress.DONE
ENTER, LEAVE, GIVE_UP = RaceMove.ENTER, RaceMove.LEAVE, RaceMove.GIVE_UP


@pytest.mark.parametrize(
    ("stage", "now", "moves"),
    [
        (Beside(WAITING, None, True, True, 100, False), 500, ()),
        (Beside(WAITING, (1000, 1160), True, True, 100, False), 939, ()),
        (Beside(WAITING, (1000, 1160), True, True, 100, False), 940, (ENTER,)),
        (Beside(WAITING, (1000, 1160), True, False, 100, False), 1000, ()),
        (Beside(WAITING, (1000, 1160), True, True, 100, True), 1000, ()),
        (Beside(WAITING, (1000, 1160), True, True, 100, False), 1060, (ENTER,)),
        (Beside(WAITING, (1000, 1160), True, True, 100, False), 1061, (GIVE_UP,)),
        (Beside(WAITING, (1000, 1160), True, True, 100, True), 1061, (LEAVE, GIVE_UP)),
        (Beside(WAITING, None, False, True, 100, True), 1061, (LEAVE,)),
        (Beside(RUNNING, None, True, True, 100, False), 500, (GIVE_UP,)),
        (Beside(RUNNING, (1000, 1160), True, True, 100, True), 1000, ()),
        (Beside(RUNNING, None, False, True, 100, False), 500, ()),
        (Beside(DONE, (1000, 1160), True, True, 100, False), 1061, ()),
    ],
)
def test_which_comes_first(stage, now, moves):
    assert race(stage, now) == moves


class Asking(World):
    """The slots are asked for; another user's job keeps all nodes until `busy` s."""

    def __init__(self, folder, busy=0):
        self.folder = folder
        super().__init__(duration=60)
        if busy:
            self.other = self.run(
                self.backend.submit(JobSpec("other", f"#!/bin/sh\n#MOCK duration={busy} exit=0\n", 4, 60.0))
            )

    def again(self, worth=0.0):
        super().again(worth)
        self.holds._requested = RequestFolder(self.folder, KEY)

    def begin(self):
        stages = {}
        for i, stage in enumerate(self.flow.order):
            wanted = WantedSlot(
                f"flow-1-{stage.name}", "root", "lab", stage.nodes, self.partition, self.start + 1000 * (i + 1),
                stage.time_limit, "request", 10.0, 0.0,
            )  # fmt: skip
            number = self.run(self.holds.open(wanted))
            assert self.ledger.hold(number).phase is HoldPhase.ASKED
            stages[stage.name] = StageSlot(wanted.name, number, queued=True)
        return self.run(self.runs.begin(in_slots("flow-1", self.flow, stages, self.start)))

    def completed(self):
        records = self.run(self.backend.history(since=self.start - 1))
        return sorted(r.name for r in records if r.state is JobState.COMPLETED and r.name != "other")

    def asked(self):
        return sorted(path.stem for path in self.folder.glob("*.request"))

    def grant(self, *names):
        for name in names:
            spec: ReservationSpec = requests.read(self.folder / f"flow-1-{name}.request", KEY)
            self.run(self.backend.reserve(spec))


def test_without_an_answer_it_is_a_chain_of_jobs_in_the_queue(tmp_path):
    world = Asking(tmp_path)
    run = world.begin()
    assert run_from_dict(run_to_dict(run)) == run
    assert world.asked() == ["flow-1-a", "flow-1-b", "flow-1-c"] and world.reservations() == []
    assert world.to(10) == ["flow-1: stage a gives up its slot: it began in the queue"]
    assert world.asked() == ["flow-1-b", "flow-1-c"]
    for at in (70, 130, 190, 250):
        world.to(at)
    world.over()
    assert world.completed() == ALL and world.asked() == []
    assert world.ledger.lines() == [], "what was not granted costs nothing"


def test_a_job_that_still_waits_when_its_slot_begins_goes_into_it(tmp_path):
    world = Asking(tmp_path, busy=30)
    jobs = [stage.job for stage in world.begin().stages]
    world.run(world.backend.hold(jobs[0]))
    world.grant("a")
    assert world.to(900) == []
    assert world.to(950) == ["flow-1: stage a goes into its slot"]
    world.run(world.backend.release(jobs[0]))
    world.to(1010)
    (begun,) = [job for job in world.jobs().values() if job.id == jobs[0]]
    assert begun.reservation == "flow-1-a" and begun.start >= world.start + 1000
    for at in (1100, 1200, 1300, 1400):
        world.to(at)
    world.over()
    assert world.completed() == ALL


def test_what_cannot_begin_in_its_slot_any_more_goes_back_into_the_queue(tmp_path):
    world = Asking(tmp_path, busy=30)
    jobs = [stage.job for stage in world.begin().stages]
    world.run(world.backend.hold(jobs[0]))
    world.grant("a", "b")
    assert world.to(950) == ["flow-1: stage a goes into its slot"]
    said = world.to(1070)
    assert said == [
        "flow-1: stage a goes back into the queue",
        "flow-1: stage a gives up its slot: what it comes after ends too late for its slot",
    ]
    assert world.jobs()[jobs[0]].reservation in (None, "") and world.reservations() == ["flow-1-b"]
    world.run(world.backend.release(jobs[0]))
    for at in (1080, 1200, 1300, 1400, 1500):
        world.to(at)
    world.over()
    assert world.completed() == ALL


def test_who_cancels_it_leaves_no_job_and_no_request(tmp_path):
    world = Asking(tmp_path, busy=30)
    run = world.begin()
    world.grant("b")

    async def refused(name):
        raise NotPermitted("Access/permission denied")

    world.backend.unreserve = refused
    world.run(world.runs.abandon(run))
    assert world.asked() == [] and all(world.jobs()[stage.job].state.ended for stage in run.stages)
    assert world.ledger.runs() == [], "the reservation is Slurm's to drop"


def test_what_comes_after_a_failed_stage_is_given_up(tmp_path):
    world = Asking(tmp_path, busy=30)
    run = world.begin()
    world.run(world.backend.cancel(run.stages[0].job))
    for at in (20, 40, 60):
        world.to(at)
    world.over()
    assert world.completed() == [] and world.asked() == []


@pytest.mark.parametrize("call", range(12))
def test_killed_at_any_request_no_stage_runs_twice(call, tmp_path):
    """The process dies after the n-th changing request of Slurm was done, and another takes over."""
    world = Asking(tmp_path, busy=30)
    jobs = [stage.job for stage in world.begin().stages]
    world.run(world.backend.hold(jobs[0]))
    world.grant("a", "b")
    killed_after(world.backend, call)
    for at in (10, 950, 1070, 1080, 1081, 1150, 1200, 1300, 1400, 1500, 1600, 2500):
        try:
            if at == 1081:
                world.run(type(world.backend).release(world.backend, jobs[0]))
            world.to(at)
        except Killed:
            world.again()
            world.to(at)
    world.over()
    assert world.completed() == ALL, "each has run once"
    assert sorted(r.id for r in world.run(world.backend.history(since=0)) if r.name != "other") == jobs, "of one job"
