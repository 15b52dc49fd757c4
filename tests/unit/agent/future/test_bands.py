"""Expected starts: promised by limits, likely by drawn futures, and bands that learn from what they missed."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.pace import at_once
from penstock.future.bands import (
    FUTURES,
    Band,
    Misses,
    band_of,
    drawn_starts,
    guaranteed_start,
    guaranteed_starts,
    likely_starts,
    queue_starts,
)
from penstock.future.drawn import OwnJob
from penstock.future.draws import Drawing
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.present import Present, Running, Waiting

USER = "alice"


def present(free=0):
    """Four nodes run for an hour from 0 on, a job of all of them waits for another hour."""
    nodes = 4 - free
    running = (Running((nodes,), 0.0, 3600.0, 3600.0, user=USER),)
    return Present(0.0, (1,), ((0,),), (free,), running, (Waiting(4, 0, 3600.0, 0.0, USER),), (), {"batch": 0})


def test_what_limits_promise_and_what_is_likely():
    assert at_once(guaranteed_start(present(), 2, 600.0)) == 7200.0
    assert at_once(guaranteed_start(present(), 5, 600.0)) == math.inf
    past = QueuePast((0.5,) * ENOUGH, by_user={USER: (0.25,) * 9 + (0.5,)})
    starts = at_once(likely_starts(present(), past, 2, 600.0))
    assert starts == sorted(starts) and len(starts) == FUTURES
    assert set(starts) <= {1800.0, 2700.0, 3600.0}
    assert band_of(starts, 0.0).likely == 1800.0, "each of the two runs a quarter of its hour, as the user's others did"
    assert at_once(likely_starts(present(free=2), past, 2, 600.0)) == [0.0] * FUTURES, "it can begin at once"


def test_those_who_wait_start_where_a_job_like_them_would_and_jobs_after_others_later():
    past = QueuePast((0.5,) * ENOUGH, by_user={USER: (0.25,) * 9 + (0.5,)})
    here = present()
    longer = Present(
        0.0, (1,), ((0,),), (0,), here.running, (*here.waiting, Waiting(2, 0, 600.0, 0.0, "bob")), (), {"batch": 0}
    )
    first, second = at_once(queue_starts(Drawing(longer, past, 0), [0, 1]))
    assert set(first) <= {900.0, 1800.0} and first[0] == 900.0, "when the running one ends"
    assert set(second) <= {1800.0, 2700.0, 3600.0}, "as one that is submitted now"
    assert at_once(queue_starts(Drawing(longer, past, 0), [1])) == [second]
    chain = [OwnJob(2, 600.0, 300.0), OwnJob(1, 600.0, 300.0, (0,))]
    assert at_once(guaranteed_starts(here, [OwnJob(2, 600.0, 600.0), OwnJob(1, 600.0, 600.0, (0,))])) == [
        7200.0,
        7800.0,
    ]
    starts = at_once(drawn_starts(Drawing(here, past, 0), lambda _draw: chain))
    own = at_once(likely_starts(here, past, 2, 600.0))
    assert starts == [own, [at + 300.0 for at in own]]


def test_in_a_deep_queue_futures_are_fewer_and_at_last_none():
    past = QueuePast((0.5,) * ENOUGH)
    all_of_them = likely_starts(present(), past, 2, 600.0)
    work = 0
    try:
        while True:
            work += next(all_of_them)
    except StopIteration as end:
        assert len(end.value) == FUTURES
    assert 20 <= len(at_once(likely_starts(present(), past, 2, 600.0, work=0.7 * work))) < FUTURES
    assert len(at_once(likely_starts(present(), past, 2, 600.0, work=0.52 * work))) >= 20
    assert at_once(likely_starts(present(), past, 2, 600.0, work=0.1 * work)) == []


def test_a_band_is_widened_on_both_sides_and_begins_not_before_now():
    starts = [float(at) for at in range(1000, 1100)]
    assert band_of(starts, 0.0) == Band(1005.0, 1050.0, 1095.0)
    assert band_of(starts, 0.0, 1.0) == Band(945.0, 1050.0, 1155.0), "half a band is a minute at least"
    assert band_of(starts, 1001.0, 9.0).low == 1001.0
    assert band_of(starts, 0.0, -5.0) == Band(1050.0, 1050.0, 1050.0)
    assert band_of([5.0, math.inf, math.inf], 0.0) == Band(5.0, math.inf, math.inf)
    assert band_of([5.0, 6.0, math.inf], 0.0, 1.0).high == math.inf


@given(st.integers(0, 2**32), st.floats(0.2, 3.0))
def test_bands_hold_nine_in_ten_in_the_long_run_however_wrong_the_draws_are(seed, wrong):
    """Starts vary `wrong` times as much as what is drawn."""
    rng = random.Random(seed)
    misses, held = Misses(), []
    for i in range(600):
        drawn = band_of(sorted(rng.gauss(10_000.0, 1000.0) for _ in range(FUTURES)), 0.0)
        start = rng.gauss(10_000.0, 1000.0 * wrong)
        below, above = misses.wider * (drawn.likely - drawn.low), misses.wider * (drawn.high - drawn.likely)
        if i >= 200:
            held.append(drawn.low - below <= start <= drawn.high + above)
        misses.judge(drawn, start)
    assert 0.8 < sum(held) / len(held) < 0.97


def test_a_band_is_twice_as_wide_before_enough_is_known():
    misses = Misses()
    for _ in range(19):
        misses.judge(Band(900.0, 1000.0, 1100.0), 1300.0)
    assert misses.wider == 1.0
    misses.judge(Band(900.0, 1000.0, 1100.0), 700.0)
    assert misses.wider == 2.0
    misses.judge(Band(5.0, math.inf, math.inf), 100.0)
    misses.judge(Band(900.0, 1000.0, math.inf), 5000.0)
    assert len(misses) == 22 and misses.wider == 2.0


def test_what_was_missed_survives_and_what_is_damaged_is_refused():
    misses, again = Misses(), Misses()
    for i in range(250):
        misses.judge(Band(900.0, 1000.0, 1100.0), 1100.0 + i)
    again.restore(json.loads(json.dumps(misses.to_state())))
    assert len(again) == 200 and again.wider == misses.wider
    for wrong in (
        {},
        {"version": 2, "misses": []},
        {"version": 1, "misses": ["x"]},
        {"version": 1, "misses": [math.nan]},
    ):
        with pytest.raises(ValueError, match="bands of starts"):
            again.restore(wrong)
    assert again.wider == misses.wider
