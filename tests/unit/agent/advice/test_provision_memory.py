"""Less memory from past runs: which runs count, how risky it is, and when nothing is said."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.advice.advice import JobKind
from penstock.advice.memory import PastMemory, advise_memory, past_memory
from penstock.api import AccountingRecord, JobState

GIB, STEP = 2.0**30, 64 * 2.0**20
DONE, CUT, FAILED, OOM = JobState.COMPLETED, JobState.TIMEOUT, JobState.FAILED, JobState.OUT_OF_MEMORY


def past(used, asked=16 * GIB):
    return PastMemory(JobKind("train", "batch", 2), tuple(used), asked)


def record(number, state=DONE, name="train_1"):
    times = (0.0, 0.0, 10.0 * number, 10.0 * number + 5, 3600.0, 2)
    return AccountingRecord(number, name, "alice", "batch", "", "", state, 0, *times)


def test_ninety_nine_runs_carry_one_percent():
    found = advise_memory(past([GIB] * 99), 0.01)
    assert (found.memory, found.risk) == (18 * STEP, 0.01), "1 GiB and a tenth, in steps of 64 MiB"
    few = advise_memory(past([GIB] * 98), 0.01)
    assert few.memory is None and few.risk == pytest.approx(1 / 99)


def test_a_run_that_ran_out_of_it_needed_more_than_anything():
    assert advise_memory(past([GIB] * 98 + [math.inf]), 0.01).memory is None
    assert advise_memory(past([GIB] * 98 + [math.inf]), 0.05).risk == pytest.approx(0.02)
    assert advise_memory(past([math.inf] * 9), 0.5).risk == 1.0


def test_what_is_hardly_less_is_not_worth_it_and_without_what_was_asked_nothing_is_said():
    assert advise_memory(past([GIB] * 99, asked=1.2 * GIB), 0.01).memory is None
    assert advise_memory(past([GIB] * 99, asked=1.3 * GIB), 0.01).memory == 18 * STEP
    assert advise_memory(past([GIB] * 99, asked=None), 0.01).memory is None


def test_which_runs_count():
    jobs = [record(1), record(2, CUT), record(3, FAILED), record(4, OOM), record(5), record(6, name="other")]
    memory = {1: (8.0, 1.0), 2: (8.0, 2.0), 3: (8.0, 3.0), 4: (8.0, 4.0), 5: (9.0, None)}
    train, other = past_memory(jobs, memory)
    assert (train.kind.name, train.used, train.asked, train.unknown) == ("train_#", (1.0, 2.0, math.inf), 9.0, 1)
    assert (other.used, other.asked, other.unknown) == ((), None, 1)


@given(
    st.lists(st.floats(1e6, 1e11), min_size=1, max_size=150), st.sampled_from([0.01, 0.05, 0.2]), st.floats(1e6, 1e11)
)
def test_what_is_suggested_keeps_the_risk_and_is_less(used, risk, asked):
    found = advise_memory(past(used, asked), risk)
    if found.memory is not None:
        over = sum(each * 1.1 > found.memory for each in used)
        assert found.memory <= 0.9 * asked and found.memory % STEP == 0
        assert (over + 1) / (len(used) + 1) <= found.risk + 1e-12 and found.risk <= risk
