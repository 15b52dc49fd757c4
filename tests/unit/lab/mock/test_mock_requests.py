"""What the simulated Slurm answers to requests that are easily got wrong: holds, circles, times, estimates, history."""

from __future__ import annotations

from datetime import datetime

import pytest
from mock_world import World, spec

from penstock.errors import Infeasible, NotNow, NotPermitted
from penstock_lab.mock.begin import begin_time
from penstock_lab.mock.model import PartitionConfig

# -- holds -------------------------------------------------------------------------------------------------------


def test_the_priority_of_a_held_job_cannot_be_set():
    w = World()
    job = w.submit(hold=True)
    for user, priority in (("root", 777), ("alice", 1)):
        with pytest.raises((Infeasible, NotPermitted)):
            w.do("update", job, priority=priority, user=user)
    with pytest.raises(Infeasible, match="held state"):
        w.do("update", job, priority=777, time_limit=50.0, user="root")
    assert (w.view(job).priority, w.view(job).reason, w.view(job).time_limit) == (0, "JobHeldUser", 100.0)


@pytest.mark.parametrize("how", ["hold", "update"])
def test_an_operators_hold_of_a_held_job_is_the_operators(how):
    w = World(nodes=1)
    job = w.submit(hold=True)
    if how == "hold":
        w.do("hold", job, user="root")
    else:
        w.do("update", job, priority=0, user="root")
    assert w.view(job).reason == "JobHeldAdmin"
    with pytest.raises(NotPermitted):
        w.do("release", job)


@pytest.mark.parametrize("how", ["hold", "update"])
def test_an_owner_cannot_make_an_operators_hold_his_own(how):
    w = World(nodes=1)
    w.submit(500)
    job = w.submit()
    w.do("hold", job, user="root")
    if how == "hold":
        w.do("hold", job)
    else:
        w.do("update", job, priority=0)
    assert w.view(job).reason == "JobHeldAdmin"
    with pytest.raises(NotPermitted):
        w.do("release", job)


# -- dependencies ------------------------------------------------------------------------------------------------


def test_circles_are_refused():
    w = World()
    first = w.submit(hold=True)
    second = w.submit(dependency=f"afterok:{first}")
    third = w.submit(dependency=f"after:{second}")
    for text in (f"afterok:{second}", f"afterany:{third}", f"afterok:{third}?afterok:999"):
        with pytest.raises(Infeasible, match="dependency"):
            w.do("update", first, dependency=text)
    other = w.submit(hold=True)
    w.do("update", first, dependency=f"afterok:{other}")
    assert w.view(first).dependency == f"afterok:{other}(unfulfilled)"


def test_who_waits_for_a_struck_task_of_an_array_waits_no_longer():
    w = World(nodes=4)
    array = w.submit(50, array="0-9%1")
    child = w.submit(5, dependency=f"afterany:{array}_5")
    assert w.state(child) == "PENDING"
    w.do("cancel", array, [5])
    w.to(1)
    assert w.state(child) == "RUNNING"


def test_nothing_is_kept_for_parents_that_nobody_knows():
    w = World(version=(22, 5, 8))
    for number in range(100):
        w.submit(1, dependency=f"afterany:{100_000 + number}")
        w.to(w.engine.now + 400)
    w.to(w.engine.now + 1000)
    assert (len(w.engine.jobs), len(w.engine._blocked._children)) == (0, 0)
    assert len(w.engine._queue._ageing) <= 64 + 2


