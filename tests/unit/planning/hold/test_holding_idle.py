"""When an idle job is submitted: by past waits, and never for longer than the partition gives."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Infeasible
from penstock_planning.hold.idle import idle_submission

NOW = 1_700_000_000.25
START, HOUR = 1_700_007_200, 3600.0


class Past:
    """A cluster on which jobs of one node have waited so long."""

    def __init__(self, *waits):
        self.waits = waits

    def now(self):
        return NOW

    async def history(self, since):
        return [
            SimpleNamespace(time_limit=HOUR, num_nodes=1, start=since + wait, eligible=since) for wait in self.waits
        ]


def submission(*waits, longest=None, duration=HOUR, budget=1e6):
    return asyncio.run(idle_submission(Past(*waits), 1, START, duration, longest, budget))


def test_without_a_wait_to_learn_from_there_is_none():
    with pytest.raises(Infeasible, match="accounting knows of no wait of yours in 30 days"):
        submission()


def test_the_chance_and_the_idling_are_those_of_waits_like_it():
    found = submission(*[600.0] * 30, *[1200.0] * 10, *[9 * HOUR] * 9)
    assert (found.at, found.chance) == (NOW, 40 / 50)
    assert found.idle == pytest.approx(START - NOW - 750) and found.idle_most == START - NOW


@given(
    st.lists(st.floats(0, 20 * HOUR), min_size=1, max_size=30),
    st.floats(1, 3 * HOUR),
    st.floats(60, 5 * HOUR),
    st.sampled_from([None, 2 * HOUR, 24 * HOUR]),
)
@settings(max_examples=300)
def test_no_idle_budget_is_ever_exceeded(waits, budget, duration, longest):
    """However soon the job begins: it is not submitted before it could idle for longer."""
    found = submission(*waits, longest=longest, duration=duration, budget=budget)
    if found is not None:
        assert max(START - budget, NOW) <= found.at < START
        assert 0 <= found.idle <= found.idle_most <= budget + 1e-6 and 0 < found.chance < 1
        assert found.run_time == pytest.approx(duration + START - found.at)


def test_ten_thousand_requests_stay_within_their_budgets():
    draw, held = random.Random(3), 0
    for _ in range(10_000):
        waits = [draw.expovariate(1 / 1800) for _ in range(draw.randint(1, 20))]
        duration, share = draw.uniform(300, 4 * HOUR), draw.choice([0.1, 0.5, 1.0])
        found = submission(*waits, duration=duration, budget=share * duration)
        if found is not None:
            held += 1
            began = min(START, found.at + draw.choice(waits))  # idles from then on, if it has begun in time
            assert (START - began) <= share * duration
    assert held > 5000


def test_it_is_not_submitted_if_no_instant_gives_it_any_chance():
    assert submission(*[9 * HOUR] * 20) is None, "golden case G8"


def test_it_asks_for_no_more_than_the_partition_gives():
    found = submission(*[60.0] * 20, longest=5400.0)
    assert found.at == START + HOUR - 5400 and found.run_time == 5400
    assert submission(*[60.0] * 20, longest=HOUR) is None, "there is no time to idle"


def test_what_waits_longer_than_the_partition_lets_it_idle_has_no_chance():
    assert submission(*[3600.0] * 20) is not None
    assert submission(*[3600.0] * 20, longest=5400.0) is None
