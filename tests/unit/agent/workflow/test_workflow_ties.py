"""Jobs in the queue before their parents have ended: what ties them, starts that come too early, misses, new ties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_workflow_runner import Driver, job, record, to_running_parent

from penstock.api import JobState
from penstock.values.waits import Observation
from penstock.workflow.asks import Asks
from penstock.workflow.guard import TOO_EARLY
from penstock.workflow.metrics import run_metrics
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase
from penstock.workflow.run.instructions import Cancel, Change, Finished, Observe, Release, Submit
from penstock.workflow.run.runner import Runner
from penstock.workflow.ties import Tie


def driver(strategy, grace=300.0, flow=None, **more):
    made = Driver(strategy, **more) if flow is None else Driver(strategy, flow, **more)
    made.runner = Runner(accrues=False, grace=grace, whole_nodes=True)
    return made


def only(kind, out):
    (found,) = [i for i in out if isinstance(i, kind)]
    return found


# -- asa-naive ---------------------------------------------------------------------------------------------------------


def naive(grace=300.0, estimates=(50.0, 33.0, 10.0)):
    """merge (job 2) was submitted at 1787 for project (job 1), which is expected to run from 1100 to 1820."""
    d = driver("asa-naive", grace, estimates=estimates)
    running = to_running_parent(d)
    return d, running, d.submit(1787, 2, running)


def test_a_naive_job_has_no_dependency_but_a_guard():
    d, _running, order = naive()
    assert (order.spec.dependency, order.spec.hold, order.spec.requeue) == (None, False, True)
    assert "#PENSTOCK-GUARD jobs=1 grace=300" in order.spec.script
    stage = d.run.stage("merge")
    assert (stage.tie, stage.depends_on, stage.phase) == (Tie.GUARD, (1,), "queued")
    assert order.spec.script.index("penstock_guard 300") < order.spec.script.index("./merge")


def test_a_start_that_is_a_little_early_idles_and_counts_as_overhead():
    d, running, _ = naive()
    early = job(2, "RUNNING", submit=1787.0, eligible=1787.0, start=1790.0)
    out = d.step(1795, running, early)
    assert [i.observation for i in out if isinstance(i, Observe)] == [Observation(3.0)] and "idles" in d.notes
    assert not [i for i in out if isinstance(i, Cancel)]
    done = job(1, "COMPLETED", start=1100.0, end=1820.0)
    d.step(1830, done, early)
    d.step(1900, done, replace(early, state=JobState.COMPLETED, end=1880.0))
    metrics = run_metrics(d.run)
    assert metrics.overhead_node_hours == pytest.approx(30 / 3600) and metrics.misses == 0


def test_a_start_that_is_much_too_early_is_a_miss():
    """Section 4.5: cancelled and submitted again; the cancelled job's nodes count as used, and as overhead."""
    d, running, _ = naive(grace=20.0)
    early = job(2, "RUNNING", submit=1787.0, eligible=1787.0, start=1790.0)
    out = d.step(1795, running, early)
    assert only(Cancel, out).reasons[0].code == "started-early"
    assert only(Observe, out).observation == Observation(3.0), "it is learned all the same"
    stage = d.run.stage("merge")
    assert (stage.misses, stage.idle, stage.wasted, d.run.discarded) == (1, 5.0, 5.0, (2,))
    assert "given-up-first" in d.notes and not [i for i in out if isinstance(i, Submit)]
    again = only(Submit, d.step(1797, running, replace(early, state=JobState.CANCELLED, end=1796.0)))
    assert again.spec.name.startswith("merge.penstock.7.2.") and "marks/7/merge" in again.spec.script
    assert run_metrics(d.run).misses == 1


