"""What makes the simulated Slurm a simulator: planners, priorities, failures and malleable jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mock_world import World, spec

from penstock.api import JobState
from penstock.errors import Infeasible
from penstock_lab.mock.durations import from_script
from penstock_lab.mock.model import ClusterConfig, Failures, PartitionConfig, PriorityType, Scheduler, Weights
from penstock_lab.mock.speedup import Work
from penstock_planning.select.speedup import Amdahl, Downey, SpeedupTable

# -- planners ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduler", "starts"),
    [
        ("fcfs", [0, 10, 15, 20]),
        ("easy", [0, 10, 20, 0]),
        ("conservative", [0, 10, 15, 20]),
        ("replan", [0, 10, 15, 20]),
    ],
)
def test_who_overtakes_whom(scheduler, starts):
    # 0 has three nodes until 10; 1 wants three then; 2 all four, then; 3 one, for twenty seconds.
    w = World(scheduler=Scheduler(scheduler))
    jobs = [
        w.submit(10, nodes=3, limit=10),
        w.submit(5, nodes=3, limit=5),
        w.submit(5, nodes=4, limit=5),
        w.submit(20, limit=20),
    ]
    w.to(100)
    assert [w.engine.records[j].start for j in jobs] == starts


def test_a_promise_that_falls_due_when_nothing_ends_is_kept():
    # Job 1 is promised 10, but 0 ends at 4 already, when 2 (promised 4, longer) is ahead of it by its priority.
    w = World(nodes=2, scheduler=Scheduler.CONSERVATIVE)
    first = w.submit(4, nodes=2, limit=10)
    second, third = w.submit(5, nodes=2, limit=5), w.submit(7, nodes=1, limit=7)
    assert (w.view(second).start, w.view(third).start) == (10, 15)
    w.to(4)
    assert [w.engine.records[j].start for j in (first, second)] == [0, 4]
    assert w.view(third).start == 9


def test_only_so_many_jobs_are_looked_at():
    w = World(nodes=2, depth=2)
    w.submit(10, nodes=1, limit=10)
    jobs = [w.submit(10, nodes=2, limit=10) for _ in range(3)]
    small = w.submit(5, limit=5)
    assert w.state(small) == "PENDING"
    w.do("cancel", jobs[0])
    w.do("cancel", jobs[1])
    assert w.state(small) == "RUNNING"


arrivals = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 5), st.integers(0, 60), st.integers(1, 60)), min_size=1, max_size=25
)


@given(arrivals, st.sampled_from(list(Scheduler)), st.booleans())
def test_nobody_starts_too_early_no_node_is_given_twice_and_promises_are_kept(jobs, scheduler, spare):
    w = World(nodes=5, scheduler=scheduler, spare_free=spare)
    promised = {}

    def look():
        running = [j for j in w.engine.jobs.values() if j.state.holds_nodes]
        names = [n for j in running for n in j.nodes]
        assert len(names) == len(set(names))
        assert dict(w.engine.owner) == {n: j.id for j in running for n in j.nodes}
        if scheduler in (Scheduler.CONSERVATIVE, Scheduler.EASY):
            for job in w.engine.jobs.values():
                at = job.planned if job.state is JobState.PENDING else job.start
                if at is not None and job.id in promised:
                    assert at <= promised[job.id]
                if at is not None:
                    promised[job.id] = at

    def until(time):
        while (due := w.engine.next_event()) is not None and due <= time:
            w.to(due)
            look()
        w.to(time)

    for pause, nodes, run, limit in jobs:
        until(w.engine.now + pause)
        w.submit(run, nodes=nodes, limit=limit)
        look()
    until(10_000)
    for job in w.engine.records.values():
        assert job.state.ended and job.submit <= job.start <= job.end <= job.start + job.time_limit
    if scheduler is Scheduler.FCFS:
        starts = [j.start for j in w.engine.records.values()]
        assert starts == sorted(starts)


# -- priority ----------------------------------------------------------------------------------------------------------


def test_the_factors_of_a_priority():
    w = World(
        nodes=4,
        weight_age=0,
        qos={"normal": 0, "high": 50, "top": 100},
        partitions=(PartitionConfig(priority=1), PartitionConfig("fast", priority=4)),
        weights=Weights(size=1000, partition=400, qos=10),
    )
    w.submit(1000, nodes=4, limit=1000)
    assert w.view(w.submit(nodes=2)).priority == 1 + 500 + 100
    assert w.view(w.submit(nodes=1, qos="high", partition="fast")).priority == 1 + 250 + 400 + 5
    w = World(weight_age=0, weights=Weights(size=1000, favor_small=True))
    assert w.view(w.submit(nodes=1)).priority == 751


def test_those_whose_age_is_full_and_those_who_still_age_are_one_queue():
    w = World(nodes=1, weight_age=100, max_age=50, qos={"normal": 0, "high": 60})
    w.submit(130, limit=130)
    old = w.submit(10)
    w.to(100)
    high = w.submit(10, qos="high")
    assert (w.view(old).priority, w.view(high).priority) == (101, 61)
    w.to(125)
    low = w.submit(10)
    assert (w.view(old).priority, w.view(high).priority) == (101, 111)
    w.to(1000)
    assert [w.engine.records[j].start for j in (high, old, low)] == [130, 140, 150]


@pytest.mark.parametrize("change", [{"dependency": "afterok:1"}, {"begin": "now+60"}, "hold"])
def test_a_job_that_was_eligible_once_goes_on_ageing_whatever_comes_later(change):
    w = World(nodes=1, weight_age=100, max_age=100)
    w.submit(80, limit=80)
    early = w.submit(10, requeue=True)
    late = w.submit(10, dependency="afterok:1")
    w.do("hold", early) if change == "hold" else w.do("update", early, **change)
    w.to(20)
    if change == "hold":
        w.do("release", early)
    assert (w.view(early).priority, w.view(late).priority) == (21, 1)
    w.to(80)
    assert (w.state(early), w.state(late)) == ("RUNNING", "PENDING")
    w.do("requeue", early)
    assert w.view(early).priority == 1


def test_a_new_batch_job_is_left_alone_for_a_moment():
    w = World(nodes=1, batch_delay=3, weight_age=100, max_age=100)
    job = w.submit(10)
    assert (w.state(job), w.view(job).eligible) == ("PENDING", 0)
    w.to(3)
    assert w.engine.records[job].start == 3


def test_under_basic_jobs_go_in_order_of_submission_whatever_they_wait_for_and_a_hold_costs_the_place():
    w = World(nodes=1, priority=PriorityType.BASIC, qos={"normal": 0, "high": 1000})
    first = w.submit(10, limit=10)
    child = w.submit(10, dependency=f"afterok:{first}")
    held = w.submit(10)
    high = w.submit(10, qos="high")
    assert w.view(first).priority > w.view(child).priority > w.view(held).priority > w.view(high).priority
    w.do("hold", held)
    assert w.view(held).priority == 0
    w.do("release", held)
    w.to(1000)
    assert [w.engine.records[j].start for j in (first, child, high, held)] == [0, 10, 20, 30]


def test_a_new_job_that_is_ahead_of_the_head_need_not_care_for_its_reservation():
    w = World(nodes=2, qos={"normal": 0, "high": 1000})
    w.submit(10, limit=10)
    head = w.submit(10, nodes=2)
    assert w.state(w.submit(50, limit=50)) == "PENDING"
    assert w.state(w.submit(50, limit=50, qos="high")) == "RUNNING"
    assert w.view(head).start == 50


def test_who_has_used_much_comes_last_until_it_is_forgotten():
    w = World(nodes=1, weight_age=0, weights=Weights(fairshare=1000, half_life=100, calc_period=10))
    w.submit(100, limit=100, account="greedy")
    greedy, modest = w.submit(10, account="greedy"), w.submit(10, account="modest")
    w.to(100)
    assert (w.state(greedy), w.state(modest)) == ("PENDING", "RUNNING")
    assert w.view(greedy).priority < w.view(modest).priority
    w = World(nodes=1, weight_age=0, weights=Weights(fairshare=1000, half_life=100, calc_period=10))
    w.submit(100, limit=100, account="long-ago")
    w.to(1000)
    w.submit(50, limit=50, account="lately")
    lately, long_ago = w.submit(10, account="lately"), w.submit(10, account="long-ago")
    w.to(1050)
    assert (w.state(lately), w.state(long_ago)) == ("PENDING", "RUNNING")


def test_the_queue_is_sorted_anew_when_a_priority_is_changed():
    w = World(nodes=1)
    w.submit(10)
    jobs = [w.submit(10) for _ in range(3)]
    w.do("update", jobs[2], priority=10**6, user="root")
    w.do("hold", jobs[0])
    w.to(100)
    assert [w.engine.records[j].start for j in jobs] == [None, 20, 10]


# -- failures ----------------------------------------------------------------------------------------------------------


def failing(seed=1, shape=1.0, **more):
    return World(nodes=8, failures=Failures(mtbf=1000, repair=100, shape=shape, seed=seed), requeue_delay=0, **more)


def test_nodes_die_and_come_back_at_the_rates_asked_for():
    for shape in (1.0, 0.7):
        w = failing(shape=shape)
        down = samples = 0
        for time in range(0, 200_000, 50):
            w.to(time)
            down += len(w.engine.out_of_order)
            samples += 8
        assert down / samples == pytest.approx(100 / 1100, rel=0.25)


def test_jobs_that_may_be_requeued_survive_and_others_do_not():
    w = failing()
    again = w.submit(500, nodes=4, limit=600, requeue=True)
    fragile = w.submit(10_000, nodes=4, limit=20_000)
    w.to(100_000)
    assert w.engine.records[fragile].state == "NODE_FAIL"
    assert w.engine.records[again].state == "COMPLETED" and w.engine.records[again].restarts > 0
    assert w.engine.records[again].end == w.engine.records[again].start + 500


def test_the_same_seed_gives_the_same_failures():
    def history(seed):
        w = failing(seed)
        w.to(5000)
        w.submit(5000, nodes=8, limit=5000, requeue=True)
        w.to(50_000)
        return [(j.start, j.restarts) for j in w.engine.records.values()]

    assert history(1) == history(1) != history(2)


@pytest.mark.parametrize("wrong", [{"mtbf": 0}, {"mtbf": 1, "repair": -1}, {"mtbf": 1, "shape": 0}])
def test_failures_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="above 0"):
        Failures(**wrong)


# -- malleable jobs ----------------------------------------------------------------------------------------------------


def test_a_job_runs_faster_on_more_nodes_and_slower_on_fewer():
    w = World(nodes=4)
    job = w.submit(nodes=2, limit=10_000, mock="work=1000 serial=0")
    w.to(100)  # 200 of 1000 are done
    resizer = w.allocate(2, expands=job)
    w.do("merge", resizer, job)
    w.to(200)  # 600
    w.do("shrink", job, ["n1"])
    w.to(599)
    assert w.state(job) == "RUNNING"
    w.to(600)
    assert (w.state(job), w.engine.records[job].end) == ("COMPLETED", 600)


def test_a_job_of_fixed_duration_does_not_care():
    w = World(nodes=4)
    job = w.submit(100, nodes=4)
    w.to(50)
    w.do("shrink", job, ["n1"])
    w.to(100)
    assert w.engine.records[job].end == 100


@pytest.mark.parametrize(
    ("model", "points"),
    [
        (Amdahl(0), {1: 1, 7: 7}),
        (Amdahl(0.5), {1: 1, 2: 4 / 3}),
        (Amdahl(1), {9: 1}),
        (SpeedupTable(((1, 1.0), (4, 2.5), (8, 4.5))), {1: 1, 2: 1.5, 4: 2.5, 6: 3.5, 100: 4.5}),
        (SpeedupTable(((4, 3.0),)), {1: 3, 9: 3}),
        (Downey(8, 0), {1: 1, 4: 4, 8: 8, 100: 8}),
        (Downey(8, 1), {1: 1, 8: 64 / 11.5, 15: 8, 16: 8}),
        (Downey(8, 2), {1: 1, 22: 8, 23: 8}),
    ],
)
def test_speed_up_models(model, points):
    assert {n: model.at(n) for n in points} == pytest.approx(points)


@given(st.floats(1, 100), st.floats(0, 4), st.integers(1, 200))
def test_downeys_speed_up_rises_to_the_average_parallelism(average, variance, nodes):
    model = Downey(average, variance)
    assert model.at(nodes) <= model.at(nodes + 1) * (1 + 1e-9)
    assert model.at(nodes) <= min(average, nodes) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("work=60", Work(60, 0, Amdahl(0))),
        ("work=60 serial=0.25 exit=3", Work(60, 3, Amdahl(0.25))),
        ("work=60 speedup=1:1,4:3", Work(60, 0, SpeedupTable(((1, 1.0), (4, 3.0))))),
        ("work=60 downey=16,0.5", Work(60, 0, Downey(16, 0.5))),
        ("duration=7", Work(7, 0)),
    ],
)
def test_work_is_read_from_the_script(text, work):
    assert from_script(spec(mock=text)) == work if "exit" not in text else from_script(spec(mock=text, exit=3)) == work


@pytest.mark.parametrize("text", ["work=x", "work=-1", "work=1 serial=2", "work=1 speedup=4:1,2:1", "work=1 downey=0"])
def test_work_that_makes_no_sense_is_refused(text):
    with pytest.raises(Infeasible, match="#MOCK"):
        from_script(spec(mock=text))


def test_the_defaults_leave_everything_off():
    config = ClusterConfig()
    assert (config.scheduler, config.failures, config.spare_free, config.weights) == ("easy", None, False, Weights())


def test_use_counts_while_the_job_runs():
    w = World(nodes=4, weights=Weights(fairshare=1000.0, calc_period=300.0))
    w.submit(80_000, nodes=3, limit=90_000, account="a")
    w.submit(10, account="b")
    w.to(60)
    w.submit(10, account="b")
    w.to(40_000)
    w.submit(10, account="b")
    shares = w.engine.shares()
    assert shares["a"] < 0.3 < shares["b"]
    w.to(90_000)
    assert w.engine.records[1].node_seconds == pytest.approx(3 * 80_000)