# -- times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 0),
        ("now+30", 30),
        ("now+1second", 1),
        ("now+90seconds", 90),
        ("now+1minute", 60),
        ("now+5minutes", 300),
        ("now+1hour", 3600),
        ("now+2hours", 7200),
        ("now+1day", 86400),
        ("now+1week", 604800),
        ("now+2weeks", 1209600),
    ],
)
def test_begin_counts_from_now(text, seconds):
    assert begin_time(text, 1000.0) == 1000.0 + seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16:00", "2026-11-30T16:00:00"),
        ("11:59:30", "2026-12-01T11:59:30"),
        ("12:00:01", "2026-11-30T12:00:01"),
        ("midnight", "2026-12-01T00:00:00"),
        ("noon", "2026-12-01T12:00:00"),
        ("today", "2026-11-30T00:00:00"),
        ("tomorrow", "2026-12-01T00:00:00"),
        ("2026-12-24", "2026-12-24T00:00:00"),
        ("2026-12-24T18:00:00", "2026-12-24T18:00:00"),
    ],
)
def test_begin_by_the_clock_is_the_next_such_time(text, expected):
    now = datetime.fromisoformat("2026-11-30T12:00:00.500000").timestamp()
    assert begin_time(text, now) == datetime.fromisoformat(expected).timestamp()


@pytest.mark.parametrize("text", ["", "now+", "now+x", "now+1fortnight", "25:00", "whenever", "utsnan", "utsinf", "12"])
def test_times_that_are_none(text):
    with pytest.raises(Infeasible, match="Invalid time"):
        begin_time(text, 0.0)


# -- estimates ---------------------------------------------------------------------------------------------------


def estimate(w, *args, **more):
    return w.controller.estimate("alice", spec(*args, **more))


def test_an_estimate_knows_which_nodes_a_job_wants():
    w = World(nodes=4)
    busy = w.submit(500, nodes=2, limit=600)
    assert w.view(busy).nodes == ("n1", "n2")
    wants = estimate(w, nodelist=("n1",))
    assert (wants.start, wants.nodes) == (600, ("n1",))
    assert estimate(w, nodes=2, exclude=("n3",)).start == 600
    assert estimate(w, nodes=2, exclude=("n1",)).nodes == ("n3", "n4")


def test_an_estimate_of_a_range_is_for_the_fewest():
    w = World(nodes=4)
    w.submit(500, nodes=2, limit=600)
    found = estimate(w, nodes=4, min_nodes=1)
    assert (found.start, found.nodes) == (0, ("n3", "n4"))


@pytest.mark.parametrize(
    "more",
    [
        {"limit": 7200.0},
        {"nodes": 3},
        {"nodelist": ("n1",), "exclude": ("n1",)},
        {"nodes": 2, "exclude": ("n1", "n2", "n3")},
    ],
)
def test_what_never_could_start_has_no_estimate(more):
    w = World(nodes=4, partitions=(PartitionConfig(max_time=3600.0, max_nodes=2),))
    with pytest.raises(Infeasible):
        estimate(w, **more)


def test_nodes_that_are_down_may_come_back():
    w = World(nodes=4)
    w.engine.fail_node("n1")
    with pytest.raises(NotNow):
        estimate(w, nodelist=("n1",))


# -- history -----------------------------------------------------------------------------------------------------


def test_a_job_that_was_never_eligible_is_only_found_by_its_number():
    w = World(nodes=1)
    held, late = w.submit(hold=True, name="x"), w.submit(begin="now+1000", name="x")
    waits = w.submit(500, limit=600, name="x")
    child = w.submit(dependency=f"afterok:{waits}", name="x")
    w.to(10)
    w.do("cancel", held)

    def listed(**more):
        return [r.id for r in w.controller.history("alice", **{"ids": (), "name": None, "since": None, **more})]

    assert listed(name="x") == listed(since=0.0) == [waits]
    assert listed(ids=[held, late, child]) == [held, late, child]
    w.do("cancel", late)
    assert listed(name="x") == [waits]
    w.do("cancel", child)
    w.to(2000)
    assert listed(name="x") == [waits]


def test_a_job_that_was_eligible_once_is_listed_for_good():
    w = World(nodes=1)
    w.submit(500, limit=600)
    job = w.submit(name="x")
    w.do("hold", job)
    w.do("cancel", job)
    assert [r.id for r in w.controller.history("alice", (), "x", None)] == [job]
