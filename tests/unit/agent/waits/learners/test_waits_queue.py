"""What the queue shows of a job, and the learner that corrects the plan by it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.waits.learners.bounds import LEAST
from penstock.waits.learners.queue_learner import QueueLearner
from penstock.waits.learners.queue_view import FEATURES, LIKELY, NewJob, Past, QueueCounts, QueuedJob, View, look

NOTHING = Past(0.0, 0.0, 0.0, 0, 0)


def seen(view: View) -> dict[str, float]:
    return dict(zip(FEATURES, view.features, strict=True))


def waiting(nodes: int, limit: int, submit: int = 0, group: str = "batch", user: str = "u") -> QueuedJob:
    return QueuedJob(nodes, limit, group, user, submit)


def test_an_empty_machine_starts_everything_at_once():
    view = look(QueueCounts(1000, 8, (), ()), NewJob(4, 600, "batch", "u"), NOTHING)
    assert view.planned == 0
    assert len(view.features) == len(FEATURES)
    assert seen(view)["free"] == 8 and seen(view)["waiting"] == 0


def test_the_plan_by_hand():
    """Machine of 4; 4 nodes run until 1100; ahead of us 3 nodes for 100 s, then 4 nodes for 50 s.

    They are planned at 1100 and 1200; one node for 100 s fits beside the first, at 1100, for 200 s it comes last.
    """
    queue = QueueCounts(1000, 4, ((1100, 4),), (waiting(3, 100, 900), waiting(4, 50, 950)))
    short = look(queue, NewJob(1, 100, "batch", "u"), NOTHING)
    assert short.planned == 100
    assert look(queue, NewJob(1, 200, "batch", "u"), NOTHING).planned == 250
    numbers = seen(short)
    assert numbers["free"] == 0 and numbers["waiting"] == 2 and numbers["nodes_ahead"] == 7
    assert numbers["work_ahead"] == (300 + 200) / 4
    assert numbers["oldest"] == 100 and numbers["planned_first"] == 100


def test_the_plan_by_likely_run_times_stands_beside_the_one_by_limits():
    """Four nodes by their limit until 1100, likely until 1070; ours of 200 s then goes before the one of 4 nodes."""
    ask = NewJob(1, 200, "batch", "u")
    queue = QueueCounts(1000, 4, ((1100, 4),), (waiting(3, 100, 900), waiting(4, 50, 950)))
    nearer = QueueCounts(1000, 4, ((1070, 4),), (waiting(3, 30, 900), waiting(4, 50, 950)))
    view = look(queue, ask, NOTHING, (nearer, replace(ask, limit=20)))
    assert (view.planned, view.likely) == (250, 70)
    numbers = seen(view)
    assert numbers["limit"] == 200 and numbers["likely_limit"] == 20
    assert numbers["planned_first"] == 100 and numbers["likely_first"] == 70
    assert numbers["work_ahead"] == 125 and numbers["likely_work_ahead"] == (90 + 200) / 4
    alone = look(queue, ask, NOTHING)
    assert alone.likely == alone.planned == 250
    assert alone.features[-len(LIKELY) :] == tuple(seen(alone)[name] for name in LIKELY)


def test_a_job_too_wide_for_the_machine_has_no_plan_and_does_not_stop_the_others():
    queue = QueueCounts(1000, 4, (), (waiting(9, 100),))
    assert look(queue, NewJob(4, 600, "batch", "u"), NOTHING).planned == 0
    assert look(queue, NewJob(5, 600, "batch", "u"), NOTHING).planned is None


def test_a_job_that_should_have_ended_is_given_a_minute():
    assert look(QueueCounts(1000, 4, ((400, 4),), ()), NewJob(1, 60, "batch", "u"), NOTHING).planned == 60


def test_groups_and_peers_are_counted_apart():
    queue = QueueCounts(
        1000, 4, ((5000, 4),), (waiting(1, 60, 900), waiting(4, 60, 800, "other"), waiting(1, 9999, 950, "other"))
    )
    numbers = seen(look(queue, NewJob(2, 600, "other", "u"), NOTHING))
    assert numbers["waiting_group"] == 2 and numbers["oldest_group"] == 200
    assert numbers["peers"] == 1 and numbers["oldest_peer"] == 100


@given(
    st.lists(st.tuples(st.integers(1000, 90_000), st.integers(1, 4)), max_size=10),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20_000)), max_size=20),
    st.integers(1, 16),
    st.integers(1, 20_000),
)
def test_whatever_stands_in_the_queue_the_plan_fits_the_machine(running, queued, nodes, limit):
    held = sum(count for _, count in running)
    queue = QueueCounts(1000, max(16, held), sorted(running), [waiting(n, t) for n, t in queued])
    view = look(queue, NewJob(nodes, limit, "batch", "u"), NOTHING)
    assert view.planned is not None and view.planned >= 0
    assert all(math.isfinite(x) for x in view.features)
    alone = look(QueueCounts(1000, queue.nodes, queue.running, ()), NewJob(nodes, limit, "batch", "u"), NOTHING)
    assert alone.planned is not None and alone.planned <= view.planned


def view_of(work: float) -> View:
    """A view in which only the work ahead says something, and the plan is always wrong."""
    features = [0.0] * len(FEATURES)
    features[FEATURES.index("work_ahead")] = work
    return View(tuple(features), 7.0)


def taught(examples: int = 600) -> QueueLearner:
    rng, learner = np.random.default_rng(5), QueueLearner()
    for work in rng.uniform(0, 1000, examples).tolist():
        learner.add(view_of(work), 1000.0 if work > 500 else 10.0)
        if learner.due:
            learner.refit()
    return learner


def test_until_it_knows_enough_the_plan_stands():
    learner = QueueLearner()
    for _ in range(299):
        learner.add(view_of(1.0), 1000.0)
    assert not learner.due
    assert learner.expect(view_of(1.0)) == 7.0
    assert learner.expect(View(view_of(1.0).features, None)) is None
    assert learner.expect(View(view_of(1.0).features, 0.0)) == LEAST
    assert learner.expect(View(view_of(1.0).features, 7.0, 3.0)) == 3.0, "by likely run times"
    learner.add(view_of(1.0), 1000.0)
    assert learner.due


def test_it_learns_what_the_queue_tells():
    learner = taught()
    assert learner.expect(view_of(900.0)) == pytest.approx(1000, rel=0.2)
    assert learner.expect(view_of(100.0)) == pytest.approx(10, rel=0.2)


def test_it_is_fitted_anew_after_ever_more_examples():
    learner, fits = QueueLearner(), []
    for i in range(1500):
        learner.add(view_of(float(i)), 10.0)
        if learner.due:
            fits.append(i + 1)
            learner.refit()
    assert fits == [300, 600, 900, 1350]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_the_state_goes_through_json(work):
    learner = _TAUGHT
    again = QueueLearner()
    again.restore(json.loads(json.dumps(learner.to_state())))
    assert again.expect(view_of(work)) == pytest.approx(learner.expect(view_of(work)), rel=0.01)
    assert not again.due and again.to_state()["fits"] == learner.to_state()["fits"]


_TAUGHT = taught(400)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"features": ["other"]},
        {"examples": [[1.0]]},
        {"examples": None},
        {"model": {}},
        {"fits": "x"},
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change):
    learner = QueueLearner()
    with pytest.raises(ValueError, match="queue state"):
        learner.restore({**_TAUGHT.to_state(), **change})
    assert learner.expect(view_of(900.0)) == 7.0


def test_the_learner_knows_how_far_waits_fall_from_what_it_said():
    learner = QueueLearner()
    assert learner.bound(100.0) is None
    for _ in range(30):
        learner.add(view_of(1.0), 300.0, 100.0)
    assert learner.bound(100.0) == pytest.approx(300, rel=1e-3)
    again = QueueLearner()
    again.restore(json.loads(json.dumps(learner.to_state())))
    assert again.bound(100.0) == learner.bound(100.0)