def test_after_two_misses_it_waits_for_its_parents():
    d, running, _ = naive(grace=20.0)
    for number in (2, 3):
        early = job(number, "RUNNING", submit=1787.0, eligible=1787.0, start=1790.0)
        d.step(1795, running, early)
        out = d.step(1797, running, replace(early, state=JobState.CANCELLED, end=1796.0))
        if number == 2:
            d.run = d.runner.submitted(d.run, "merge", 3, 1797.0)
    assert not [i for i in out if isinstance(i, Submit)] and d.run.stage("merge").misses == 2
    assert "asa-naive-waits" in d.notes


def test_a_job_that_its_guard_has_ended_is_submitted_again():
    d, running, _ = naive()
    out = d.step(2100, running, record(2, "FAILED", exit_code=TOO_EARLY, start=1790.0, end=2090.0))
    assert only(Submit, out).stage == "merge" and d.run.phase is RunPhase.ACTIVE
    assert (d.run.stage("merge").misses, d.run.stage("merge").idle) == (1, 300.0)


def test_a_job_that_requeued_itself_goes_on_under_its_id():
    d, running, _ = naive()
    d.step(1795, running, job(2, "RUNNING", submit=1787.0, eligible=1787.0, start=1790.0))
    d.step(2100, running, job(2, submit=2091.0, eligible=None, restarts=1))
    stage = d.run.stage("merge")
    assert (stage.phase, stage.job, stage.misses, stage.idle) == ("queued", 2, 1, 301.0)
    done = job(1, "COMPLETED", start=1100.0, end=2200.0)
    out = d.step(2300, done, job(2, "RUNNING", submit=2091.0, eligible=2212.0, start=2220.0, restarts=1))
    assert only(Observe, out).observation == Observation(8.0), "the second wait is one of its own"


def test_the_failure_of_a_guarded_job_waits_for_the_fate_of_its_parent():
    d, _running, _ = naive()
    failed = job(2, "FAILED", submit=1787.0, start=1825.0, end=1826.0)
    d.step(1830, failed)
    assert "parent-first" in d.notes and d.run.stage("merge").phase == "queued"
    out = d.step(1840, failed, record(1, "FAILED", start=1100.0, end=1820.0))
    assert (
        d.phases() == ["failed", "cancelled"] and Finished(False, "project: job 1 ended FAILED with exit code 0") in out
    )


# -- asa-after ---------------------------------------------------------------------------------------------------------


def test_slurm_counts_the_minutes_after_the_parents_start():
    d = driver("asa-after", estimates=(50.0, 130.0, 400.0, 400.0))
    d.submit(1000, 1)
    order = d.submit(1010, 2, job(1))
    assert (order.spec.dependency, order.spec.hold) == ("after:1+9", False), "(720 s - 130 s) / 60, rounded down"
    running = job(1, "RUNNING", start=1100.0)
    waiting = job(2, submit=1010.0, eligible=None)
    assert not [i for i in d.step(1200, running, waiting) if isinstance(i, Change)]
    change = only(Change, d.step(1400, running, waiting))
    assert (change.dependency, change.nodelist) == ("after:1+5", None), "the new estimate is 400 s"
    assert only(Change, d.step(1401, running, waiting)) == change, "asked for until it is done"
    d.run = d.runner.changed(d.run, change, 1402.0)
    assert not [i for i in d.step(1403, running, waiting) if isinstance(i, Change)] and len(d.asked) == 3
    eligible = replace(waiting, eligible=1400.0)
    d.step(1800, running, eligible)
    assert len(d.asked) == 3, "it is in the race: nothing to be estimated any more"


# -- eager and handover ------------------------------------------------------------------------------------------------

CHAIN = Workflow(
    "chain",
    (
        Stage("a", 2, 600, 100, "./a"),
        Stage("b", 3, 600, 100, "./b", ("a",)),
        Stage("c", 1, 600, 60, "./c", ("b",)),
    ),
)


