"""Starts of those who wait: likely ones beside those that limits promise, by name, in each part of the cluster."""

from __future__ import annotations

import math

from penstock.api import Partition
from penstock.core.pace import at_once
from penstock.future import replay
from penstock.future.bands import Band
from penstock.future.past import ENOUGH, QueuePast
from penstock.future.queued import DEEP, FEW, QueueStart, likely_queue, within
from penstock_lab.testing import NODES, make_job, make_snapshot

NOW = 1_000_000.0
PAST = QueuePast((0.5,) * ENOUGH)


def snapshot(*waiting, partitions=None):
    """Six of eight nodes run for ten minutes more of twenty."""
    running = make_job(1, *NODES[:6], start=NOW - 600.0, end=NOW + 600.0, time_limit=1200.0)
    made = make_snapshot([running, *waiting], at=NOW)
    if partitions:
        object.__setattr__(made, "partitions", partitions)
    return made


def show(at):
    return f"{at - NOW:g}"


def test_who_waits_has_a_band_not_beyond_what_limits_promise():
    waiting = make_job(2, num_nodes=4, time_limit=300.0)
    found = at_once(likely_queue(snapshot(waiting), {"2": NOW + 600.0}, PAST, wider=0.0))
    assert (found.at, found.why) == (NOW, "")
    band = found.bands["2"]
    assert NOW <= band.low <= band.likely <= band.high <= NOW + 600.0
    assert band.likely < NOW + 600.0


def test_tasks_of_an_array_go_by_their_own_names_and_who_never_starts_is_not_looked_at():
    array, huge = make_job(3, num_nodes=4, time_limit=300.0, tasks=2), make_job(4, num_nodes=99)
    guaranteed = {"3_0": NOW + 600.0, "3_1": NOW + 900.0, "4": math.inf}
    found = at_once(likely_queue(snapshot(array, huge), guaranteed, PAST, wider=1.0)).bands
    assert sorted(found) == ["3_0", "3_1"]
    assert found["3_0"].likely <= found["3_1"].likely


def test_parts_of_a_cluster_that_share_no_nodes_are_looked_at_each():
    partitions = {
        name: Partition(name, nodes, True, name == "batch", None, 3600.0, None)
        for name, nodes in (("batch", NODES[:4]), ("other", NODES[4:]))
    }
    waiting = [make_job(2, num_nodes=1, time_limit=60.0), make_job(3, num_nodes=3, time_limit=60.0, partition="other")]
    found = at_once(
        likely_queue(snapshot(*waiting, partitions=partitions), {"2": NOW + 600.0, "3": NOW + 600.0}, PAST, 0.0)
    )
    assert sorted(found.bands) == ["2", "3"]


def test_too_little_is_known_or_the_queue_is_too_deep():
    waiting = make_job(2, num_nodes=4, time_limit=300.0)
    few = at_once(likely_queue(snapshot(waiting), {"2": NOW + 600.0}, QueuePast(), 0.0))
    assert (dict(few.bands), few.why) == ({}, FEW)
    deep = at_once(likely_queue(snapshot(waiting), {"2": NOW + 600.0}, PAST, 0.0, work=1))
    assert (dict(deep.bands), deep.why) == ({}, DEEP)


def test_of_a_long_queue_the_first_ones_are_known(monkeypatch):
    monkeypatch.setattr(replay, "KERNEL", None)  # by which so short a queue costs as much as its first jobs
    waiting = [make_job(number, num_nodes=8, time_limit=600.0, priority=1000 - number) for number in range(2, 62)]
    guaranteed = {str(number): NOW + 600.0 * (number - 1) for number in range(2, 62)}
    everything, work = likely_queue(snapshot(*waiting), guaranteed, PAST, 0.0), 0
    while True:
        try:
            work += next(everything)
        except StopIteration as end:
            assert (len(end.value.bands), end.value.why) == (60, "")
            break
    some = at_once(likely_queue(snapshot(*waiting), guaranteed, PAST, 0.0, work=0.4 * work))
    assert (len(some.bands) in (15, 40), some.why) == (True, DEEP)
    assert list(some.bands) == [str(number) for number in range(2, 2 + len(some.bands))]


def test_the_words():
    band = Band(NOW + 10, NOW + 20, NOW + 90)
    assert within(band, NOW + 30) == Band(NOW + 10, NOW + 20, NOW + 30)
    told = QueueStart(NOW + 90, band)
    assert told.line(show) == (
        "In the queue such a job starts at 90 by everybody's time limits, likely at 20 (9 in 10: 10 to 90)."
    )
    assert QueueStart(math.inf, None, FEW).line(show) == (
        f"In the queue such a job never starts by everybody's time limits; when it likely does is not known: {FEW}."
    )
    never = QueueStart(NOW + 90, Band(NOW, math.inf, math.inf))
    assert never.line(show).endswith("and likely not within 30 days.") and never.likely(show) == ""
    assert never.as_json() == {"guaranteed": NOW + 90, "low": NOW, "likely": None, "high": None}
