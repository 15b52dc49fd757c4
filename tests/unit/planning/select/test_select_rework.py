"""What preemption costs: the formula against simulated interruptions, and how often they come."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_planning.select.consumables import Capability, Consumable, Requirement, Resource, Task
from penstock_planning.select.ranking import rank
from penstock_planning.select.rework import expected_rework, rate_of


def simulated(run: float, rate: float, again: float, checkpoint: float | None, draw: random.Random) -> float:
    """Seconds until it is done, once."""
    clock = done = 0.0
    while done < run:
        piece = run - done if checkpoint is None else min(checkpoint, run - done)
        lasts = draw.expovariate(rate)
        if lasts >= piece:
            clock, done = clock + piece, done + piece
        else:
            clock += lasts + again
    return clock


@pytest.mark.parametrize(
    ("run", "rate", "again", "checkpoint"),
    [(3600.0, 1 / 7200, 600.0, None), (3600.0, 1 / 1800, 0.0, None), (7200.0, 1 / 1800, 300.0, 600.0)],
)
def test_the_formula_is_the_mean_of_simulated_interruptions(run, rate, again, checkpoint):
    draw = random.Random(1)
    times = [simulated(run, rate, again, checkpoint, draw) for _ in range(20_000)]
    mean = sum(times) / len(times)
    spread = math.sqrt(sum((t - mean) ** 2 for t in times) / len(times) ** 2)
    assert abs(run + expected_rework(run, rate, again, checkpoint) - mean) < 4 * spread


@given(st.floats(1, 1e5), st.floats(1e-7, 1e-3), st.floats(0, 1e4), st.floats(1, 1e5))
def test_it_costs_something_and_less_with_checkpoints(run, rate, again, checkpoint):
    plain, saved = expected_rework(run, rate, again), expected_rework(run, rate, again, checkpoint)
    assert 0 <= saved <= plain * (1 + 1e-9) + 1e-6
    assert expected_rework(run, 0.0, again) == 0.0
    assert expected_rework(run, rate, again + 60.0) >= plain


def test_what_is_interrupted_too_often_is_never_done():
    assert expected_rework(1e6, 1.0, 0.0) == math.inf
    assert expected_rework(math.inf, 1e-3, 0.0) == math.inf
    assert expected_rework(1e6, 1.0, 0.0, checkpoint=0.5) < math.inf


def test_how_often_from_runs():
    assert rate_of([]) is None and rate_of([(3600.0, False)] * 50) is None
    assert rate_of([(1800.0, True), (5400.0, False)]) == pytest.approx(1.5 / 7200)
    assert rate_of([(0.0, True)]) is None


def test_a_shorter_queue_may_not_be_worth_being_preempted():
    task = Task("t", ((Requirement(Consumable.of("compute"), 3600.0),),))
    here, there = (Resource(name, (Capability(Consumable.of("compute"), 1.0),)) for name in ("calm", "cheap"))
    assert [row.resource for row in rank(task, [there, here], {})] == ["cheap", "calm"]
    again = rank(task, [there, here], {}, more={"cheap": 100.0})
    assert [(row.resource, row.ttc) for row in again] == [("calm", 3600.0), ("cheap", 3700.0)]
