"""The references of penstock_lab.bench.simulate have to be right ones."""

from __future__ import annotations

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
