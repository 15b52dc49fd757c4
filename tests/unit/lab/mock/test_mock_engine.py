"""The simulated Slurm: these events give these effects. No sleep, no socket, no clock."""

from __future__ import annotations

import pytest
from mock_world import World

from penstock.api import JobSpec, JobState
from penstock.errors import Infeasible, NotFound, NotPermitted
from penstock_lab.mock import views
from penstock_lab.mock.durations import from_script
from penstock_lab.mock.model import Ended, PartitionConfig, Requeued, Resized, Scheduler, Started
from penstock_lab.mock.speedup import Work


def test_a_job_starts_at_once_and_ends_when_its_script_does():
    w = World()
    job = w.submit(10, nodes=2)
    assert w.effects() == [Started(job, ("n1", "n2"))]
    assert w.engine.next_event() == 10
    w.to(9.9)
    assert w.effects() == []
    w.to(50)
    assert w.effects() == [Ended(job, JobState.COMPLETED, ("n1", "n2"))]
    assert w.engine.records[job].end == 10


@pytest.mark.parametrize(
    ("seconds", "code", "state", "end"),
    [(100, 0, "COMPLETED", 100), (101, 0, "TIMEOUT", 100), (5, 3, "FAILED", 5)],
)
def test_how_jobs_end(seconds, code, state, end):
    w = World()
    job = w.submit(seconds, exit=code)
    w.to(1000)
    record = w.engine.records[job].record()
    assert (record.state, record.end) == (state, end)
    assert record.exit_code == code


def test_the_queue_is_in_order_and_a_small_job_fills_the_hole():
    w = World()
    first = w.submit(50, nodes=3, limit=60)
    big, small, long = w.submit(5, nodes=4), w.submit(5, limit=60), w.submit(5, limit=61)
    assert [w.state(j) for j in (first, big, small, long)] == ["RUNNING", "PENDING", "RUNNING", "PENDING"]
    assert w.view(big).start == 60
    assert (w.view(big).reason, w.view(long).reason) == ("Resources", "Priority")
    w.to(50)
    assert w.view(big).state == "RUNNING"


def test_age_decides_unless_qos_does():
    w = World(qos={"normal": 0, "high": 10_000})
    w.submit(50, nodes=4)
    w.to(10)
    old, fast = w.submit(5, nodes=4), w.submit(5, nodes=4, qos="high")
    w.to(50)
    assert (w.state(old), w.state(fast)) == ("PENDING", "RUNNING")


def test_a_held_job_waits_without_age_until_it_is_released():
    w = World()
    job = w.submit(hold=True)
    assert (w.view(job).priority, w.view(job).eligible, w.view(job).reason) == (0, None, "JobHeldUser")
    w.to(100)
    w.do("release", job)
    w.do("release", job)
    assert w.view(job).eligible == 100
    assert w.state(job) == "RUNNING"


def test_an_administrators_hold_is_not_the_owners_to_lift():
    w = World()
    w.submit(500, nodes=4)
    job = w.submit()
    w.do("update", job, priority=0, user="root")
    with pytest.raises(NotPermitted):
        w.do("release", job)
    w.do("release", job, user="root")
    assert w.view(job).priority > 0


@pytest.mark.parametrize(
    ("kind", "code", "starts"),
    [
        ("afterok", 0, True),
        ("afterok", 1, False),
        ("afternotok", 1, True),
        ("afternotok", 0, False),
        ("afterany", 1, True),
    ],
)
def test_dependencies_on_the_end(kind, code, starts):
    w = World()
    parent = w.submit(10, exit=code)
    child = w.submit(5, dependency=f"{kind}:{parent}")
    assert w.view(child).eligible is None
    assert w.view(child).dependency == f"{kind}:{parent}(unfulfilled)"
    assert w.view(child).reason == "Dependency"
    w.to(10)
    if starts:
        assert (w.view(child).eligible, w.view(child).start, w.view(child).dependency) == (10, 10, "")
    else:
        assert w.view(child).reason == "DependencyNeverSatisfied"
        assert w.view(child).dependency == f"{kind}:{parent}(failed)"


