"""Reservations and licences of the simulated Slurm."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mock_world import World, spec

from penstock.api import License
from penstock.errors import Infeasible, NotFound, NotNow, NotPermitted
from penstock_lab.mock import views
from penstock_lab.mock.model import Scheduler


def test_others_are_planned_around_it_and_its_own_run_in_it_only():
    w = World(nodes=4)
    made = w.reserve(start=50, duration=120)
    assert (made.start, made.end, made.nodes, made.active) == (50, 170, ("n1", "n2"), False)
    long, short = w.submit(100, nodes=3, limit=100), w.submit(10, nodes=2, limit=50)
    inside = w.submit(10, nodes=2, reservation="r")
    assert w.view(short).nodes == ("n1", "n2")
    assert (w.view(long).state, w.view(long).start) == ("PENDING", 170)
    assert (w.view(inside).reason, w.view(inside).start) == ("Reservation", 50)
    w.to(50)
    assert w.view(inside).nodes == ("n1", "n2")
    assert views.reservations(w.engine)[0].active
    w.to(170)
    assert w.view(long).state == "RUNNING"
    assert views.reservations(w.engine) == []


def test_a_reservation_that_waits_for_its_time_leaves_room_for_jobs_that_end_before_it():
    w = World(nodes=2)
    w.reserve(start=60, nodes=2)
    fits, does_not = w.submit(60, limit=60), w.submit(60, limit=61)
    assert (w.state(fits), w.state(does_not)) == ("RUNNING", "PENDING")
    assert w.view(does_not).start == 120


def test_its_end_ends_its_jobs_and_holds_those_that_wait():
    w = World(nodes=4)
    w.reserve(nodes=1)
    runs, waits = w.submit(500, limit=500, reservation="r"), w.submit(5, limit=500, reservation="r")
    assert (w.state(runs), w.state(waits)) == ("RUNNING", "PENDING")
    w.to(60)
    assert (w.state(runs), w.engine.records[runs].end) == ("TIMEOUT", 60)
    assert (w.view(waits).reason, w.view(waits).priority) == ("JobHeldAdmin", 0)
    w.do("release", waits, user="root")
    assert w.view(waits).reason == "ReservationDeleted"


def test_no_hold_jobs_after_end():
    w = World(nodes=4)
    w.reserve(nodes=1, flags=("NO_HOLD_JOBS_AFTER",))
    w.submit(500, limit=500, reservation="r")
    waits = w.submit(5, limit=500, reservation="r")
    w.to(60)
    assert w.view(waits).reason == "ReservationDeleted"


def test_flex_jobs_begin_before_and_end_after_it():
    w = World(nodes=4)
    w.reserve(start=30, flags=("FLEX",))
    job = w.submit(200, nodes=2, limit=300, reservation="r")
    assert w.state(job) == "RUNNING"
    w.to(200)
    assert w.state(job) == "COMPLETED"


def test_an_idle_reservation_is_purged_and_a_used_one_is_not():
    w = World(nodes=4)
    w.reserve("idle", duration=6000, nodes=1, flags=("PURGE_COMP=1",))
    w.reserve("used", duration=6000, nodes=1, flags=("PURGE_COMP",))
    assert {r.name: set(r.flags) for r in views.reservations(w.engine)} == {
        "idle": {"PURGE_COMP=00:01:00"},
        "used": {"PURGE_COMP=00:05:00"},
    }
    w.submit(100, reservation="used")
    w.to(59)
    assert len(views.reservations(w.engine)) == 2
    w.to(60)
    assert [r.name for r in views.reservations(w.engine)] == ["used"]
    w.to(100 + 299)
    assert len(views.reservations(w.engine)) == 1
    w.to(100 + 300)
    assert views.reservations(w.engine) == []


def test_a_reservation_with_a_long_job_is_not_idle():
    w = World(nodes=4)
    w.reserve(duration=6000, nodes=1, flags=("PURGE_COMP=1",))
    w.submit(200, limit=200, reservation="r")
    w.to(200 + 59)
    assert len(views.reservations(w.engine)) == 1
    w.to(200 + 60)
    assert views.reservations(w.engine) == []


def test_running_jobs_and_other_reservations_are_in_the_way_and_waiting_jobs_are_not():
    w = World(nodes=4)
    w.submit(10, nodes=3, limit=100)
    w.submit(10, nodes=4)
    with pytest.raises(NotNow, match="busy"):
        w.reserve(start=50)
    assert w.reserve("a", start=100, nodes=3).nodes == ("n1", "n2", "n3")
    with pytest.raises(NotNow):
        w.reserve("b", start=159)
    assert w.reserve("b", start=160).nodes == ("n1", "n2")


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 0},
        {"nodes": 5},
        {"users": ()},
        {"duration": 0},
        {"start": -601},
        {"flags": ("NONSENSE",)},
        {"flags": ("PURGE_COMP=soon",)},
        {"flags": ("FLEX=1",)},
        {"partition": "nowhere"},
    ],
)
def test_what_cannot_be_reserved(change):
    w = World()
    with pytest.raises(Infeasible):
        w.reserve(**change)
    assert views.reservations(w.engine) == []


def test_names_durations_and_who_may():
    w = World(operators=("oper",))
    assert w.reserve(duration=61).end == 120
    assert w.reserve("endless", start=200, duration=math.inf, nodes=1).end == 200 + 365 * 86400
    with pytest.raises(Infeasible, match="Duplicate"):
        w.reserve()
    for user, name in (("alice", "r"), ("bob", "r")):
        with pytest.raises(NotPermitted):
            w.do("unreserve", name, user=user)
    with pytest.raises(NotPermitted):
        w.do("submit", spec(reservation="r"), user="bob")
    with pytest.raises(Infeasible, match="reservation is invalid"):
        w.submit(reservation="nowhere")
    with pytest.raises(Infeasible, match="not available"):
        w.submit(nodes=3, reservation="r")
    job = w.submit(reservation="r")
    with pytest.raises(NotNow, match="in use"):
        w.do("unreserve", "r", user="oper")
    w.do("cancel", job)
    w.do("unreserve", "r", user="oper")
    w.do("unreserve", "r", user="oper")
    everybody_but_bob = w.reserve("open", users=("-bob",))
    w.submit(reservation="open", user="carol")
    with pytest.raises(NotPermitted):
        w.submit(reservation="open", user="bob")
    assert everybody_but_bob.users == {"-bob"}


def test_user_delete_lets_its_users_delete_it():
    w = World()
    w.reserve(flags=("USER_DELETE",))
    with pytest.raises(NotPermitted):
        w.do("unreserve", "r", user="bob")
    w.do("unreserve", "r")
    assert views.reservations(w.engine) == []


def test_licences_are_taken_waited_for_and_given_back():
    w = World(licenses={"matlab": 4, "ansys": 1})
    first, second, third = w.submit(10, licenses="matlab:3"), w.submit(10, licenses="matlab:2,ansys"), w.submit(10)
    assert [w.state(j) for j in (first, second, third)] == ["RUNNING", "PENDING", "RUNNING"]
    assert (w.view(second).reason, w.view(second).start) == ("Licenses", None)
    assert w.engine.licenses.view() == [License("ansys", 1, 0), License("matlab", 4, 3)]
    w.to(10)
    assert w.state(second) == "RUNNING"
    assert w.engine.licenses.view() == [License("ansys", 1, 1), License("matlab", 4, 2)]
    w.to(20)
    assert w.engine.licenses.view() == [License("ansys", 1, 0), License("matlab", 4, 0)]


def test_two_jobs_of_one_pass_do_not_get_the_same_licence():
    w = World(licenses={"matlab": 1})
    blocker = w.submit(10, nodes=4)
    jobs = [w.submit(10, licenses="matlab") for _ in range(3)]
    w.to(10)
    assert w.state(blocker) == "COMPLETED"
    assert [w.state(j) for j in jobs] == ["RUNNING", "PENDING", "PENDING"]


@pytest.mark.parametrize("text", ["matlab:5", "other", "matlab:", "matlab:2,matlab:3", ":1"])
def test_licences_that_are_never_there_are_refused(text):
    with pytest.raises(Infeasible, match="Invalid license specification"):
        World(licenses={"matlab": 4}).submit(licenses=text)


def test_estimates_count_those_that_run_and_those_ahead():
    w = World(nodes=4, licenses={"matlab": 1})
    soon = w.do("estimate", spec(nodes=2, name="never"))
    assert (soon.start, soon.nodes, soon.num_cpus, soon.partition) == (0, ("n1", "n2"), 4, "main")
    assert w.controller.find(w.engine.uid_of("alice"), "never") == []
    w.submit(10, nodes=4, limit=100, licenses="matlab")
    assert w.do("estimate", spec()).start == 100
    w.submit(10, nodes=2, limit=60)
    assert w.do("estimate", spec()).start == 100 + 2 * 60 / 4
    with pytest.raises(NotNow):
        w.do("estimate", spec(licenses="matlab"))
    with pytest.raises(Infeasible):
        w.do("estimate", spec(nodes=5))
    for node in ("n1", "n2", "n3"):
        w.engine.drain_node(node)
    with pytest.raises(NotNow):
        w.do("estimate", spec(nodes=2))


def test_holding_and_requeueing():
    w = World(nodes=2)
    runs, bare = w.submit(50, requeue=True), w.allocate(1)
    waits, final = w.submit(10, nodes=2), w.submit(1, hold=True)
    w.do("hold", waits)
    assert (w.view(waits).priority, w.view(waits).reason, w.view(waits).eligible) == (0, "JobHeldUser", None)
    for job in (runs, bare):
        with pytest.raises(Infeasible, match="no longer pending"):
            w.do("hold", job)
    for job in (bare, final):
        with pytest.raises(Infeasible):
            w.do("requeue", job)
    with pytest.raises(NotPermitted):
        w.do("requeue", runs, user="bob")
    with pytest.raises(NotFound):
        w.do("requeue", 99)
    w.to(10)
    w.do("requeue", runs)
    w.do("requeue", runs)
    row = w.view(runs)
    assert (row.state, row.restarts, row.eligible, row.reason, row.nodes) == ("PENDING", 1, 130, "BeginTime", ())
    w.to(130)
    assert w.state(runs) == "RUNNING"
    w.to(180)
    assert (w.state(runs), w.engine.records[runs].end) == ("COMPLETED", 180)
    w.do("requeue", runs)
    w.to(180 + 120 + 49)
    assert w.view(runs).restarts == 2  # the first end is no reason to forget it
    w.to(180 + 120 + 50 + 299)
    assert w.view(runs).state == "COMPLETED"


reserved = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 4), st.integers(1, 4)), max_size=4)
requests = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 4), st.integers(0, 150), st.integers(1, 150), st.integers(-1, 3)),
    min_size=1,
    max_size=20,
)


@given(reserved, requests, st.sampled_from(list(Scheduler)))
def test_nobody_else_is_on_reserved_nodes_and_nobody_of_its_own_is_elsewhere(reservations, jobs, scheduler):
    w = World(nodes=4, scheduler=scheduler)
    made = {}
    for number, (start, nodes, minutes) in enumerate(reservations):
        with contextlib.suppress(NotNow):
            made[f"r{number}"] = w.reserve(f"r{number}", start=start, nodes=nodes, duration=60 * minutes)
    for pause, nodes, run, limit, which in jobs:
        w.to(w.engine.now + pause)
        with contextlib.suppress(Infeasible):
            w.submit(run, nodes=nodes, limit=limit, reservation=f"r{which}" if which >= 0 else None)
    w.to(100_000)
    for job in w.engine.records.values():
        if job.start is None:
            continue
        assert job.end <= job.start + job.time_limit
        for name, reservation in made.items():
            if job.reservation == name:
                assert set(job.nodes) <= set(reservation.nodes)
                assert reservation.start <= job.start <= job.end <= reservation.end
            elif set(job.nodes) & set(reservation.nodes):
                assert job.end <= reservation.start or job.start >= reservation.end


def test_a_reservation_that_may_not_be_idle_at_all_stays_while_a_job_wants_it():
    w = World()
    w.reserve(start=100, duration=6000, flags=("PURGE_COMP=0",))
    w.submit(50, limit=60, reservation="r")
    w.to(149)
    assert len(views.reservations(w.engine)) == 1
    w.to(150)
    assert views.reservations(w.engine) == []


def test_idleness_counts_from_the_last_job_that_wanted_it():
    w = World()
    w.reserve(duration=6000, flags=("PURGE_COMP=10",))  # ten minutes
    job = w.submit(hold=True, reservation="r")
    w.to(900)
    w.do("cancel", job)
    w.to(900 + 599)
    assert len(views.reservations(w.engine)) == 1
    w.to(900 + 600)
    assert views.reservations(w.engine) == []


def test_idleness_does_not_count_before_the_start():
    w = World()
    w.reserve(start=5000, duration=6000, flags=("PURGE_COMP=1",))
    job = w.submit(reservation="r")
    w.to(100)
    w.do("cancel", job)
    w.to(5059)
    assert len(views.reservations(w.engine)) == 1
    w.to(5060)
    assert views.reservations(w.engine) == []


def test_a_job_of_the_reservation_before_does_not_make_a_new_one_idle_early():
    w = World()
    w.reserve(start=0, duration=60, users=("alice",))
    job = w.submit(hold=True, reservation="r")
    w.to(100)
    w.reserve(start=5000, duration=600, flags=("PURGE_COMP=1",))
    w.do("cancel", job)
    w.to(300)
    assert len(views.reservations(w.engine)) == 1


@pytest.mark.parametrize("scheduler", [Scheduler.EASY, Scheduler.CONSERVATIVE])
def test_a_flex_job_does_not_push_those_ahead_of_it_back(scheduler):
    w = World(nodes=4, scheduler=scheduler)
    w.submit(100, nodes=2, limit=100)
    w.reserve(nodes=1, flags=("FLEX",))
    head = w.submit(10, nodes=4)
    assert w.view(head).start == 100
    flexible = w.submit(1000, nodes=2, limit=1000, reservation="r")
    assert (w.state(flexible), w.view(head).start) == ("PENDING", 100)
    w.to(100)
    assert w.state(head) == "RUNNING"


def test_a_flex_job_uses_the_reserved_nodes_while_others_cannot():
    w = World(nodes=4)
    w.submit(100, nodes=2, limit=100)
    w.reserve(nodes=2, duration=120, flags=("FLEX",))
    head = w.submit(10, nodes=4)
    inside = w.submit(50, nodes=2, limit=50, reservation="r")
    assert (w.state(inside), w.view(head).start) == ("RUNNING", 120)


def test_a_flex_job_may_be_wider_than_its_reservation():
    w = World(nodes=4)
    w.reserve(nodes=1, flags=("FLEX",))
    wide = w.submit(10, nodes=3, reservation="r")
    assert w.state(wide) == "RUNNING"
    with pytest.raises(Infeasible):
        w.submit(10, nodes=5, reservation="r")


def test_others_are_planned_for_after_the_limit_of_a_job_whatever_its_reservation():
    """As Slurm does it, which lets them start at the reservation's end nevertheless [run on 22.05.8]."""
    w = World(nodes=1)
    w.reserve(nodes=1, duration=120)
    job = w.submit(9999, limit=36000, reservation="r")
    w.do("hold", w.submit(1, limit=60))  # the queue is planned anew after this
    following = w.submit(1, limit=60)
    assert (w.state(job), w.view(job).end, w.view(following).start) == ("RUNNING", 36000, 36000)
    w.to(200)
    assert (w.state(job), w.engine.records[following].start) == ("TIMEOUT", 120)


def test_a_flex_job_keeps_its_nodes_to_its_own_limit():
    w = World(nodes=1)
    w.reserve(nodes=1, duration=60, flags=("FLEX",))
    w.submit(400, limit=500, reservation="r")
    following = w.submit(1, limit=60)
    assert w.view(following).start == 500
