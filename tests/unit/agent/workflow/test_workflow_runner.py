"""The runner, one rule after the other: this state and this view of Slurm give these instructions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.api import AccountingRecord, Geometry, Job, JobState, Partition, Reservation
from penstock.values.waits import Estimate, Observation
from penstock.waits.learners.causes import Cause
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.metrics import WaitParts, gap_before, run_metrics, waited
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase, StagePhase
from penstock.workflow.run.instructions import (
    Cancel,
    Change,
    Finished,
    Lookup,
    Observe,
    Release,
    SlurmView,
    Submit,
)
from penstock.workflow.run.reading import names_parent
from penstock.workflow.run.runner import Runner

FLOW = Workflow(
    "mosaic",
    (
        Stage("project", 4, 1800, 720, "srun ./project"),
        Stage("merge", 1, 600, 60, "./merge", ("project",)),
    ),
)
HELD = {"priority": 0, "reason": "JobHeldUser"}


def job(number, state="PENDING", **fields):
    values = {
        "uid": 1, "user": "ann", "account": "", "partition": "batch", "qos": "", "reason": "Priority", "submit": 1000.0,
        "eligible": 1000.0, "start": None, "end": None, "time_limit": 600.0, "num_nodes": 1, "num_cpus": 1, "nodes": (),
        "priority": 100, "dependency": "",
    }  # fmt: skip
    return Job(id=number, state=JobState(state), **{**values, **fields})


def record(number, state, **fields):
    values = {
        "name": "", "user": "ann", "partition": "batch", "qos": "", "account": "", "exit_code": 0, "submit": 1000.0,
        "eligible": 1000.0, "start": None, "end": None, "time_limit": 600.0, "num_nodes": 1,
    }  # fmt: skip
    return AccountingRecord(id=number, state=JobState(state), **{**values, **fields})


def view(taken_at, *things, usable=True):
    return SlurmView(
        taken_at,
        {t.id: t for t in things if isinstance(t, Job)},
        {t.id: t for t in things if isinstance(t, AccountingRecord)},
        usable,
    )


class Driver:
    """A runner with its run; every step also goes through JSON and is repeated, which must change nothing."""

    def __init__(self, strategy="asa", flow=FLOW, accrues=True, estimates=(50.0, 33.0, 10.0)):
        self.runner = Runner(accrues=accrues)
        self.estimates = list(estimates)
        self.asked = []
        self.run = self.runner.start(7, flow, strategy, 1000.0, partition="batch", qos="normal")

    def predict(self, geometry):
        self.asked.append(geometry)
        return Estimate(len(self.asked), self.estimates.pop(0) if len(self.estimates) > 1 else self.estimates[0])

    def step(self, now, *things, taken_at=None, usable=True):
        seen = view(now if taken_at is None else taken_at, *things, usable=usable)
        step = self.runner.step(run_from_dict(json.loads(json.dumps(run_to_dict(self.run)))), seen, now, self.predict)
        asked = len(self.asked)
        again = self.runner.step(step.run, seen, now, self.predict)
        assert again.run == step.run and len(self.asked) == asked
        assert not [i for i in again.instructions if isinstance(i, Submit | Observe | Finished)]
        self.run = step.run
        self.notes = {reason.code for _, reason in step.notes}
        return list(step.instructions)

    def submit(self, now, number, *things, stage=None, taken_at=None):
        (order,) = [i for i in self.step(now, *things, taken_at=taken_at) if isinstance(i, Submit)]
        self.run = self.runner.submitted(self.run, stage or order.stage, number, now)
        return order

    def phases(self):
        return [s.phase.value for s in self.run.stages]


def to_running_parent(driver, now=1110.0):
    """The first stage is job 1 and runs since 1100."""
    driver.submit(1000, 1)
    driver.step(now, job(1, "RUNNING", start=1100.0))
    return job(1, "RUNNING", start=1100.0)


# -- the way of a workflow -----------------------------------------------------------------------------------


def test_perstage_from_beginning_to_end():
    d = Driver("perstage")
    order = d.submit(1000, 1)
    assert (order.stage, order.spec.nodes, order.spec.time_limit, order.spec.dependency) == ("project", 4, 1800, None)
    assert order.spec.hold is False and [r.code for r in order.reasons] == ["perstage-first"]
    assert d.step(1010, job(1)) == [] and d.phases() == ["queued", "waiting"]
    assert d.step(1110, job(1, "RUNNING", start=1100.0)) == [
        Observe("project", Geometry("batch", "normal", 4, 1800), Observation(100.0), Estimate(1, 50.0))
    ]
    assert d.step(1500, job(1, "COMPLETING", start=1100.0)) == []
    done = job(1, "COMPLETED", start=1100.0, end=1800.0)
    order = d.submit(1805, 2, done)
    assert (order.stage, order.spec.dependency, order.spec.hold) == ("merge", None, False)
    d.step(1900, job(2, "RUNNING", submit=1805.0, eligible=1805.0, start=1890.0))
    out = d.step(2000, record(2, "COMPLETED", submit=1805.0, eligible=1805.0, start=1890.0, end=1950.0))
    assert out == [Finished(True, "2 jobs completed")]
    assert d.run.phase is RunPhase.COMPLETED and d.phases() == ["done", "done"]
    assert d.step(2001) == []
    assert [gap_before(d.run, i) for i in (0, 1)] == [100, 90]
    assert waited(d.run, 1) == WaitParts(perceived=85, paused=0, reaction=5), "the agent has seen the end 5 s later"
    metrics = run_metrics(d.run)
    assert (metrics.total_wait, metrics.makespan, metrics.complete) == (190, 950, True)
    assert metrics.node_hours == pytest.approx((4 * 700 + 60) / 3600) and metrics.overhead_node_hours == 0
    assert [g.nodes for g in d.asked] == [4, 1], "once for each stage, when it is submitted"
    assert [s.estimate for s in d.run.stages] == [50, 33]


def test_asa_from_beginning_to_end():
    d = Driver()
    d.submit(1000, 1)
    assert d.asked == [Geometry("batch", "normal", 4, 1800)], "the first one's own estimate, for its expected start"
    assert d.step(1010, job(1)) == []
    assert d.asked[1] == Geometry("batch", "normal", 1, 600), "sampled when the parent has been submitted"
    running = job(1, "RUNNING", start=1100.0)
    assert d.step(1110, running) == [Observe("project", d.asked[0], Observation(100.0), Estimate(1, 50.0))]
    assert d.runner.next_wake(d.run, 1110) == 1787, "1100 + 720 - 33"
    assert d.step(1786.9, running) == [] and "asa-due" in d.notes
    order = d.submit(1787, 2, running)
    assert (order.spec.dependency, order.spec.hold) == ("afterok:1", True)
    assert [r.code for r in order.reasons] == ["asa-due", "parent-alive"]
    assert d.runner.wants_look(d.run, 1787) and d.phases() == ["running", "submitted"]
    held = job(2, submit=1787.0, eligible=None, dependency="afterok:1(unfulfilled)", **HELD)
    (release,) = d.step(1788, running, held)
    assert isinstance(release, Release) and (release.job, release.reasons[0].code) == (2, "dependency-read-back")
    assert not d.runner.wants_look(d.run, 1788)
    d.run = d.runner.released(d.run, "merge", 1789.0)
    assert d.step(1790, running, held) == [], "a stale view does not undo the release"
    done = job(1, "COMPLETED", start=1100.0, end=1820.0)
    out = d.step(1830, done, job(2, "RUNNING", submit=1787.0, eligible=1820.0, start=1822.0))
    assert out == [Observe("merge", d.asked[1], Observation.at_most(31.0), Estimate(2, 33.0))], (
        "ready before 1820: <= 1820 - 1789"
    )
    out = d.step(1900, done, job(2, "COMPLETED", submit=1787.0, start=1822.0, end=1882.0))
    assert out == [Finished(True, "2 jobs completed")]
    assert run_metrics(d.run).total_wait == 102 and d.run.ended_at == 1882


def test_bigjob_is_one_submission():
    d = Driver("bigjob")
    order = d.submit(1000, 1)
    assert (order.spec.nodes, order.spec.time_limit, order.spec.dependency) == (4, 2400, None)
    assert "./project" in order.spec.script and "./merge" in order.spec.script
    out = d.step(3000, job(1, "COMPLETED", start=1100.0, end=2900.0))
    assert Finished(True, "1 job completed") in out
    assert run_metrics(d.run).node_hours == pytest.approx(4 * 1800 / 3600), "equation 1"


def test_a_stage_may_be_submitted_before_its_parent_starts():
    d = Driver(estimates=(50.0, 5000.0))
    d.submit(1000, 1)
    assert d.step(1000.5, taken_at=999) == [] and "look-first" in d.notes, "the parent has not been seen yet"
    order = d.submit(1001, 2, job(1))
    assert order.spec.dependency == "afterok:1"


# -- look first ----------------------------------------------------------------------------------------------


def test_a_parent_that_is_not_seen_is_not_depended_on():
    d = Driver()
    to_running_parent(d)
    assert d.step(1790) == [Lookup((1,))] and {"not-seen", "look-first"} <= d.notes
    assert d.step(1791, record(1, "RUNNING", start=1100.0)) == [Lookup((1,))], "accounting lags: no conclusion"
    (order,) = [i for i in d.step(1850, record(1, "COMPLETED", start=1100.0, end=1820.0)) if isinstance(i, Submit)]
    assert (order.stage, order.spec.dependency, order.spec.hold) == ("merge", None, False)
    assert order.reasons[0].code == "asa-parent-done"


def test_a_job_too_new_for_the_snapshot_is_not_looked_up():
    d = Driver()
    d.submit(1000, 1)
    assert d.step(1001, taken_at=999) == []
    assert d.step(1002, taken_at=1001) == [Lookup((1,))]


def test_nothing_happens_on_an_unusable_view():
    d = Driver()
    assert d.step(1000, usable=False) == [] and d.notes == {"hold"}
    assert d.phases() == ["waiting", "waiting"]


def test_an_unknown_state_concludes_nothing():
    d = Driver()
    to_running_parent(d)
    assert d.step(1850, job(1, "UNKNOWN")) == [] and "state-unknown" in d.notes
    assert d.phases() == ["running", "waiting"]


def test_a_requeued_job_waits_again():
    d = Driver()
    to_running_parent(d)
    d.step(1200, job(1, "PENDING"))
    assert d.run.stages[0].phase is StagePhase.QUEUED and d.run.stages[0].start is None


def with_held_child(d, **fields):
    running = to_running_parent(d)
    d.submit(1790, 2, running)
    held = {"submit": 1790.0, "eligible": None, "dependency": "afterok:1(unfulfilled)", **HELD}
    return running, job(2, **{**held, **fields})


def test_a_lost_dependency_is_decided_again():
    d = Driver()
    running, child = with_held_child(d, dependency="")
    out = d.step(1795, running, child)
    assert isinstance(out[0], Cancel) and out[0].job == 2 and out[0].reasons[0].code == "dependency-lost"
    (order,) = [i for i in out if isinstance(i, Submit)]
    assert order.spec.dependency == "afterok:1" and order.spec.name == "merge.penstock.7.2.mosaic"
    d.run = d.runner.submitted(d.run, "merge", 3, 1796.0)
    assert len(d.asked) == 2, "the estimate stays"
    third = replace(child, id=3, dependency="afterok:1(unfulfilled)")
    out = d.step(1797, running, child, third)
    assert {type(i) for i in out} == {Cancel, Release}, "the given-up job is cancelled until it is gone"
    assert d.step(1799, running, replace(child, state=JobState.CANCELLED), third)[0].job == 3
    assert d.run.discarded == ()


def test_a_parent_that_completes_while_its_child_is_held():
    d = Driver()
    _, child = with_held_child(d, dependency="")
    out = d.step(1830, job(1, "COMPLETED", start=1100.0, end=1820.0), child)
    (release,) = [i for i in out if isinstance(i, Release)]
    assert (release.job, release.reasons[0].code) == (2, "parent-done")


def test_an_unfinished_end_of_the_parent_is_waited_for():
    d = Driver()
    _, child = with_held_child(d, dependency="")
    assert d.step(1830, job(1, "COMPLETING", start=1100.0), child) == []
    assert d.step(1831, child) == [Lookup((1,))]


def test_a_job_released_by_somebody_is_queued():
    d = Driver()
    running, child = with_held_child(d, priority=50, reason="Dependency")
    assert d.step(1795, running, child) == [] and d.phases() == ["running", "queued"]


def test_a_job_that_starts_before_its_parent_has_ended_is_given_up():
    d = Driver()
    running, child = with_held_child(d, state="RUNNING", priority=5, start=1792.0)
    out = d.step(1795, running, child)
    assert [i.reasons[0].code for i in out if isinstance(i, Cancel)] == ["started-early"]
    assert [i.spec.dependency for i in out if isinstance(i, Submit)] == ["afterok:1"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("afterok:12", True),
        ("afterok:12(unfulfilled)", True),
        ("afterany:3,afterok:12(unfulfilled)", True),
        ("afterok:11:12", True),
        ("afterok:112", False),
        ("afterok:121", False),
        ("afterany:12", False),
        ("afternotok:12", False),
        ("", False),
        ("(null)", False),
    ],
)
def test_reading_a_dependency_back(text, named):
    assert names_parent(text, 12) is named


# -- failing and cancelling ----------------------------------------------------------------------------------


def test_a_failed_parent_fails_the_workflow_and_cancels_what_follows():
    d = Driver()
    _, child = with_held_child(d)
    out = d.step(1800, record(1, "FAILED", exit_code=3, start=1100.0, end=1795.0), child)
    assert [i.job for i in out if isinstance(i, Cancel)] == [2]
    assert d.run.phase is RunPhase.FAILING and d.run.why == "project: job 1 ended FAILED with exit code 3"
    out = d.step(1810, record(1, "FAILED"), replace(child, state=JobState.CANCELLED, start=1805.0, end=1805.0))
    assert out == [Finished(False, "project: job 1 ended FAILED with exit code 3")]
    assert d.phases() == ["failed", "cancelled"] and d.run.phase is RunPhase.FAILED
    assert run_metrics(d.run).makespan is None


def test_a_child_that_slurm_cancelled_is_not_taken_for_the_culprit():
    d = Driver()
    _, child = with_held_child(d)
    gone = replace(child, state=JobState.CANCELLED, start=1805.0, end=1805.0)
    assert d.step(1810, gone) == [Lookup((1,))] and "parent-first" in d.notes
    out = d.step(1820, gone, record(1, "TIMEOUT", start=1100.0, end=1800.0))
    assert out == [Finished(False, "project: job 1 ended TIMEOUT with exit code 0")]


def test_a_pending_child_cancelled_by_the_user_fails_the_workflow_but_its_parent_may_end():
    d = Driver()
    running, child = with_held_child(d)
    out = d.step(1800, running, replace(child, state=JobState.CANCELLED, start=1799.0, end=1799.0))
    assert out == [] and "runs-on" in d.notes and d.run.phase is RunPhase.FAILING
    out = d.step(1830, job(1, "COMPLETED", start=1100.0, end=1820.0), replace(child, state=JobState.CANCELLED))
    assert out == [Finished(False, "merge: job 2 ended CANCELLED")] and d.phases() == ["done", "failed"]


def test_the_user_cancels():
    d = Driver()
    running, child = with_held_child(d)
    d.run = d.runner.cancel(d.run, "ann asked for it")
    assert {i.job for i in d.step(1800, running, child)} == {1, 2}
    assert d.runner.next_wake(d.run, 1800) is None
    out = d.step(
        1810,
        job(1, "CANCELLED", start=1100.0, end=1801.0),
        replace(child, state=JobState.CANCELLED, start=1801.0, end=1801.0),
    )
    assert out == [Finished(False, "ann asked for it")]
    assert d.run.phase is RunPhase.CANCELLED and d.phases() == ["cancelled", "cancelled"]
    assert d.runner.cancel(d.run, "again") is d.run


def test_what_no_slurm_knows_any_more_can_be_cancelled():
    """Of its jobs nothing is left in the queue nor in accounting, as in a new Slurm."""
    d = Driver()
    with_held_child(d)

    def asked(times):
        stages = tuple(replace(s, asked=times, asked_at=1790.0) if s.job else s for s in d.run.stages)
        d.run = replace(d.run, stages=stages)

    asked(50)
    assert not [i for i in d.step(1800) if isinstance(i, Finished)], "silence alone ends nothing"
    d.run = d.runner.cancel(d.run, "ann asked for it")
    asked(4)
    assert not [i for i in d.step(1810) if isinstance(i, Finished)]
    asked(5)
    assert d.step(1820) == [Finished(False, "ann asked for it")]
    assert d.run.phase is RunPhase.CANCELLED and d.phases() == ["cancelled", "cancelled"]


def test_cancelled_before_anything_was_submitted():
    d = Driver()
    d.run = d.runner.cancel(d.run, "no")
    assert d.step(1000) == [Finished(False, "no")]


def test_cancelled_while_a_submission_is_under_way():
    d = Driver()
    (order,) = d.step(1000)
    d.run = d.runner.cancel(d.run, "no")
    assert d.step(1001) == [] and "submit-open" in d.notes
    assert d.runner.intended(d.run) == (Submit("project", order.spec),), "the same, to be found by its name"
    d.run = d.runner.submitted(d.run, "project", 1, 1002.0)
    assert [i.job for i in d.step(1003, job(1))] == [1]
    assert d.step(1004, job(1, "CANCELLED")) == [Finished(False, "no")]


def test_a_cancelled_workflow_does_not_wait_for_a_given_up_job_that_nobody_knows():
    d = Driver("bigjob")
    d.submit(1000, 1)
    d.run = d.runner.submitted(d.run, "bigjob", 9, 1002.0)
    ended = job(1, "CANCELLED")
    nobody = replace(view(1500, ended), unknown=frozenset({9}))
    kept = d.runner.step(d.run, nobody, 1500, d.predict)
    assert kept.run.discarded == (9,), "it is not cancelled: accounting may be new, and know it later"
    d.run = d.runner.cancel(d.run, "no")
    assert not [i for i in d.step(1501, ended) if isinstance(i, Finished)]
    step = d.runner.step(d.run, nobody, 1502, d.predict)
    assert step.run.discarded == () and Finished(False, "no") in step.instructions


def test_a_workflow_that_completes_in_spite_of_being_cancelled_has_completed():
    d = Driver("bigjob")
    d.submit(1000, 1)
    d.run = d.runner.cancel(d.run, "no")
    assert Finished(True, "1 job completed") in d.step(1500, job(1, "COMPLETED", start=1001.0, end=1400.0))


# -- submitting ----------------------------------------------------------------------------------------------


def test_a_submission_that_may_work_later_backs_off():
    d = Driver("perstage")
    for failures, wait in ((0, 5), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (7, 300)):
        now = d.run.stages[0].retry_at or 1000.0
        (order,) = d.step(now)
        assert order.spec.name == f"project.penstock.7.{failures + 1}.mosaic"
        d.run = d.runner.submit_failed(d.run, "project", False, "no answer", now)
        assert d.run.stages[0].retry_at == now + wait == d.runner.next_wake(d.run, now)
        assert d.step(now + wait - 0.1) == [] and "back-off" in d.notes


def test_a_final_refusal_fails_the_workflow():
    d = Driver()
    d.step(1000)
    d.run = d.runner.submit_failed(d.run, "project", True, "no such account", 1001.0)
    assert d.step(1002) == [Finished(False, "project: could not be submitted: no such account")]
    assert d.phases() == ["failed", "cancelled"]


def test_a_stage_that_is_tried_again_shows_the_last_words():
    d = Driver("perstage")
    d.step(1000)
    d.run = d.runner.unseen(d.run, "project", 1001.0, "a text that nobody knows")
    assert d.run.stages[0].failure == "a text that nobody knows"
    d.run = d.runner.unseen(d.run, "project", 1040.0)
    assert (d.phases()[0], d.run.stages[0].failure) == ("waiting", "a text that nobody knows")
    (order,) = d.step(1060)
    assert isinstance(order, Submit) and d.phases()[0] == "intended"
    assert d.run.stages[0].failure == "a text that nobody knows"
    d.run = d.runner.submitted(d.run, "project", 1, 1061.0)
    assert d.run.stages[0].failure is None


def test_running_stages_before_the_failed_one_run_on_but_later_ones_do_not():
    stages = (*FLOW.stages, Stage("view", 1, 600, 60, "./view", ("merge",)))
    d = Driver(flow=Workflow("mosaic", stages), estimates=(50.0, 5000.0, 5000.0))
    running = to_running_parent(d)
    d.run = d.runner.submitted(d.run, "merge", 2, 1110.0)
    queued = job(2, dependency="afterok:1(unfulfilled)", eligible=None)
    d.submit(1200, 3, running, queued)
    against_all_rules = job(3, "RUNNING", start=1299.0)
    out = d.step(1300, running, replace(queued, state=JobState.CANCELLED), against_all_rules)
    assert d.run.why == "merge: job 2 ended CANCELLED" and [i.job for i in out] == [3]
    assert d.phases() == ["running", "failed", "running"] and "runs-on" in d.notes


def test_a_job_that_depends_on_a_given_up_job_is_pointed_to_the_next_one():
    stages = (*FLOW.stages, Stage("view", 1, 600, 60, "./view", ("merge",)))
    d = Driver(flow=Workflow("mosaic", stages), estimates=(50.0, 5000.0, 5000.0))
    running = to_running_parent(d)
    d.run = d.runner.submitted(d.run, "merge", 2, 1110.0)
    d.submit(1200, 3, running, job(2, dependency="afterok:1(unfulfilled)"))
    out = d.step(1300, running, job(2, "RUNNING", start=1250.0), job(3, dependency="afterok:2(unfulfilled)"))
    assert {i.reasons[0].code: i.job for i in out if isinstance(i, Cancel)} == {"started-early": 2}
    assert "dependency-stale" in d.notes, "job 3 waits until there is a new job to point it to"
    assert [i.stage for i in out if isinstance(i, Submit)] == ["merge"]
    assert d.run.discarded == (2,) and d.run.stage("merge").misses == 1
    d.run = d.runner.submitted(d.run, "merge", 4, 1300.0)
    pending = job(4, submit=1300.0, dependency="afterok:1(unfulfilled)")
    (change,) = [i for i in d.step(1310, running, pending, job(3, dependency="afterok:2(failed)")) if type(i) is Change]
    assert (change.job, change.dependency, change.nodelist) == (3, "afterok:4", None)
    d.run = d.runner.changed(d.run, change, 1311.0)
    assert d.run.stage("view").depends_on == (4,)
    assert not [i for i in d.step(1320, running, pending, job(3, dependency="afterok:4")) if type(i) is Change]


def test_a_refused_dependency_gets_one_more_look_at_the_parent():
    d = Driver()
    running = to_running_parent(d)
    d.step(1790, running)
    d.run = d.runner.submit_failed(d.run, "merge", True, "Job dependency problem", 1790.5)
    assert d.phases() == ["running", "waiting"]
    d.step(1800, running)
    d.run = d.runner.submit_failed(d.run, "merge", True, "Job dependency problem", 1800.5)
    assert d.phases() == ["running", "failed"]


def test_events_are_idempotent_and_no_job_is_lost():
    d = Driver()
    d.submit(1000, 1)
    assert d.runner.submitted(d.run, "project", 1, 1001.0) is d.run
    assert d.runner.submit_failed(d.run, "project", True, "late", 1001.0) is d.run
    assert d.runner.released(d.run, "project", 1001.0) is d.run
    d.run = d.runner.submitted(d.run, "project", 9, 1002.0)
    assert d.run.discarded == (9,) and d.run.jobs() == (1, 9)
    assert [i.job for i in d.step(1003, job(1), job(9)) if isinstance(i, Cancel)] == [9]


def test_a_given_up_job_keeps_the_workflow_open():
    d = Driver("bigjob")
    d.submit(1000, 1)
    d.run = d.runner.submitted(d.run, "bigjob", 9, 1002.0)
    done = job(1, "COMPLETED", start=1001.0, end=1400.0)
    assert not [i for i in d.step(1500, done, job(9)) if isinstance(i, Finished)]
    assert Finished(True, "1 job completed") in d.step(1501, done, record(9, "CANCELLED"))


# -- what is learned -----------------------------------------------------------------------------------------


def observed(accrues, start, end=1820.0, released=1789.0, eligible=1820.0):
    d = Driver(accrues=accrues)
    running = to_running_parent(d)
    d.submit(1787, 2, running)
    d.step(1788, running, job(2, submit=1787.0, eligible=None, dependency="afterok:1", **HELD))
    d.run = d.runner.released(d.run, "merge", released)
    parent = job(1, "COMPLETED", start=1100.0, end=end)
    child = job(2, "RUNNING", submit=1787.0, eligible=eligible, start=start)
    return [i.observation for i in d.step(3000, parent, child) if isinstance(i, Observe)]


def test_a_dependent_job_that_ages_waits_from_its_release():
    assert observed(True, 1900.0) == [Observation(111.0)]
    assert observed(True, 1826.0) == [Observation(37.0)]


def test_a_hidden_wait_is_an_upper_bound():
    assert observed(True, 1825.0) == [Observation.at_most(31.0)]
    assert observed(True, 1820.0) == [Observation.at_most(31.0)]


def test_a_job_released_after_its_parents_end_is_not_hidden():
    assert observed(True, 1824.0, released=1822.0) == [Observation(2.0)]


def test_where_dependent_jobs_do_not_age_the_wait_begins_when_they_are_eligible():
    assert observed(False, 1900.0) == [Observation(80.0)]
    assert observed(False, 1822.0) == [Observation(2.0)]
    assert observed(False, 1822.0, eligible=None) == []


def test_the_site_without_aging_is_told_of():
    d = Driver(accrues=False)
    running = to_running_parent(d)
    (order,) = d.step(1790, running)
    assert "no-accrual" in [r.code for r in order.reasons]


def test_the_wait_of_a_child_is_known_once_its_parents_end_is():
    d = Driver()
    running = to_running_parent(d)
    d.submit(1787, 2, running)
    child = job(2, "RUNNING", submit=1787.0, eligible=1820.0, start=1822.0)
    assert d.step(1830, child) == [Lookup((1,))]
    out = d.step(1840, child, record(1, "COMPLETED", start=1100.0, end=1820.0))
    assert [i.observation for i in out if isinstance(i, Observe)] == [Observation.at_most(33.0)]


def test_a_job_that_never_ran_teaches_nothing():
    d = Driver("bigjob")
    d.submit(1000, 1)
    out = d.step(1500, job(1, "CANCELLED", start=1400.0, end=1400.0))
    assert out == [Finished(False, "bigjob: job 1 ended CANCELLED")]
    assert d.run.stages[0].start is None


def test_a_job_seen_only_after_its_end_still_teaches():
    d = Driver("bigjob")
    d.submit(1000, 1)
    out = d.step(1500, record(1, "FAILED", exit_code=1, start=1400.0, end=1450.0))
    assert [i.observation for i in out if isinstance(i, Observe)] == [Observation(400.0)]


# -- waking up -----------------------------------------------------------------------------------------------


def test_no_instant_to_wake_for_when_the_due_time_moves_with_the_present():
    d = Driver()
    d.submit(1000, 1)
    d.step(1010, job(1))
    assert d.runner.next_wake(d.run, 1010) == 1050 + 720 - 33
    d.step(1100, job(1))
    assert d.runner.next_wake(d.run, 1100) is None, "the parent is overdue: only a snapshot can tell more"


def test_stored_state_of_another_version_is_refused():
    stored = run_to_dict(Driver().run)
    with pytest.raises(ValueError, match="version 5"):
        run_from_dict({**stored, "version": 5})
    with pytest.raises(ValueError, match="version 2"):
        run_from_dict({**stored, "workflow": {**stored["workflow"], "version": 2}})


def test_a_chain_that_an_earlier_release_stored_goes_on():
    d = Driver()
    running, held = with_held_child(d)
    stored = json.loads(json.dumps(run_to_dict(d.run)))
    for stage in stored["stages"]:
        del stage["after"]
        stage["depends_on"] = stage["depends_on"][0] if stage["depends_on"] else None
    stored["version"] = 1
    assert [s["depends_on"] for s in stored["stages"]] == [None, 1]
    assert run_from_dict(stored) == d.run
    d.run = run_from_dict(stored)
    (release,) = d.step(1795, running, held)
    assert (release.job, release.reasons[0].code) == (2, "dependency-read-back")


# -- several parents -----------------------------------------------------------------------------------------

FORK = Workflow(
    "fork",
    (
        Stage("a", 1, 600, 100, "./a"),
        Stage("b", 1, 600, 100, "./b"),
        Stage("c", 1, 600, 60, "./c", ("a", "b")),
    ),
)


def two_running(d):
    """a is job 1, b is job 2; both run since 1100."""
    orders = [i for i in d.step(1000) if isinstance(i, Submit)]
    assert [o.stage for o in orders] == ["a", "b"], "both start at once"
    d.run = d.runner.submitted(d.run, "a", 1, 1000.0)
    d.run = d.runner.submitted(d.run, "b", 2, 1000.0)
    return job(1, "RUNNING", start=1100.0), job(2, "RUNNING", start=1100.0)


def test_a_stage_depends_on_all_parents_that_are_alive():
    d = Driver(flow=FORK, estimates=(50.0, 50.0, 5000.0))
    a, b = two_running(d)
    order = d.submit(1110, 3, a, b)
    assert (order.stage, order.spec.dependency, order.spec.hold) == ("c", "afterok:1:2", True)
    assert [r.code for r in order.reasons] == ["asa-due", "parent-alive"]
    held = job(3, submit=1110.0, eligible=None, dependency="afterok:1(unfulfilled),afterok:2(unfulfilled)", **HELD)
    (release,) = d.step(1112, a, b, held)
    assert release.reasons[0].text == f"job 3 depends on {held.dependency}: safe to release"
    half = replace(held, dependency="afterok:2(unfulfilled)")
    gone = job(1, "COMPLETED", start=1100.0, end=1150.0)
    (release,) = [i for i in d.step(1160, gone, b, half) if isinstance(i, Release)]
    assert release.reasons[0].code == "dependency-read-back", "what is fulfilled need not be read back"


def test_one_of_two_dependencies_that_is_lost_is_enough():
    d = Driver(flow=FORK, estimates=(50.0, 50.0, 5000.0))
    a, b = two_running(d)
    d.submit(1110, 3, a, b)
    half = job(3, submit=1110.0, eligible=None, dependency="afterok:2(unfulfilled)", **HELD)
    out = d.step(1112, a, b, half)
    assert [i.reasons[0].code for i in out if isinstance(i, Cancel)] == ["dependency-lost"]
    assert [i.spec.dependency for i in out if isinstance(i, Submit)] == ["afterok:1:2"]
    assert d.run.stage("c").after == (0, 1), "it still knows its parents"


def test_a_parent_that_has_completed_gets_no_dependency():
    d = Driver(flow=FORK, estimates=(50.0, 50.0, 30.0))
    _, b = two_running(d)
    order = d.submit(1180, 3, job(1, "COMPLETED", start=1100.0, end=1150.0), b)
    assert order.spec.dependency == "afterok:2" and d.run.stage("c").depends_on == (2,)
    assert d.run.stage("c").due == 1170


def test_one_parent_unseen_holds_the_child_back():
    d = Driver(flow=FORK, estimates=(50.0, 50.0, 5000.0))
    _, b = two_running(d)
    d.step(1105, b, taken_at=999)
    out = d.step(1110, b)
    assert out == [Lookup((1,))] and "look-first" in d.notes


def test_a_child_waits_until_its_last_parent_has_ended():
    d = Driver("perstage", FORK)
    two_running(d)
    one = job(1, "COMPLETED", start=1100.0, end=1150.0)
    assert not [i for i in d.step(1160, one, job(2, "RUNNING", start=1100.0)) if isinstance(i, Submit)]
    two = job(2, "COMPLETED", start=1100.0, end=1250.0)
    assert d.submit(1260, 3, one, two).spec.dependency is None
    end = job(3, "COMPLETED", submit=1260.0, eligible=1260.0, start=1300.0, end=1400.0)
    assert Finished(True, "3 jobs completed") in d.step(1500, one, two, end)
    assert [gap_before(d.run, i) for i in range(3)] == [100, 100, 50]
    assert (run_metrics(d.run).total_wait, run_metrics(d.run).makespan) == (250, 400)


def test_the_wait_of_a_child_counts_from_the_last_parents_end():
    d = Driver(flow=FORK, estimates=(50.0, 50.0, 5000.0))
    a, b = two_running(d)
    d.submit(1110, 3, a, b)
    one = job(1, "COMPLETED", start=1100.0, end=1150.0)
    child = job(3, "RUNNING", submit=1110.0, eligible=1250.0, start=1252.0)
    out = d.step(1260, one, job(2, "COMPLETED", start=1100.0, end=1250.0), child)
    assert [i.observation for i in out if isinstance(i, Observe)] == [Observation.at_most(140.0)]


def test_a_side_branch_that_runs_may_end_when_another_fails_but_what_waits_is_cancelled():
    d = Driver(flow=FORK, estimates=(50.0, 50.0, 5000.0))
    a, b = two_running(d)
    d.submit(1110, 3, a, b)
    queued = job(3, submit=1110.0, eligible=None, dependency="afterok:1(unfulfilled),afterok:2(unfulfilled)")
    out = d.step(1150, job(1, "FAILED", start=1100.0, end=1140.0), b, queued)
    assert [i.job for i in out if isinstance(i, Cancel)] == [3] and "runs-on" in d.notes
    gone = replace(queued, state=JobState.CANCELLED, start=1155.0, end=1155.0)
    out = d.step(1300, job(1, "FAILED", start=1100.0, end=1140.0), job(2, "COMPLETED", start=1100.0, end=1290.0), gone)
    assert out == [Finished(False, "a: job 1 ended FAILED")] and d.phases() == ["failed", "done", "cancelled"]


# -- what is no queue's doing ----------------------------------------------------------------------------------------


def _view_with(taken_at, *things, **more):
    return replace(view(taken_at, *things), **more)


def test_a_stage_that_would_run_into_a_maintenance_is_kept_back_and_submitted_after_it():
    d = Driver("perstage")
    part = Partition("batch", ("n1", "n2", "n3", "n4"), True, True, None, None, None)
    ahead = Reservation("m", 2000.0, 5000.0, part.nodes, frozenset(), frozenset(), frozenset({"MAINT"}), False)
    more = {"reservations": (ahead,), "partitions": {"batch": part}}
    for now, submitted in ((1000.0, False), (4999.0, False), (5000.0, True)):
        step = d.runner.step(d.run, _view_with(now, **more), now, d.predict)
        assert bool(step.instructions) is submitted
        assert ("maintenance" in {reason.code for _, reason in step.notes}) is not submitted
        d.run = step.run
    assert d.phases() == ["intended", "waiting"]


def test_a_wait_that_had_another_cause_is_learned_as_an_upper_bound():
    d = Driver("perstage")
    d.submit(1000, 1)
    licence = _view_with(1010, job(1, reason="Licenses"), hindered={1: Cause.LICENCE})
    d.run = d.runner.step(d.run, licence, 1010, d.predict).run
    d.run = run_from_dict(json.loads(json.dumps(run_to_dict(d.run))))
    (seen,) = [i for i in d.step(1300, job(1, "RUNNING", start=1200.0)) if isinstance(i, Observe)]
    assert seen.observation == Observation.at_most(200.0)


def test_the_wait_of_a_requeued_job_teaches_nothing():
    d = Driver("perstage")
    d.submit(1000, 1)
    again = job(1, "RUNNING", start=1900.0, restarts=1)
    step = d.runner.step(d.run, _view_with(2000, again, hindered={1: Cause.REQUEUED}), 2000, d.predict)
    (seen,) = [i for i in step.instructions if isinstance(i, Observe)]
    assert seen.observation == Observation.nothing()


def test_a_requeued_job_teaches_nothing_whatever_kept_it_before():
    d = Driver("perstage")
    d.submit(1000, 1)
    seen = []
    for now, now_seen, cause in (
        (1010, job(1, reason="Licenses"), Cause.LICENCE),
        (1300, job(1, "RUNNING", start=1200.0), None),
        (1500, job(1, submit=1400.0, eligible=1520.0, restarts=1), Cause.REQUEUED),
        (2000, job(1, "RUNNING", submit=1400.0, eligible=1520.0, start=1900.0, restarts=1), Cause.REQUEUED),
    ):
        looked = _view_with(now, now_seen, hindered={} if cause is None else {1: cause})
        step = d.runner.step(d.run, looked, now, d.predict)
        seen += [i.observation for i in step.instructions if isinstance(i, Observe)]
        d.run = step.run
    assert seen == [Observation.at_most(200.0), Observation.nothing()]
