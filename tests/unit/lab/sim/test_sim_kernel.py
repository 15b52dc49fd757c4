"""The compiled kernel starts every job of a trace when the reference does."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.library import KERNEL, WHY_NOT
from penstock_lab.sim import replay
from penstock_lab.sim.trace import Trace


@pytest.fixture(scope="module", autouse=True)
def kernel():
    assert KERNEL is not None, f"these tests need the kernel: {WHY_NOT}"


@st.composite
def traces(draw):
    """Small machines and times, so that much happens in the same second; estimates that are exact, or too long."""
    procs = draw(st.integers(1, 12))
    job = st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(1, procs), st.sampled_from([0, 0, 1, 5, 30]))
    jobs = draw(st.lists(job, min_size=1, max_size=60))
    return procs, Trace.of((i, at, run, width, run + more) for i, (at, run, width, more) in enumerate(jobs))


@given(traces(), st.sampled_from(["conservative", "replan"]), st.sampled_from(replay.TIES))
def test_jobs_start_when_the_reference_says(made, policy, ties):
    procs, trace = made
    by_kernel = replay.replay(trace, procs, policy, ties)
    with patch.object(replay, "KERNEL", None):
        assert by_kernel == replay.replay(trace, procs, policy, ties)


def test_a_trace_of_more_kinds_of_jobs_than_are_remembered():
    """All wait for a job that takes the whole machine, each for another number of processors and seconds."""
    waiting = ((i, 1, 5 + i % 50, 1 + i % 99, 100 + i) for i in range(1, 700))
    trace = Trace.of([(0, 0, 50, 100, 60), *waiting])
    by_kernel = replay.replay(trace, 100, "replan", "batch")
    with patch.object(replay, "KERNEL", None):
        assert by_kernel == replay.replay(trace, 100, "replan", "batch")


def test_an_empty_trace_is_nothing():
    assert len(replay.replay(Trace(), 4, "conservative")) == 0
