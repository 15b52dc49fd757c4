"""Shorter limits from past runs: how risky they are, and when nothing is said."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.advice.advice import JobKind, PastRuns, advise, past_runs, runs_needed
from penstock.advice.commands.shortening import of_the_user
from penstock.api import AccountingRecord, JobState

KIND = JobKind("train", "batch", 2)
DONE, CUT, FAILED = JobState.COMPLETED, JobState.TIMEOUT, JobState.FAILED


def runs(took, limit=8 * 3600.0):
    return PastRuns(KIND, tuple(took), limit)


def record(number, took=600.0, name="train", state=DONE, limit=3600.0, nodes=2, **more):
    values = {"start": 1e6 * number, "end": 1e6 * number + took, **more}
    return AccountingRecord(
        number,
        name,
        "alice",
        "batch",
        "normal",
        "lab",
        state,
        0,
        0.0,
        0.0,
        values["start"],
        values["end"],
        limit,
        nodes,
    )


def test_ninety_nine_runs_carry_one_percent():
    found = advise(runs([60.0 * i for i in range(1, 100)]), 0.01)
    assert (found.limit, found.risk) == (99 * 60.0, 0.01)
    few = advise(runs([60.0 * i for i in range(1, 99)]), 0.01)
    assert few.limit is None and few.risk == pytest.approx(1 / 99)
    assert [runs_needed(risk) for risk in (0.01, 0.05, 0.1, 0.5)] == [99, 19, 9, 1]


def test_the_shortest_limit_that_the_risk_allows_in_whole_minutes():
    found = advise(runs([601.0] * 18 + [7000.0]), 0.1)
    assert (found.limit, found.risk) == (660.0, 0.1)
    assert advise(runs([601.0] * 18 + [7000.0]), 0.05).limit == 7020.0
    assert advise(runs([5.0] * 19), 0.05).limit == 60.0


def test_a_run_that_was_cut_off_would_have_taken_longer_than_anything():
    assert advise(runs([600.0] * 19), 0.05).limit == 600.0
    assert advise(runs([600.0] * 18 + [math.inf]), 0.05).limit is None
    assert advise(runs([math.inf] * 3), 0.5).risk == 1.0


def test_a_limit_that_is_hardly_shorter_is_not_worth_it():
    assert advise(runs([3300.0] * 99, limit=3600.0), 0.01).limit is None
    assert advise(runs([3200.0] * 99, limit=3600.0), 0.01).limit == 3240.0
    assert advise(runs([4000.0] * 99, limit=3600.0), 0.01).limit is None


def test_jobs_of_one_name_but_for_numbers_are_runs_of_one_work():
    jobs = [record(i, name=f"fold_{i}.run") for i in range(1, 4)]
    jobs += [record(9, name="fold_9.run", nodes=4), record(10, name="other"), record(11, state=FAILED)]
    jobs += [record(12, state=CUT), record(13, start=None, end=None), record(14, limit=None)]
    found = past_runs(jobs)
    assert [(r.kind.name, r.kind.nodes, r.took) for r in found] == [
        ("fold_#.run", 2, (600.0,) * 3),
        ("fold_#.run", 4, (600.0,)),
        ("other", 2, (600.0,)),
        ("train", 2, (math.inf,)),
    ]


def test_the_latest_runs_and_the_latest_limit_count():
    old = [record(i, took=5000.0, limit=7200.0) for i in range(1, 50)]
    (found,) = past_runs([*old, *(record(i, limit=3600.0) for i in range(50, 350))][::-1])
    assert (len(found.took), max(found.took), found.limit) == (300, 600.0, 3600.0)


@given(
    st.lists(st.floats(1, 30000), min_size=1, max_size=150), st.sampled_from([0.01, 0.05, 0.2]), st.floats(60, 40000)
)
def test_what_is_suggested_keeps_the_risk_and_is_shorter(took, risk, limit):
    found = advise(runs(took, limit), risk)
    over = sum(time > found.limit for time in took) if found.limit is not None else None
    if over is not None:
        assert found.limit <= 0.9 * limit and found.limit % 60 == 0
        assert (over + 1) / (len(took) + 1) == pytest.approx(found.risk) and found.risk <= risk
    elif len(took) >= runs_needed(risk):
        assert math.ceil(sorted(took)[len(took) - int(risk * (len(took) + 1) + 1e-9)] / 60) * 60 > 0.9 * limit


def test_of_runs_like_those_before_as_many_are_cut_off_as_was_said():
    draw, cut, said = random.Random(1), 0, 0.0
    for _ in range(4000):
        took = [draw.lognormvariate(7, 1) for _ in range(40)]
        found = advise(runs(took[:-1], 1e9), 0.05)
        cut, said = cut + (took[-1] > found.limit), said + found.risk
    assert cut <= said + 3 * math.sqrt(said), "limits are whole minutes, so rather fewer"


def test_jobs_that_penstock_got_for_a_pool_are_left_out():
    names = ("penstock-pool-main-1a2b-3", "penstock-pool-x-1", "pool", "train")
    kept = of_the_user([record(i, name=name) for i, name in enumerate(names)])
    assert [each.name for each in kept] == ["pool", "train"]
