"""Each bound of the soak is seen to hold for a sound history, and red for one that crosses it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock_lab.soak import bounds
from penstock_lab.soak.bounds import Allowed, Entry, LeftAloneSpan, Record, Row, Span
from penstock_lab.soak.commands import SLOT_OF_RUN
from penstock_lab.soak.witness import length

SUBMIT = Entry("agent", 1, "submit", "workflow 3/a", "done", 100.0, 101.0)


@pytest.mark.parametrize(
    ("verb", "subject", "feature"),
    [
        ("submit", "workflow 3/a", "workflows"),
        ("release", "workflow 3/a", "workflows"),
        ("reserve", "hold 2", "slots"),
        ("submit", "hold 2", "slots"),
        ("reserve", "request s", "slots"),
        ("submit", "bag 1", "select"),
        ("hold", "bag 1", "select"),
        ("expand", "job 7/expand", "malleable"),
        ("cancel", "workflow 3", None),
        ("unreserve", "hold 2", None),
        ("release", "bag 1", None),
        ("shrink", "job 7", None),
        ("put off", "job 7", None),
        ("release", "job 7", None),
    ],
)
def test_an_act_belongs_to_a_feature_unless_it_gives_back(verb, subject, feature):
    assert bounds.feature_of(replace(SUBMIT, verb=verb, subject=subject)) == feature


def test_an_act_while_it_was_paused():
    span = LeftAloneSpan("agent", {"workflows"}, 90.0, 110.0, "paused")
    (wrong,) = bounds.left_alone([SUBMIT], [span])
    assert "submit workflow 3/a (agent's 1) was begun 10.000 s after workflows were to be left alone: paused" in wrong
    assert bounds.left_alone([SUBMIT], [replace(span, features={"slots"})]) == []
    assert bounds.left_alone([SUBMIT], [replace(span, book="bob")]) == []
    assert bounds.left_alone([SUBMIT], [replace(span, begin=100.5)]) == [], "begun before"
    assert bounds.left_alone([SUBMIT], [replace(span, end=99.0)]) == [], "lifted before"
    assert bounds.left_alone([replace(SUBMIT, verb="cancel")], [span]) == []


def test_a_command_that_began_before_the_pause_is_excused_and_none_that_began_in_it():
    act = replace(SUBMIT, book="bob")
    span = LeftAloneSpan("bob", {"workflows"}, 90.0, 110.0)
    assert bounds.left_alone([act], [span], [Span("bob", 89.0, 105.0)]) == []
    assert len(bounds.left_alone([act], [span], [Span("bob", 91.0, 105.0)])) == 1
    assert len(bounds.left_alone([act], [span], [Span("alice", 89.0, 105.0)])) == 1
    assert len(bounds.left_alone([act], [span], [Span("bob", 80.0, 95.0)])) == 1


def test_more_submissions_in_an_hour_than_the_cap():
    many = [replace(SUBMIT, number=n, at=1000.0 * n) for n in range(8)]
    assert bounds.within_cap(many, 4, "bob") == []
    (wrong,) = bounds.within_cap(many, 3, "bob")
    assert "bob submitted 4 jobs in the hour" in wrong
    mixed = [*many[:3], replace(many[3], book="commands")]
    assert len(bounds.within_cap(mixed, 3, "bob")) == 1, "over agent and commands"
    growth = [replace(entry, verb="expand") for entry in many[:2]]
    assert bounds.within_cap([*growth, *many[2:5]], 3, "bob") == [], "growth has a cap of its own"
    assert len(bounds.within_cap([replace(entry, verb="expand") for entry in many], 3, "bob")) == 1
    assert bounds.within_cap([replace(e, state="failed") for e in many], 3, "bob") == []
    assert bounds.within_cap([replace(e, verb="release") for e in many], 3, "bob") == []


def test_a_user_with_more_than_the_limits_leave():
    allowed = {"alice": Allowed(nodes=4, job=3, wall=600.0)}
    rows = [Row(1, "alice", "RUNNING", 3, 600.0), Row(2, "alice", "RUNNING", 1, 60.0)]
    assert bounds.within_limits(rows, allowed) == []
    (wrong,) = bounds.within_limits([*rows, Row(3, "alice", "RUNNING", 1, 60.0)], allowed)
    assert "alice has 5 nodes (1: 3, 2: 1, 3: 1), more than 4" in wrong
    assert bounds.within_limits([*rows, Row(3, "alice", "PENDING", 9, 6000.0)], allowed) == []
    assert bounds.within_limits([*rows, Row(3, "bob", "RUNNING", 9, 6000.0)], allowed) == []
    assert "has 4 nodes, more than 3" in bounds.within_limits([Row(1, "alice", "RUNNING", 4, 60.0)], allowed)[0]
    (wrong,) = bounds.within_limits([replace(rows[0], limit=660.0)], allowed)
    assert "may run for 660 s, more than 600 s" in wrong


def test_an_act_that_is_not_in_the_trail_or_twice_or_there_alone():
    record = Record("agent", 1, "submit", "done")
    assert bounds.audited([SUBMIT], [record]) == []
    assert "is not in the audit trail" in bounds.audited([SUBMIT], [])[0]
    assert "2 times" in bounds.audited([SUBMIT], [record, record])[0]
    assert "which no journal knows" in bounds.audited([], [record])[0]
    assert len(bounds.audited([SUBMIT], [replace(record, book="bob")])) == 2
    assert "is cancel in the audit trail" in bounds.audited([SUBMIT], [replace(record, verb="cancel")])[0]


def test_what_may_be_missing_or_told_again():
    record = Record("agent", 1, "submit", "done")
    assert bounds.audited([replace(SUBMIT, state="failed")], []) == [], "it may have been refused before it was asked"
    assert "2 times" in bounds.audited([SUBMIT], [record, replace(record, outcome="interrupted")])[0]
    assert bounds.audited([replace(SUBMIT, state="open", closed=None)], []) == [], "a command was killed"
    assert bounds.audited([SUBMIT], [], [(100.5, 120.0)]) == []
    assert len(bounds.audited([SUBMIT], [], [(101.5, 120.0)])) == 1


def test_what_is_left_when_all_is_over():
    assert bounds.nothing_left([], {"alice": []}, {"bob": []}) == []
    assert bounds.nothing_left(["r"], {"alice": ["3 (held)"]}, {"bob": ["1"]}) == [
        "reservation r is left",
        "slot 3 (held) of alice is not settled",
        "bag 1 of bob is not finished",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("45:00", 2700.0), ("1:00:00", 3600.0), ("2-01:00:30", 176430.0), ("UNLIMITED", math.inf)]
)
def test_a_time_limit_as_squeue_has_it(text, seconds):
    assert length(text) == seconds


@pytest.mark.parametrize(
    ("name", "found"), [("r12-a495a9-s0", ("r12", "s0")), ("r12-a495a9-s1-2", ("r12", "s1")), ("rigid12", None)]
)
def test_the_job_of_a_reserved_workflow_by_its_name(name, found):
    match = SLOT_OF_RUN.match(name)
    assert (match and match.groups()) == found