def test_after_counts_minutes_from_the_start_and_from_a_cancel():
    w = World()
    first, second = w.submit(50, nodes=4), w.submit(5, nodes=4)
    child = w.submit(1, dependency=f"after:{first}+2")
    orphan = w.submit(1, dependency=f"after:{second}+1")
    w.do("cancel", second)
    w.to(59)
    assert (w.state(child), w.state(orphan)) == ("PENDING", "PENDING")
    w.to(60)
    assert w.state(orphan) == "RUNNING"
    w.to(119.9)
    assert w.state(child) == "PENDING"
    w.to(120)
    assert w.state(child) == "RUNNING"


def test_all_or_any_of_several_dependencies():
    w = World()
    a, b = w.submit(10), w.submit(20)
    both, either = w.submit(5, dependency=f"afterok:{a}:{b}"), w.submit(5, dependency=f"afterok:{a}?afterok:{b}")
    w.to(10)
    assert (w.state(both), w.state(either)) == ("PENDING", "RUNNING")
    w.to(20)
    assert w.state(both) == "RUNNING"


@pytest.mark.parametrize("text", ["afterok", "sometime:1", "afterok:x", "afterok:1+5", "afterok:1?afterany:1,after:1"])
def test_a_dependency_that_makes_no_sense_is_refused(text):
    w = World()
    w.submit()
    with pytest.raises(Infeasible, match="dependency"):
        w.submit(dependency=text)


@pytest.mark.parametrize(("accrue", "priority"), [(True, 1 + 100), (False, 1)])
def test_a_dependent_job_ages_only_with_accrue_always(accrue, priority):
    w = World(accrue_always=accrue, weight_age=1000, max_age=1000)
    parent = w.submit(100, nodes=4)
    child = w.submit(dependency=f"afterok:{parent}")
    w.to(100)
    assert w.view(child).priority == priority


@pytest.mark.parametrize("version", [(22, 5, 8), (23, 2, 0)])
def test_a_forgotten_parent_is_dropped_by_old_releases_and_refused_by_new_ones(version):
    w = World(version=version)
    parent = w.submit(5, exit=1)
    w.to(305)
    assert parent not in w.engine.jobs
    if version < (23, 2):
        assert w.state(w.submit(dependency=f"afterok:{parent}")) == "RUNNING"
    else:
        with pytest.raises(Infeasible):
            w.submit(dependency=f"afterok:{parent}")
    assert w.state(w.submit(dependency=f"afterany:{parent}")) == "RUNNING"


def test_the_controller_forgets_and_accounting_remembers():
    w = World()
    job = w.submit(5)
    w.to(304.9)
    assert w.view(job).state == "COMPLETED"
    w.to(305)
    assert views.jobs(w.engine) == []
    assert [r.state for r in w.controller.history("alice", [job], None, None)] == ["COMPLETED"]
    w.do("cancel", job)
    with pytest.raises(NotFound):
        w.do("cancel", 99)


def test_begin_delays_and_can_be_moved():
    w = World()
    job = w.submit(begin="now+1minutes")
    assert (w.view(job).eligible, w.view(job).reason) == (60, "BeginTime")
    w.do("update", job, begin="now+10")
    assert w.view(job).eligible == 10
    w.to(10)
    assert w.state(job) == "RUNNING"


def test_the_merge_moves_the_nodes_and_completes_the_resizer():
    w = World()
    a = w.submit(80, nodes=2, limit=90)
    w.to(10)
    b = w.allocate(2, expands=a, limit=5)
    assert w.view(b).time_limit == 80  # what is left of a's, whatever was asked for
    w.effects()
    w.do("merge", b, a)
    assert w.effects() == [
        Ended(b, JobState.COMPLETED, ("n3", "n4")),
        Resized(a, ("n1", "n2", "n3", "n4"), gained=("n3", "n4")),
    ]
    w.do("merge", b, a)
    assert w.effects() == []
    w.to(80)
    assert w.state(a) == "COMPLETED"
    assert all(n.state == "IDLE" for n in views.nodes(w.engine))


