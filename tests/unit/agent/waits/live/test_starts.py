"""Starts of jobs that were just submitted are expected and judged; what was missed is kept for commands."""

from __future__ import annotations

import asyncio

import pytest
from factories import ManualClock

from penstock.api import JobState
from penstock.future.past import ENOUGH, QueuePast
from penstock.state.store import Store
from penstock.waits.live import starts
from penstock.waits.live.starts import StartWatch, misses_in
from penstock_lab.testing import make_job, make_snapshot

PAST = QueuePast((0.5,) * ENOUGH)


@pytest.fixture
def store():
    opened = Store(":memory:")
    yield opened
    opened.close()


class Watched:
    """A watch that is shown one picture after the other: all eight nodes run for a while, and others wait for them."""

    def __init__(self, store, past=PAST, say=lambda key, why: None, knows=True):
        self.clock, self.gathered = ManualClock(0.0), 0

        def gather(snapshot):
            self.gathered += 1
            return past

        self.watch = StartWatch(store, self.clock, gather, lambda: knows, say)
        self.watch.start("here")

    async def see(self, at, *jobs):
        self.clock.at = float(at)
        nodes = [f"n{i}" for i in range(1, 9)]
        running = make_job(1, *nodes, start=-100.0, end=500.0, time_limit=600.0, submit=-200.0)
        assert await self.watch.reconcile(make_snapshot([running, *jobs], at=float(at))) == []
        if self.watch._task is not None:
            await self.watch._task

    def show(self, *pictures):
        async def all_of_them():
            for at, *jobs in pictures:
                await self.see(at, *jobs)
            await self.watch.close()

        asyncio.run(all_of_them())


def waiting(number, submit, **more):
    return make_job(number, num_nodes=2, submit=float(submit), time_limit=60.0, **more)


def started(number, at, **more):
    return make_job(number, "n1", "n2", start=float(at), end=at + 60.0, time_limit=60.0, submit=0.0, **more)


def test_one_a_minute_is_expected_and_judged_when_it_has_started(store):
    world = Watched(store)
    world.show(
        (10, waiting(2, 9)),
        (20, waiting(2, 9), waiting(3, 19)),  # too soon after the one before
        (75, waiting(2, 9), waiting(3, 19), waiting(4, 70)),
        (300, started(2, 290), waiting(3, 19), waiting(4, 70)),
        (330, started(2, 290), started(3, 320), started(4, 325)),
    )
    assert len(misses_in(store, "here")) == 2 and len(misses_in(store, "elsewhere")) == 0
    again = Watched(store)
    assert again.watch._misses.to_state() == world.watch._misses.to_state()


def test_who_is_gone_or_has_something_else_to_wait_for_is_not_judged(store):
    world = Watched(store)
    world.show(
        (10, waiting(2, 9, reason="Licenses")),
        (80, waiting(3, 20, tasks=5)),
        (150, waiting(4, 5)),  # not new any more
        (220, waiting(5, 215)),
        (300,),
        (370, waiting(6, 365)),
        (400, started(6, 380, state=JobState.COMPLETED)),  # when it started is not what Slurm foresaw, but it is over
    )
    assert len(misses_in(store, "here")) == 0


def test_without_history_or_in_a_deep_queue_nothing_is_expected(store, monkeypatch):
    new = Watched(store, QueuePast(), knows=False)
    new.show((10, waiting(2, 9)), (300, started(2, 290)))
    assert new.gathered == 0, "that takes a while, and is for nothing"
    monkeypatch.setattr(starts, "_WORK", 1.0)
    Watched(store).show((10, waiting(2, 9), waiting(3, 8)), (300, started(2, 290), waiting(3, 8)))
    assert len(misses_in(store, "here")) == 0


def test_an_error_hurts_nobody(store, monkeypatch):
    monkeypatch.setattr(starts, "likely_starts", lambda *_: 1 / 0)
    Watched(store).show((10, waiting(2, 9)), (300, started(2, 290)))
    assert len(misses_in(store, "here")) == 0


def test_what_cannot_be_read_is_kept_aside(store):
    store.learning.save_learned("start-misses here", {"version": 99}, 1.0)
    assert len(misses_in(store, "here")) == 0
    said = []
    Watched(store, say=lambda key, why: said.append((key, why)))
    assert said[0][0] == "start-misses here" and "version 99" in said[0][1]
