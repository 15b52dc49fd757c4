"""Attempts that fail: repeated as the stage allows, away from broken nodes, with longer limits; then the run fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_workflow_runner import Driver, job, record, view

from penstock.workflow.metrics import run_metrics
from penstock.workflow.model import Stage, Workflow
from penstock.workflow.phases import RunPhase
from penstock.workflow.run.instructions import Submit


def flow(retries=0):
    return Workflow("w", (Stage("a", 2, 600, 100, "x", retries=retries), Stage("b", 1, 600, 100, "x", ("a",))))


def attempt(d, now, number, state, **fields):
    """The first stage is submitted at `now` as job `number`, runs 60 s and ends so; what the next look then orders."""
    (order,) = [i for i in d.step(now) if isinstance(i, Submit)]
    d.run = d.runner.submitted(d.run, "a", number, now)
    d.step(now + 10, job(number, "RUNNING", submit=now, eligible=now, start=now, nodes=("n3", "n4")))
    ended = job(number, state, submit=now, eligible=now, start=now, end=now + 60, nodes=("n3", "n4"))
    return order, d.step(now + 70, replace(ended, **fields))


def test_without_retries_a_failure_fails_the_workflow():
    d = Driver("perstage", flow())
    attempt(d, 1000, 1, "FAILED")
    assert d.run.phase is RunPhase.FAILED and d.run.why == "a: job 1 ended FAILED"


def test_a_failed_attempt_is_repeated_after_a_pause_as_often_as_allowed():
    d = Driver("perstage", flow(retries=1))
    _, out = attempt(d, 1000, 1, "FAILED")
    assert not [i for i in out if isinstance(i, Submit)] and "back-off" in d.notes
    assert d.runner.next_wake(d.run, 1070) == 1075
    order, _ = attempt(d, 1080, 2, "FAILED")
    assert order.spec.name.startswith("a.penstock.7.2.") and order.spec.time_limit == 600
    assert d.run.phase is RunPhase.FAILED and d.run.stage("a").retries == 1
    assert run_metrics(d.run).node_hours == pytest.approx(2 * 2 * 60 / 3600), "both attempts were paid for"


def test_a_job_that_somebody_cancelled_is_not_repeated():
    d = Driver("perstage", flow(retries=3))
    attempt(d, 1000, 1, "CANCELLED")
    assert d.run.phase is RunPhase.FAILED


def test_an_attempt_that_ran_into_its_limit_gets_more_time():
    d = Driver("perstage", flow(retries=5))
    d.run = replace(d.run, max_time=1000.0)
    limits = []
    for number in (1, 2, 3):
        order, _ = attempt(d, 1000 * number, number, "TIMEOUT")
        limits.append(order.spec.time_limit)
    assert limits == [600, 900, 1000] and d.run.phase is RunPhase.FAILED, "there is no more time than the partition's"


def test_a_node_failure_costs_no_retry_and_the_node_is_avoided():
    d = Driver("perstage", flow())
    (order,) = [i for i in d.step(1000) if isinstance(i, Submit)]
    d.run = d.runner.submitted(d.run, "a", 1, 1000.0)
    d.step(1010, job(1, "RUNNING", start=1000.0, nodes=("n3", "n4")))
    lost = view(1070, job(1, "NODE_FAIL", start=1000.0, end=1060.0, nodes=("n3", "n4")))
    d.run = d.runner.step(d.run, replace(lost, down=frozenset({"n4", "n9"})), 1070, d.predict).run
    assert order.spec.exclude == () and d.run.stage("a").exclude == ("n4",)
    (order,) = [i for i in d.step(1080) if isinstance(i, Submit)]
    assert order.spec.exclude == ("n4",)
    d.run = d.runner.submit_failed(d.run, "a", True, "Requested node configuration is not available", 1080.0)
    (order,) = [i for i in d.step(1100) if isinstance(i, Submit)]
    assert order.spec.exclude == (), "rather on that node than not at all"


def test_nodes_that_fail_again_and_again_fail_the_workflow():
    d = Driver("perstage", flow())
    for number in range(1, 5):
        attempt(d, 1000 * number, number, "NODE_FAIL")
    assert d.run.phase is RunPhase.FAILED and d.run.stage("a").mishaps == 3


def test_a_day_away():
    """The agent comes back when its job has left Slurm's memory: accounting says what became of it, and it goes on."""
    d = Driver("asa", flow(), estimates=(50.0, 33.0))
    d.submit(1000, 1)
    assert [type(i).__name__ for i in d.step(87_400)] == ["Lookup"]
    out = d.step(87_405, record(1, "COMPLETED", start=1100.0, end=1200.0))
    (order,) = [i for i in out if isinstance(i, Submit)]
    assert (order.stage, order.spec.dependency) == ("b", None)


def test_a_day_away_and_the_parent_failed():
    d = Driver("asa", flow(), estimates=(50.0, 33.0))
    d.submit(1000, 1)
    d.step(87_400)
    out = d.step(87_405, record(1, "FAILED", start=1100.0, end=1200.0, exit_code=3))
    assert not [i for i in out if isinstance(i, Submit)]
    assert (d.run.phase, d.run.why) == (RunPhase.FAILED, "a: job 1 ended FAILED with exit code 3")
