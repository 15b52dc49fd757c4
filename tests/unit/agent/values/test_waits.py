"""A wait that was predicted, and one that was seen."""

from __future__ import annotations

import math

import pytest

from penstock.values.waits import Estimate, Known, Observation


def test_what_is_known_of_a_wait():
    assert Observation(3.0).known is Known.EXACT
    assert Observation.at_most(3.0) == Observation(3.0, Known.AT_MOST)
    assert Observation.more_than(3.0) == Observation(3.0, Known.MORE_THAN)
    assert Observation.nothing().known is Known.NOTHING
    assert [known.value for known in Known] == [0, 1, 2, 3], "they are kept in the store"


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_a_wait_that_is_none(seconds):
    with pytest.raises(ValueError, match="finite number of seconds >= 0"):
        Observation(seconds)


def test_nothing_else_need_be_said_of_an_estimate():
    assert Estimate(-1, 60.0).said == {}
