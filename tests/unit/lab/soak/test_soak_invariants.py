"""Each invariant of the soak is seen to hold for a sound history, and red for one that breaks it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock_lab.soak import invariants
from penstock_lab.soak.invariants import Act, Asked, Event, Forgery, Held, Kind, Memory, Seen

DAY = 86400.0
A = Seen(1, "alice", Kind.STAGE, "COMPLETED", 0.0, 10.0, "w1", "a")
B = Seen(2, "alice", Kind.STAGE, "COMPLETED", 20.0, 30.0, "w1", "b")
JOBS = [A, B]
ASKED = [Asked("w1", "alice", {"a": (), "b": ("a",)}, "completed")]
EVENTS = [
    Event("w1", "a", 1, "begin", 0.0),
    Event("w1", "a", 1, "end", 10.0),
    Event("w1", "b", 2, "begin", 20.0),
    Event("w1", "b", 2, "end", 30.0),
]


def test_a_sound_history_is_sound():
    assert invariants.stages_once(ASKED, EVENTS, JOBS) == []
    assert invariants.stages_in_order(ASKED, EVENTS) == []
    assert invariants.accounting_agrees(ASKED, EVENTS, JOBS) == []
    assert invariants.bystanders_untouched(JOBS) == []


def test_a_stage_that_was_never_done_is_lost():
    (wrong,) = invariants.stages_once(ASKED, EVENTS[:3], JOBS)
    assert "b was never done" in wrong


@pytest.mark.parametrize("phase", ["active", "", "cancelling"])
def test_a_workflow_without_an_end_is_lost(phase):
    (wrong,) = invariants.stages_once([replace(ASKED[0], phase=phase)], EVENTS, JOBS)
    assert "has not come to its end" in wrong


def test_a_stage_that_was_done_twice():
    again = [replace(B, job=3, start=40.0, end=50.0)]
    events = [*EVENTS, Event("w1", "b", 3, "begin", 40.0), Event("w1", "b", 3, "end", 50.0)]
    (wrong,) = invariants.stages_once(ASKED, events, JOBS + again)
    assert wrong == "w1/b was done 2 times"


def test_a_stage_that_was_repeated_because_its_node_died_is_done_once():
    died = replace(B, job=3, state="NODE_FAIL", start=12.0, end=15.0)
    events = [*EVENTS, Event("w1", "b", 3, "begin", 12.0), Event("w1", "b", 3, "end", 14.0)]
    assert invariants.stages_once(ASKED, events, [*JOBS, died]) == []


def test_a_stage_at_work_in_two_jobs_at_the_same_time():
    other = replace(B, job=3, state="CANCELLED", start=25.0, end=27.0)
    (wrong,) = invariants.stages_once(ASKED, [*EVENTS, Event("w1", "b", 3, "begin", 25.0)], [*JOBS, other])
    assert "at work in jobs 2 and 3" in wrong


def test_a_workflow_that_fails_needs_a_reason():
    failed = replace(ASKED[0], phase="failed", why="job 2 ended FAILED")
    (wrong,) = invariants.stages_once([failed], EVENTS[:2], JOBS)
    assert "nothing was wrong with it" in wrong
    assert invariants.stages_once([replace(failed, fails="b")], EVENTS[:2], JOBS) == []
    assert invariants.stages_once([replace(failed, given_up=True)], EVENTS[:2], JOBS) == []
    assert invariants.stages_once([replace(ASKED[0], phase="active", given_up=True)], EVENTS, JOBS) != []
    dead = replace(B, state="NODE_FAIL")
    assert invariants.stages_once([failed], EVENTS[:2], [A, dead]) == []


def test_a_workflow_that_completes_though_a_stage_fails():
    (wrong,) = invariants.stages_once([replace(ASKED[0], fails="b")], EVENTS, JOBS)
    assert "though b fails" in wrong


def test_a_stage_before_its_parent():
    early = [replace(e, at=e.at - 12) if e.stage == "b" else e for e in EVENTS]
    (wrong,) = invariants.stages_in_order(ASKED, early)
    assert "w1/b began before a" in wrong
    assert invariants.stages_in_order(ASKED, early, slack=2.0) == []
    (wrong,) = invariants.stages_in_order(ASKED, [e for e in EVENTS if e.stage == "b"])
    assert "never" in wrong


def test_a_line_of_a_job_that_accounting_does_not_know():
    (wrong,) = invariants.accounting_agrees(ASKED, EVENTS, [A])
    assert "job 2, which accounting does not know" in wrong


def test_a_line_of_a_job_of_something_else():
    (wrong,) = invariants.accounting_agrees(ASKED, EVENTS, [A, replace(B, run="", kind=Kind.BYSTANDER)])
    assert "no run" in wrong
    (wrong,) = invariants.accounting_agrees(ASKED, EVENTS, [A, replace(B, user="bob")])
    assert "job 2 of bob" in wrong


def test_a_job_of_a_workflow_that_nobody_asked_for():
    (wrong,) = invariants.accounting_agrees(ASKED, EVENTS, [*JOBS, replace(B, job=9, run="run 7")])
    assert "nobody asked for" in wrong


def test_a_node_that_is_not_given_back():
    assert invariants.nodes_free([], [A, B]) == []
    assert invariants.nodes_free([Held("n1", 7), Held("n2", None, "down")], []) == [
        "node n1 is not free: job 7",
        "node n2 is not free: nobody, down",
    ]
    (wrong,) = invariants.nodes_free([], [replace(A, state="RUNNING", end=None)])
    assert "is still RUNNING" in wrong


def test_a_resizer_that_outlives_its_job():
    holder = Seen(5, "alice", Kind.HOLDER, "RUNNING", 5.0, None, of=1)
    assert invariants.nothing_orphaned([A, holder], 60.0, 60.0) == []
    (wrong,) = invariants.nothing_orphaned([A, holder], 80.0, 60.0)
    assert "job 5 holds nodes for job 1, which ended 70 s ago" in wrong
    assert invariants.nothing_orphaned([A, replace(holder, state="CANCELLED")], 80.0, 60.0) == []


@pytest.mark.parametrize(
    ("act", "job"),
    [
        ("cancel", Seen(7, "bob", Kind.STAGE, "CANCELLED")),
        ("cancel", Seen(7, "alice", Kind.BYSTANDER, "CANCELLED")),
        ("shrink", Seen(7, "alice", Kind.STAGE, "RUNNING")),
        ("cancel", Seen(7, "alice", Kind.MALLEABLE, "CANCELLED")),
        ("requeue", Seen(7, "alice", Kind.STAGE, "PENDING")),
        ("reserve", Seen(7, "alice", Kind.STAGE, "PENDING")),
        ("hold", Seen(7, "alice", Kind.STAGE, "PENDING")),
        ("update", Seen(7, "alice", Kind.BAG, "PENDING")),
        ("release", Seen(7, "alice", Kind.SLOT, "PENDING")),
        ("cancel", Seen(7, "alice", Kind.GUIDED, "PENDING")),
    ],
)
def test_an_act_that_nobody_asked_for(act, job):
    assert len(invariants.authorised([Act(act, 7, 0.0)], [job], "alice")) == 1


def test_acts_that_were_asked_for():
    jobs = [A, Seen(7, "alice", Kind.MALLEABLE, "RUNNING"), Seen(8, "alice", Kind.HOLDER, "RUNNING", of=7)]
    jobs += [Seen(10 + n, "alice", kind, "PENDING") for n, kind in enumerate((Kind.SLOT, Kind.BAG, Kind.RESERVED))]
    acts = [Act("cancel", 1, 0.0), Act("shrink", 7, 0.0), Act("merge", 8, 0.0), Act("cancel", 99, 0.0)]
    acts += [Act("submit", 10, 0.0), Act("cancel", 10, 0.0), Act("hold", 11, 0.0), Act("update", 12, 0.0)]
    assert invariants.authorised(acts, jobs, "alice") == []


def test_a_bystander_that_was_touched():
    rigid = Seen(4, "bob", Kind.BYSTANDER, "COMPLETED", wanted=3, nodes=3)
    assert invariants.bystanders_untouched([rigid, replace(rigid, state="NODE_FAIL", nodes=2)]) == []
    assert "ended CANCELLED" in invariants.bystanders_untouched([replace(rigid, state="CANCELLED")])[0]
    assert "on 2 of 3 nodes" in invariants.bystanders_untouched([replace(rigid, nodes=2)])[0]


def test_a_forged_request_that_was_accepted():
    assert invariants.refused([Forgery("a lie", accepted=False)]) == []
    assert invariants.refused([Forgery("a lie", accepted=True, answer="Done()")]) == ["a lie was accepted: Done()"]


def test_an_intent_that_is_still_open():
    assert invariants.journal_closed([]) == []
    assert "submit workflow 3/a" in invariants.journal_closed([("submit", "workflow 3/a", 5.0)])[0]


def test_a_job_that_cannot_be_explained():
    assert invariants.explained({"job 1": 3}) == []
    assert len(invariants.explained({"job 1": 0, "job 2": None, "job 3": 1})) == 2


def grows(per_day: float, days: float = 3.0, life: int = 0) -> list[Memory]:
    return [Memory(d * DAY, 50e6 + per_day * d, life) for d in [i * days / 20 for i in range(21)]]


def test_memory_that_grows():
    assert invariants.memory_flat(grows(0.5e6), 1e6, DAY) == []
    (wrong,) = invariants.memory_flat(grows(2e6), 1e6, DAY)
    assert "grows by 2.00 MB a day" in wrong
    assert invariants.memory_flat(grows(2e6, days=0.5), 1e6, DAY) == [], "too short to tell"
    (wrong,) = invariants.memory_flat([*grows(0.0), *grows(2e6, life=1)], 1e6, DAY)
    assert "life 1" in wrong
    assert "more than 40 MB" in invariants.memory_flat(grows(0.0)[:1], 1e6, DAY, most=40e6)[0]


def test_memory_that_is_taken_up_at_the_beginning_is_no_growth():
    rising = [Memory(i * DAY / 10, 50e6 + min(i, 4) * 5e6) for i in range(21)]
    assert invariants.memory_flat(rising, 1e6, DAY) == []


def test_percentiles():
    assert invariants.percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert invariants.percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert math.isnan(invariants.percentile([], 0.5))