def test_eager_is_so_many_levels_ahead_and_no_more():
    d = driver("eager", flow=CHAIN)
    d.run = replace(d.run, levels_ahead=2)
    d.submit(1000, 1)
    order = d.submit(1001, 2, job(1))
    assert (order.stage, order.spec.dependency, order.spec.hold) == ("b", "afterok:1", True)
    held = job(2, dependency="afterok:1(unfulfilled)")
    assert not [i for i in d.step(1002, job(1), held) if isinstance(i, Submit)] and "eager-too-far-ahead" in d.notes
    order = d.submit(1200, 3, job(1, "COMPLETED", start=1100.0, end=1190.0), replace(held, dependency=""))
    assert (order.stage, order.spec.dependency) == ("c", "afterok:2")
    assert len(d.asked) == 3, "each wait is predicted as the stage is submitted"


def test_a_short_chain_is_in_the_queue_as_a_whole():
    d = driver("eager", flow=CHAIN)
    d.submit(1000, 1)
    d.submit(1001, 2, job(1))
    order = d.submit(1003, 3, job(1), job(2, dependency="afterok:1(unfulfilled)"))
    assert (order.stage, order.spec.dependency) == ("c", "afterok:2")


def test_where_slurm_remembers_a_parent_its_children_are_not_held():
    """A job that has ended since the look is known for MinJobAge, so a dependency on it holds."""
    d = driver("eager", flow=CHAIN)
    d.runner = Runner(accrues=False, remembers=300.0)
    d.submit(1000, 1)
    order = d.submit(1000.5, 2, taken_at=999.0)
    assert (order.stage, order.spec.dependency, order.spec.hold) == ("b", "afterok:1", False)
    order = d.submit(1001, 3, taken_at=999.0)
    assert (order.stage, order.spec.dependency, order.spec.hold) == ("c", "afterok:2", False)
    out = d.step(1010, job(1), job(2, dependency="afterok:1(unfulfilled)"), job(3, dependency="afterok:2(unfulfilled)"))
    assert out == [] and d.phases() == ["queued"] * 3


def test_an_old_look_or_a_short_memory_holds_the_children():
    for remembers, taken_at, held in ((300.0, 1000.0, False), (300.0, 780.0, True), (60.0, 1000.0, True)):
        d = driver("eager", flow=CHAIN)
        d.runner = Runner(accrues=False, remembers=remembers)
        d.submit(1000, 1)
        seen = job(1, submit=770.0)
        assert d.submit(1000, 2, seen, taken_at=taken_at).spec.hold is held, (remembers, taken_at)


def test_a_seeded_job_has_its_dependency_and_ages_from_its_submission_on():
    d = driver("seed", flow=CHAIN)
    d.runner = Runner(accrues=False, remembers=300.0, may_age=True)
    first = d.submit(1000, 1)
    assert (first.spec.begin, first.spec.dependency) == (None, None)
    order = d.submit(1000.5, 2, taken_at=999.0)
    assert (order.spec.dependency, order.spec.begin, order.spec.hold) == ("afterok:1", "now+3", False)
    assert (d.run.stage("b").tie, "guard" in order.spec.script) == (Tie.AGED, False)
    d.submit(1001, 3, taken_at=999.0)
    # a parent is requeued and its child has lost its dependency: it gets it back, and stays what it is
    lost = d.step(1100, job(1), job(2, dependency=""), job(3, dependency="afterok:2(unfulfilled)"))
    change = only(Change, lost)
    assert (change.job, change.dependency, change.tie) == (2, "afterok:1", Tie.AGED)
    # its wait counts from its submission, as it aged from then on
    done = job(1, "COMPLETED", submit=1000.0, start=1100.0, end=1200.0)
    out = d.step(1300, done, job(2, "RUNNING", submit=1000.5, eligible=1200.0, start=1290.0), job(3))
    assert [i.observation for i in out if isinstance(i, Observe) and i.stage == "b"] == [Observation(289.5)]


