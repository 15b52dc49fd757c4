"""What holds of the simulated scheduler whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.api import JobSpec, JobState
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig

NODES = 5

# pause before it, nodes, run time, time limit, whether it depends on the job before it
arrivals = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, NODES), st.integers(0, 60), st.integers(1, 60), st.booleans()),
    min_size=1,
    max_size=25,
)


def submit(controller, engine, nodes, run, limit, dependent):
    parent = max(engine.records, default=None)
    dependency = f"afterany:{parent}" if dependent and parent in engine.jobs else None
    script = f"#!/bin/sh\n#MOCK duration={run}\n"
    return controller.submit("alice", JobSpec("j", script, nodes, limit, dependency=dependency))


def step_through(jobs, look, accrue=False):
    """Run the arrivals event by event; `look(engine)` after each instant."""
    engine = Engine(ClusterConfig(nodes=NODES, accrue_always=accrue))
    controller = Controller(engine)

    def until(time):
        while (due := engine.next_event()) is not None and due <= time:
            engine.advance(due)
            look(engine)
        engine.advance(time)

    for pause, *rest in jobs:
        until(engine.now + pause)
        submit(controller, engine, *rest)
        engine.advance(engine.now)
        look(engine)
    until(engine.now + 10_000)
    return engine


@given(arrivals, st.booleans())
def test_no_node_is_given_twice_and_the_books_agree(jobs, accrue):
    def look(engine):
        running = [j for j in engine.jobs.values() if j.state.holds_nodes]
        names = [n for j in running for n in j.nodes]
        assert len(names) == len(set(names)) <= NODES
        assert engine.owner == {n: j.id for j in running for n in j.nodes}
        assert all(len(j.nodes) == j.spec.nodes for j in running)

    step_through(jobs, look, accrue)


@given(arrivals, st.booleans())
def test_every_job_ends_and_none_starts_before_it_may_or_runs_longer_than_it_may(jobs, accrue):
    engine = step_through(jobs, lambda engine: None, accrue)
    for job in engine.records.values():
        assert job.state in (JobState.COMPLETED, JobState.TIMEOUT)
        assert job.submit <= job.eligible <= job.start <= job.end <= job.start + job.time_limit
        if job.spec.dependency:
            assert job.start >= engine.records[int(job.spec.dependency.split(":")[1])].end


@given(arrivals)
def test_easy_never_delays_the_reservation_of_the_head(jobs):
    promised = {}

    def look(engine):
        # Nobody can overtake: all have the same QOS, so age alone decides, and without dependencies all age alike.
        for job in engine.jobs.values():
            if job.state is JobState.PENDING and job.planned is not None:
                assert job.planned <= promised.get(job.id, job.planned)
                promised[job.id] = job.planned
            elif job.id in promised and job.start is not None:
                assert job.start <= promised[job.id]

    step_through([(*rest, False) for *rest, _dependent in jobs], look)


@given(arrivals)
def test_the_same_events_give_the_same_history(jobs):
    first, second = (step_through(jobs, lambda engine: None) for _ in range(2))
    assert [j.record() for j in first.records.values()] == [j.record() for j in second.records.values()]
