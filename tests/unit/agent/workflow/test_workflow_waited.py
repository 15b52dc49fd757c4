"""Where the time between a stage's turn and its start went: the queue, pauses and holds, the agent's reaction."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from owned_jobs import look, run_of, stage_of
from test_workflow_runner import Driver, job

from penstock.api import JobState
from penstock.workflow.documents import run_from_dict, run_to_dict
from penstock.workflow.intervals import begun, ended, lasts, overlap
from penstock.workflow.metrics import WaitParts, gap_before, perceived_wait, waited
from penstock.workflow.phases import Kept, StagePhase
from penstock_lab.testing import make_job


def started(**merge):
    """`project` ended at 1800; `merge` was submitted at 1850 and started at 2000."""
    run = Driver("perstage").run
    run = run.put(0, replace(run.stages[0], phase=StagePhase.DONE, job=1, start=1100.0, end=1800.0))
    entry = {"phase": StagePhase.RUNNING, "job": 2, "submitted": 1850.0, "start": 2000.0, **merge}
    return run.put(1, replace(run.stages[1], **entry))


def test_intervals_begin_and_end_once_and_what_lies_over_each_other_counts_once():
    known = begun(begun((), 10.0), 12.0)
    assert known == ((10.0, None),) and lasts(known)
    known = ended(ended(known, 20.0), 25.0)
    assert known == ((10.0, 20.0),) and not lasts(known)
    assert overlap([*known, (15.0, 30.0), (50.0, None)], 12.0, 60.0) == 8 + 10 + 10
    assert ended(begun((), 10.0), 5.0) == ((10.0, 10.0),), "the clock was set back"
    many = ()
    for at in range(500):
        many = ended(begun(many, at), at + 0.5)
    assert len(many) == 100 and many[-1] == (499, 499.5)


def test_all_of_it_is_in_one_of_the_parts():
    run = started(holds=((1900.0, 1930.0),))
    run = replace(run, pauses=((1700.0, 1820.0), (1900.0, 1990.0)))
    assert waited(run, 1) == WaitParts(perceived=120.0, paused=20.0 + 30.0, reaction=30.0)
    assert (perceived_wait(run, 1), gap_before(run, 1)) == (120.0, 200.0)
    assert run_from_dict(json.loads(json.dumps(run_to_dict(run)))) == run


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"start": None}, None),
        ({"submitted": 1200.0}, WaitParts(200, 0, 0)),
        ({"submitted": 1200.0, "start": 1790.0}, WaitParts(0, 0, 0)),
        ({"submitted": 1200.0, "released": 1840.0}, WaitParts(160, 0, 40)),
        ({"submitted": 1960.0, "again_from": 1950.0}, WaitParts(40, 0, 10)),
    ],
    ids=["not started", "ahead", "before its turn", "held for the agent", "the second attempt"],
)
def test_who_acted_when(more, parts):
    assert waited(started(**more), 1) == parts


def test_a_hold_of_ones_own_is_seen_and_the_agents_is_not():
    d = Driver("eager")
    d.submit(1000, 1)
    first, held = job(1), {"priority": 0, "reason": "JobHeldUser"}
    d.submit(1001, 2, first)
    child = job(2, dependency="afterok:1(unfulfilled)")
    d.step(1010, first, replace(child, **held))
    assert d.run.stages[1].holds == (), "it is held until its dependency has been read back"
    d.run = d.runner.released(d.run, "merge", 1011.0)
    d.step(1012, first, replace(child, **held), taken_at=1005)
    assert d.run.stages[1].holds == (), "the look is older than the release"
    d.step(1020, replace(first, **held), child)
    d.step(1030, replace(first, **held), child)
    d.step(1050, first, child)
    assert [s.holds for s in d.run.stages] == [((1020, 1050),), ()]


def test_what_an_owner_holds_or_puts_off_is_the_owners_own_time():
    run = run_of([stage_of("a", 1, registered=5.0), stage_of("b", 2, (0,), Kept.BEGIN, begin=90.0)], "eager")
    run = look(run, make_job(1, state=JobState.PENDING, reason="JobHeldUser", priority=0), now=10.0).run
    run = look(run, make_job(1, state=JobState.PENDING), now=40.0).run
    assert run.stages[0].holds == ((10.0, 40.0),)
    stages = (
        replace(run.stages[0], submitted=5.0, start=45.0, end=60.0),
        replace(run.stages[1], submitted=6.0, released=95.0, start=100.0),
    )
    run = replace(run, stages=stages)
    assert waited(run, 0) == WaitParts(perceived=10.0, paused=30.0, reaction=0.0)
    assert waited(run, 1) == WaitParts(perceived=5.0, paused=30.0, reaction=5.0)