def pinned():
    """a is job 1 and runs on n4 and n5; b is job 2, submitted before a ran, and has just been tied to a node of it."""
    d = driver("handover", flow=CHAIN)
    d.submit(1000, 1)
    order = d.submit(1001, 2, job(1))
    assert order.spec.dependency == "afterok:1" and "#PENSTOCK-GUARD jobs=1 " in order.spec.script
    a = job(1, "RUNNING", start=1100.0, nodes=("n4", "n5"))
    waiting = job(2, submit=1001.0, eligible=None, dependency="afterok:1(unfulfilled)")
    change = only(Change, d.step(1110, a, waiting))
    assert (change.dependency, change.nodelist, change.reasons[0].code) == ("", ("n4",), "pinned")
    d.run = d.runner.changed(d.run, change, 1111.0)
    return d, a, replace(waiting, eligible=1111.0, dependency="")


def test_a_job_waits_for_a_node_of_its_parent_and_is_let_go_afterwards():
    d, a, waiting = pinned()
    assert (d.run.stage("b").tie, d.run.stage("b").pins) == (Tie.NODES, ("n4",))
    assert d.step(1115, a, waiting) == []
    ended = replace(a, state=JobState.COMPLETED, end=1200.0)
    out = d.step(1210, ended, waiting)
    assert (only(Change, out).nodelist, only(Change, out).dependency) == ((), None)
    d.run = d.runner.changed(d.run, only(Change, out), 1211.0)
    out = d.step(1220, ended, replace(waiting, state=JobState.RUNNING, start=1215.0, nodes=("n1", "n2", "n3")))
    assert only(Observe, out).observation == Observation(104.0), "it aged since 1111"


def test_a_node_of_another_partition_is_not_waited_for():
    first, then = CHAIN.stages[0], replace(CHAIN.stages[1], asks=Asks(partition="gpu"))
    d = driver("handover", flow=replace(CHAIN, stages=(first, then)))
    d.submit(1000, 1)
    order = d.submit(1001, 2, job(1))
    assert order.spec.partition == "gpu" and d.run.partitions == ("batch", "gpu")
    assert [g.partition for g in d.asked] == ["batch", "gpu"], "its waits are learned by themselves"
    a = job(1, "RUNNING", start=1100.0, nodes=("n4", "n5"))
    waiting = job(2, submit=1001.0, eligible=None, dependency="afterok:1(unfulfilled)")
    assert not [i for i in d.step(1110, a, waiting) if isinstance(i, Change)]


def test_however_often_it_was_tied_anew_it_is_let_go_in_the_end():
    d, a, waiting = pinned()
    d.run = d.run.with_stage(replace(d.run.stage("b"), changes=99))
    assert d.step(1115, replace(a, nodes=("n8", "n9")), waiting) == [], "enough is enough"
    again = job(1, submit=1150.0, restarts=1)
    assert only(Change, d.step(1160, again, waiting)).tie is Tie.AFTEROK
    ended = replace(a, state=JobState.COMPLETED, end=1200.0)
    assert only(Change, d.step(1210, ended, waiting)).nodelist == ()


def test_a_handover_without_a_pause_is_an_upper_bound():
    d, a, waiting = pinned()
    ended = replace(a, state=JobState.COMPLETED, end=1200.0)
    out = d.step(1220, ended, replace(waiting, state=JobState.RUNNING, start=1201.0, nodes=("n4", "n1", "n2")))
    assert only(Observe, out).observation == Observation.at_most(89.0)
    assert run_metrics(d.run).total_wait == 101 and run_metrics(d.run).overhead_node_hours == 0


def test_a_job_whose_parent_was_requeued_depends_on_it_again():
    d, _a, waiting = pinned()
    again = job(1, submit=1150.0, restarts=1)
    change = only(Change, d.step(1160, again, waiting))
    assert (change.dependency, change.nodelist, change.tie) == ("afterok:1", (), Tie.AFTEROK)
    d.run = d.runner.changed(d.run, change, 1161.0)
    elsewhere = job(1, "RUNNING", submit=1150.0, start=1300.0, nodes=("n7", "n8"), restarts=1)
    back = replace(waiting, dependency="afterok:1(unfulfilled)", eligible=None)
    assert only(Change, d.step(1310, elsewhere, back)).nodelist == ("n7",)


