"""The replay of a queue's future, against the laboratory's EASY and by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from factories import NODES, make_job, make_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api import Partition, Reservation
from penstock.core.pace import at_once
from penstock.future.cluster import Cluster
from penstock.future.present import Present, Running, Waiting
from penstock.future.replay import Arrival, OwnJob, Span, replay
from penstock_lab.sim.replay import replay as in_the_laboratory
from penstock_lab.sim.trace import Trace


@dataclass
class Given:
    """A future that is said."""

    ends: Sequence[float] = ()
    runs: Sequence[float] = ()
    arrivals: Sequence[Arrival] = ()

    def arrival(self, i):
        return self.arrivals[i] if i < len(self.arrivals) else None


def present(procs, running=(), waiting=(), now=0.0):
    """One area: running as (nodes, end by the limit), waiting as (nodes, limit)."""
    held = tuple(Running((n,), now, end - now, end) for n, end in running)
    queue = tuple(Waiting(n, 0, limit, now) for n, limit in waiting)
    return Present(now, (1,), ((0,),), (procs - sum(n for n, _ in running),), held, queue, (), {"batch": 0})


def spans(*args, **options):
    return at_once(replay(*args, **options))


@st.composite
def traces(draw):
    procs = draw(st.integers(1, 12))
    jobs = draw(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(1, procs), st.integers(1, 30), st.integers(0, 30)),
            min_size=1,
            max_size=25,
        )
    )
    return procs, [(submit, nodes, run, run + more) for submit, nodes, run, more in sorted(jobs, key=lambda j: j[0])]


def _agrees(procs, jobs, ours):
    """Whether the job at place `ours` starts when the laboratory has it start; those before it in the same second, too.

    Ours are submitted at the beginning, so all jobs before it in the trace wait at that moment.
    """
    trace = Trace.of((i, submit, run, nodes, limit) for i, (submit, nodes, run, limit) in enumerate(jobs))
    starts = in_the_laboratory(trace, procs, "easy", ties="batch")
    waiting, mine, coming = jobs[:ours], jobs[ours], jobs[ours + 1 :]
    drawn = Given(
        runs=[float(run) for _, _, run, _ in waiting],
        arrivals=[Arrival(float(s), n, 0, float(limit), float(run)) for s, n, run, limit in coming],
    )
    seen = present(procs, waiting=[(nodes, float(limit)) for _, nodes, _, limit in waiting])
    found = spans(seen, drawn, [OwnJob(mine[1], float(mine[3]), float(mine[2]))])
    assert found[0].start == starts[ours]
    assert found[0].end == starts[ours] + mine[2]


@settings(deadline=None, max_examples=150)
@given(traces(), st.integers(0, 24))
def test_it_agrees_with_the_laboratory_to_the_second(drawn, place):
    procs, jobs = drawn
    ours = min(place, len(jobs) - 1)
    jobs = [(0 if i <= ours else max(submit, 1), *rest) for i, (submit, *rest) in enumerate(jobs)]
    _agrees(procs, jobs, ours)


def test_it_agrees_on_a_longer_queue():
    rng = random.Random(5)
    jobs = []
    for i in range(400):
        run = rng.randint(1, 3000)
        submit = 0 if i < 80 else 1 + (i - 80) * 40
        jobs.append((submit, rng.choice((1, 1, 2, 4, 8, 16, 30)), run, rng.randint(run, 4 * run)))
    for ours in (0, 20, 79):
        _agrees(32, jobs, ours)