def test_the_merge_is_refused_without_permission_with_contain_and_between_strangers():
    w = World(contain=True)
    a = w.submit(80)
    b = w.allocate(1, expands=a)
    with pytest.raises(Infeasible, match="step already exists"):
        w.do("merge", b, a)
    assert w.state(b) == "RUNNING"
    w = World(permit_job_expansion=False)
    a = w.submit(80)
    with pytest.raises(Infeasible, match="not permitted"):
        w.allocate(1, expands=a)
    w = World()
    a, companion = w.submit(80), w.allocate(1)
    with pytest.raises(Infeasible, match="not allocated to expand"):
        w.do("merge", companion, a)
    with pytest.raises(NotFound):
        w.do("merge", 99, a)


def test_an_operators_resizer_merges_into_a_users_job():
    w = World(operators=("penstock",))
    a = w.submit(80)
    b = w.allocate(1, expands=a, user="penstock")
    w.do("merge", b, a, user="penstock")
    assert w.view(a).num_nodes == 2


def test_a_resizer_that_waits_for_a_job_that_ends_never_starts():
    w = World()
    a, _other = w.submit(10, nodes=2), w.submit(50, nodes=2)
    b = w.allocate(2, expands=a)
    assert w.view(b).reason == "Resources"
    w.to(10)
    assert (w.view(b).state, w.view(b).reason) == ("PENDING", "DependencyNeverSatisfied")


def test_a_leaked_resizer_lives_as_long_as_the_job_it_expands():
    w = World()
    a = w.submit(1000, limit=60)
    b = w.allocate(1, expands=a, limit=5)
    w.to(59)
    assert w.state(b) == "RUNNING"
    w.to(60)
    assert (w.state(a), w.state(b)) == ("TIMEOUT", "TIMEOUT")


def test_shrinking_keeps_the_batch_host_and_frees_the_rest():
    w = World()
    a = w.submit(80, nodes=4)
    waiting = w.submit(5, nodes=2)
    w.effects()
    for keep in (["n2"], [], ["n1", "n9"]):
        with pytest.raises(Infeasible):
            w.do("shrink", a, keep)
    w.do("shrink", a, ["n3", "n1"])
    w.do("shrink", a, ["n1", "n3"])
    assert w.effects() == [Resized(a, ("n1", "n3"), lost=("n2", "n4")), Started(waiting, ("n2", "n4"))]
    with pytest.raises(Infeasible, match="does not run"):
        w.to(80)
        w.do("shrink", a, ["n1"])


def test_shrinking_can_be_forbidden():
    w = World(disable_job_shrink=True)
    a = w.submit(80, nodes=2)
    with pytest.raises(Infeasible, match="disable_job_shrink"):
        w.do("shrink", a, ["n1"])


def test_only_owner_root_and_operators_may_change_a_job():
    w = World(operators=("oper",))
    job = w.submit(80)
    for request in (("cancel", job), ("release", job), ("shrink", job, ["n1"]), ("update", job)):
        with pytest.raises(NotPermitted):
            w.do(*request, user="bob")
    w.do("cancel", job, user="oper")
    assert w.state(job) == "CANCELLED"
    w.do("cancel", job)


def test_limits_are_raised_by_operators_lowered_by_owners_and_free_in_the_queue():
    w = World(partitions=(PartitionConfig(max_time=500),), operators=("oper",))
    running, pending = w.submit(300, nodes=4, limit=100), w.submit(5, limit=100)
    with pytest.raises(NotPermitted):
        w.do("update", running, time_limit=200)
    with pytest.raises(NotPermitted):
        w.do("update", pending, time_limit=501)
    w.do("update", pending, time_limit=400)
    w.do("update", running, time_limit=200, user="oper")
    w.do("update", running, time_limit=150)
    w.to(149)
    assert w.state(running) == "RUNNING"
    w.to(150)
    assert (w.state(running), w.state(pending)) == ("TIMEOUT", "RUNNING")