def test_children_of_one_parent_ask_for_different_nodes():
    flow = Workflow("w", (Stage("a", 2, 600, 100, "x"), *(Stage(n, 1, 600, 9, "x", ("a",)) for n in "bcd")))
    d = driver("handover", flow=flow)
    d.submit(1000, 1)
    out = d.step(1110, job(1, "RUNNING", start=1100.0, nodes=("n4", "n5")))
    assert [i.spec.nodelist for i in out if isinstance(i, Submit)] == [("n4",), ("n5",), ("n4",)]


def test_a_job_with_more_parents_than_nodes_depends_on_them():
    flow = Workflow(
        "w", (Stage("a", 1, 600, 100, "x"), Stage("b", 1, 600, 100, "x"), Stage("c", 1, 600, 9, "x", ("a", "b")))
    )
    d = driver("handover", flow=flow)
    for order in d.step(1000):
        d.run = d.runner.submitted(d.run, order.stage, {"a": 1, "b": 2}[order.stage], 1000.0)
    running = job(1, "RUNNING", start=1100.0, nodes=("n1",)), job(2, "RUNNING", start=1100.0, nodes=("n2",))
    order = d.submit(1110, 3, *running)
    assert (order.spec.dependency, order.spec.nodelist) == ("afterok:1:2", ())


def test_where_jobs_share_nodes_it_stays_with_the_dependency():
    d = driver("handover", flow=CHAIN)
    d.runner = Runner(accrues=False, whole_nodes=False)
    d.submit(1000, 1)
    order = d.submit(1110, 2, job(1, "RUNNING", start=1100.0, nodes=("n4", "n5")))
    assert (order.spec.dependency, order.spec.nodelist) == ("afterok:1", ())
    held = job(2, submit=1110.0, priority=0, reason="JobHeldUser", eligible=None, dependency="afterok:1(unfulfilled)")
    only(Release, d.step(1112, job(1, "RUNNING", start=1100.0, nodes=("n4", "n5")), held))


# -- parents that come back --------------------------------------------------------------------------------------------


def test_a_completed_parent_that_was_requeued_is_waited_for_again():
    d = driver("perstage", flow=CHAIN)
    d.submit(1000, 1)
    d.step(1100, job(1, "RUNNING", start=1050.0))
    done = job(1, "COMPLETED", start=1050.0, end=1150.0)
    d.submit(1160, 2, done)
    change = only(Change, d.step(1170, job(1, submit=1165.0, restarts=1), job(2, submit=1160.0)))
    assert (change.job, change.dependency, change.reasons[0].code) == (2, "afterok:1", "re-pointed")
    assert d.phases()[:2] == ["queued", "queued"]
    d.run = d.runner.changed(d.run, change, 1171.0)
    waiting = job(2, submit=1160.0, eligible=None, dependency="afterok:1(unfulfilled)")
    assert not [i for i in d.step(1180, job(1, submit=1165.0, restarts=1), waiting) if isinstance(i, Change)]


def test_a_released_job_whose_parent_was_requeued_is_pointed_to_it_again():
    """Slurm has cleared the dependency when the parent completed; the agent was away, and an operator requeued it."""
    d = driver("asa", flow=CHAIN, estimates=(50.0, 5000.0, 1.0))
    d.submit(1000, 1)
    a = job(1, "RUNNING", start=1100.0)
    d.submit(1110, 2, a)
    d.step(1120, a, job(2, submit=1110.0, eligible=None, dependency="afterok:1(unfulfilled)"))
    change = only(Change, d.step(9000, job(1, submit=8000.0, restarts=1), job(2, submit=1110.0, dependency="")))
    assert (change.dependency, change.tie) == ("afterok:1", Tie.AFTEROK)
