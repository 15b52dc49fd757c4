"""What happens when in a soak on a real Slurm; the clock is made up."""

from __future__ import annotations

import random

import pytest

from penstock_lab.soak import agenda


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(agenda.time, "time", lambda: now[0])
    return now


def test_what_is_due_is_done_in_order_and_once(clock):
    done = []
    ahead = agenda.Agenda(random.Random(1), 1000.0)
    ahead.at(120.0, lambda: done.append("b"))
    ahead.at(110.0, lambda: done.append("a"))
    ahead.due()
    assert done == []
    clock[0] = 120.0
    ahead.due()
    ahead.due()
    assert done == ["a", "b"]


def test_what_comes_again_does_so_until_the_end(clock):
    times = []
    ahead = agenda.Agenda(random.Random(1), 200.0)
    ahead.again(5.0, lambda: times.append(clock[0]))
    while clock[0] < 300.0:
        clock[0] += 0.5
        ahead.due()
    assert len(times) > 8 and times[-1] <= 200.0 + 60.0
    assert sum(t > 200.0 for t in times) <= 1


def test_so_many_are_spread_and_none_after_clear(clock):
    done = []
    ahead = agenda.Agenda(random.Random(1), 200.0)
    ahead.spread(5, 50.0, lambda: done.append(1))
    clock[0] = 151.0
    ahead.due()
    assert len(done) == 5
    ahead.spread(5, 50.0, lambda: done.append(1))
    ahead.clear()
    clock[0] = 300.0
    ahead.due()
    assert len(done) == 5
