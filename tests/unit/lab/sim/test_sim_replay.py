"""Policies and tie orders on traces small enough to follow by hand, and what has to hold on any trace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock_lab.sim.replay import POLICIES, TIES, replay
from penstock_lab.sim.score import score
from penstock_lab.sim.trace import Trace

PROCS = 4


def starts(jobs, policy, ties="batch"):
    """Starts of (submit, run, procs, estimate) on four processors, in the order of the list."""
    trace = Trace.of((i, *job) for i, job in enumerate(jobs))
    by_id = dict(zip(trace.ids, replay(trace, PROCS, policy, ties), strict=True))
    return [by_id[i] for i in range(len(jobs))]


# 0 runs on three of four; 1 needs all; 2 fits beside 0 and ends in time; 3 fits beside 0 and would delay 1.
QUEUE = [(0, 10, 3, 10), (1, 5, 4, 5), (2, 8, 1, 8), (3, 20, 1, 20)]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", [0, 10, 15, 15]),
        ("easy", [0, 10, 2, 15]),
        ("conservative", [0, 10, 2, 15]),
        ("replan", [0, 10, 2, 15]),
    ],
)
def test_who_overtakes_whom(policy, ties, expected):
    assert starts(QUEUE, policy, ties) == expected


@pytest.mark.parametrize("ties", TIES)
def test_easy_lets_a_long_job_use_the_processors_that_the_head_leaves(ties):
    # The head needs three at 10, so one processor is extra, once: job 2 gets it, job 3 does not.
    jobs = [(0, 10, 2, 10), (1, 5, 3, 5), (2, 50, 1, 50), (3, 50, 1, 50)]
    assert starts(jobs, "easy", ties) == [0, 10, 2, 15]


@pytest.mark.parametrize("ties", TIES)
def test_easy_counts_all_that_end_at_the_shadow_as_extra(ties):
    # Both running jobs end at 10; the first alone would be enough for the head.
    jobs = [(0, 10, 1, 10), (0, 10, 2, 10), (1, 5, 2, 5), (2, 50, 1, 50)]
    assert starts(jobs, "easy", ties) == [0, 0, 10, 2]


@pytest.mark.parametrize("ties", TIES)
def test_easy_may_delay_the_second_in_the_queue_and_conservative_may_not(ties):
    # 1 is the head (at 10, three wide, one extra); 2 is promised 15; 3 takes the extra one for long.
    jobs = [(0, 10, 3, 10), (1, 5, 3, 5), (2, 5, 4, 5), (3, 30, 1, 30)]
    assert starts(jobs, "easy", ties) == [0, 10, 33, 3]
    assert starts(jobs, "conservative", ties) == [0, 10, 15, 20]
    assert starts(jobs, "replan", ties) == [0, 10, 15, 20]


# 0 ends at 4 and said 10. Planned before: 1 at 10, 2 at 15.
EARLY = [(0, 4, 4, 10), (1, 5, 4, 5), (2, 5, 2, 5)]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_an_early_end_is_used(policy, ties):
    assert starts(EARLY, policy, ties) == [0, 4, 9]


@pytest.mark.parametrize("ties", TIES)
def test_conservative_keeps_promises_that_replan_breaks_and_compresses_at_every_end(ties):
    # Two wide each: 0 says 10 and ends at 4, 1 runs until 6. Job 2 (all four, 10 s) is promised 10, job 3 (two wide,
    # 4 s) 6, ahead of it.
    jobs = [(0, 4, 2, 10), (0, 6, 2, 6), (1, 10, 4, 10), (2, 4, 2, 4)]
    assert starts([(0, 10, 2, 10), *jobs[1:]], "conservative", ties) == [0, 0, 10, 6]
    # At 4, job 2 is put back first and finds the promise to 3 in its way; 3 then moves to 4. The hole this leaves is
    # found at the next end, that of 1 at 6, though it was estimated exactly: job 2 moves to 8.
    assert starts(jobs, "conservative", ties) == [0, 0, 8, 4]
    # Replan asks job 2 first, and nobody's promise is in its way.
    assert starts(jobs, "replan", ties) == [0, 0, 6, 16]


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_ties_decide_whether_a_newcomer_meets_the_old_queue(policy):
    # At 4 job 0 ends early (it said 20) and 2, short and one wide, is submitted. One processor is free all along.
    jobs = [(0, 4, 3, 20), (1, 6, 4, 6), (4, 6, 1, 6)]
    # batch: first the end, so that job 1 (all four) starts at once, and 2 waits for it.
    assert starts(jobs, policy, "batch") == [0, 4, 10]
    # pyss: 2 comes first, sees job 0 until 20, and starts on the free processor; then 1 has to wait for it.
    assert starts(jobs, policy, "pyss") == [0, 10, 4]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_processors_estimated_to_be_free_now_are_free_for_a_job_submitted_now(policy, ties):
    assert starts([(0, 5, 4, 5), (5, 1, 4, 1)], policy, ties) == [0, 5]


def test_pyss_ends_jobs_of_the_same_second_in_the_order_in_which_they_began_each_with_a_pass():
    # 0 and 1 end early at 4. After 0 alone: two free, shadow of the head (4 wide) is 8, so job 3 (two wide, 4 s)
    # starts; only then does 1 end, and the head has lost its chance.
    jobs = [(0, 4, 2, 9), (0, 4, 2, 8), (1, 5, 4, 5), (2, 4, 2, 4)]
    assert starts(jobs, "easy", "pyss") == [0, 0, 8, 4]
    assert starts(jobs, "easy", "batch") == [0, 0, 4, 9]


def test_jobs_of_the_same_second_keep_the_order_of_the_log():
    assert starts([(3, 5, 4, 5), (3, 5, 4, 5), (0, 4, 4, 4)], "fcfs") == [4, 9, 0]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_jobs_is_no_starts(policy, ties):
    assert list(replay(Trace(), PROCS, policy, ties)) == []


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ((1, 0, 5, 5, 5), "job 1 needs 5 processors and the machine has 4"),
        ((1, 0, 5, 0, 5), "job 1: 0 processors"),
        ((1, 0, 0, 1, 5), "run 0 s"),
        ((1, 0, 6, 1, 5), "run 6 s, estimate 5 s"),
        ((1, -1, 5, 1, 5), "before 0"),
        ((1, 0, 1, 1, 1 << 60), "add up"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused(job, says):
    with pytest.raises(UserError, match=says):
        replay(Trace.of([job]), PROCS, "fcfs")


def test_score_by_hand():
    # Waits 0 and 10; runs 10 and 5 (bounded at 10): slowdowns 1 and 1.5. 10 s on 4 and 5 s on 2 of 4 for 15 s.
    trace = Trace.of([(20, 0, 10, 4, 10), (3, 0, 5, 2, 5)])
    result = score(trace, replay(trace, PROCS, "fcfs"), PROCS)
    assert (result.jobs, result.total_wait, result.mean_wait, result.mean_slowdown) == (2, 10, 5.0, 1.25)
    assert result.utilisation == pytest.approx(50 / 60)
    # printf '3 10\n20 0\n' | sha256sum
    assert result.sha256 == "09b72da61c2975d9aa99a426a4de4a3b842679771d1ac713b9c0328217aadfd8"


widths, lengths = st.integers(1, PROCS), st.integers(1, 12)
exact_jobs = st.lists(
    st.tuples(st.integers(0, 30), lengths, widths).map(lambda j: (j[0], j[1], j[2], j[1])), min_size=1, max_size=25
)
inexact_jobs = st.lists(
    st.tuples(st.integers(0, 30), lengths, widths, st.integers(0, 8)).map(lambda j: (*j[:3], j[1] + j[3])),
    min_size=1,
    max_size=25,
)
policies, tie_orders = st.sampled_from(sorted(POLICIES)), st.sampled_from(TIES)


@given(inexact_jobs, policies, tie_orders)
def test_nobody_starts_early_and_the_machine_is_never_overfull(jobs, policy, ties):
    begun = starts(jobs, policy, ties)
    assert all(start >= job[0] for start, job in zip(begun, jobs, strict=True))
    for now in begun:
        busy = sum(job[2] for start, job in zip(begun, jobs, strict=True) if start <= now < start + job[1])
        assert busy <= PROCS


@given(exact_jobs)
def test_with_exact_estimates_replan_is_conservative_and_ties_do_not_matter(jobs):
    jobs.sort(key=lambda job: job[0])
    for policy in POLICIES:
        assert starts(jobs, policy, "pyss") == starts(jobs, policy, "batch")
    assert starts(jobs, "replan") == starts(jobs, "conservative")


@given(exact_jobs, tie_orders)
def test_easy_never_delays_its_heads_reservation(jobs, ties):
    """Whoever heads the queue at some second starts no later than the running jobs of that second allow."""
    jobs.sort(key=lambda job: job[0])
    begun = starts(jobs, "easy", ties)
    n = range(len(jobs))
    for now in sorted({*begun, *(job[0] for job in jobs)}):
        waiting = [i for i in n if jobs[i][0] <= now < begun[i]]
        if not waiting:
            continue
        head = waiting[0]
        running = [i for i in n if begun[i] <= now < begun[i] + jobs[i][1]]
        for shadow in sorted(begun[i] + jobs[i][1] for i in running):
            left = sum(jobs[i][2] for i in running if begun[i] + jobs[i][1] > shadow)
            if PROCS - left >= jobs[head][2]:
                break
        assert begun[head] <= shadow


@given(inexact_jobs, tie_orders)
def test_conservative_never_starts_a_job_later_than_first_promised(jobs, ties):
    trace = Trace.of((i, *job) for i, job in enumerate(jobs))
    policy = _Promises(trace, PROCS)
    POLICIES["watched"] = lambda *_: policy
    try:
        begun = replay(trace, PROCS, "watched", ties)
    finally:
        del POLICIES["watched"]
    assert all(start <= policy.first[job] for job, start in enumerate(begun))


class _Promises(POLICIES["conservative"]):
    """Conservative that remembers the first promise to each job."""

    def __init__(self, trace, procs):
        super().__init__(trace, procs)
        self.first = {}

    def _promise(self, job, begin):
        self.first.setdefault(job, begin)
        super()._promise(job, begin)


def naive(jobs, policy, ties):
    """The policies as the definitions say it, second by second, over an array of free processors. Slow and plain."""
    jobs = sorted(jobs, key=lambda job: job[0])
    horizon = 31 + sum(job[3] for job in jobs) + 1
    begun, promised, waiting, over = {}, {}, [], set()

    def free(now, also=()):
        """Free processors by second, by the running jobs' estimates and these (job, begin)."""
        line = [PROCS] * (2 * horizon)
        held = [(i, s) for i, s in begun.items() if i not in over]
        for i, s in [*held, *also]:
            for t in range(s, s + jobs[i][3]):
                line[t] -= jobs[i][2]
        return line

    def hole(line, i, now):
        return next(t for t in range(now, horizon) if min(line[t : t + jobs[i][3]]) >= jobs[i][2])

    def launch(i, now):
        waiting.remove(i)
        promised.pop(i, None)
        begun[i] = now

    def one_pass(now):
        if policy == "easy":
            while waiting and hole(free(now), waiting[0], now) == now:
                launch(waiting[0], now)
            for i in waiting[1:]:
                head = (waiting[0], hole(free(now), waiting[0], now))
                if hole(free(now, [head]), i, now) == now:
                    launch(i, now)
        elif policy == "replan":
            plan = []
            for i in waiting:
                plan.append((i, hole(free(now, plan), i, now)))
            for i, at in plan:
                if at == now:
                    launch(i, now)
        else:
            for i in list(waiting):
                if promised[i] <= now:
                    launch(i, now)

    def compress(now):
        for i in waiting:
            del promised[i]
            promised[i] = hole(free(now, promised.items()), i, now)

    def arrive(i, now):
        waiting.append(i)
        if policy == "conservative":
            promised[i] = hole(free(now, promised.items()), i, now)

    for now in range(horizon):
        ended = [i for i, s in begun.items() if i not in over and s + jobs[i][1] == now]
        new = [i for i, job in enumerate(jobs) if job[0] == now]
        if ties == "batch":
            over.update(ended)
            if ended and policy == "conservative":
                compress(now)
            for i in new:
                arrive(i, now)
            one_pass(now)
            continue
        for i in new:
            arrive(i, now)
            one_pass(now)
        for i in ended:
            over.add(i)
            if policy == "conservative":
                compress(now)
            one_pass(now)
        one_pass(now)
    return [begun[i] for i in range(len(jobs))]


@given(inexact_jobs, st.sampled_from(["easy", "conservative", "replan"]), tie_orders)
def test_the_same_as_a_naive_simulator(jobs, policy, ties):
    jobs.sort(key=lambda job: job[0])
    assert starts(jobs, policy, ties) == naive(jobs, policy, ties)
