"""Jobs that take a range of nodes: they start on what is free, from the fewest to the most."""

from __future__ import annotations

import pytest

from penstock.api import JobSpec, JobState
from penstock.errors import Infeasible
from penstock_lab.mock.backend import virtual_cluster
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.model import ClusterConfig, Scheduler


def cluster(**more):
    backend = virtual_cluster(ClusterConfig(nodes=8, **more))
    return backend, Controller(backend.engine)


def submit(door, most, fewest=None, seconds=100.0, limit=1000.0):
    script = f"#!/bin/sh\n#MOCK duration={seconds}\n"
    return door.submit("alice", JobSpec("job", script, most, limit, min_nodes=fewest))


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_it_starts_on_as_many_as_are_free(scheduler):
    backend, door = cluster(scheduler=scheduler)
    numbers = [submit(door, 6), submit(door, 8, 1), submit(door, 8, 1)]
    backend.clock.settle()
    jobs = [backend.engine.job(n) for n in numbers]
    assert [len(j.nodes) for j in jobs] == [6, 2, 0]
    assert (jobs[2].view(1, 2, 0.0).num_nodes, jobs[2].view(1, 2, 0.0).min_nodes) == (8, 1)
    assert jobs[1].view(1, 2, 0.0).min_nodes is None, "what it could have started on is over"
    backend.clock.advance_to(100.0)
    assert [j.state for j in jobs] == [JobState.COMPLETED, JobState.COMPLETED, JobState.RUNNING]
    assert len(jobs[2].nodes) == 8


def test_one_behind_gets_no_more_than_leaves_a_promise_alone():
    backend, door = cluster(scheduler=Scheduler.EASY)
    submit(door, 5, seconds=100.0, limit=100.0)
    first = submit(door, 7)  # promised seven nodes at 100
    late = submit(door, 3, 1, seconds=500.0, limit=500.0)  # runs beyond that, on the one that is left over
    backend.clock.settle()
    assert backend.engine.job(first).state is JobState.PENDING
    assert len(backend.engine.job(late).nodes) == 1


def test_a_range_that_is_none():
    _, door = cluster()
    for fewest in (0, 5):
        with pytest.raises(Infeasible, match="Node count"):
            submit(door, 4, fewest)
