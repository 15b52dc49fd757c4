"""Jobs that may start before their parents have ended, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mock_world import World, spec


def guarded(parent, grace, seconds=10.0, limit=10_000.0, **more):
    job = spec(seconds, limit=limit, **more)
    return replace(job, script=f"{job.script}#PENSTOCK-GUARD jobs={parent} grace={grace}\n")


def test_the_work_begins_when_the_parent_has_completed():
    w = World()
    parent = w.submit(50)
    child = w.do("submit", guarded(parent, 300))
    w.to(49)
    assert w.state(child) == "RUNNING"
    w.to(100)
    assert w.state(child) == "COMPLETED"
    assert 60 <= w.engine.records[child].end <= 61


def test_a_parent_that_failed_ends_it():
    w = World()
    parent = w.submit(50, exit=3)
    child = w.do("submit", guarded(parent, 300))
    w.to(60)
    record = w.engine.records[child].record()
    assert (record.state, record.exit_code) == ("FAILED", 65)


@pytest.mark.parametrize(("requeue", "state"), [(False, "FAILED"), (True, "PENDING")])
def test_the_grace_runs_out(requeue, state):
    w = World()
    parent = w.submit(5000, limit=10_000)
    child = w.do("submit", guarded(parent, 20, requeue=requeue))
    w.to(19)
    assert w.state(child) == "RUNNING"
    w.to(21)
    assert w.state(child) == state


@given(start=st.floats(0, 1e7), grace=st.floats(0.1, 600))
def test_the_grace_runs_out_whatever_the_rounding(start, grace):
    """(start + grace) - start may be less than grace: time would stand still."""
    w = World()
    w.to(start)
    parent = w.submit(5000, limit=10_000)
    child = w.do("submit", guarded(parent, grace))
    w.to(start + grace + 1)
    assert w.state(child) == "FAILED"
