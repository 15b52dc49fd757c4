"""How long a slot should be when the run time is not known (Singh 2008, section 8.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.advice.overrun import overrun_probability, slot_length


def test_nothing_known_is_the_limit():
    found = slot_length([], 100)
    assert (found.duration, found.overrun, found.expected) == (100, 0, 100)


def test_a_long_tail_gets_a_short_slot():
    # Nine runs of 10 min and one of 2 h: 10 + 2/11 x 120 = 31.8 expected, against 120.
    found = slot_length([10] * 9 + [120], 120)
    assert (found.duration, found.overrun) == (10, pytest.approx(2 / 11))
    assert found.expected == pytest.approx(10 + 2 / 11 * 120)


def test_what_an_overrun_costs_besides_makes_the_slot_longer():
    took = [10] * 9 + [60]
    assert slot_length(took, 120).duration == 10
    assert slot_length(took, 120, penalty=1000).duration == 120


def test_few_runs_are_little_knowledge():
    assert slot_length([90], 100).duration == 100  # 90 + 1/2 x 100
    assert slot_length([90] * 19, 100).duration == 90  # 90 + 1/20 x 100


times = st.floats(0.1, 1000)


@given(st.lists(times, max_size=30), st.floats(0.1, 1000), st.floats(0.1, 10), st.floats(0, 1000), st.floats(0.1, 1000))
def test_no_other_length_is_cheaper(took, limit, price, penalty, other):
    found = slot_length(took, limit, price, penalty)
    assert 0 < found.duration <= limit
    if other <= limit:
        risk = 0 if other == limit else overrun_probability(took, other)
        assert found.expected <= other * price + risk * (limit * price + penalty) + 1e-6


@given(st.lists(times, min_size=1, max_size=20, unique=True))
def test_every_rank_of_the_next_run_is_as_likely_as_any_other(took):
    ordered = sorted(took)
    shares = [overrun_probability(took, 0), *(overrun_probability(took, t) for t in ordered)]
    assert shares == pytest.approx([(len(took) + 1 - i) / (len(took) + 1) for i in range(len(took) + 1)])
