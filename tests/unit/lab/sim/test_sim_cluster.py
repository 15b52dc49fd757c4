"""Workloads on the simulated Slurm: `sim.cluster`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import JobSpec, JobState, ReservationSpec
from penstock.errors import UserError
from penstock_lab.mock.model import ClusterConfig, Failures, Scheduler
from penstock_lab.sim.cluster import SimulatedJob, run
from penstock_lab.sim.replay import replay
from penstock_lab.sim.trace import Trace
from penstock_planning.select.speedup import Amdahl


def job(submit, nodes, duration, limit=None, **more):
    return SimulatedJob(submit, JobSpec("j", "#!/bin/sh\n", nodes, limit or duration), duration, **more)


def test_jobs_come_run_and_end():
    jobs = [job(100, 2, 10), job(100, 2, 20, limit=15), job(105, 1, 5, exit_code=1)]
    first, second, third = run(ClusterConfig(nodes=2), jobs)
    assert (first.submit, first.start, first.end, first.nodes) == (100, 100, 110, ("n1", "n2"))
    assert (second.start, second.end, second.state) == (110, 125, JobState.TIMEOUT)
    assert (third.start, third.state, third.id) == (125, JobState.FAILED, 3)


def test_the_duration_is_that_on_the_nodes_the_job_asks_for():
    (outcome,) = run(ClusterConfig(nodes=4), [job(0, 4, 100, speedup=Amdahl(0.2))])
    assert outcome.end == pytest.approx(100)


def test_no_jobs_and_jobs_out_of_order():
    assert run(ClusterConfig(), []) == []
    with pytest.raises(UserError, match="before the one ahead"):
        run(ClusterConfig(), [job(10, 1, 1), job(9, 1, 1)])


# submission gap, run time, nodes, by how much the limit is above the run time
workload = st.lists(
    st.tuples(st.integers(0, 15), st.integers(1, 40), st.integers(1, 6), st.integers(0, 30)), min_size=1, max_size=40
)


def both(rows, policy):
    """Starts on six nodes in the engine and in the replay that counts processors."""
    now, jobs, trace = 0, [], []
    for number, (gap, run_time, nodes, slack) in enumerate(rows):
        now += gap
        jobs.append(job(float(now), nodes, float(run_time), float(run_time + slack)))
        trace.append((number, now, run_time, nodes, run_time + slack))
    config = ClusterConfig(nodes=6, scheduler=Scheduler(policy), spare_free=True)
    return [o.start for o in run(config, jobs)], list(replay(Trace.of(trace), 6, policy, "batch"))


@given(workload, st.sampled_from(["fcfs", "easy"]))
def test_named_nodes_make_no_difference_to_fcfs_and_easy(rows, policy):
    engine, counted = both(rows, policy)
    assert engine == counted


def test_nodes_that_fail_and_jobs_that_are_requeued():
    config = ClusterConfig(nodes=4, failures=Failures(2000, 100), requeue_delay=0)
    spec = JobSpec("j", "#!/bin/sh\n", 2, 1000, requeue=True)
    outcomes = run(config, [SimulatedJob(10.0 * i, spec, 500) for i in range(50)])
    assert {o.state for o in outcomes} == {JobState.COMPLETED}
    assert sum(o.restarts for o in outcomes) > 0
    assert all(o.end - o.start == pytest.approx(500) for o in outcomes)


def test_a_simulation_with_failures_ends_when_nobody_waits_for_anything():
    config = ClusterConfig(nodes=1, failures=Failures(300, 10, seed=3))
    again = SimulatedJob(0, JobSpec("j", "#!/bin/sh\n", 1, 300, requeue=True), 250)
    never = SimulatedJob(0, JobSpec("j", "#!/bin/sh\n", 1, 100, hold=True), 5)
    outcomes = run(config, [again, never])
    assert [o.state for o in outcomes] == [JobState.COMPLETED, JobState.PENDING]
    assert outcomes[0].restarts > 0  # and it waited two minutes each time


def test_arrays_give_an_outcome_per_task():
    spec = JobSpec("j", "#!/bin/sh\n", 1, 100, array="1-3")
    outcomes = run(ClusterConfig(nodes=2), [SimulatedJob(0, spec, 10)])
    assert sorted(o.start for o in outcomes) == [0, 0, 10]


def test_a_reservation_keeps_its_nodes_free():
    config = ClusterConfig(nodes=4)
    work = [job(at, 4, 100.0) for at in range(0, 400, 100)]
    free = run(config, work)
    kept = run(config, work, [ReservationSpec("maintenance", 150.0, 600.0, 1, users=("root",))])
    assert [outcome.start for outcome in free] == [0, 100, 200, 300]
    assert [outcome.start for outcome in kept] == [0, 750, 850, 950]
