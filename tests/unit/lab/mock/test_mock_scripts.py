"""What the simulated Slurm reads from a script, and jobs whose work is not under way yet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mock_world import World, spec

from penstock.api import JobSpec
from penstock.errors import Infeasible
from penstock_lab.mock.controller import Controller
from penstock_lab.mock.durations import from_script
from penstock_lab.mock.engine import Engine
from penstock_lab.mock.model import ClusterConfig
from penstock_lab.mock.speedup import Work


def script(body, **more):
    return replace(spec(**more), script=f"#!/bin/sh\n{body}\n")


@pytest.mark.parametrize(
    "body",
    [
        "#MOCK duration=abc",
        "#MOCK duration=nan",
        "#MOCK exit=one",
        "#MOCK work=10 speedup=1:0",
        "#MOCK work=10 speedup=1:inf,2:inf",
        "#MOCK work=10 downey=inf",
        "#PENSTOCK-GUARD jobs=, grace=5",
        "#PENSTOCK-GUARD jobs=1 grace=1.2.3",
        "#PENSTOCK-GUARD jobs=1",
    ],
)
def test_directives_that_make_no_sense_are_refused_at_submission(body):
    w = World(nodes=1)
    with pytest.raises(Infeasible):
        w.do("submit", script(body))
    with pytest.raises(Infeasible):
        w.controller.estimate("alice", script(body))
    assert not w.engine.records
    job = w.submit(10)
    w.to(10)
    assert w.state(job) == "COMPLETED"


@pytest.mark.parametrize(
    ("body", "work"),
    [
        ("sleep 1.2.3", Work(0.0)),
        ("sleep .\nsleep 3", Work(3.0)),
        (f"sleep 2\nexit {'9' * 5000}", Work(2.0)),
    ],
)
def test_a_line_that_only_the_shell_refuses_is_taken(body, work):
    assert from_script(script(body)) == work
    w = World(nodes=1)
    job, after = w.do("submit", script(body)), w.submit(5)
    w.to(50)
    assert (w.state(job), w.state(after)) == ("COMPLETED", "COMPLETED")


def test_a_real_cluster_takes_directives_for_comments():
    controller = Controller(Engine(ClusterConfig(), duration=None))
    assert controller.submit("alice", script("#MOCK duration=abc\n#PENSTOCK-GUARD jobs=, grace=5")) == 1


def test_a_job_whose_work_cannot_be_told_ends_at_its_limit():
    def unknown(_spec: JobSpec) -> Work:
        raise RuntimeError("nobody knows")

    engine = Engine(ClusterConfig(nodes=1), duration=unknown)
    job = Controller(engine).submit("alice", spec(limit=100.0))
    with pytest.raises(RuntimeError):
        engine.advance(0)
    engine.advance(100)
    assert (engine.records[job].state, engine.records[job].end) == ("TIMEOUT", 100)


def test_a_long_grace_is_read():
    """`{:g}` writes a million seconds as 1e+06."""
    w = World(nodes=2)
    parent = w.submit(50, limit=100)
    child = w.do("submit", script(f"#PENSTOCK-GUARD jobs={parent} grace=1e+06\n#MOCK duration=10", limit=1000.0))
    w.to(40)
    assert w.state(child) == "RUNNING"
    w.to(70)
    assert 60 <= w.engine.records[child].end <= 61


def test_a_guarded_malleable_job_can_be_resized_before_its_work_begins():
    w = World(nodes=4)
    parent = w.submit(1000, limit=2000)
    body = f"#PENSTOCK-GUARD jobs={parent} grace=6000\n#MOCK work=2000"
    child = w.do("submit", script(body, nodes=3, limit=86400.0))
    w.to(10)
    w.do("shrink", child, w.view(child).nodes[:2])
    w.to(500)
    assert w.state(child) == "RUNNING"
    w.to(3000)
    assert 2000 <= w.engine.records[child].end <= 2001


def test_a_requeued_malleable_job_begins_its_work_anew():
    w = World(nodes=4, requeue_delay=0.0)
    parent = w.submit(100, limit=2000)
    body = f"#PENSTOCK-GUARD jobs={parent} grace=6000\n#MOCK work=2000"
    child = w.do("submit", script(body, nodes=2, limit=86400.0, requeue=True))
    w.to(200)  # its work is under way
    late = w.submit(5000, limit=9000)
    w.engine.records[child].spec = script(body.replace(f"jobs={parent}", f"jobs={late}"), requeue=True, nodes=2)
    w.do("requeue", child)
    w.do("shrink", child, w.view(child).nodes[:1])
    w.to(4000)
    assert w.state(child) == "RUNNING"
