"""Likely run times: the mean of the user's last two, within the limit, and more for whoever has run longer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.waits.learners.run_times import RunTimes


def known(*runs, user="u"):
    found = RunTimes()
    for seconds in runs:
        found.add(user, seconds)
    return found


def test_by_hand():
    assert RunTimes().expect("u", 3600) == 3600
    assert known(100.0).expect("u", 3600) == 100
    assert known(7.0, 100.0, 200.0).expect("u", 3600) == 150, "the last two"
    assert known(100.0, 200.0).expect("u", 60) == 60, "no longer than the limit"
    assert known(100.0, 200.0).expect("other", 3600) == 3600
    assert known(0.0).expect("u", 3600) == 1


def test_a_job_that_runs_on_is_given_more_up_to_its_limit():
    runs = known(100.0)
    assert [runs.of_running("u", 3600, ran) for ran in (0, 99, 100, 299, 300, 1800, 4000)] == [
        *(100, 100, 300, 300, 900, 3600, 3600)
    ]
    assert RunTimes().of_running("u", 3600, 5000) == 3600
    assert known(10.0).of_running("u", 2_000_000, 800_000) == 2_000_000, "beyond the last step"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e6)), max_size=12), st.integers(1, 10**6))
def test_it_lies_within_the_limit_and_survives_a_restart(history, limit):
    runs, again = RunTimes(), RunTimes()
    for user, seconds in history:
        runs.add(user, float(round(seconds)))
    again.restore(json.loads(json.dumps(runs.to_state())))
    for user in "abcd":
        assert 1 <= runs.expect(user, limit) <= limit
        assert runs.expect(user, limit) <= runs.of_running(user, limit, 0.0) <= limit
        assert again.expect(user, limit) == runs.expect(user, limit)


def test_users_are_forgotten_the_oldest_first_and_a_damaged_state_is_refused():
    runs = RunTimes()
    for i in range(2001):
        runs.add(f"u{i}", 5.0)
    assert runs.expect("u0", 60) == 60 and runs.expect("u1", 60) == 5
    before = runs.to_state()
    for wrong in ({}, {"version": 2, "users": []}, {"version": 1, "users": [["u", -1]]}, {"version": 1, "users": [[]]}):
        with pytest.raises(ValueError, match="run times state"):
            runs.restore(wrong)
    assert runs.to_state() == before
