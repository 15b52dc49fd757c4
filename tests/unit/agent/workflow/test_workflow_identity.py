"""Which job is a stage's: the number with the submission time, the name, and the count of requeues."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from owned_jobs import LOOKS, RUNNER, ended, look, of, record, run_of, seen, stage_of
from test_workflow_runner import Driver, job, view

from penstock.api import JobState
from penstock.core.acts import bears_name
from penstock.values.waits import Estimate
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.phases import Kept, RunPhase, StagePhase
from penstock.workflow.run.identity import JobClaim, Recognition, known_job, outlived, recognise, records_of
from penstock.workflow.run.instructions import Cancel, Change, Submit
from penstock.workflow.submit.admission import registration
from penstock.workflow.submit.chains import read_links
from penstock_lab.testing import make_job

BORN = 1000.0


def claim(submit=BORN, name="w/a", restarts=0, unique=True, sent=1001.0) -> JobClaim:
    return JobClaim(5, submit, name, restarts, unique, sent)


def row(submit=BORN, restarts=0, **more):
    return make_job(5, submit=submit, restarts=restarts, **more)


@pytest.mark.parametrize(
    ("mine", "rows", "told"),
    [
        (claim(), [row()], Recognition.OURS),
        (claim(), [row(), row(1200.0, 1, array_job=5)], Recognition.OURS),  # one task was requeued
        (claim(), [row(1200.0)], Recognition.ASK),  # no other job was ever given its name
        (claim(unique=False), [row(1200.0)], Recognition.ANOTHER),
        (claim(unique=False), [row(1200.0, restarts=1)], Recognition.ASK),  # requeued, if it is called so
        (claim(unique=False, restarts=1), [row(1200.0, restarts=1)], Recognition.ANOTHER),
        (claim(unique=False, name=""), [row(1200.0, restarts=1)], Recognition.OURS),
        (claim(name=""), [row(1200.0)], Recognition.ANOTHER),
        (claim(None), [row()], Recognition.ASK),
        (claim(None, name=""), [row()], Recognition.OURS),  # of a release that kept no names
    ],
)
def test_what_the_rows_of_a_number_are(mine, rows, told):
    assert recognise(mine, rows) is told


def test_its_name_finds_the_tasks_of_an_array_that_have_begun_by_their_own_numbers():
    rows = [make_job(6, "n1", array_job=5), make_job(7, array_job=5)]
    assert bears_name(5, rows, {6}) and bears_name(5, rows, {5}) and not bears_name(5, rows, {8})


@given(submit=st.floats(0, 3000), name=st.sampled_from(["w/a", "other"]), born=st.sampled_from([None, BORN]))
def test_accounting_s_record_is_the_job_s_or_of_an_earlier_one_or_it_is_lost(submit, name, born):
    of = replace(record(5, JobState.COMPLETED), submit=submit, name=name)
    mine = claim(born)
    same = submit == born or (born is None and 941.0 <= submit <= 1001.0)  # or a plug-in has changed its name
    assert records_of(mine, of) is (same or name == "w/a")
    # What the number was before ours says nothing of ours.
    assert outlived(mine, of) is (name == "other" and submit > (1001.0 if born is None else BORN))


def test_a_stage_whose_job_slurmctld_has_lost_is_submitted_again():
    d = Driver("perstage")
    d.submit(1000, 1)
    d.run = d.runner.submitted(d.run, "project", 1, 1000, "p.1")
    d.step(1010, job(1))
    assert d.run.stage("project").born == 1000.0
    gone = replace(view(1020.0), lost=frozenset({1}))
    step = d.runner.step(d.run, gone, 1020.0, d.predict)
    assert step.run.stage("project").mishaps == 1
    again = d.runner.step(step.run, replace(gone, taken_at=1100.0), 1100.0, d.predict)
    (order,) = [i for i in (*step.instructions, *again.instructions) if isinstance(i, Submit)]
    assert order.stage == "project" and order.spec.name != "p.1"


def test_it_is_submitted_again_only_so_often():
    d = Driver("perstage")
    d.submit(1000, 1)
    d.run = d.run.with_stage(replace(d.run.stage("project"), mishaps=3))
    step = d.runner.step(d.run, replace(view(1020.0), lost=frozenset({1})), 1020.0, d.predict)
    assert step.run.stage("project").phase is StagePhase.FAILED
    assert "slurmctld has lost job 1" in (step.run.stage("project").failure or "")


def test_what_is_given_up_and_lost_is_not_waited_for():
    d = Driver("perstage")
    d.submit(1000, 1)
    d.run = d.run.without(77, BORN, "w/x")
    assert known_job(d.run, 77, 3) == known_job(run_from_dict(json.loads(json.dumps(run_to_dict(d.run)))), 77, 3)
    assert known_job(d.run, 77, 3).submit == BORN
    step = d.runner.step(d.run, replace(view(1020.0, job(1)), lost=frozenset({77})), 1020.0, d.predict)
    assert step.run.discarded == () and step.run.given_up == {}


def test_a_cancelled_workflow_does_not_wait_for_what_is_lost():
    d = Driver("perstage")
    d.submit(1000, 1)
    d.run = d.runner.cancel(d.run, "why")
    step = d.runner.step(d.run, replace(view(1020.0), lost=frozenset({1})), 1020.0, d.predict)
    assert step.run.phase is RunPhase.CANCELLED and not [i for i in step.instructions if isinstance(i, Cancel)]


def test_an_owner_is_told_that_a_job_is_lost_and_what_submits_it_again():
    run = run_of([stage_of("a", 1)])
    step = RUNNER.step(run, seen(at=50.0, lost=frozenset({1})), 50.0, lambda _geometry: Estimate(0, 1.0))
    assert step.run.phase is RunPhase.FAILED
    assert "slurmctld has lost job 1" in (step.run.why or "") and "`penstock retry 3`" in (step.run.why or "")


def test_each_look_that_shows_the_job_keeps_what_it_is_known_by():
    run = run_of([stage_of("a", 1)])
    first = look(run, make_job(1, "n1", submit=7.0))
    assert known_job(first.run, 1, 0).submit == 7.0
    again = look(first.run, make_job(1, submit=90.0, restarts=1), now=100.0)
    assert (known_job(again.run, 1, 0).submit, again.run.stage("a").restarts) == (90.0, 1)
    done = look(first.run, ended(1, submit=7.0))
    assert done.run.phase is RunPhase.COMPLETED


@pytest.mark.parametrize("born", ["soon", -1, 2**40, [1]])
def test_what_a_command_says_of_a_job_is_checked(born):
    stage = {"name": "a", "job": 1, "after": [], "called_in_slurm": "x", "born": born}
    with pytest.raises(Exception, match="registration"):
        registration({"workflow": "w", "strategy": "asa", "stages": [stage]}, 0.0)


@pytest.mark.parametrize("name", ["my job", "cp2k:relax", "größe", "x" * 2000, "a,b"])
def test_a_name_that_cannot_be_asked_for_is_none(name):
    """Its job is known by its submission time and its requeues alone."""
    link = {"called": "a", "job": 1, "at": 0.0, "called_in_slurm": name, "born": 5.0}
    assert [(one.name, one.born) for one in read_links({"links": [link]}, 0.0)] == [("", 5.0)]
    assert recognise(claim(unique=False, name=""), [row(1200.0, restarts=1)]) is Recognition.OURS


def test_a_stage_is_not_kept_by_a_parent_whose_end_slurmctld_has_lost():
    """It runs again as far as slurmctld knows, and then counts as failed."""
    d = Driver("eager")
    first = d.step(1000.0)
    d.run = d.runner.submitted(d.run, "project", 1, 1000.0, "p.1")
    d.run = d.runner.submitted(d.run, "merge", 2, 1000.0, "m.1") if len(first) > 1 else d.run
    d.step(1001.0, job(1))
    d.run = d.runner.submitted(d.run, "merge", 2, 1002.0, "m.1")
    waits = job(2, dependency="afterok:1(unfulfilled)", reason="Dependency")
    d.step(1010.0, job(1, "COMPLETED", start=1003.0, end=1009.0), waits)
    assert d.phases() == ["done", "queued"]
    (change,) = [
        order
        for order in d.step(1100.0, job(1, "TIMEOUT", end=1090.0), replace(waits, dependency="afterok:1(failed)"))
        if isinstance(order, Change)
    ]
    assert (change.job, change.dependency) == (2, "")


def test_nor_is_one_that_its_owner_has_submitted():
    run = run_of([stage_of("a", 1, phase=StagePhase.DONE), stage_of("b", 2, (0,), kept=Kept.BEGIN)])
    waits = make_job(2, dependency="afterok:1(failed)", **LOOKS[Kept.BEGIN])
    (change,) = of(Change, look(run, waits))
    assert (change.job, change.dependency) == (2, "")


def test_a_job_that_had_ended_at_its_first_look_is_known_too():
    """Else its name would be asked for in each pass."""
    d = Driver("perstage")
    d.submit(1000, 1)
    d.step(1010.0, job(1, "COMPLETED", start=1001.0, end=1009.0))
    assert (d.run.stage("project").phase, d.run.stage("project").born) == (StagePhase.DONE, 1000.0)


def test_a_job_that_has_completed_is_not_run_again_because_slurmctld_has_lost_that():
    d = Driver("eager")
    d.step(1000.0)
    d.run = d.runner.submitted(d.run, "project", 1, 1000.0, "p.1")
    d.step(1001.0, job(1))
    d.run = d.runner.submitted(d.run, "merge", 2, 1002.0, "m.1")
    waits = job(2, dependency="afterok:1(unfulfilled)", reason="Dependency")
    d.step(1010.0, job(1, "COMPLETED", start=1003.0, end=1009.0), waits)
    orders = d.step(1100.0, job(1), waits)
    assert [(o.job, o.dependency) for o in orders if isinstance(o, Change)] == [(2, "")]
    assert d.run.discarded == (1,) and "revived" in d.notes
    assert [o.job for o in d.step(1110.0, job(1), job(2)) if isinstance(o, Cancel)] == [1]


def test_one_that_was_put_back_by_a_person_is():
    d = Driver("perstage")
    d.submit(1000, 1)
    d.step(1010.0, job(1, "COMPLETED", start=1001.0, end=1009.0))
    d.step(1100.0, job(1, submit=1050.0, restarts=1))
    assert d.phases()[0] == "queued" and d.run.discarded == ()
