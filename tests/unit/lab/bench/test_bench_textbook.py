"""The references of penstock_lab.bench.simulate have to be right ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_lab.bench import textbook
from penstock_lab.sim.replay import replay
from penstock_lab.sim.trace import Trace

jobs = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 4), st.integers(0, 8)).map(
        lambda job: (*job[:3], job[1] + job[3])
    ),
    max_size=30,
).map(lambda found: sorted(found, key=lambda job: job[0]))


@pytest.mark.parametrize(("policy", "machine"), [("easy", textbook.Easy), ("conservative", textbook.Conservative)])
@given(found=jobs)
def test_it_is_the_policy_in_batch_order(policy, machine, found):
    trace = Trace.of((i, *job) for i, job in enumerate(found))
    assert textbook.replay(found, machine(4)) == list(replay(trace, 4, policy, "batch"))


class Replan(textbook.Conservative):
    """Takes the whole queue out and plans it anew, at every event."""

    def submit(self, now, job):
        self.queue.append(job)
        job.start = now  # nothing is taken yet
        self.change(now, now + job.estimate, -job.procs)

    def compress(self, now):
        """All is done by `schedule`."""

    def schedule(self, now):
        for job in self.queue:
            self.change(job.start, job.start + job.estimate, job.procs)
        for job in self.queue:
            self.reserve(now, job)
        return super().schedule(now)


@pytest.mark.parametrize(("policy", "machine"), [("conservative", textbook.Conservative), ("replan", Replan)])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_policy_with_long_queues_of_wide_and_narrow_jobs(policy, machine, seed):
    """Queues of dozens of jobs, so that what the fast policies leave out for good reasons is left out often."""
    rng = random.Random(seed)
    now, found = 0, []
    for _ in range(120):
        now += rng.choice((0, 1, 20, 120))
        estimate = rng.choice((20, 60, 300, 301, 900))
        found.append((now, rng.choice((estimate, rng.randint(1, estimate))), rng.choice((1, 1, 2, 7, 8, 16)), estimate))
    trace = Trace.of((i, *job) for i, job in enumerate(found))
    assert textbook.replay(found, machine(20)) == list(replay(trace, 20, policy, "batch"))