def test_a_limit_lowered_below_what_has_passed_ends_the_job_before_others_get_its_nodes():
    w = World()
    running, pending = w.submit(300, nodes=4, limit=400), w.submit(5, nodes=4)
    w.to(50)
    w.effects()
    w.do("update", running, time_limit=10)
    nodes = ("n1", "n2", "n3", "n4")
    assert w.effects() == [Ended(running, JobState.TIMEOUT, nodes), Started(pending, nodes)]
    assert set(w.engine.owner.values()) == {pending}


def test_raising_a_priority_needs_an_operator():
    w = World()
    w.submit(300, nodes=4)
    first, second = w.submit(5, nodes=4), w.submit(5, nodes=4)
    with pytest.raises(NotPermitted):
        w.do("update", second, priority=10**6)
    w.do("update", second, priority=10**6, user="root")
    w.to(100)
    assert (w.state(first), w.state(second)) == ("PENDING", "RUNNING")


def test_a_dependency_can_be_changed_and_removed():
    w = World()
    parent = w.submit(80)
    child = w.submit(5, dependency=f"afterok:{parent}")
    w.do("update", child, dependency=f"afternotok:{parent}")
    assert w.view(child).dependency == f"afternotok:{parent}(unfulfilled)"
    w.do("update", child, dependency="")
    assert w.state(child) == "RUNNING"
    with pytest.raises(Infeasible, match="no longer pending"):
        w.do("update", child, dependency="")
    with pytest.raises(Infeasible, match="itself"):
        w.do("update", w.submit(hold=True), dependency="afterok:3")


def test_what_can_never_run_is_refused_and_what_breaks_a_partition_limit_waits():
    w = World(partitions=(PartitionConfig(max_time=100, max_nodes=2), PartitionConfig("two", ("n1", "n2"))))
    for bad in (
        {"nodes": 5},
        {"nodes": 0},
        {"nodes": 3, "partition": "two"},
        {"partition": "x"},
        {"qos": "x"},
        {"limit": 0},
    ):
        with pytest.raises(Infeasible):
            w.submit(**bad)
    with pytest.raises(Infeasible, match="batch script"):
        w.controller.submit("alice", JobSpec("j", "echo", 1, 10))
    assert w.view(w.submit(limit=101)).reason == "PartitionTimeLimit"
    assert w.view(w.submit(nodes=3)).reason == "PartitionNodeLimit"
    assert w.view(w.submit(nodes=2)).state == "RUNNING"


def test_a_dead_node_takes_its_job_with_it_or_sends_it_back_into_the_queue():
    w = World(nodes=2, requeue_delay=0)
    fragile, again = w.submit(80), w.submit(80, requeue=True)
    w.effects()
    w.engine.fail_node("n1")
    w.engine.fail_node("n2")
    w.to(5)
    assert w.effects() == [Ended(fragile, JobState.NODE_FAIL, ("n1",)), Requeued(again, ("n2",))]
    assert [n.usable for n in views.nodes(w.engine)] == [False, False]
    w.engine.resume_node("n1")
    w.to(5)
    assert w.effects() == [Started(again, ("n1",))]
    with pytest.raises(NotFound):
        w.engine.fail_node("n7")


def test_a_draining_node_finishes_its_job_and_takes_no_other():
    w = World(nodes=1)
    job, waiting = w.submit(10), w.submit(10)
    w.engine.drain_node("n1")
    w.to(20)
    assert (w.state(job), w.state(waiting)) == ("COMPLETED", "PENDING")
    assert views.nodes(w.engine)[0].state == "IDLE+DRAIN"


