"""The compiled kernel does what the reference does, to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from given_futures import Arrival, Given, random_world
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.pace import at_once
from penstock.future import replay
from penstock.future.drawn import Arrivals, OwnJob, Span
from penstock.future.present import Present, Waiting
from penstock.kernel import library

SEEDS = st.integers(0, 2**32)
WAYS = st.fixed_dictionaries(
    {"by_submission": st.booleans(), "depth": st.sampled_from([1, 3, 100]), "protect": st.sampled_from([1.0, math.inf])}
)


@pytest.fixture(scope="module", autouse=True)
def kernel():
    assert library.KERNEL is not None, f"these tests need the kernel: {library.WHY_NOT}"


def both(ask):
    """What `ask` finds by the kernel and by the reference."""
    found = []
    for kernel in (library.KERNEL, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replay, "KERNEL", kernel)
            found.append(at_once(ask()))
    return found


@given(SEEDS, st.integers(1, 40), WAYS)
def test_our_jobs_start_when_the_reference_says(seed, most, ways):
    world = random_world(seed, most)
    by_kernel, by_reference = both(lambda: replay.replay(world.present, world.drawn, world.own, **ways))
    assert by_kernel == by_reference


@given(SEEDS, st.integers(1, 40), WAYS)
def test_those_who_wait_start_when_the_reference_says(seed, most, ways):
    world = random_world(seed, most)
    del ways["by_submission"]
    places = range(0, len(world.present.waiting), 2)
    by_kernel, by_reference = both(lambda: replay.replay_queue(world.present, world.drawn, places, **ways))
    assert by_kernel == by_reference


def test_work_is_told_in_parts_and_may_be_given_up(monkeypatch):
    monkeypatch.setattr(replay, "_PART", 5)
    present = Present(0.0, (15,), ((0,),), (4,), (), (Waiting(3, 0, 50.0, 0.0),) * 3000, (), {})
    drawn = Given(runs=[40.0] * 3000)
    parts = replay.replay(present, drawn, [OwnJob(3, 10.0, 10.0)])
    assert next(parts) >= 100, "the begin"
    assert all(5 <= next(parts) <= 15 for _ in range(3))
    parts.close()
    assert at_once(replay.replay(present, drawn, [OwnJob(3, 10.0, 10.0)])) == [Span(120_000.0, 120_010.0)]


def test_who_asks_for_more_nodes_than_a_number_holds_waits():
    present = Present(0.0, (3,), ((0,),), (2,), (), (Waiting(2**62, 0, 5.0, 0.0),), (), {})
    drawn = Given(runs=[5.0], arrivals=[Arrival(1.0, 2**61, 0, 5.0, 5.0)])
    (span,) = at_once(replay.replay(present, drawn, [OwnJob(2, 1.0, 1.0)]))
    assert span.start == 0.0


@pytest.mark.parametrize(
    ("ends", "runs", "area", "said"),
    [
        ([1.0], [5.0], 0, "as many jobs as its present"),
        ([], [], 0, "as many jobs as its present"),
        ([], [5.0], 1, "an area that there is"),
        ([], [5.0], -1, "an area that there is"),
    ],
)
def test_a_future_that_does_not_fit_is_refused(ends, runs, area, said):
    present = Present(0.0, (3,), ((0,),), (1,), (), (Waiting(2, 0, 5.0, 0.0),), (), {})
    drawn = Given(ends, runs, [Arrival(1.0, 1, area, 5.0, 5.0)])
    with pytest.raises(ValueError, match=said):
        at_once(replay.replay(present, drawn, [OwnJob(2, 1.0, 1.0)]))


def test_columns_of_different_lengths_and_places_that_are_not_there_are_refused():
    class Odd(Given):
        def arrivals(self, part):
            return Arrivals(np.ones(2), np.ones(1, np.int64), np.zeros(2, np.int64), np.ones(2), np.ones(2))

    present = Present(0.0, (3,), ((0,),), (1,), (), (Waiting(2, 0, 5.0, 0.0),), (), {})
    with pytest.raises(ValueError, match="of one length"):
        at_once(replay.replay(present, Odd(runs=[5.0]), [OwnJob(2, 1.0, 1.0)]))
    with pytest.raises(ValueError, match="none of these numbers"):
        at_once(replay.replay_queue(present, Given(runs=[5.0]), [1]))
