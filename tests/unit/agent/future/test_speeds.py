"""Speeds by program: whose they are, how long a belief lasts, and what is kept of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import JobState, Offer
from penstock.future.speeds import Memory, ProgramSpeeds, Speeds, read_program
from penstock_lab.testing import NODES, make_job, make_snapshot

HOUR, DAY = 3600.0, 86400.0


def offer(job, size, seconds, program="heat", **more):
    return Offer(job, size, 1, 8, nodes=NODES[:size], step_seconds=seconds, program=program, **more)


def see(memory, *offers, at=0.0, uid=1000):
    """The speeds of the last of these."""
    jobs = [replace(make_job(o.job, *o.nodes), uid=uid, start=0.0) for o in offers]
    snapshot = make_snapshot(jobs, at=at)
    return [memory.of(o, snapshot) for o in offers][-1]


def stored(memory, into=None):
    """The changes as the store gives them again, on top of what it had."""
    into = {} if into is None else into
    for key, document in memory.changes().items():
        if document is None:
            into.pop(key, None)
        else:
            into[key] = json.loads(json.dumps(document))
    return into


def again(memory, kept=None):
    """Another memory that has recalled what this one would have stored, on top of what was."""
    other = Memory()
    assert not list(other.recall(stored(memory, kept)))
    return other


def test_a_program_is_known_by_what_its_runs_measured_and_another_one_is_not():
    memory = Memory()
    see(memory, offer(1, 1, 10.0))
    see(memory, offer(1, 4, 10.0))
    assert see(memory, offer(2, 1, 5.0)).scaling(1, 4) == pytest.approx(0.0)
    assert not see(memory, offer(3, 1, 5.0, "sleep")).known, "the same limits, and another program"
    assert not see(memory, offer(4, 1, 5.0), uid=1001).known, "another owner's"
    assert not see(memory, offer(5, 1, 5.0, per_node=2)).known, "with so many processes on a node"


def test_what_was_learned_survives_a_restart_with_the_runs_own_measurements():
    memory = Memory()
    see(memory, offer(1, 1, 10.0))
    see(memory, offer(1, 4, 4.0), at=50.0)
    other = again(memory)
    assert see(other, offer(1, 4, 4.0), at=60.0).measured == {1: 10.0, 4: 4.0}
    assert see(other, offer(2, 1, 20.0), at=60.0).at(4) == pytest.approx(8.0)
    assert stored(other), "a new run of it"
    see(other, offer(1, 4, 4.1), offer(2, 1, 20.0), at=70.0)
    assert stored(other) == {}, "seconds alone are not written down at each check"


def test_a_run_under_a_number_that_was_given_again_is_another_one():
    memory = Memory()
    see(memory, offer(1, 1, 10.0))
    job = replace(make_job(1, *NODES[:1]), uid=1000, start=500.0)
    assert memory.of(offer(1, 1, 3.0), make_snapshot([job], at=500.0)).measured == {1: 3.0}


def test_a_run_that_is_told_its_program_late_keeps_what_it_has_measured():
    memory = Memory()
    see(memory, offer(1, 1, 10.0, ""))
    see(memory, offer(1, 4, 10.0, ""), at=30.0)
    assert stored(memory) == {}, "what is only known by its limits is not kept"
    see(memory, offer(1, 4, 10.0), at=60.0)
    (document,) = stored(memory).values()
    assert [size for size, *_ in document["runs"][0][2]] == [1, 4]


@pytest.mark.parametrize(("runs", "program", "patience"), [(1, "heat", 30), (3, "heat", 120), (30, "heat", 3600)])
def test_what_runs_before_it_found_useless_is_tried_again_the_later_the_more_of_them_there_were(
    runs, program, patience
):
    speeds = Speeds(ProgramSpeeds({1: 10.0, 4: 10.0}, in_vain=runs))
    speeds.saw(offer(1, 1, 10.0, program), 100.0)
    assert not speeds.tries(100.0 + patience - 1) and speeds.tries(100.0 + patience)


def test_runs_that_end_say_whether_their_larger_sizes_were_of_use():
    memory = Memory()
    for number, seconds in ((1, 10.0), (2, 10.0), (3, 3.0)):
        see(memory, offer(number, 1, 10.0))
        see(memory, offer(number, 4, seconds))
    ended = [replace(make_job(n, state=JobState.COMPLETED), start=0.0) for n in (1, 2)]
    memory.of(offer(3, 4, 3.0), make_snapshot([*ended, replace(make_job(3, *NODES[:4]), start=0.0)], at=9.0))
    (document,) = stored(memory).values()
    assert document["in_vain"] == 2
    memory.of(offer(4, 1, 3.0), make_snapshot([replace(make_job(4, *NODES[:1]), start=0.0)], at=10.0))
    assert next(iter(stored(memory).values()))["in_vain"] == 0


def test_a_script_from_stdin_is_believed_for_a_minute_at_most():
    memory = Memory()
    memory.recall({"1000 ?x:1": {"version": 1, "curve": [[1, 9.0], [2, 9.0]], "in_vain": 40, "used": 0.0, "runs": []}})
    speeds = see(memory, offer(1, 1, 9.0, "?x"))
    assert not speeds.tries(59.0) and speeds.tries(60.0)


def test_a_run_that_knows_better_tries_ever_more_rarely_and_not_at_once_after_a_restart():
    memory = Memory()
    see(memory, offer(1, 1, 10.0))
    see(memory, offer(1, 2, 10.0), at=100.0)
    see(memory, offer(1, 1, 10.0), at=130.0)
    tried, now, kept = [], 130.0, {}
    while now < 8 * HOUR:
        now += 10.0
        memory = again(memory, kept) if now % 600 == 0 else memory
        if see(memory, offer(1, 1, 10.0), at=now).tries(now):
            tried.append(now)
            see(memory, offer(1, 2, 10.0), at=now + 1)
            see(memory, offer(1, 1, 10.0), at=now + 2)
    assert tried[:3] == pytest.approx([730, 1470, 2940], abs=40) and len(tried) <= 7


def test_it_is_useless_only_where_it_measured_both_and_settled():
    speeds = Speeds(ProgramSpeeds({1: 10.0, 8: 10.0}))
    speeds.saw(offer(1, 8, 10.0), 0.0)
    assert speeds.useless([1, 2, 4], 100.0) is None, "others found so"
    speeds = Speeds()
    speeds.saw(offer(1, 1, 10.0), 0.0)
    speeds.saw(offer(1, 8, 10.0), 50.0)
    assert speeds.useless([1, 2, 4], 60.0) is None, "a first impression"
    assert speeds.useless([1, 2, 4], 80.0) == 1
    assert speeds.useless([4], 80.0) == 4, "no further than it may"
    assert speeds.useless([], 80.0) is None
    partly = Speeds()
    for size in (1, 8):
        partly.saw(offer(1, size, 9.5 + 0.5 / size), 0.0)
    assert partly.useless([1, 2, 4], 80.0) == 4, "some of it is of use"


def test_programs_are_bounded_and_who_has_many_loses_their_own():
    memory = Memory()
    for size in (1, 2):
        see(memory, offer(1, size, 10.0), uid=7)
    kept = stored(memory)
    (mine,) = kept
    for number in range(2100):
        see(memory, offer(2, 1, 1.0, f"flood{number}"), at=1.0 + number / 100)
        stored(memory, kept)
    assert len(kept) == 2000 and mine in kept
    assert "1000 flood0:1" not in kept and "1000 flood2099:1" in kept


def test_what_has_not_run_for_three_months_is_forgotten():
    memory = Memory()
    see(memory, offer(1, 1, 10.0))
    kept = stored(memory)
    see(memory, offer(2, 1, 10.0, "other"), at=91 * DAY)
    assert list(stored(memory, kept)) == ["1000 other:1"]


@given(st.floats(), st.floats(min_value=0.0), st.integers(1, 2**31))
def test_whatever_a_program_says_is_borne_and_can_be_stored(first, second, size):
    memory = Memory()
    see(memory, replace(offer(1, 1, first), size=1))
    speeds = see(memory, replace(offer(1, 1, second), size=size + 1), at=30.0)
    assert speeds.scaling(1, 2) <= 2.0 and speeds.at(3) > 0
    speeds.useless([1], 99.0), speeds.tries(99.0)
    again(memory)


GOOD = {"version": 1, "curve": [[1, 2.0]], "in_vain": 0, "used": 5.0, "runs": [[3, 1.0, [[1, 2.0, 4.0]]]]}


@pytest.mark.parametrize(
    "bad",
    [
        {"version": 2},
        {"curve": [[0, 1.0]]},
        {"curve": [[1, -1.0]]},
        {"curve": [[1, float("nan")]]},
        {"curve": 5},
        {"in_vain": -1},
        {"in_vain": float("inf")},
        {"runs": [[3, "x", []]]},
        {"runs": [["3", 1.0, []]]},
        {"runs": [[3, 1.0, [[1]]]]},
        {"used": None},
    ],
)
def test_a_document_that_is_none_is_told(bad):
    read_program(GOOD)
    with pytest.raises((ValueError, TypeError)):
        read_program({**GOOD, **bad})
    assert list(Memory().recall({"a": {**GOOD, **bad}, "1 b:1": GOOD})) == ["a"]
