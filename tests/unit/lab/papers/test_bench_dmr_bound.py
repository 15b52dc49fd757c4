"""The bound on mean completion: nobody gets below it, and it is near what can be had where that is known."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_lab.papers.dmr.bound import Elastic, least_mean_completion
from penstock_lab.papers.dmr.table4 import bound
from penstock_planning.select.speedup import Amdahl


def amdahl(submit, alone, serial, sizes):
    curve = Amdahl(serial)
    return Elastic(submit, {n: alone / curve.at(n) for n in sizes})


def completion(jobs, choose):
    """Mean completion where `choose(jobs there, work left)` says the nodes of each between any two events."""
    left, ends, now = dict.fromkeys(range(len(jobs)), 1.0), {}, 0.0
    while left:
        there = [i for i in left if jobs[i].submit <= now]
        coming = [jobs[i].submit for i in left if jobs[i].submit > now]
        sizes = choose(there, left) if there else {}
        rates = {i: 1 / jobs[i].seconds[n] for i, n in sizes.items() if n}
        dues = [left[i] / rate for i, rate in rates.items()] + [s - now for s in coming]
        assert dues, "somebody works, or somebody comes"
        step = min(dues)
        for i, rate in rates.items():
            left[i] -= step * rate
        now += step
        for i in [i for i in left if left[i] <= 1e-9]:
            ends[i] = now
            del left[i]
    return sum(ends[i] - jobs[i].submit for i in ends) / len(jobs)


def shares(jobs, nodes, there):
    """All ways to give these jobs nodes at once."""
    options = [[0, *(n for n in jobs[i].seconds if n <= nodes)] for i in there]
    return [dict(zip(there, sizes, strict=True)) for sizes in product(*options) if 0 < sum(sizes) <= nodes]


def best(jobs, nodes):
    """The least mean completion of all schedules that change sizes only when a job comes or ends."""

    def least(now, left, total):
        if not left:
            return total
        there = [i for i in left if jobs[i].submit <= now]
        coming = [jobs[i].submit for i in left if jobs[i].submit > now]
        if not there:
            return least(min(coming), left, total)
        found = float("inf")
        for sizes in shares(jobs, nodes, there):
            rates = {i: 1 / jobs[i].seconds[n] for i, n in sizes.items() if n}
            step = min([left[i] / rate for i, rate in rates.items()] + [s - now for s in coming])
            after = {i: work - step * rates.get(i, 0.0) for i, work in left.items()}
            done = [i for i, work in after.items() if work <= 1e-9]
            late = total + sum(now + step - jobs[i].submit for i in done)
            if late < found:
                found = min(found, least(now + step, {i: w for i, w in after.items() if i not in done}, late))
        return found

    return least(0.0, dict.fromkeys(range(len(jobs)), 1.0), 0.0) / len(jobs)


def test_one_job_alone_is_as_quick_as_it_can_be():
    assert least_mean_completion([amdahl(70.0, 1000.0, 0.1, range(1, 9))], 16) == pytest.approx(190.0 + 22.5)


def test_a_size_that_is_no_quicker_is_of_no_use():
    assert least_mean_completion([Elastic(0.0, {1: 100.0, 2: 100.0})], 4) == pytest.approx(100.0)


def test_one_after_the_other_on_one_node():
    jobs = [Elastic(0.0, {1: seconds}) for seconds in (100.0, 200.0, 400.0)]
    assert 0.95 * (100 + 300 + 700) / 3 < least_mean_completion(jobs, 1) <= (100 + 300 + 700) / 3


def test_jobs_that_scale_perfectly_go_one_after_the_other():
    jobs = [amdahl(0.0, 800.0, 0.0, range(1, 9)) for _ in range(6)]
    assert 0.95 * 350.0 < least_mean_completion(jobs, 8) <= 350.0


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.0, 50.0, 200.0]), st.floats(50, 500), st.floats(0, 1)), min_size=1, max_size=3
    ),
)
def test_no_schedule_of_few_jobs_is_better(nodes, rows):
    jobs = [amdahl(submit, alone, serial, range(1, 4)) for submit, alone, serial in rows]
    assert least_mean_completion(jobs, nodes, rounds=12) <= best(jobs, nodes) * (1 + 1e-9)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(4, 16),
    st.lists(st.tuples(st.floats(0, 500), st.floats(50, 2000), st.floats(0, 1)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_no_simulated_schedule_is_better(nodes, rows, random):
    jobs = [amdahl(submit, alone, serial, range(1, 9)) for submit, alone, serial in rows]

    def choose(there, _left):
        sizes, free = {}, nodes
        for i in random.sample(there, len(there)):
            sizes[i] = min(random.randint(1, 8), free)
            free -= sizes[i]
        return sizes

    least = least_mean_completion(jobs, nodes, rounds=8)
    for _ in range(3):
        assert least <= completion(jobs, choose) * (1 + 1e-9)


def test_more_rounds_find_a_higher_bound():
    jobs = [amdahl(10.0 * i, 1000.0, 0.2, range(1, 9)) for i in range(30)]
    assert least_mean_completion(jobs, 16, rounds=0) < least_mean_completion(jobs, 16)


def test_of_the_papers_workload():
    assert 1230 < bound(50) < 1260


@pytest.mark.parametrize("jobs", [[], [Elastic(0.0, {})], [Elastic(0.0, {0: 1.0})], [Elastic(0.0, {9: 1.0})]])
def test_what_cannot_run_has_no_bound(jobs):
    with pytest.raises(ValueError, match="needs a size"):
        least_mean_completion(jobs, 8)