def test_steps_that_slurm_itself_makes():
    w = World(contain=True)
    job, allocation = w.submit(80, nodes=2), w.allocate(1)
    assert [(s.id, s.nodes) for s in w.controller.steps(job)] == [("batch", ("n1",)), ("extern", ("n1", "n2"))]
    assert [s.id for s in w.controller.steps(allocation)] == ["extern"]
    w.to(80)
    assert w.controller.steps(job) == []


@pytest.mark.parametrize(
    ("body", "seconds", "code"),
    [
        ("#MOCK duration=2.5 exit=3\nsleep 9", 2.5, 3),
        ("sleep 2\n  sleep 0.5\nexec sleep 1", 3.5, 0),
        ("true\nexit 4", 1.0, 4),
        ("#MOCK exit=1\nsleep 7", 7.0, 1),
    ],
)
def test_durations_are_read_from_the_script(body, seconds, code):
    assert from_script(JobSpec("j", f"#!/bin/sh\n{body}\n", 1, 60)) == Work(seconds, code)


def test_a_controller_that_forgets_nothing():
    """MinJobAge=0: no record is purged (slurm.conf.5)."""
    w = World(min_job_age=0.0)
    array, job = w.submit(100, array="0-2"), w.submit(1)
    w.do("cancel", array, [2])
    w.to(100_000)
    assert [w.state(j) for j in (array, job)] == [w.view(j).state for j in (array, job)] == ["CANCELLED", "COMPLETED"]
    assert w.engine.next_event() is None


def test_an_array_is_not_asked_for_without_end():
    """A time so short that the clock does not move by it."""
    w = World(min_job_age=1e-9)
    w.to(1.7e9)
    array = w.submit(10, array="0-2", limit=100.0)
    w.do("cancel", array, [2])  # the array's own record has ended, and has to wait for its members
    w.to(1.7e9 + 1000)
    assert not w.engine.jobs


def test_the_reason_is_that_of_today():
    w = World(nodes=2, licenses={"m": 1})
    w.submit(1000, limit=1000, licenses="m:1")
    w.submit(5000, limit=5000)
    first, second = w.submit(nodes=2), w.submit(nodes=2, licenses="m:1")
    assert w.view(second).reason == "Licenses"
    w.to(1001)
    assert (w.view(first).reason, w.view(second).reason) == ("Resources", "Priority")


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_jobs_whose_nodes_are_down_say_so(scheduler):
    w = World(nodes=3, scheduler=scheduler)
    w.engine.fail_node("n1")
    wants, wide, narrow = w.submit(nodelist=("n1",)), w.submit(nodes=3), w.submit(50, nodes=2)
    waits = w.submit(nodes=2)
    assert [w.view(j).reason for j in (wants, wide)] == ["ReqNodeNotAvail", "ReqNodeNotAvail"]
    assert (w.state(narrow), w.view(waits).reason) == ("RUNNING", "Resources")
    w.engine.resume_node("n1")
    w.to(100)
    assert {w.state(j) for j in (wants, waits)} <= {"RUNNING", "COMPLETED"}
    assert w.view(wide).reason in ("Resources", "Priority", "None")


def test_a_begin_time_is_what_a_job_ages_from_although_it_is_brought_forward():
    w = World(max_age=1000.0)
    w.submit(5000, nodes=4, limit=6000)
    kept, reset, held = w.submit(5, begin="uts4000000000"), w.submit(5, begin="uts4000000000"), w.submit(5, hold=True)
    w.do("hold", kept, user="root")
    assert [w.view(j).eligible for j in (kept, reset, held)] == [4e9, 4e9, None]
    w.do("update", kept, begin="now")
    w.do("update", reset, begin="now", reset_age=True, user="root")
    w.to(500)
    assert [w.engine.priority(w.engine.job(j)) for j in (kept, reset, held)] == [0, 501, 0]
    w.do("release", kept, user="root")
    w.to(900)
    assert [w.engine.priority(w.engine.job(j)) for j in (kept, reset)] == [1, 901], "as Slurm without ResetAccrueTime"
