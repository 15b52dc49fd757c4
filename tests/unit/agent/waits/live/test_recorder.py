"""What became of the cluster's jobs is kept in the state file, for the agent and for commands."""

from __future__ import annotations

import asyncio

import pytest
from factories import ManualClock

from penstock.api import AccountingRecord, JobState
from penstock.future.past import ENOUGH, QueuePast
from penstock.state.store import Store
from penstock.waits.live.recorder import Recorder, keep_used, past_in
from penstock_lab.testing import make_job, make_snapshot


@pytest.fixture
def store():
    opened = Store(":memory:")
    yield opened
    opened.close()


def watched(store, seconds, say=lambda key, why: None):
    """A recorder that has seen so many seconds of a queue whose one job has run half of its limit."""
    clock = ManualClock(0.0)
    recorder = Recorder(store, clock, say)
    recorder.start("here")
    job = make_job(1, "n1", state=JobState.COMPLETED, submit=10.0, start=20.0, end=70.0, time_limit=100.0)
    for at in range(0, seconds, 100):
        clock.at = float(at)
        assert asyncio.run(recorder.reconcile(make_snapshot([job], at=clock.at))) == []
    return recorder


def test_what_was_seen_is_there_for_the_next_agent_and_for_a_command(store):
    recorder = watched(store, 4000)
    look = make_snapshot(at=4000.0)
    assert recorder.past(look).used == (0.5,) and recorder.past(look).hours == (0,)
    assert past_in(store, "here", look).used == (0.5,), "saved after an hour"
    recorder.close()
    again = Recorder(store, ManualClock(4000.0))
    again.start("here")
    assert again.past(look) == recorder.past(look) == past_in(store, "here", look)
    assert past_in(store, "elsewhere", look) == QueuePast()


def test_a_command_has_it_as_soon_as_it_is_enough(store):
    recorder = Recorder(store, ManualClock(0.0))
    recorder.start("here")
    for count in (ENOUGH - 1, ENOUGH):
        over = [
            make_job(i, "n1", state=JobState.COMPLETED, submit=10.0, start=20.0, end=70.0, time_limit=100.0)
            for i in range(count)
        ]
        assert asyncio.run(recorder.reconcile(make_snapshot(over, at=100.0 + count))) == []
        assert recorder.knows() == (count == ENOUGH)
        assert len(past_in(store, "here", make_snapshot()).used) == (ENOUGH if count == ENOUGH else 0)
    again = Recorder(store, ManualClock(0.0))
    keep_used(store, [], 5.0)
    assert not again.knows()


def test_accounting_counts_for_the_users_own(store):
    records = [
        AccountingRecord(i, "j", "alice", "batch", "q", "a", JobState.COMPLETED, 0, 0.0, 0.0, 10.0, 40.0, 120.0, 1)
        for i in range(3)
    ]
    keep_used(store, records, 5.0)
    assert past_in(store, "here", make_snapshot()) == QueuePast(used=(0.25,) * 3, own=(0.25,) * 3)


def test_what_cannot_be_read_is_kept_aside_and_hurts_nobody(store):
    store.learning.save_learned("queue-past here", {"version": 99}, 1.0)
    store.learning.save_learned("used of limits", {"version": 1, "used": "?"}, 1.0)
    assert past_in(store, "here", make_snapshot()) == QueuePast()
    said = []
    watched(store, 100, lambda key, why: said.append((key, why))).close()
    assert said[0][0] == "queue-past here" and "version 99" in said[0][1]
    assert store.learning.learned("aside 0 queue-past here") == {"version": 99}
    assert past_in(store, "here", make_snapshot()).used == (0.5,)


def test_the_end_of_an_agent_that_may_not_write_any_more_is_no_error(store):
    recorder = watched(store, 200)
    store.close()
    recorder.close()
